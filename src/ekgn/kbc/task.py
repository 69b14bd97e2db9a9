"""Task 1 for the trainer: a knowledge graph, its batches, its validation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.batches import Batches
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.ranking import Metrics, filter_answers, rank_split
from ekgn.kbc.settings import KbcSettings


class KbcTask:
    """Knowledge base completion over one graph."""

    name = "kbc"
    selection = "hits_at_10"

    def __init__(self, graph: KnowledgeGraph, settings: KbcSettings) -> None:
        if not len(graph.train):
            raise EkgnError(f"{graph.name} has no training triples.")
        self.graph = graph
        self.settings = settings
        self.batches = Batches(
            Answers(graph.train, graph.num_relations), graph.num_entities, settings
        )
        self._known = filter_answers(graph, "valid")
        seen = np.zeros(graph.num_entities, bool)
        seen[graph.train[:, [0, 2]]] = True
        self._unseen = torch.from_numpy(np.flatnonzero(~seen))

    def new_model(self) -> KbcModel:
        return KbcModel(self.graph.num_entities, self.graph.num_relations, self.settings)

    def validate(self, model: KbcModel) -> dict[str, float]:
        """Filtered metrics on the validation triples, both sides."""
        model.place(self._unseen.to(model.entities.weight.device))
        ranks = rank_split(scorer(model), self.graph, "valid", known=self._known)
        metrics = Metrics.over(ranks.realistic, ranks.candidates)
        return {
            "hits_at_10": metrics.hits_at_10,
            "mean_rank": metrics.mean_rank,
            "mrr": metrics.mrr,
        }

    def save_data(self, folder: Path) -> None:
        self.graph.save(folder)

    def describe(self) -> dict[str, Any]:
        """What was trained on, for the record."""
        return self.graph.describe()


def scorer(model: KbcModel, rule: str | None = None) -> Callable[[Ints, Ints], Tensor]:
    """The model as a function from queries to scores of all entities."""
    device = model.answers.weight.device

    def scores(heads: Ints, relations: Ints) -> Tensor:
        with torch.no_grad():
            query = (
                torch.from_numpy(np.ascontiguousarray(heads)).to(device),
                torch.from_numpy(np.ascontiguousarray(relations)).to(device),
            )
            return model.scores(model(*query), rule)

    return scores
