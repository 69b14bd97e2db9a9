"""A run of the shortest-path task as the server holds it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ekgn.paths.run import PathsRun
from ekgn.web.schema import PathPair, PathsReply, RunReply
from ekgn.web.served import ServedRun

EXAMPLES = 8


class ServedPaths(ServedRun):
    """One trained run of shortest path synthesis."""

    def __init__(self, name: str, run: PathsRun) -> None:
        super().__init__(name, run)
        self.run = run

    def prepare(self) -> None:
        """Do now what the first visitor would otherwise wait for."""
        _ = self.run.data.graph.distances, self.pairs

    @cached_property
    def pairs(self) -> list[PathPair]:
        """Test queries to start from, of different lengths."""
        paths = self.run.data.test or self.run.data.valid
        drawn = [paths[i] for i in np.random.default_rng(0).permutation(len(paths))[:200]]
        lengths = sorted({len(path) for path in drawn})
        by_length = [[path for path in drawn if len(path) == length] for length in lengths]
        rounds = [
            group[turn] for turn in range(EXAMPLES) for group in by_length if turn < len(group)
        ]
        return [PathPair(start=path[0], end=path[-1]) for path in rounds[:EXAMPLES]]

    @cached_property
    def _points(self) -> list[list[float]]:
        points: list[list[float]] = np.round(self.run.data.graph.points, 4).tolist()
        return points

    def paths(self, start: int | None, end: int | None) -> PathsReply:
        """The sphere and, if two nodes are given, every step from one to the other."""
        return PathsReply(
            run=self.summary,
            points=self._points,
            examples=self.pairs,
            explanation=None if start is None or end is None else self.run.explain(start, end),
        )

    def reply(self) -> RunReply:
        """The run, with pairs of nodes to start from."""
        return RunReply(run=self.summary, pairs=self.pairs)

    @cached_property
    def data(self) -> dict[str, Any]:
        """What it was trained on, in words."""
        found = self.run.data.describe()
        return {**found, "name": f"{found['nodes']} nodes on a sphere"}
