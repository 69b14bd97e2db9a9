"""Fused L1 distances on a CPU: the decoder's ||o - y||_1 without the difference in memory.

Shapes: S outputs (steps x batch) share each of G groups of N candidate rows, all of width D;
every fused call is points (S, G, D) against others (G, N, D), giving (S, G, N).
Every sum runs in one thread and in a fixed order, so the same input gives the same bits.
"""

from __future__ import annotations

import importlib
import logging
import math
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ekgn.errors import EkgnError

_log = logging.getLogger(__name__)

_Block = Callable[..., None]

_BLOCK = 16  # rows that share one pass over the other side, which then stays in the first cache
_SMALL = 2**21  # elements below which waking other threads costs more than it saves
# All of fastmath but the promise that no number is NaN or infinite: a NaN must stay visible.
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
# Numba's own pool ends the process when two threads enter it at once.
_one_at_a_time = threading.Lock()


def l1_distances(outputs: Tensor, table: Tensor) -> Tensor:
    """Distance of every output to every row of the table: (..., D) and (N, D) give (..., N).

    Differentiable in both; the gradient is the sign of the difference, 0 where it is 0.
    Raises EkgnError when the widths differ or the table is not a matrix.
    """
    _check_widths(outputs, table)
    if table.dim() != 2:
        raise EkgnError(
            f"The table has shape {tuple(table.shape)}, expected (rows, width); "
            "use l1_pairs for rows that differ from example to example."
        )
    flat = outputs.reshape(math.prod(outputs.shape[:-1]), outputs.shape[-1])
    if _fusable(flat, table):
        distances = _fused(flat.unsqueeze(1), table.unsqueeze(0))
    else:
        distances = torch.cdist(flat, table, p=1.0)
    return distances.reshape(*outputs.shape[:-1], table.shape[0])


def l1_pairs(outputs: Tensor, rows: Tensor) -> Tensor:
    """`(outputs - rows).abs().sum(-1)` with broadcasting, each pair on its own.

    Fused when the outputs only add leading steps to the rows, as in (T, P, D) with (P, D),
    or (T, B, 1, D) with (B, N, D). Raises EkgnError when the widths differ.
    """
    _check_widths(outputs, rows)
    shared = rows.shape[:-2] if outputs.dim() > 1 and outputs.shape[-2] == 1 else rows.shape[:-1]
    candidates = rows.shape[len(shared) : -1]
    steps = outputs.shape[: outputs.dim() - 1 - len(candidates) - len(shared)]
    if outputs.shape[: -1 - len(candidates)] != steps + shared or not _fusable(outputs, rows):
        return (outputs - rows).abs().sum(-1)
    groups, width = math.prod(shared), rows.shape[-1]
    distances = _fused(
        outputs.reshape(math.prod(steps), groups, width),
        rows.reshape(groups, math.prod(candidates), width),
    )
    return distances.reshape(steps + shared + candidates)


def _check_widths(outputs: Tensor, rows: Tensor) -> None:
    """Refuse widths that differ: the kernels do not check bounds."""
    if outputs.dim() == 0 or rows.dim() == 0 or outputs.shape[-1] != rows.shape[-1]:
        raise EkgnError(
            f"Cannot take distances from outputs of shape {tuple(outputs.shape)} to rows of shape "
            f"{tuple(rows.shape)}: the last dimensions must be equal. "
            "Give the decoder's output and the entity table the same width."
        )


def _fusable(outputs: Tensor, rows: Tensor) -> bool:
    """Whether the kernels can take these tensors, and numba is there to compile them."""
    return (
        outputs.device.type == rows.device.type == "cpu"
        and outputs.dtype == rows.dtype == torch.float32
        and _numba() is not None
    )


def _fused(points: Tensor, others: Tensor) -> Tensor:
    """(S, G, D) and (G, N, D) to (S, G, N), through the kernels."""
    distances: Tensor = _Distances.apply(points, others)  # type: ignore[no-untyped-call]
    return distances


