"""Small layers that encoders and decoders of every task share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.distributed import Share


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


class Dropout(nn.Module):
    """Dropout with one mask for all steps, so that no step looks worse than another by noise.

    A process of several draws the mask of the whole batch, and takes the rows of its part.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.share = Share()

    def forward(self, values_BK: Tensor) -> Tensor:
        """The same for (B, K) and for (T, B, K)."""
        if not self.training or self.rate == 0:
            return values_BK
        rows, size = values_BK.shape[-2:]
        mask_BK = F.dropout(values_BK.new_ones(self.share.rows_of_all or rows, size), self.rate)
        return values_BK * mask_BK[self.share.rows]


def divide_dropout(model: nn.Module, share: Share) -> None:
    """Tell a model's dropout which part of a batch comes next."""
    for layer in model.modules():
        if isinstance(layer, Dropout):
            layer.share = share
