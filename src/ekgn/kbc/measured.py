"""What is measured of a run of knowledge base completion: by the network, by rules, and by both."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ekgn.distributed import world
from ekgn.errors import EkgnError
from ekgn.kbc.analysis import Analysis, analyze
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.ranking import Evaluation, Scorer, rank_split, summarise
from ekgn.kbc.rules import (
    FILE,
    WEIGHTS_FILE,
    Mixture,
    Round,
    Rulebook,
    Rules,
    Weights,
    fit_weights,
    mine,
)
from ekgn.kbc.sampled import rank_sampled
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.run import Run


class MeasuredRun(Run):
    """A trained run, and how good it is."""

    task_class = KbcTask
    settings: KbcSettings
    model: KbcModel

    def __init__(self, path: str | Path, device: str | None = None) -> None:
        super().__init__(path, device)
        self.graph: KnowledgeGraph = self.task.graph

    def scorer(self, readout: str | None = None) -> Scorer:
        """The model as a function from queries to scores of all entities."""
        return scorer(self.model, readout)

    def analyze(self, split: str = "valid", **options: Any) -> Analysis:
        """When the model stops, what its steps change, what it is without memory."""
        return analyze(self.graph, self.model, split, **options)

    def evaluation_name(self, split: str) -> str:
        """What the record calls an evaluation of a split by the run's own readout."""
        return f"{split}/{self.settings.readout}"

    def evaluate(
        self,
        split: str = "test",
        *,
        readout: str | None = None,
        limit: int = 0,
        candidates: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Filtered metrics of a split; those of a whole split are added to the run's record.

        With `candidates` ranks are among so many sampled entities, and their names say so.
        """
        torch.manual_seed(self.settings.seed)
        readout = readout or self.settings.readout
        if candidates:
            ranks = rank_sampled(
                *(self.model, self.graph, split, candidates),
                readout=readout,
                limit=limit,
                on_progress=on_progress,
            )
            found = summarise(ranks, self.graph, split, candidates)
            name = f"{split}/{readout}/of {candidates} sampled" + f"/{limit} facts" * bool(limit)
            self.store("sampled_evaluations", name, found, readout=readout)
            return found
        kept = ("evaluations", f"{split}/{readout}")
        return self._ranked(kept, self.scorer(readout), split, limit, on_progress, readout=readout)

    def rule_baseline(
        self,
        split: str = "test",
        limit: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """What rules of one fact alone reach on a split: the number any model must beat."""
        scores = Rules(self.graph).scores
        return self._ranked(("rule_baseline", split), scores, split, limit, on_progress)

    @cached_property
    def rulebook(self) -> Rulebook | None:
        """The rules that were mined for this run (`ekgn rules`)."""
        kept = self.path / FILE
        return Rulebook.load(kept, self.graph) if kept.exists() else None

    @cached_property
    def rules(self) -> Rules | None:
        """The same, ready to be applied."""
        return Rules(self.graph, self.rulebook.rules) if self.rulebook else None

    def mine(
        self,
        minutes: float = 4.0,
        threads: int = 0,
        on_round: Callable[[Round, Rulebook], None] | None = None,
    ) -> Rulebook:
        """Mine rules of up to three facts from training, and keep them with the run.

        Called again, it goes on where it stopped.
        """
        kept = self.path / FILE
        book = mine(self.graph, minutes=minutes, threads=threads, path=kept, on_round=on_round)
        for made in ("rulebook", "rules", "explainer", "asker"):
            self.__dict__.pop(made, None)
        return book

    def rule_weights(self, readout: str | None = None) -> Weights:
        """How much the rules count beside the network: chosen on validation once, then kept."""
        if self.rulebook is None or self.rules is None:
            raise EkgnError(f"{self.path} has no rules yet. Mine them with: ekgn rules {self.path}")
        kept = self.path / WEIGHTS_FILE
        chosen_for = {
            "checkpoint": self.checkpoint,
            "readout": readout or self.settings.readout,
            "rules": self.rulebook.graph["digest"],
            "rounds": self.rulebook.rounds,
        }
        found = Weights.load(kept, chosen_for)
        if found is None:
            made = fit_weights(self.scorer(readout), self.rules.scores, self.graph)
            world().by_first(lambda: made.save(kept, self.graph, chosen_for))
            found = made
        return found

    def with_rules(
        self,
        split: str = "test",
        limit: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
        *,
        readout: str | None = None,
    ) -> Evaluation:
        """What the network reaches with the rules as a voice, their weight chosen on validation."""
        if self.rules is None:
            self.mine()
        assert self.rules is not None
        weights = self.rule_weights(readout)
        mixture = Mixture(self.scorer(readout), self.rules.scores, weights.of_relation)
        about = {"readout": readout or self.settings.readout, "weights": weights.in_words()}
        return self._ranked(("with_rules", split), mixture, split, limit, on_progress, **about)

    def _ranked(
        self,
        kept: tuple[str, str],
        scores: Scorer,
        split: str,
        limit: int,
        on_progress: Callable[[int, int], None] | None,
        **about: Any,
    ) -> Evaluation:
        """The metrics of a split by some scores; those of a whole split are kept in the record."""
        options: dict[str, Any] = {"limit": limit, "on_progress": on_progress, "queries": world()}
        ranks = rank_split(scores, self.graph, split, **options)
        evaluation = summarise(ranks, self.graph, split)
        if not limit:
            self.store(*kept, evaluation, **about)
        return evaluation
