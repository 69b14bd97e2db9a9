"""How good predicted paths are: correct (connected at the optimal cost) and valid (connected)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ekgn.paths.decode import Answers, Emit, answer
from ekgn.paths.graphs import NO_NODE, Ints, Path_, SphereGraph
from ekgn.paths.model import PathsModel

CHUNK = 1000
Solver = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""(starts, ends) -> (paths filled up with -1, the step each came from)."""
OnProgress = Callable[[int, int], None]
"""Called with how many were done now, and how many there are in all."""


@dataclass(frozen=True)
class Count:
    """How many of `total` answers connect the nodes, and how many of them at the best cost."""

    total: int
    correct: int
    valid: int

    @classmethod
    def of(cls, correct: NDArray[np.bool_], valid: NDArray[np.bool_]) -> Count:
        return cls(len(correct), int(correct.sum()), int(valid.sum()))


@dataclass(frozen=True)
class Evaluation:
    """The counts of a split: all, by hops of the true path, by the step that was answered from."""

    split: str
    all: Count
    by_hops: dict[int, Count]
    by_step: dict[int, Count]

    def headline(self) -> dict[str, float]:
        """The shares that sum it up."""
        total = self.all.total
        return {"correct": self.all.correct / total, "valid": self.all.valid / total}

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


def judge(graph: SphereGraph, paths: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Correct and valid, for each path."""
    before, after = paths[:, :-1], paths[:, 1:]
    is_hop = after != NO_NODE
    valid = (graph.has_edge[before, after] | ~is_hop).all(axis=1)
    lengths = np.linalg.norm(graph.points[before] - graph.points[after], axis=2)
    cost = np.where(is_hop, lengths, 0).sum(axis=1)
    ends = np.take_along_axis(paths, is_hop.sum(axis=1)[:, None], axis=1)[:, 0]
    return valid & (cost <= graph.distances[paths[:, 0], ends] + 1e-9), valid


def evaluate(
    solver: Solver,
    graph: SphereGraph,
    truth: list[Path_],
    split: str,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """The counts of a solver's answers to the queries of a split."""
    correct, valid, steps = [], [], []
    for first in range(0, len(truth), CHUNK):
        chunk = truth[first : first + CHUNK]
        paths, step = solver(
            np.array([path[0] for path in chunk]), np.array([path[-1] for path in chunk])
        )
        right, connected = judge(graph, paths)
        correct.append(right)
        valid.append(connected)
        steps.append(step)
        if on_progress:
            on_progress(len(chunk), len(truth))
    return _counts(
        split,
        np.concatenate(correct),
        np.concatenate(valid),
        np.array([len(path) - 1 for path in truth]),
        np.concatenate(steps),
    )


def _counts(
    split: str, correct: NDArray[np.bool_], valid: NDArray[np.bool_], hops: Ints, steps: Ints
) -> Evaluation:
    def by(values: Ints) -> dict[int, Count]:
        return {
            int(value): Count.of(correct[values == value], valid[values == value])
            for value in np.unique(values)
        }

    return Evaluation(split, Count.of(correct, valid), by(hops), by(steps))


def solver(model: PathsModel, emit: Emit, readout: str, beam: int) -> Solver:
    """The model as a function from queries to paths."""

    def solve(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        answers = ask(model, emit, readout, beam, starts, ends)
        return answers.paths_BL.cpu().numpy(), answers.step_B.cpu().numpy()

    return solve


def ask(
    model: PathsModel, emit: Emit, readout: str, beam: int, starts: Ints, ends: Ints
) -> Answers:
    """The answers to queries given by number."""
    device = model.symbols.bias_GS.device
    starts_B = torch.from_numpy(np.asarray(starts, np.int64)).to(device)
    ends_B = torch.from_numpy(np.asarray(ends, np.int64)).to(device)
    with torch.inference_mode():
        return answer(model, starts_B, ends_B, emit, readout, beam)
