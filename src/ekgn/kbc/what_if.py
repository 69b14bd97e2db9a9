"""What if a fact were not there: the answer's share after its rows are fitted again.

This is a refit of the rows of the question's entity and of the answer, not a retraining: all other
vectors stay. "Before" is the share with both rows fitted again to all their facts, so that a
difference is due to the fact alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.refit import Case, Refit, facts_of
from ekgn.kbc.words import fact_in_words, question_in_words, relation_name
from ekgn.tables import percent

Fact = tuple[int, int, int]

NOTE = (
    "A refit of the rows of these two entities with everything else frozen, not a retraining. "
    "Both sides of an arrow are refitted: before it with all facts, after it with the change."
)
SHORTLIST = 12  # facts of an entity that are tried, the most telling by their gradients
BASELINE_TOLERANCE = 1e-3
KEPT = 2**26  # numbers of fitted rows that are kept for the next question


@dataclass(frozen=True)
class Change:
    """A fact taken away or added, and what becomes of the answer."""

    kind: Literal["without", "with"]
    facts: list[tuple[str, str, str]]  # ids of head, relation, tail
    words: str
    refitted: list[str]  # the entities whose rows the facts change, by name
    share: float
    rank: int  # among all entities, known answers included
    is_question: bool  # the fact that is asked for itself


@dataclass(frozen=True)
class WhatIf:
    """An answer, and what it would be without or with some facts."""

    question: str
    answer: str
    trained_share: float  # by the rows as trained
    share: float  # before: both rows refitted with all their facts
    rank: int
    facts: int  # training facts of the two entities
    tried: int  # 0: the facts were given
    changes: list[Change]  # the largest drop first
    note: str = field(default=NOTE)

    def in_words(self) -> list[str]:
        """A line for each change; of those that were looked for, each that can be seen."""
        return [
            f"{change.kind} {change.words}: {self._moved(change)}"
            f"{' (the fact asked for)' if change.is_question else ''}"
            for change in self.changes
            if not self.tried or percent(change.share) != percent(self.share)
        ]

    def _moved(self, change: Change) -> str:
        before, after = percent(self.share), percent(change.share)
        return f"no change, {before}" if before == after else f"{before} → {after}"

    def trained_in_words(self) -> str:
        """Why the model's own share may be another than the one before; empty if it is not."""
        trained, before = percent(self.trained_share), percent(self.share)
        if trained == before:
            return ""
        return (
            f"The model itself gives {self.answer} {trained}, by its rows as they were trained; "
            f"{before} is by the same rows refitted, so that only the facts differ."
        )


