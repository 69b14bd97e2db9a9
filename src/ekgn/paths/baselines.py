"""What needs no training: dynamic programming on the edges seen in training paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

from ekgn.paths.evaluate import Evaluation, Solver
from ekgn.paths.graphs import NO_NODE, Ints, PathsData
from ekgn.records import environment


def dynamic_programming(data: PathsData) -> Solver:
    """Fewest hops over the edges seen in training; their weights are not known.

    Where several paths have the fewest hops, one is drawn: the numbering of the nodes, which says
    nothing about the sphere, decides. A pair whose only known way is one edge gets no path.
    """
    seen = csr_matrix(data.seen_edges)
    before: dict[int, Ints] = {}

    def solve(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        found = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if start not in before:
                before[start] = breadth_first_order(seen, start)[1]
            found.append(_walk_back(before[start], start, end))
        width = max(map(len, found))
        paths = np.full((len(found), width), NO_NODE, np.int64)
        for row, path in zip(paths, found, strict=True):
            row[: len(path)] = path
        return paths, np.zeros(len(found), np.int64)

    return solve


def _walk_back(before: Ints, start: int, end: int) -> list[int]:
    """The nodes from start to end; both alone if end was not reached, which is no valid answer."""
    nodes = [end]
    while nodes[-1] != start:
        previous = int(before[nodes[-1]])
        if previous < 0:
            return [start, end]
        nodes.append(previous)
    return nodes[::-1]


def baseline_record(data: PathsData, result: Evaluation) -> dict[str, Any]:
    """A record shaped like that of a run, so that tables read both."""
    return {
        "task": "paths",
        "label": "dynamic programming",
        "data": data.describe(),
        "environment": environment(torch.device("cpu")),
        "evaluations": {f"{result.split}: fewest hops": result.as_dict()},
    }
