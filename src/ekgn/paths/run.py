"""A trained run of shortest path synthesis: answer, explain, evaluate.

>>> import ekgn
>>> run = ekgn.load("runs/paths")                                     # doctest: +SKIP
>>> print(run.answer(215, 493).route)                                 # doctest: +SKIP
(215) → 101 → (493)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ekgn.config import parse_readout
from ekgn.errors import EkgnError
from ekgn.paths.decode import Emit
from ekgn.paths.evaluate import Evaluation, OnProgress, ask, evaluate, solver
from ekgn.paths.explain import Explanation, Route, explain, route
from ekgn.paths.graphs import PathsData, plain_path
from ekgn.paths.model import PathsModel
from ekgn.paths.settings import PathsSettings
from ekgn.paths.task import PathsTask
from ekgn.run import Run

EMITS = ("any", "seen_nodes", "seen_edges")


@dataclass(frozen=True)
class Answer:
    """A predicted path beside the shortest one."""

    start: int
    end: int
    route: Route
    probability: float  # of the path; asked of parts, the geometric mean over them
    step: int
    shortest: Route

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


@dataclass(frozen=True)
class Decoding:
    """How paths are written at test time: from which step, how widely searched, what is allowed."""

    readout: str
    beam: int
    emit: str

    def __str__(self) -> str:
        return f"{self.readout}, beam {self.beam}, {self.emit}"


class PathsRun(Run):
    """A trained run: its hidden graph, its model, and what can be asked of them."""

    task_class = PathsTask
    settings: PathsSettings
    model: PathsModel

    def __init__(self, path: str | Path, device: str | None = None) -> None:
        super().__init__(path, device)
        self.data: PathsData = self.task.data

    @property
    def steps(self) -> int:
        """How many steps the model takes: T_max, or 1 for the baseline."""
        return self.settings.max_steps if self.settings.system == "ekgn" else 1

    def decoding(
        self, readout: str | None = None, beam: int | None = None, emit: str | None = None
    ) -> Decoding:
        """The run's own way of writing paths, with changes; raises if one makes no sense."""
        chosen = Decoding(
            readout or self.settings.readout,
            self.settings.beam if beam is None else beam,
            emit or self.settings.emit,
        )
        parse_readout(chosen.readout, self.steps)
        if not 1 <= chosen.beam <= self.data.graph.num_nodes:
            raise EkgnError(
                f"beam = {chosen.beam}: expected 1 (greedy) to {self.data.graph.num_nodes}."
            )
        if chosen.emit not in EMITS:
            raise EkgnError(f"emit = '{chosen.emit}': expected {', '.join(EMITS)}.")
        return chosen

    def emit(self, decoding: Decoding) -> Emit:
        """What the decoder may emit, on the model's device."""
        emit = Emit.of(self.data, decoding.emit)
        return emit._replace(allowed_NN=emit.allowed_NN.to(self.device))

    def answer(self, start: int, end: int, decoding: Decoding | None = None) -> Answer:
        """The predicted path from start to end; raises if that is no question of the task."""
        graph = self.data.graph
        graph.check_query(start, end)
        how = decoding or self.decoding()
        found = ask(
            self.model, self.emit(how), how.readout, how.beam, np.array([start]), np.array([end])
        )
        return Answer(
            start,
            end,
            route(graph, plain_path(found.paths_BL[0].tolist())),
            float(found.log_p_B[0].exp()),
            int(found.step_B[0]),
            route(graph, graph.shortest(start, end)),
        )

    def explain(self, start: int, end: int, decoding: Decoding | None = None) -> Explanation:
        """The same query step by step."""
        how = decoding or self.decoding()
        emit = self.emit(how)
        return explain(self.model, self.data.graph, emit, how.readout, how.beam, start, end)

    def evaluation_name(self, split: str) -> str:
        """What the record calls an evaluation of a split by the run's own way of decoding."""
        return f"{split}: {self.decoding()}"

    def evaluate(
        self,
        split: str = "test",
        decoding: Decoding | None = None,
        on_progress: OnProgress | None = None,
    ) -> Evaluation:
        """The counts of a split; they are added to the run's record."""
        how = decoding or self.decoding()
        torch.manual_seed(self.settings.seed)
        result = evaluate(
            solver(self.model, self.emit(how), how.readout, how.beam),
            self.data.graph,
            self.data.split(split),
            split,
            on_progress,
        )
        self.store("evaluations", f"{split}: {how}", result, **asdict(how))
        return result
