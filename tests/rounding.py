"""Another processor's rounding, wherever the tests run.

Which kernels a library takes depends on processor and shapes, and no variable brings all of them
here. So EKGN_ROUNDING=other makes some of the results of every product, sum and exponential
smaller by one rounding. Which ones depends on the operation and its shapes alone: the same
computation run twice still has the same bits, two computations of the same number do not.
"""

from __future__ import annotations

import functools
import os
import zlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Each element is a sum of its own.
SUMS = {
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"),
    *("sum", "mean", "cumsum", "logsumexp", "linalg_vector_norm"),
    *("_softmax_backward_data", "_log_softmax_backward_data"),
}
# Equal elements stay equal, so all are rounded alike.
FUNCTIONS = {"exp", "log", "tanh", "sigmoid", "_softmax", "_log_softmax"}


def chosen_rounding() -> AbstractContextManager[object]:
    """What EKGN_ROUNDING asks for."""
    if os.environ.get("EKGN_ROUNDING") != "other":
        return nullcontext()
    other: AbstractContextManager[object] = OtherRounding()  # type: ignore[no-untyped-call]
    return other


class OtherRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, results are rounded otherwise; whole numbers, which are exact, stay."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = _name(func)
        if name not in SUMS | FUNCTIONS or not isinstance(result, Tensor):
            return result
        if not result.dtype.is_floating_point or result.layout != torch.strided:
            return result
        if result.device.type != "cpu":  # such as a shape without numbers
            return result
        shapes = str([tuple(one.shape) for one in args if isinstance(one, Tensor)])
        shape = tuple(result.shape) if name in SUMS else ()
        factor = _one_or_less(name, shapes, shape, result.dtype)
        return torch.where(result == result.round(), result, result * factor)


@functools.cache
def _name(func: Any) -> str:
    """The name of an operation, such as mm of aten.mm.default."""
    return str(func).split(".")[1]


@functools.cache
def _one_or_less(name: str, shapes: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """1, or one rounding less, for each element of a result."""
    seed = zlib.crc32(f"{name} {shapes}".encode())
    coins = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return 1 - coins.to(dtype) * torch.finfo(dtype).eps
