"""Small layers that encoders and decoders of every task share."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def shared_dropout(values_TBK: Tensor, rate: float, training: bool) -> Tensor:
    """Dropout with one mask for all steps, so that no step looks worse than another by noise."""
    if not training or rate == 0:
        return values_TBK
    return values_TBK * F.dropout(values_TBK.new_ones(values_TBK.shape[1:]), rate)