class WhatIfs:
    """Answers what-if questions of one model over its training facts."""

    def __init__(self, graph: KnowledgeGraph, model: KbcModel) -> None:
        self.graph = graph
        self.model = model
        self._kept: dict[tuple[int, Fact | None], Tensor] = {}

    @cached_property
    def refit(self) -> Refit:
        """What fits rows again."""
        return Refit(self.model, self.graph.train)

    def most_telling(
        self, head: int, relation: int, answer: int | None = None, top: int = 5
    ) -> WhatIf:
        """The facts of the question's entity and of the answer whose removal lowers it most."""
        if top < 1:
            raise EkgnError(f"top = {top}: ask for at least one fact.")
        asked = _Asked(self, head, relation, answer)
        facts = list(dict.fromkeys(fact for own in asked.entities for fact in asked.listed(own)))
        rows = self._without(asked, facts)
        changes = [
            asked.change("without", [fact], found) for fact, found in zip(facts, rows, strict=True)
        ]
        changes.sort(key=lambda change: change.share)
        fallen = [change for change in changes if change.share < asked.share]
        return asked.what_if(fallen[:top], len(facts))

    def given(
        self,
        head: int,
        relation: int,
        answer: int | None = None,
        without: Sequence[Fact] = (),
        added: Sequence[Fact] = (),
    ) -> WhatIf:
        """The answer without some facts, and with some more, all at once."""
        asked = _Asked(self, head, relation, answer)
        for fact in (*without, *added):
            asked.check(fact, is_added=fact in added)
        rows = {}
        if len(without) == 1 and not added:
            [rows] = self._without(asked, without)
        else:
            for entity in asked.touched([*without, *added]):
                case = Case(entity, asked.own_facts(entity, without, added))
                rows[entity] = self.refit.rows([case], asked.rows[entity][None])[0]
        kinds = {"without": list(without), "with": list(added)}
        words = " and ".join(
            f"{kind} {asked.words(facts)}" for kind, facts in kinds.items() if facts
        )
        first: Literal["without", "with"] = "without" if without else "with"
        found = asked.change(first, [*without, *added], rows, words.removeprefix(f"{first} "))
        return asked.what_if([found], 0)

    def _without(self, asked: _Asked, facts: Sequence[Fact]) -> list[dict[int, Tensor]]:
        """The rows that change without each of some facts, fitted in one batch for each entity."""
        found: list[dict[int, Tensor]] = [{} for _ in facts]
        for entity in asked.entities:
            places = [place for place, fact in enumerate(facts) if entity in (fact[0], fact[2])]
            if not places:
                continue
            cases = [
                (facts[at], Case(entity, asked.own_facts(entity, [facts[at]]))) for at in places
            ]
            for place, row in zip(places, self.fitted(cases, asked.rows[entity]), strict=True):
                found[place][entity] = row
        return found

    def fitted(
        self, cases: Sequence[tuple[Fact | None, Case]], start: Tensor, *tolerance: float
    ) -> list[Tensor]:
        """The rows of some cases, by the fact that each is without (None: with all of them).

        A row is a function of the entity's facts, whatever is asked: those fitted before are kept.
        """
        keys = [(case.entity, missing) for missing, case in cases]
        new = [place for place, key in enumerate(keys) if key not in self._kept]
        made: dict[tuple[int, Fact | None], Tensor] = {}
        if new:
            wanted = [cases[place][1] for place in new]
            rows = self.refit.rows(wanted, start.expand(len(new), -1), *tolerance)
            made = {keys[place]: row for place, row in zip(new, rows, strict=True)}
        found = [made[key] if key in made else self._kept[key] for key in keys]
        self._kept |= made
        while len(self._kept) * start.shape[-1] > KEPT:
            self._kept.pop(next(iter(self._kept)))
        return found


