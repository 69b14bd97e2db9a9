"""A run of the shortest-path task as the server holds it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ekgn.paths.run import PathsRun
from ekgn.web.overview import headline, metrics_reply
from ekgn.web.schema import MetricsReply, PathPair, PathsReply, RunSummary

EXAMPLES = 8


class ServedPaths:
    """One trained run of shortest path synthesis."""

    task = "paths"

    def __init__(self, name: str, run: PathsRun) -> None:
        self.name = name
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

    @property
    def summary(self) -> RunSummary:
        """The run in a few words and numbers."""
        data, settings = self.run.data, self.run.settings
        measured, split = headline(self.run, f"test: {self.run.decoding()}", "correct", "all")
        total = measured.get("total")
        scale = total if total else 1.0
        return RunSummary(
            name=self.name,
            task="paths",
            graph=f"{data.graph.num_nodes} nodes on a sphere",
            sizes={
                "nodes": data.graph.num_nodes,
                "neighbours": data.graph.k,
                "train": len(data.train),
                "valid": len(data.valid),
                "test": len(data.test),
            },
            max_steps=self.run.steps,
            num_slots=settings.num_slots,
            answer_rule=settings.answer_rule,
            metrics={
                name: measured[name] / scale for name in ("correct", "valid") if name in measured
            },
            measured_on=split,
        )

    def metrics(self) -> MetricsReply:
        """The record of the run."""
        return metrics_reply(self.summary, self.run, self.run.settings)
