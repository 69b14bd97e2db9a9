"""Task 1 for the trainer: a knowledge graph, its batches, its validation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ekgn.distributed import ALONE, Group, world
from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.batches import Batches, Phases
from ekgn.kbc.choose import OnProgress, choose, in_words, left_open, seconds_needed
from ekgn.kbc.graph import KnowledgeGraph, load_graph, spare_rows
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.ranking import Metrics, Ranks, filter_answers, rank_split
from ekgn.kbc.sampled import measured, rank_sampled
from ekgn.kbc.settings import KbcSettings
from ekgn.tables import sampled_name

CHOICES = "choices.json"


class KbcTask:
    """Knowledge base completion over one graph."""

    name = "kbc"
    settings_class = KbcSettings
    unit = "queries"

    def __init__(
        self,
        graph: KnowledgeGraph,
        settings: KbcSettings,
        choices: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self.settings = settings
        if not len(graph.train):
            raise EkgnError(f"{graph.name} has no training triples.")
        if left := left_open(settings):
            raise EkgnError(
                f"{', '.join(sorted(left))}: still to be chosen for the graph. Give values, or let "
                f"ekgn.train or KbcTask.open choose them."
            )
        self.choices = dict(choices or {})  # what was chosen for this graph, and why
        self.measured = measured(graph, settings)  # what a validation ranks

    @property
    def selection(self) -> str:
        """The validation metric to maximise."""
        return sampled_name("hits_at_10", self.measured.candidates)

    @classmethod
    def open(
        cls,
        data: str | Path | KnowledgeGraph,
        settings: KbcSettings,
        *,
        data_dir: Path | None = None,
        names: Sequence[Path] = (),
        on_progress: OnProgress | None = None,
    ) -> KbcTask:
        """The task over a graph, or over a benchmark, folder or file that holds one.

        What the settings leave open is chosen for the graph, which may take a while.
        """
        if not isinstance(data, KnowledgeGraph):
            options: dict[str, Any] = {"data_dir": data_dir, "names": names, "seed": settings.seed}
            data = world().together(partial(load_graph, data, **options))
        return cls(data, *choose(data, settings, on_progress))

    @classmethod
    def load(cls, folder: Path, settings: KbcSettings) -> KbcTask:
        """The task over the graph that a run keeps."""
        choices = read_json(folder / CHOICES) if (folder / CHOICES).exists() else None
        return cls(KnowledgeGraph.load(folder), settings, choices)

    @cached_property
    def batches(self) -> Phases:
        """The training queries, in batches: those of the product, of the steps, of all facts."""
        graph, settings = self.graph, self.settings

        def batches(facts: Ints, besides: Ints | None = None) -> Batches:
            known = None if besides is None else Answers(besides, graph.num_relations)
            asked = Answers(facts, graph.num_relations)
            return Batches(asked, graph.num_entities, settings, known)

        every = batches(graph.train)
        spared = spare_rows(graph.train, settings.seed)
        held_out = spared[: round(settings.held_out * len(graph.train))]
        if not len(held_out) or len(settings.phases()) == 1:
            return Phases([every] * 3, settings)
        seen = np.delete(graph.train, held_out, axis=0)
        return Phases([batches(seen), batches(graph.train[held_out], seen), every], settings)

    @cached_property
    def _known(self) -> Answers:
        return filter_answers(self.graph, "valid")

    @cached_property
    def _unseen(self) -> Tensor:
        """The entities that training never saw."""
        seen = np.zeros(self.graph.num_entities, bool)
        seen[self.graph.train[:, [0, 2]]] = True
        return torch.from_numpy(np.flatnonzero(~seen))

    def new_model(self, group: Group = ALONE) -> KbcModel:
        """New weights; entity tables may be divided among the processes of a group."""
        return KbcModel(self.graph.num_entities, self.graph.num_relations, self.settings, group)

    def digest(self) -> str:
        """What two graphs share only if they are the same."""
        found = hashlib.blake2b(digest_size=16)
        for part in (self.graph.train, self.graph.valid):
            found.update(str(part.shape).encode())
            found.update(np.ascontiguousarray(part).data)
        found.update(str([self.graph.num_entities, self.graph.num_relations]).encode())
        return found.hexdigest()

    def update_bytes(self) -> int:
        """Of one update's states, attention and scores, and of the candidates' vectors."""
        settings = self.settings
        queries = min(settings.batch_size, 2 * len(self.graph.train))
        candidates = settings.negatives or self.graph.num_entities
        step = 2 * settings.embedding_dim + settings.num_slots + candidates
        each = 1 if settings.has_product else queries
        vectors = candidates * settings.embedding_dim * each
        return 4 * (settings.max_steps * queries * step + vectors)

    def validate(self, model: KbcModel) -> dict[str, float]:
        """Filtered metrics on the validation triples, both sides."""
        model.place(self._unseen.to(model.entities.weight.device))
        ranks = self._ranks(model)
        metrics = Metrics.over(ranks.realistic, ranks.candidates)
        names = ("hits_at_10", "mean_rank", "mrr")
        sampled = self.measured.candidates
        return {sampled_name(name, sampled): getattr(metrics, name) for name in names}

    def _ranks(self, model: KbcModel) -> Ranks:
        facts, candidates = self.measured
        if candidates:
            return rank_sampled(
                model, self.graph, "valid", candidates, known=self._known, limit=facts
            )
        shards = model.answers.shards
        return rank_split(
            scorer(model),
            self.graph,
            "valid",
            known=self._known,
            limit=facts,
            queries=ALONE if shards.size > 1 else model.group,
            shards=shards,
        )

    def seconds_needed(self) -> float | None:
        """About how long the training takes on this machine, where it can be said."""
        return seconds_needed(self.graph, self.settings)

    def notes(self) -> list[str]:
        """What was chosen for the graph, and how long the training takes if that is long."""
        found = [f"Chosen for this graph: {in_words(self.choices)}"] if self.choices else []
        seconds = self.seconds_needed() or 0.0
        if seconds > 60:
            found.append(f"About {seconds / 60:,.0f} minutes on this machine, if it is not busy.")
        return found

    def save_data(self, folder: Path) -> None:
        self.graph.save(folder)
        if self.choices:
            write_json(folder / CHOICES, self.choices)

    def describe(self) -> dict[str, Any]:
        """What was trained on, for the record."""
        chosen = {"chosen": self.choices} if self.choices else {}
        facts, candidates = self.measured
        ranked = {"facts": facts or len(self.graph.valid), "candidates": candidates or "all"}
        return {**self.graph.describe(), **chosen, "validation": ranked}
