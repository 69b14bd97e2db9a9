"""log Σ exp of all scores of a batch, fused with the product that makes them.

The candidates are taken in blocks: a block of scores is made, used and kept as exponentials while
it is in the cache, so that a step runs at nearly the speed of its matrix products.

Shape letters: R outputs, N candidates, K their size, P (query, answer) pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ekgn.distributed import ALONE, Group

_BLOCK = 2**18  # scores of a block: 1 MB, which fits the cache of a core


class Workspace:
    """Memory for the scores of one batch, used again by the next: fresh pages cost time."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)

    def take(self, size: int, like: Tensor) -> Tensor:
        """At least `size` numbers, of the same kind as `like`."""
        wrong = self._buffer.dtype != like.dtype or self._buffer.device != like.device
        if wrong or len(self._buffer) < size:
            self._buffer = like.new_empty(size)
        return self._buffer[:size]


class Candidates(NamedTuple):
    """What an answer competes with: every entity, or a sample that stands for all.

    Of a table that is divided among processes, those kept here; the outputs left out are then those
    of all processes, one after the other.
    """

    vectors_NK: Tensor
    grad_NK: Tensor | None = None  # where the derivative is written; None: autograd gets it
    log_weight_N: Tensor | None = None  # log of how many entities each stands for
    # (output, candidate) pairs that do not compete, by candidate in order.
    left_out: tuple[Tensor, Tensor] | None = None


def log_partition(
    outputs_RK: Tensor, candidates: Candidates, workspace: Workspace, shards: Group = ALONE
) -> Tensor:
    """log Σ_n w_n exp(o · y_n), (R,), over the candidates that are not left out.

    Of shards each process scores its own candidates by the outputs of all, and the sums are joined.
    The workspace must not be used again before the backward pass.
    """
    if shards.size > 1:
        gathered_EK, counts = _Gather.apply(outputs_RK, shards)  # type: ignore[no-untyped-call]
        own_E = log_partition(gathered_EK, candidates, workspace)
        joined_R: Tensor = _Join.apply(own_E, counts, shards)  # type: ignore[no-untyped-call]
        return joined_R
    total_R: Tensor = _LogPartition.apply(  # type: ignore[no-untyped-call]
        outputs_RK, candidates.vectors_NK, candidates, workspace
    )
    return total_R


def log_sums(values_TP: Tensor, group_P: Tensor, groups: int) -> Tensor:
    """log Σ exp of the values of each group, (T, groups); every group has a value."""
    index_TP = group_P.expand_as(values_TP)
    lowest_TB = values_TP.new_full((len(values_TP), groups), -torch.inf)
    largest_TB = lowest_TB.scatter_reduce(1, index_TP, values_TP.detach(), "amax")
    shifted_TP = (values_TP - largest_TB.index_select(1, group_P)).exp()
    total_TB = torch.zeros_like(lowest_TB).index_add(1, group_P, shifted_TP)
    return largest_TB + total_TB.log()


