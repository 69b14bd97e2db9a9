"""Task 2 for the trainer: paths in a hidden graph, their batches, their validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ekgn.paths.batches import Batches
from ekgn.paths.decode import Emit
from ekgn.paths.evaluate import evaluate, solver
from ekgn.paths.graphs import PathsData
from ekgn.paths.model import PathsModel
from ekgn.paths.settings import PathsSettings


class PathsTask:
    """Shortest path synthesis over one hidden graph."""

    name = "paths"
    selection = "correct"

    def __init__(self, data: PathsData, settings: PathsSettings) -> None:
        self.data = data
        self.settings = settings
        self.batches = Batches(data.train, data.graph.num_nodes, settings)
        self._emit = Emit.of(data, settings.emit)

    def new_model(self) -> PathsModel:
        return PathsModel(self.data.graph.num_nodes, self.settings)

    def outline(self) -> PathsModel:
        """The model without memory: only its sizes."""
        with torch.device("meta"):
            return PathsModel(self.data.graph.num_nodes, self.settings)

    def update_bytes(self) -> int:
        """Of one update's states, attention and scores of the nodes."""
        settings = self.settings
        queries = min(settings.batch_size, self.batches.instances)
        step = 2 * settings.embedding_dim + settings.num_slots + self.data.graph.num_nodes
        return 4 * settings.max_steps * queries * step

    def validate(self, model: PathsModel) -> dict[str, float]:
        """Shares of correct and valid paths on the validation queries, greedily decoded."""
        solve = solver(model, self._emit, self.settings.answer_rule, beam=1)
        counts = evaluate(solve, self.data.graph, self.data.valid, "valid").all
        return {"correct": counts.correct / counts.total, "valid": counts.valid / counts.total}

    def save_data(self, folder: Path) -> None:
        self.data.save(folder)

    def describe(self) -> dict[str, Any]:
        """What was trained on, for the record."""
        return {**self.data.describe(), "instances": self.batches.instances}
