"""The state of a training on disk: one file, or one for each shard of its tables and an index.

training_state.safetensors          everything, where each process has all rows
training_state.json                 otherwise: which files hold the shards, and of what
training_state-STEP-K-of-N.safetensors  the rows of process K; the first has all else as well

The first process reads and writes. A file is written aside and renamed, the index last: the old
state or the new one is whole. Any number of processes goes on with what any other number wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from ekgn.checkpoint import RunFolder, State, check_shape, load_tensors, save_tensors
from ekgn.distributed import Group
from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json

Rows = Mapping[str, int]
"""The tensors that are divided by rows, and how many rows each has in all."""


class Index(BaseModel):
    """What training_state.json must hold."""

    model_config = ConfigDict(strict=True, extra="forbid")
    step: int = Field(ge=0)
    files: list[str] = Field(min_length=1)
    rows: dict[str, int]


def save_state(
    run: RunFolder, tensors: Mapping[str, Tensor], extra: Any, rows: Rows, group: Group
) -> None:
    """Write the state of all processes; every one of them calls this."""
    if not rows:
        group.by_first(lambda: _write_whole(run, tensors, extra))
        return
    step, files = extra["progress"]["step"], []
    for rank in range(group.size):
        held = {name: group.collect(tensors[name], count, rank) for name, count in rows.items()}
        if rank == 0:
            held |= {name: tensor for name, tensor in tensors.items() if name not in rows}
        files.append(f"{run.state.stem}-{step}-{rank + 1}-of-{group.size}.safetensors")
        group.by_first(partial(save_tensors, run.path / files[-1], held, extra))
    index = {"step": step, "files": files, "rows": dict(rows)}
    group.by_first(lambda: _write_index(run, index))


def _write_whole(run: RunFolder, tensors: Mapping[str, Tensor], extra: Any) -> None:
    save_tensors(run.state, tensors, extra)
    run.index.unlink(missing_ok=True)
    _drop_shards(run, [])


def _write_index(run: RunFolder, index: dict[str, Any]) -> None:
    write_json(run.index, index)
    run.state.unlink(missing_ok=True)
    _drop_shards(run, index["files"])


def _drop_shards(run: RunFolder, kept: list[str]) -> None:
    """Remove the shards of states that are over."""
    for path in run.path.glob(f"{run.state.stem}-*-of-*.safetensors"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def has_state(run: RunFolder) -> bool:
    """Whether there is a state to go on from."""
    return run.state.exists() or run.index.exists()


def read_state(run: RunFolder) -> tuple[dict[str, Tensor], Any]:
    """The latest state, its shards joined."""
    whole = load_tensors(run.state) if run.state.exists() or not run.index.exists() else None
    if whole is not None:
        check_shape(State, whole[1], run.state)
    if not run.index.exists():
        assert whole is not None
        return whole
    index = read_json(run.index)
    check_shape(Index, index, run.index)
    if whole is not None and whole[1]["progress"]["step"] >= index["step"]:
        return whole  # a process was killed before it removed the index
    return _join(run, index)


def _join(run: RunFolder, index: dict[str, Any]) -> tuple[dict[str, Tensor], Any]:
    """What the shards hold together."""
    shards = [load_tensors(run.path / name) for name in index["files"]]
    tensors, extra = shards[0]
    check_shape(State, extra, run.path / index["files"][0])
    for name, count in index["rows"].items():
        parts = [found[name] for found, _ in shards if name in found]
        kept = [len(range(rank, count, len(shards))) for rank in range(len(shards))]
        if [len(part) for part in parts] != kept:
            raise EkgnError(f"{run.index} is damaged ({name} is not in its shards). Train again.")
        tensors[name] = parts[0].new_empty(count, *parts[0].shape[1:])
        for rank, part in enumerate(parts):
            tensors[name][rank :: len(parts)] = part
    return tensors, extra


def share_state(tensors: Mapping[str, Tensor], rows: Rows, group: Group) -> dict[str, Tensor]:
    """What each process needs of tensors that the first one has: its rows, and all else."""
    if group.size == 1:
        return dict(tensors)
    shapes = group.by_first(lambda: {n: (tuple(t.shape), t.dtype) for n, t in tensors.items()})
    return {
        name: group.deal(tensors.get(name), shape, kind)
        if name in rows
        else group.copy(tensors.get(name), shape, kind)
        for name, (shape, kind) in shapes.items()
    }
