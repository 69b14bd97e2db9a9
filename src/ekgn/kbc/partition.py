"""log Σ exp of a batch's scores, without a second buffer of their size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def log_partition(scores_TBN: Tensor, left_out: tuple[Tensor, ...]) -> Tensor:
    """log Σ_n exp(score), (T, B), over all candidates but those (query, candidate) left out.

    `scores_TBN` is used up: its buffer turns into the probabilities that the backward pass needs.
    """
    total: Tensor = _LogPartition.apply(scores_TBN, *left_out)  # type: ignore[no-untyped-call]
    return total


def log_sums(values_TP: Tensor, group_P: Tensor, groups: int) -> Tensor:
    """log Σ exp of the values of each group, (T, groups); every group has a value."""
    index_TP = group_P.expand_as(values_TP)
    lowest_TB = values_TP.new_full((len(values_TP), groups), -torch.inf)
    largest_TB = lowest_TB.scatter_reduce(1, index_TP, values_TP.detach(), "amax")
    shifted_TP = (values_TP - largest_TB.index_select(1, group_P)).exp()
    total_TB = torch.zeros_like(lowest_TB).index_add(1, group_P, shifted_TP)
    return largest_TB + total_TB.log()


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores_TBN: Tensor, queries: Tensor, candidates: Tensor) -> Tensor:
        buffer = scores_TBN.detach()
        buffer[:, queries, candidates] = -torch.inf
        # Where nothing is left, the largest score is -inf; 0 keeps exp(score - largest) at 0.
        largest = buffer.amax(dim=2, keepdim=True).clamp_(min=torch.finfo(buffer.dtype).min)
        buffer.sub_(largest).exp_()
        total = buffer.sum(dim=2)
        ctx.save_for_backward(buffer, total)
        return largest.squeeze(2) + total.log()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        buffer, total = ctx.saved_tensors
        share = grads[0] / total.clamp(min=torch.finfo(total.dtype).tiny)
        return buffer.mul_(share.unsqueeze(2)), None, None
