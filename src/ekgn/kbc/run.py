"""A trained run of knowledge base completion: predict, explain, evaluate.

>>> import ekgn
>>> run = ekgn.load("runs/world")                                     # doctest: +SKIP
>>> run.predict(head="France", relation="borders").frame()            # doctest: +SKIP
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ekgn.distributed import world
from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.completion import Choice, Completion, Confidence, complete, fit_confidence, given
from ekgn.kbc.completion.asking import Asker
from ekgn.kbc.explain import Explainer, Explanation
from ekgn.kbc.extend import Extension, extend, undo
from ekgn.kbc.index import About, build_index, load_index
from ekgn.kbc.measured import MeasuredRun
from ekgn.kbc.memory_map import MemoryMap
from ekgn.kbc.predictions import Prediction as Prediction
from ekgn.kbc.predictions import Predictions as Predictions
from ekgn.kbc.rules import Evidence, evidence
from ekgn.kbc.search import Asked, ExactSearch, Hidden, Search
from ekgn.kbc.vectors import Vectors, vectors_of
from ekgn.kbc.what_if import Fact, WhatIf, WhatIfs
from ekgn.records import environment

log = logging.getLogger(__name__)

QUESTIONS = 64  # of a list, answered in one pass
SPARE = 30  # places of a question looked at besides those asked for
MANY = 1_000_000  # entities: beyond so many an index is proposed


class KbcRun(MeasuredRun):
    """A trained run: its graph, its model, and what can be asked of them."""

    @cached_property
    def known(self) -> dict[str, Answers]:
        """The known answers of each split."""
        return {
            split: Answers(self.graph.split(split), self.graph.num_relations)
            for split in ("train", "valid", "test")
        }

    def entity(self, text: str) -> int:
        """The index of an entity given by id or name."""
        return self.graph.entities.find(text, "entity", self.graph.name)

    def relation(self, text: str) -> int:
        """The index of a relation given by id or name; a leading ^ asks for the inverse."""
        inverse = text.startswith("^")
        index = self.graph.relations.find(text.removeprefix("^"), "relation", self.graph.name)
        return index + self.graph.num_relations * inverse

    def relation_label(self, relation: int) -> str:
        """The name of a relation index; inverses are marked with a leading ^."""
        inverse, index = divmod(relation, self.graph.num_relations)
        return "^" * inverse + self.graph.relations.labels[index]

    def query(self, head: str | None, relation: str | None, tail: str | None) -> tuple[int, int]:
        """The [head, relation] the network is asked; for a missing head, over the inverse."""
        if relation is None or (head is None) == (tail is None):
            raise EkgnError(
                "A question needs a relation and either a head or a tail "
                "(or a head and a tail without relation, to ask for the relation)."
            )
        index = self.relation(relation)
        if head is not None:
            return self.entity(head), index
        return self.entity(tail or ""), (index + self.graph.num_relations) % (
            2 * self.graph.num_relations
        )

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        top: int = 10,
        hide_known: bool = False,
        readout: str | None = None,
    ) -> Predictions:
        """The best tails of (head, relation, ?), heads of (?, relation, tail), or relations of
        (head, ?, tail)."""
        if head is not None and tail is not None and relation is None:
            return self._predict_relation(self.entity(head), self.entity(tail), top, hide_known)
        return self.answers([self.query(head, relation, tail)], top, hide_known, readout)[0]

    def predict_many(
        self,
        questions: str | Path | Iterable[Sequence[str | None]],
        *,
        top: int = 10,
        hide_known: bool = False,
        readout: str | None = None,
    ) -> Iterator[tuple[given.Line, Predictions | given.Problem]]:
        """Answers to the questions of a file or a list, by name or id, one after the other.

        A question is (head, relation, "?") or ("?", relation, tail). A bad one gives its problem
        in place of its answers. Few are in memory at a time.
        """
        group, batches = world(), given.batches(given.rows_of(questions), QUESTIONS)
        while shared := list(itertools.islice(batches, group.size)):
            own = shared[group.rank] if group.rank < len(shared) else []
            for answers in group.every(self._answer(own, top, hide_known, readout)):
                yield from answers

    def _answer(
        self, lines: list[given.Line], top: int, hide_known: bool, readout: str | None
    ) -> list[tuple[given.Line, Predictions | given.Problem]]:
        """The answers to some lines of a file, in one pass."""
        asked = [given.question(self, *line) for line in lines]
        good = [question for question in asked if not isinstance(question, given.Problem)]
        found = iter(self.answers(good, top, hide_known, readout) if good else [])
        return [
            (line, question if isinstance(question, given.Problem) else next(found))
            for line, question in zip(lines, asked, strict=True)
        ]

    def answers(
        self,
        queries: Sequence[tuple[int, int]],
        top: int = 10,
        hide_known: bool = False,
        readout: str | None = None,
    ) -> list[Predictions]:
        """Answers to some [head, relation] queries, by index, in one pass.

        An entity is not its own answer where no training fact of the relation has that.
        """
        _positive(top)
        if not queries:
            return []
        heads, relations = np.array(queries, np.int64).reshape(-1, 2).T
        found = self._known_splits(heads, relations)
        hidden = [(row, known) for row, each in enumerate(found) for known in each if hide_known]
        hidden += [
            (row, head)
            for row, (head, relation) in enumerate(queries)
            if head not in found[row] and not self.graph.has_loops[relation]
        ]
        some = None
        if self.confidence and (readout or self.settings.readout) == self.asker.readout:
            some = self.asker.questions(heads, relations)
        asked = some.asked if some else Asked.of(self.model, heads, relations, readout)
        rows, known = np.array(hidden, np.int64).reshape(-1, 2).T
        # With a confidence some more are looked at: it asks for the first two that are not known.
        best = self.search.best(asked, top + SPARE * bool(some), Hidden.of(rows, known))
        entities = best.entity_BP.cpu().numpy()
        is_left = best.log_share_BP.isfinite().cpu().numpy()
        sure = np.full(entities.shape, np.nan)
        if self.confidence and some:
            is_new = is_left & given.not_in_training(found, entities)
            if not hide_known:
                self.asker.note(some, best, is_new)
            row, place = np.nonzero(is_new[:, :top])
            sure[row, place] = given.sure(self, some, row, entities[row, place], self.confidence)
        shares, entities = best.log_share_BP[:, :top].exp().tolist(), entities[:, :top]
        return [
            Predictions(
                Prediction.of(
                    self.graph.entities, index, place + 1, share, known.get(index), chance
                )
                for place, (index, share, chance) in enumerate(zip(*columns, strict=True))
                if is_left[row, place]
            )
            for row, (known, *columns) in enumerate(
                zip(found, entities.tolist(), shares, sure[:, :top].tolist(), strict=True)
            )
        ]

    @cached_property
    def search(self) -> Search:
        """What finds answers: the run's index (`ekgn index`), or a look at every entity."""
        index = load_index(self)
        if index is None and self.graph.num_entities > MANY:
            log.warning(
                "Every question looks at all %s entities. An index is faster: ekgn index %s",
                *(f"{self.graph.num_entities:,}", self.path),
            )
        return index or ExactSearch(self.model)

    def index(self, cells: int = 0) -> About:
        """Make an index of the answers, and keep it with the run; raises if it finds too little."""
        about = build_index(self, cells)
        self.__dict__.pop("search", None)
        return about

    def known_splits(self, head: int, relation: int) -> dict[int, str]:
        """The known answers of a query, each with the split it is in."""
        return self._known_splits(np.array([head]), np.array([relation]))[0]

    def _known_splits(self, heads: Ints, relations: Ints) -> list[dict[int, str]]:
        found: list[dict[int, str]] = [{} for _ in heads]
        for split in ("test", "valid", "train"):
            known = self.known[split]
            rows, answers = known.gather(known.rows(heads, relations))
            for row, answer in zip(rows.tolist(), answers.tolist(), strict=True):
                found[row][answer] = split
        return found

    def _predict_relation(self, head: int, tail: int, top: int, hide_known: bool) -> Predictions:
        """Relations by the geometric mean of p(tail | head, r) and p(head | tail, r inverse)."""
        _positive(top)
        count = self.graph.num_relations
        relations = np.arange(count)
        forward = self.scorer()(np.full(count, head), relations).log_softmax(dim=1)[:, tail]
        backward = self.scorer()(np.full(count, tail), relations + count).log_softmax(dim=1)
        chances = ((forward + backward[:, head]) / 2).exp()
        known = {
            relation: splits[tail]
            for relation in range(count)
            if tail in (splits := self.known_splits(head, relation))
        }
        names = self.graph.relations
        order = [
            r for r in chances.argsort(descending=True).tolist() if not (hide_known and r in known)
        ]
        return Predictions(
            Prediction.of(names, index, place + 1, float(chances[index]), known.get(index))
            for place, index in enumerate(order[:top])
        )

    @cached_property
    def asker(self) -> Asker:
        """What puts many questions to the model, from both sides."""
        return Asker(self)

    @cached_property
    def confidence(self) -> Confidence | None:
        """The fitted confidence that the run keeps, if it was fitted on these weights."""
        kept = Confidence.load(self.path)
        return kept if kept and kept.checkpoint == self.checkpoint else None

    def fit_confidence(
        self, choice: Choice = Choice(), on_progress: Callable[[int, int], None] | None = None
    ) -> Confidence:
        """Fit P(true) on validation, keep it with the run, and its check in the record."""
        self.__dict__["confidence"] = made = fit_confidence(self, choice, on_progress)
        return made

    def complete(
        self,
        out: str | Path | None = None,
        *,
        relations: Iterable[str] = (),
        entities: Iterable[str] = (),
        on_progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> Completion:
        """The missing facts of all or some relations and entities, the surest first.

        Written to `out`, if given, in the form that its name ends in. The options are those of
        `Choice` (which questions) and `Wanted` (which facts): see docs/completion.md.
        """
        names = [self.relation(name) % self.graph.num_relations for name in relations]
        things = [self.entity(name) for name in entities]
        return complete(self, out, names, things, on_progress=on_progress, **options)

    def score(self, facts: str | Path | Iterable[Sequence[str]]) -> given.Scored:
        """What the run says of given facts, by name or id, of a file or a list."""
        return given.score(self, given.rows_of(facts), self.confidence)

    @cached_property
    def explainer(self) -> Explainer:
        """What puts the model's steps into words; its indexes are made when first used."""
        return Explainer(self.graph, self.model, self.known, self.rules)

    def explain(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        target: str | None = None,
        top: int = 5,
        nearest: int = 3,
        readout: str | None = None,
    ) -> Explanation:
        """Every lookup step of one question, and the reasons in words."""
        question = self.query(head, relation, tail)
        wanted = None if target is None else self.entity(target)
        return self.explainer.explain(*question, wanted, top=top, nearest=nearest, readout=readout)

    @cached_property
    def _what_ifs(self) -> WhatIfs:
        return WhatIfs(self.graph, self.model)

    def what_if(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        target: str | None = None,
        without: Sequence[tuple[str, str, str]] = (),
        added: Sequence[tuple[str, str, str]] = (),
        top: int = 5,
    ) -> WhatIf:
        """What an answer (the first, or `target`) would be without or with some facts.

        Without any given, the facts whose removal lowers it most. The rows of the question's entity
        and of the answer are fitted again, all else stays: this is no retraining.
        """
        question = self.query(head, relation, tail)
        answer = None if target is None else self.entity(target)
        if not without and not added:
            return self._what_ifs.most_telling(*question, answer, top)
        gone, more = ([self.fact(*words) for words in facts] for facts in (without, added))
        return self._what_ifs.given(*question, answer, gone, more)

    def time_evidence(self, questions: int = 20) -> dict[str, Any]:
        """How long the rules and paths of an answer take on this machine, over some facts."""
        assert self.rules is not None
        graph, took = self.graph, []
        held_out = next(part for part in (graph.test, graph.valid, graph.train) if len(part))
        for fact in np.random.default_rng(0).permutation(held_out)[:questions].tolist():
            began = time.perf_counter()
            evidence(self.rules, *fact)
            took.append(1000 * (time.perf_counter() - began))
        middle, slowest = round(float(np.median(took)), 2), round(max(took), 2)
        found = {"questions": len(took), "median": middle, "slowest": slowest}
        about = {"milliseconds": found, "environment": environment(self.device)}
        self.record = self.folder.store("evidence", "rules", about)
        return found

    def fact(self, head: str, relation: str, tail: str) -> Fact:
        """A fact by index, given by ids or names."""
        index = self.graph.relations.find(relation, "relation", self.graph.name)
        return self.entity(head), index, self.entity(tail)

    def extend(
        self,
        file: str | Path,
        *,
        names: Sequence[str | Path] = (),
        out: str | Path | None = None,
        refresh: int = 0,
    ) -> Extension:
        """Add facts, entities and names to the run without training it again; load it anew then."""
        return extend(
            self.path, Path(file), [Path(n) for n in names], Path(out) if out else None, refresh
        )

    def undo(self) -> Extension:
        """Take the run's last extension back; load it anew then."""
        return undo(self.path)

    def memory(self) -> MemoryMap:
        """What each vector of the embedded knowledge graph stands for."""
        return self.explainer.memory

    def embeddings(self, of: Literal["entities", "relations"] = "entities") -> Vectors:
        """The learned vectors, as array and frame; `save` writes them.

        Entities in the paper's form have two: these are the answers'. The vectors of the inverse
        relations are not among the relations'.
        """
        names = {"entities": self.graph.entities, "relations": self.graph.relations}
        if of not in names:
            raise EkgnError(f"No vectors of '{of}': expected entities or relations.")
        table = self.model.answers if of == "entities" else self.model.relations
        weight = table.weight.detach().cpu()[: len(names[of])]
        return vectors_of(names[of], weight.numpy())

    def evidence(
        self, head: str | None, relation: str | None, tail: str | None, answer: str, top: int = 3
    ) -> list[Evidence]:
        """The best rules that lead from a question to an answer, with their training facts."""
        if self.rules is None:
            return []
        return evidence(self.rules, *self.query(head, relation, tail), self.entity(answer), top)


def _positive(top: int) -> None:
    if top < 1:
        raise EkgnError(f"top = {top}: ask for at least one answer.")