class _Distances(torch.autograd.Function):
    """The distances, and the sign gradient back to either side by one and the same kernel."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, others: Tensor) -> Tensor:
        ctx.save_for_backward(points, others)
        distances = points.new_empty(*points.shape[:2], others.shape[1])
        return _run(_distance_block, points, others, distances, distances)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor | None, Tensor | None]:
        points, others = ctx.saved_tensors
        of_points = of_others = None
        if ctx.needs_input_grad[0]:
            gradient = points.new_zeros(points.shape)
            of_points = _run(_gradient_block, points, others, weights, gradient)
        if ctx.needs_input_grad[1]:  # the two sides trade places: |o - y| = |y - o|
            points, others = others.transpose(0, 1), points.transpose(0, 1)
            gradient = points.new_zeros(points.shape)
            weights = weights.permute(2, 1, 0)
            of_others = _run(_gradient_block, points, others, weights, gradient).transpose(0, 1)
        return of_points, of_others


def _run(block: _Block, points: Tensor, others: Tensor, weights: Tensor, out: Tensor) -> Tensor:
    """Fill `out`, which must be contiguous, with the compiled block, and return it."""
    kernel, numba = _kernel(block), _numba()
    arrays = [tensor.detach().contiguous().numpy() for tensor in (points, others, weights, out)]
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    if threads == 1 or points.numel() * others.shape[1] < _SMALL:
        kernel(*arrays, True)
    else:
        with _one_at_a_time:
            numba.set_num_threads(threads)
            kernel(*arrays, False)
    return out


def _distance_block(points: Any, others: Any, _: Any, out: Any, g: int, start: int) -> None:
    """out[s, g, n] = sum over d of |points[s, g, d] - others[g, n, d]|, for s in one block."""
    for n in range(others.shape[1]):
        for s in range(start, min(start + _BLOCK, points.shape[0])):
            total = np.float32(0)
            for d in range(points.shape[2]):
                total += abs(points[s, g, d] - others[g, n, d])
            out[s, g, n] = total


def _gradient_block(points: Any, others: Any, weights: Any, out: Any, g: int, start: int) -> None:
    """out[s, g, d] += sum over n of weights[s, g, n] sign(points - others), for s in one block."""
    zero = np.float32(0)
    for s in range(start, min(start + _BLOCK, points.shape[0])):
        for n in range(others.shape[1]):
            weight = weights[s, g, n]
            for d in range(points.shape[2]):
                x, y = points[s, g, d], others[g, n, d]
                # Two selections: a branch on the sign is not vectorised.
                out[s, g, d] += (weight if x > y else zero) - (weight if x < y else zero)


@cache
def _numba() -> Any:
    """The numba module, or None; imported at the first call, as it is optional and heavy."""
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError as error:
        _log.info("L1 distances fall back to torch.cdist, which is slower: %s", error)
        return None
    if numba.config.THREADING_LAYER == "default":
        # Its threads sleep between calls; those of OpenMP spin, and fight torch's for the cores.
        numba.config.THREADING_LAYER = "workqueue"
    return numba


@cache
def _kernel(block: _Block) -> Any:
    """The compiled block, kept on disk for the next process where there is a place to keep it."""
    with _one_at_a_time:
        try:
            return _compile(block, on_disk=True)
        except (RuntimeError, OSError) as error:
            _log.info("The compiled L1 kernel is not kept for the next start: %s", error)
            return _compile(block, on_disk=False)


def _compile(block: _Block, on_disk: bool) -> Any:
    """A kernel that runs the block over all points, `alone` or on numba's threads."""
    numba = _numba()
    prange = numba.prange
    # Not njit: a compiled function in the closure has a new disk cache key in every process.
    numba.extending.register_jitable(fastmath=_FASTMATH)(block)

    def kernel(points: Any, others: Any, weights: Any, out: Any, alone: bool) -> None:
        rows, groups = points.shape[:2]
        tasks = groups * ((rows + _BLOCK - 1) // _BLOCK)
        if alone:
            for task in range(tasks):
                block(points, others, weights, out, task % groups, task // groups * _BLOCK)
        else:
            for task in prange(tasks):
                block(points, others, weights, out, task % groups, task // groups * _BLOCK)

    signature = "void({0}, {0}, {0}, {0}, boolean)".format("float32[:,:,::1]")
    options = {"parallel": True, "nogil": True, "fastmath": _FASTMATH, "cache": on_disk}
    return numba.njit(signature, **options)(kernel)
