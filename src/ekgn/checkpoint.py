"""What a run keeps on disk: one folder, every file written aside and then renamed.

config.json                 task, preset and effective settings
graph.safetensors           the data the run was trained on, with
vocabulary.json             its ids, names and source checksums
model.safetensors           the best weights so far
training_state.safetensors  everything needed to go on: weights, optimizer state, counters
metrics.jsonl               one line per validation
record.json                 what was run, on what, for how long, and the results
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.files import replace_file


class RunFolder:
    """The files of one run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.model = path / "model.safetensors"
        self.state = path / "training_state.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.record = path / "record.json"

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """The run in a folder; an error that says what is missing if there is none."""
        run = cls(path)
        if not run.config.is_file():
            others = sorted(str(config.parent) for config in path.parent.glob("*/config.json"))
            hint = f" Runs beside it: {', '.join(others[:8])}." if others else ""
            raise EkgnError(
                f"No run in '{path}': expected a folder made by `ekgn train` "
                f"(with config.json).{hint}"
            )
        return run

    def has_weights(self) -> bool:
        """Whether some weights were saved already."""
        return self.model.is_file()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], extra: Any = None) -> None:
    """Tensors and one JSON value in a single file, so that they can never disagree."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    metadata = {"json": json.dumps(extra)}
    replace_file(path, lambda aside: save_file(plain, aside, metadata))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """What save_tensors wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads((file.metadata() or {}).get("json", "null"))
    except FileNotFoundError:
        raise EkgnError(f"{path} is missing: the run has no checkpoint yet.") from None
    except (SafetensorError, json.JSONDecodeError) as error:
        raise EkgnError(f"{path} is damaged ({error}). Restore it or train again.") from None


def pack_optimizer(
    prefix: str, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as named tensors and JSON values."""
    tensors, plain = {}, {}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            name = f"{prefix}.{index}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                plain[name] = value
    return tensors, plain


def unpack_optimizer(
    prefix: str,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    plain: Mapping[str, Any],
) -> None:
    """The reverse of pack_optimizer."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in [*tensors.items(), *plain.items()]:
        if name.startswith(f"{prefix}."):
            index, key = name.removeprefix(f"{prefix}.").split(".", 1)
            state.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
