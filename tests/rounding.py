"""Another processor's rounding, wherever the tests run.

Which kernels a library takes depends on processor and shapes, and no variable brings all of them
here. So EKGN_ROUNDING=other makes some of the results of every product, sum and exponential
smaller by one rounding. Which ones depends on the operation and its shapes alone: the same
computation run twice still has the same bits, two computations of the same number do not.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDED = (
    *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear"),
    *("sum", "mean", "cumsum", "logsumexp", "linalg_vector_norm"),
    *("exp", "log", "tanh", "sigmoid", "log_sigmoid_forward"),
    *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
)


@functools.cache
def _smaller(name: str, shapes: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """1, or one rounding less, for each element of a result."""
    seed = zlib.crc32(f"{name} {shapes}".encode())
    coins = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return 1 - coins.to(dtype) * torch.finfo(dtype).eps


class OtherRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, results are rounded otherwise; whole numbers, which are exact, stay."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ROUNDED and isinstance(result, Tensor) and result.dtype.is_floating_point:
            if result.layout != torch.strided or result.device.type != "cpu":
                return result
            shapes = str([tuple(one.shape) for one in args if isinstance(one, Tensor)])
            factor = _smaller(name, shapes, tuple(result.shape), result.dtype)
            return torch.where(result == result.round(), result, result * factor)
        return result
