"""Small layers that encoders and decoders of every task share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def first_state_norm(kind: str, state_size: int) -> nn.Module:
    """The normalisation of s_1 that the setting `first_norm` names."""
    if kind == "batch":
        return nn.BatchNorm1d(state_size)
    return nn.LayerNorm(state_size) if kind == "layer" else nn.Identity()


def shared_dropout(values_TBK: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout with one mask for all steps, so that no step looks worse than another by noise."""
    if not training or rate == 0:
        return values_TBK
    return values_TBK * F.dropout(values_TBK.new_ones(values_TBK.shape[1:]), rate)