def _blocks(rows: int, candidates: int) -> list[slice]:
    """The candidates in blocks of about as many scores."""
    width = max(64, min(candidates, _BLOCK // max(rows, 1)))
    starts = range(0, candidates, width)
    return [slice(start, min(start + width, candidates)) for start in starts]


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        outputs_RK: Tensor,
        vectors_NK: Tensor,
        candidates: Candidates,
        workspace: Workspace,
    ) -> Tensor:
        rows, count = len(outputs_RK), len(vectors_NK)
        spans = _blocks(rows, count)
        buffer = workspace.take(rows * count, outputs_RK)
        # Without candidates, of a shard, the sum is 0.
        lowest = torch.finfo(outputs_RK.dtype).min
        largest_SR = outputs_RK.new_full((max(1, len(spans)), rows), lowest)
        total_SR = torch.zeros_like(largest_SR)
        for place, span in enumerate(spans):
            scores = _view(buffer, rows, span)
            torch.mm(outputs_RK, vectors_NK[span].T, out=scores)
            _weigh(scores, candidates, span)
            torch.amax(scores, dim=1, out=largest_SR[place])
            # Where nothing is left, the largest is -inf; a number keeps exp(score - largest) at 0.
            largest_SR[place].clamp_(min=lowest)
            scores.sub_(largest_SR[place][:, None]).exp_()
            torch.sum(scores, dim=1, out=total_SR[place])
        largest_R = largest_SR.amax(dim=0)
        scale_SR = (largest_SR - largest_R).exp_()
        total_R = (scale_SR * total_SR).sum(dim=0)
        scale_SR.div_(total_R.clamp(min=torch.finfo(total_R.dtype).tiny))
        ctx.save_for_backward(outputs_RK, vectors_NK, scale_SR)
        ctx.buffer, ctx.spans, ctx.grad_NK = buffer, spans, candidates.grad_NK
        return largest_R + total_R.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_total_R: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        outputs_RK, vectors_NK, scale_SR = ctx.saved_tensors
        to_vectors_NK = ctx.grad_NK
        if to_vectors_NK is None and ctx.needs_input_grad[1]:
            to_vectors_NK = torch.empty_like(vectors_NK)
        weight_SR = scale_SR.mul_(to_total_R)
        to_outputs_RK = torch.zeros_like(outputs_RK)
        for place, span in enumerate(ctx.spans):
            shares = _view(ctx.buffer, len(outputs_RK), span).mul_(weight_SR[place][:, None])
            torch.addmm(to_outputs_RK, shares, vectors_NK[span], out=to_outputs_RK)
            if to_vectors_NK is not None:
                torch.mm(shares.T, outputs_RK, out=to_vectors_NK[span])
        returned = to_vectors_NK if ctx.needs_input_grad[1] else None
        return to_outputs_RK, returned, None, None


class _Gather(torch.autograd.Function):
    """The outputs of all processes; each gets the derivative by its own from all."""

    @staticmethod
    def forward(ctx: Any, outputs_RK: Tensor, group: Group) -> tuple[Tensor, list[int]]:
        (gathered_EK,), counts = group.gather(outputs_RK)
        ctx.group, ctx.counts = group, counts
        return gathered_EK, counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_gathered_EK: Tensor, _: None) -> tuple[Tensor, None]:
        group, own = ctx.group, ctx.counts[ctx.group.rank]
        shares = group.swap(to_gathered_EK, ctx.counts, [own] * group.size)
        return shares.view(group.size, own, -1).sum(dim=0), None


class _Join(torch.autograd.Function):
    """log Σ exp over the processes' sums, of the own outputs."""

    @staticmethod
    def forward(ctx: Any, own_E: Tensor, counts: list[int], group: Group) -> Tensor:
        sent, received = counts, [counts[group.rank]] * group.size
        parts_SR = group.swap(own_E, sent, received).view(group.size, -1)
        total_R = parts_SR.logsumexp(dim=0)
        ctx.save_for_backward(own_E, total_R)
        ctx.group, ctx.counts = group, counts
        return total_R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_total_R: Tensor) -> tuple[Tensor, None, None]:
        own_E, total_R = ctx.saved_tensors
        group, counts = ctx.group, ctx.counts
        both_R2 = torch.stack([to_total_R, total_R], dim=1)
        sent = [len(both_R2)] * group.size
        to_total_E, total_E = group.swap(both_R2.repeat(group.size, 1), sent, counts).unbind(1)
        lowest = torch.finfo(total_E.dtype).min  # a number where nothing competes at all
        return to_total_E * (own_E - total_E.clamp(min=lowest)).exp(), None, None


def _view(buffer: Tensor, rows: int, span: slice) -> Tensor:
    """The scores of a block: blocks lie one after the other."""
    return buffer[rows * span.start : rows * span.stop].view(rows, span.stop - span.start)


def _weigh(scores: Tensor, candidates: Candidates, span: slice) -> None:
    """Add the candidates' weights, and take out the pairs that do not compete."""
    if candidates.log_weight_N is not None:
        scores.add_(candidates.log_weight_N[span])
    if candidates.left_out is not None:
        rows, columns = candidates.left_out
        bounds = torch.tensor([span.start, span.stop], device=columns.device)
        low, high = torch.searchsorted(columns, bounds).tolist()
        scores[rows[low:high], columns[low:high] - span.start] = -torch.inf
