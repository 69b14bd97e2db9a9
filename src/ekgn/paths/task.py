"""Task 2 for the trainer: paths in a hidden graph, their batches, their validation."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from ekgn.distributed import ALONE, Group
from ekgn.paths.batches import Batches
from ekgn.paths.decode import Emit
from ekgn.paths.evaluate import evaluate, solver
from ekgn.paths.graphs import PathsData
from ekgn.paths.model import PathsModel
from ekgn.paths.settings import PathsSettings


class PathsTask:
    """Shortest path synthesis over one hidden graph."""

    name = "paths"
    settings_class = PathsSettings
    selection = "correct"
    unit = "paths"

    def __init__(self, data: PathsData, settings: PathsSettings) -> None:
        self.data = data
        self.settings = settings

    @classmethod
    def open(
        cls, data: str | Path | PathsData, settings: PathsSettings, on_progress: object = None
    ) -> PathsTask:
        """The task over paths, or over a folder made by `ekgn paths make`."""
        return cls(data if isinstance(data, PathsData) else PathsData.load(Path(data)), settings)

    @classmethod
    def load(cls, folder: Path, settings: PathsSettings) -> PathsTask:
        """The task over the paths that a run keeps."""
        return cls(PathsData.load(folder), settings)

    @cached_property
    def batches(self) -> Batches:
        """The training paths, in batches."""
        return Batches(self.data.train, self.data.graph.num_nodes, self.settings)

    @cached_property
    def _emit(self) -> Emit:
        return Emit.of(self.data, self.settings.emit)

    def new_model(self, group: Group = ALONE) -> PathsModel:
        """New weights; each process of a group has them all."""
        return PathsModel(self.data.graph.num_nodes, self.settings)

    def update_bytes(self) -> int:
        """Of one update's states, attention and scores of the nodes."""
        settings = self.settings
        queries = min(settings.batch_size, self.batches.instances)
        step = 2 * settings.embedding_dim + settings.num_slots + self.data.graph.num_nodes
        return 4 * settings.max_steps * queries * step

    def validate(self, model: PathsModel) -> dict[str, float]:
        """Shares of correct and valid paths on the validation queries, greedily decoded."""
        solve = solver(model, self._emit, self.settings.readout, beam=1)
        counts = evaluate(solve, self.data.graph, self.data.valid, "valid").all
        return {"correct": counts.correct / counts.total, "valid": counts.valid / counts.total}

    def save_data(self, folder: Path) -> None:
        self.data.save(folder)

    def notes(self) -> list[str]:
        """Nothing is chosen here."""
        return []

    def digest(self) -> str:
        """What two sets of paths share only if they are the same."""
        return self.data.checksum

    def describe(self) -> dict[str, Any]:
        """What was trained on, for the record."""
        return {**self.data.describe(), "instances": self.batches.instances}
