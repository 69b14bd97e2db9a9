"""Small layers that encoders and decoders of every task share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class ResidualLayers(nn.ModuleList):
    """s + W_2 relu(W_1 s + b_1) + b_2, so many times, each with weights of its own."""

    def __init__(self, size: int, hidden: int, layers: int = 2) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, size))
            for _ in range(layers)
        )

    def forward(self, state_BH: Tensor) -> Tensor:
        for layer in self:
            state_BH = state_BH + layer(state_BH)
        return state_BH


def shared_dropout(values_TBK: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout with one mask for all steps, so that no step looks worse than another by noise."""
    if not training or rate == 0:
        return values_TBK
    return values_TBK * F.dropout(values_TBK.new_ones(values_TBK.shape[1:]), rate)
