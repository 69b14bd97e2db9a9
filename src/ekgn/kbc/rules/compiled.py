"""Compilation of the inner loops, kept on disk for the next process where there is a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """The function in machine code, free of Python's lock, so that threads share the work."""
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(function, nogil=True)
