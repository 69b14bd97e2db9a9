"""Arrays of a safetensors file, memory-mapped: read when looked at, shared by processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

_TYPES: dict[str, Any] = {"I64": np.int64, "I32": np.int32, "U8": np.uint8, "F32": np.float32}


def mapped(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays by name, and the file's metadata; a torn file raises.

    What is written into an array stays in this process.
    """
    with safetensors.safe_open(path, framework="numpy") as file:  # checks header and length
        note = file.metadata()
    with path.open("rb") as raw:
        size = int.from_bytes(raw.read(8), "little")
        header: dict[str, Any] = json.loads(raw.read(size))
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, mode="c")
    arrays = {}
    for name, about in header.items():
        if about["dtype"] not in _TYPES:
            raise ValueError(f"{name} is of type {about['dtype']}")
        start, stop = (8 + size + offset for offset in about["data_offsets"])
        arrays[name] = np.asarray(data[start:stop]).view(_TYPES[about["dtype"]])
        arrays[name] = arrays[name].reshape(about["shape"])
    return arrays, note