class _Asked:
    """One question with its answer: the facts of both entities, their refitted rows, the share."""

    def __init__(self, whats: WhatIfs, head: int, relation: int, answer: int | None) -> None:
        self.graph, self.model, self.refit = whats.graph, whats.model, whats.refit
        self._fitted = whats.fitted
        self.head, self.relation = head, relation
        shares = self._shares({})
        self.answer = int(shares.argmax()) if answer is None else answer
        self.trained_share = float(shares[self.answer])
        self.entities = list(dict.fromkeys((head, self.answer)))
        self.facts = {own: self._facts_of(own) for own in self.entities}
        self.rows = self._baseline()
        self.share, self.rank = self.outcome({})

    def _facts_of(self, entity: int) -> list[Fact]:
        train = self.graph.train
        mine = (train[:, 0] == entity) | (train[:, 2] == entity)
        return [(int(h), int(r), int(t)) for h, r, t in train[mine]]

    def _baseline(self) -> dict[int, Tensor]:
        """Both rows fitted again with all their facts."""
        table, rows = self.model.entities.weight, {}
        for own in self.entities:
            case = [(None, Case(own, self.own_facts(own)))]
            [rows[own]] = self._fitted(case, table[own].clone(), BASELINE_TOLERANCE)
        return rows

    def own_facts(
        self, entity: int, without: Sequence[Fact] = (), added: Sequence[Fact] = ()
    ) -> Ints:
        """The facts of an entity seen from it, less some and with some more."""
        gone = set(without)
        kept = [fact for fact in self.facts[entity] if fact not in gone]
        more = [fact for fact in added if entity in (fact[0], fact[2])]
        triples = np.array([*kept, *more], np.int64).reshape(-1, 3)
        return facts_of(triples, entity, self.graph.num_relations)

    def listed(self, entity: int) -> list[Fact]:
        """The facts to try: all, or those that seem to hold the answer up most."""
        facts = self.facts[entity]
        if len(facts) <= SHORTLIST:
            return facts
        seen = [self._seen_from(entity, fact) for fact in facts]
        direction = self._uphill(entity)
        drops = self.refit.pulls(self.rows[entity], direction, entity, np.array(seen, np.int64))
        return [facts[place] for place in drops.argsort(descending=True)[:SHORTLIST].tolist()]

    def _seen_from(self, entity: int, fact: Fact) -> tuple[int, int]:
        head, relation, tail = fact
        return (relation, tail) if head == entity else (relation + self.graph.num_relations, head)

    def _uphill(self, entity: int) -> Tensor:
        """The gradient of the answer's log share, at the first answer, by an entity's row."""
        rows = {own: row.clone().requires_grad_(own == entity) for own, row in self.rows.items()}
        with torch.enable_grad():
            output = self.refit.products(rows[self.head][None], np.array([self.relation]))
            score = (output[0] * rows[self.answer]).sum()
            others = self.refit.log_totals(output, np.array([self.answer]))[0]
            log_share = score - torch.logaddexp(score, others)
            (slope,) = torch.autograd.grad(log_share, rows[entity])
        return slope

    def outcome(self, rows: Mapping[int, Tensor]) -> tuple[float, int]:
        """The answer's share and rank with some rows in place of the refitted ones."""
        shares = self._shares({**self.rows, **rows})
        own = shares[self.answer]
        return float(own), 1 + int((shares > own).sum())

    def _shares(self, rows: Mapping[int, Tensor]) -> Tensor:
        device = self.model.entities.weight.device
        query = (torch.tensor([self.head]).to(device), torch.tensor([self.relation]).to(device))
        with torch.no_grad(), replaced(self.model, rows):
            return self.model.scores(self.model(*query))[0].softmax(dim=0)

    def touched(self, facts: Sequence[Fact]) -> list[int]:
        """Which of the two entities some facts are of."""
        return [own for own in self.entities if any(own in (f[0], f[2]) for f in facts)]

    def check(self, fact: Fact, is_added: bool) -> None:
        """Raise unless a fact can be taken away, or added, and is of one of the two entities."""
        labels = self.graph.entities.labels
        both = " or ".join(labels[own] for own in self.entities)
        known = any(fact in facts for facts in self.facts.values())
        if not self.touched([fact]):
            raise EkgnError(
                f"{self.words([fact])}: expected a fact of {both}, whose rows are fitted again. "
                f"A fact of other entities changes nothing here."
            )
        if known == is_added:
            if is_added:
                raise EkgnError(
                    f"{self.words([fact])}: that is already a training fact of {self.graph.name}. "
                    f"Give one that is not, or take it away: --without"
                )
            raise EkgnError(
                f"{self.words([fact])}: that is no training fact of {self.graph.name}. "
                f"List those that count: ekgn explain RUN ... --what-if"
            )

    def words(self, facts: Sequence[Fact]) -> str:
        """Facts in names."""
        return ", ".join(fact_in_words(self.graph, fact) for fact in facts)

    def change(
        self,
        kind: Literal["without", "with"],
        facts: Sequence[Fact],
        rows: Mapping[int, Tensor],
        words: str = "",
    ) -> Change:
        """What becomes of the answer by the rows that some facts change."""
        share, rank = self.outcome(rows)
        ids, relations = self.graph.entities.ids, self.graph.relations.ids
        count = self.graph.num_relations
        inverse, index = divmod(self.relation, count)
        ends = (self.answer, self.head) if inverse else (self.head, self.answer)
        return Change(
            kind=kind,
            facts=[(ids[head], relations[relation], ids[tail]) for head, relation, tail in facts],
            words=words or self.words(facts),
            refitted=[self.graph.entities.labels[own] for own in rows],
            share=share,
            rank=rank,
            is_question=(ends[0], index, ends[1]) in facts,
        )

    def what_if(self, changes: list[Change], tried: int) -> WhatIf:
        """The changes with what they are compared to."""
        labels = self.graph.entities.labels
        asked = relation_name(self.graph, self.relation)
        return WhatIf(
            question=question_in_words(labels[self.head], asked),
            answer=labels[self.answer],
            trained_share=self.trained_share,
            share=self.share,
            rank=self.rank,
            facts=len({fact for facts in self.facts.values() for fact in facts}),
            tried=tried,
            changes=changes,
        )


@contextmanager
def replaced(model: KbcModel, rows: Mapping[int, Tensor]) -> Iterator[None]:
    """The model with other rows for some entities; nobody else may use it meanwhile."""
    table, places = model.entities.weight, list(rows)
    before = table[places].clone()
    with torch.no_grad():
        for place, row in rows.items():
            table[place] = row
    try:
        yield
    finally:
        with torch.no_grad():
            table[places] = before
