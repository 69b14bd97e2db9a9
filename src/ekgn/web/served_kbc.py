"""A run of knowledge base completion as served: names, predictions, explanations, memory."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ekgn.config import parse_readout
from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.roles import Floats32
from ekgn.kbc.explain import Explanation
from ekgn.kbc.graph import Vocabulary
from ekgn.kbc.rules import Evidence
from ekgn.kbc.run import KbcRun, Predictions
from ekgn.kbc.search import QUERIES
from ekgn.kbc.what_if import Fact as Indexed
from ekgn.kbc.what_if import WhatIf, WhatIfs
from ekgn.web.problems import Problem, shown
from ekgn.web.schema import (
    Example,
    ExplainReply,
    Fact,
    HeatMap,
    Hit,
    MemoryReply,
    Move,
    Part,
    Question,
    RunReply,
    StatesReply,
    Thing,
    WhatIfReply,
)
from ekgn.web.search import MATCHES, NameIndex
from ekgn.web.served import ServedRun
from ekgn.web.states import StateMap

EXPLAIN_DEPTH = 50  # ranks looked at to say how answers move
HEAT_MAP_RELATIONS = 240
EXAMPLES = 6
KEPT_WHAT_IFS = 64
PREPARED_SCORES = 300_000_000  # of entities, made before anybody asks: some seconds
USUAL = 0.5  # of an entity's kind, to call a relation it lacks a gap


class Asked(NamedTuple):
    """One question as the network gets it: [head, relation, ?] by index."""

    head: int
    relation: int
    top: int


Read = tuple[Question, int, int | None, int | None]
"""A question in words, and its head, relation and tail by index."""


class ServedKbc(ServedRun):
    """One trained run of knowledge base completion."""

    def __init__(self, name: str, run: KbcRun) -> None:
        super().__init__(name, run)
        self.run = run
        graph = run.graph
        self.facts = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
        self.relation_facts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
        self._entities = _index_of(graph.entities, self.facts)
        self._relations = _index_of(graph.relations, self.relation_facts)
        self.explainer = run.explainer
        self._kept_what_ifs: dict[tuple[object, ...], WhatIf] = {}
        self.batch_size = QUERIES

    def prepare(self) -> None:
        """Do now what the first visitor would otherwise wait for."""
        _ = self.examples, self.run.asker
        if self.run.settings.reads_memory:
            self.explainer.prepare()

    def pieces(self) -> Iterator[object]:
        """What else makes answers fast, a piece at a time."""
        if self.run.confidence:
            yield from self.run.asker.prepare(PREPARED_SCORES)

    def entity(self, text: str) -> int:
        """The index of an entity given by id or name."""
        return self._find(text, "entity", self.run.graph.entities, self._entities)

    def relation(self, text: str) -> int:
        """The index of a relation given by id or name; a leading ^ asks for the inverse."""
        known = self.run.graph.relations
        inverse = text.startswith("^") and text not in known.index_of
        name = text[1:] if inverse else text
        index = self._find(name, "relation", known, self._relations)
        return index + self.run.graph.num_relations * inverse

    def _find(self, text: str, kind: str, known: Vocabulary, names: NameIndex) -> int:
        if text in known.index_of:
            return known.index_of[text]
        hits = [hit.index for hit in names.search(text, 20) if hit.match == "exact"]
        same = [index for index in hits if known.labels[index] == text] or hits
        if len(same) == 1:
            return same[0]
        if same:
            message = f"{len(same)} have the name '{shown(text)}': give the id of one of them."
            raise Problem(409, f"ambiguous_{kind}", message, self._things(same, known))
        near = self._things(names.suggestions(text), known)
        hint = f" Did you mean {near[0].label}?" if near else ""
        message = f"No {kind} of {self.run.graph.name} is called '{shown(text)}'.{hint}"
        raise Problem(404, f"unknown_{kind}", message, near)

    @staticmethod
    def _things(indices: Sequence[int], known: Vocabulary) -> list[Thing]:
        return [thing(known, index) for index in indices]

    def entity_thing(self, index: int) -> Thing:
        """An entity in words."""
        return thing(self.run.graph.entities, index)

    def relation_thing(self, index: int) -> Thing:
        """A relation in words, the same for its inverse."""
        return thing(self.run.graph.relations, index % self.run.graph.num_relations)

    def check_readout(self, readout: str | None) -> str:
        """The readout that is meant; raises if there is no such readout."""
        chosen = readout or self.run.settings.readout
        try:
            parse_readout(chosen, self.run.settings.max_steps)
        except EkgnError as error:
            raise Problem(422, "unknown_readout", str(error)) from None
        return chosen

    def question(self, head: str | None, relation: str | None, tail: str | None) -> Read:
        """The question in words, and its head, relation and tail by index.

        With a relation the first index is what the network is asked from: the tail, over the
        inverse relation, when the head is missing.
        """
        given: dict[Part, str | None] = {"head": head, "relation": relation, "tail": tail}
        missing = [name for name, part in given.items() if part is None]
        if len(missing) != 1:
            raise Problem(
                422,
                "incomplete_question",
                "A question is a fact with one part missing: give two of head, relation and tail.",
            )
        heads = None if head is None else self.entity(head)
        tails = None if tail is None else self.entity(tail)
        index = None if relation is None else self.relation(relation)
        asked = Question(
            head=None if heads is None else self.entity_thing(heads),
            relation=None if index is None else self.relation_thing(index),
            tail=None if tails is None else self.entity_thing(tails),
            missing=missing[0],
        )
        if index is None:
            assert heads is not None
            return asked, heads, None, tails
        width = self.run.graph.num_relations
        if index >= width:  # asked for the inverse: the same fact the other way round
            asked = asked.model_copy(
                update={
                    "head": asked.tail,
                    "tail": asked.head,
                    "missing": {"head": "tail", "tail": "head"}[asked.missing],
                }
            )
        if heads is not None:
            return asked, heads, index, None
        assert tails is not None
        return asked, tails, (index + width) % (2 * width), None

    def answer(self, key: tuple[bool, str], asked: Sequence[Asked]) -> list[Predictions]:
        """Answers to some questions in one pass: what the batcher calls."""
        hide_known, readout = key
        top = max(one.top for one in asked)
        found = self.run.answers(
            [(one.head, one.relation) for one in asked], top, hide_known, readout
        )
        return [Predictions(answers[: one.top]) for one, answers in zip(asked, found, strict=True)]

    def relations_between(self, head: int, tail: int, top: int, hide_known: bool) -> Predictions:
        """The most probable relations from head to tail."""
        ids = self.run.graph.entities.ids
        return self.run.predict(head=ids[head], tail=ids[tail], top=top, hide_known=hide_known)

    def search_entities(self, text: str, limit: int) -> list[Hit]:
        """Entities by name, prefix or typo."""
        names = self.run.graph.entities
        return [
            Hit(
                **thing(names, hit.index).model_dump(),
                facts=int(self.facts[hit.index]),
                match=hit.match,
            )
            for hit in self._entities.search(text, limit)
        ]

    def search_relations(self, text: str, limit: int, of: int | None, side: str) -> list[Hit]:
        """Relations by name, prefix or typo.

        With an entity those come first that it lacks and most of its kind have, then its own;
        what was typed counts more.
        """
        counts = self.relation_facts if of is None else self.relations_of(of, side)
        hits = {hit.index: hit.match for hit in self._relations.search(text, len(counts))}
        order = list(hits) if text.strip() else sorted(hits, key=lambda index: -counts[index])
        if of is not None:
            usual = self.usual_relations(of, side)
            is_gap = (counts == 0) & (usual >= USUAL)
            order.sort(key=lambda index: (not is_gap[index], counts[index] == 0, -usual[index]))
        if text.strip():
            order.sort(key=lambda index: MATCHES.index(hits[index]))
        names = self.run.graph.relations
        return [
            Hit(**thing(names, index).model_dump(), facts=int(counts[index]), match=hits[index])
            for index in order[:limit]
        ]

    def usual_relations(self, entity: int, side: str) -> Floats32:
        """1 for the relations of an entity as head (or tail), else the share of its kind."""
        width = self.run.graph.num_relations
        usual = self.run.asker.roles.likely_of(entity)
        return usual[width:] if side == "tail" else usual[:width]

    def type_of(self, entity: int) -> str:
        """The commonest of its roles in words: what an entity is, where a graph has no types."""
        train, graph = self.run.known["train"], self.run.graph
        low, high = np.searchsorted(train.heads, [entity, entity + 1])
        roles = train.relations[low:high]
        if not len(roles):
            return ""
        role = int(roles[self.relation_facts[roles % graph.num_relations].argmax()])
        return f"{graph.relations.labels[role % graph.num_relations]} {role >= graph.num_relations}"

    def relations_of(self, entity: int, side: str) -> Ints:
        """How many training facts of each relation have the entity as their head (or tail)."""
        train, width = self.run.known["train"], self.run.graph.num_relations
        low, high = np.searchsorted(train.heads, [entity, entity + 1])
        sizes = np.diff(train.offsets)[low:high]
        counts = np.zeros(2 * width, np.int64)
        counts[train.relations[low:high]] = sizes
        return counts[width:] if side == "tail" else counts[:width]

    def explain(
        self,
        question: Question,
        head: int,
        relation: int,
        target: int | None,
        top: int,
        nearest: int,
        readout: str,
    ) -> ExplainReply:
        """Every step of one question, and how its answers move between the steps."""
        full = self.explainer.explain(
            head, relation, target, top=max(top, EXPLAIN_DEPTH), nearest=nearest, readout=readout
        )
        steps = [
            dataclasses.replace(step, answers=step.answers[:top], attention=step.attention[:8])
            for step in full.steps
        ]
        return ExplainReply(
            question=question,
            explanation=dataclasses.replace(full, steps=steps, answers=full.answers[:top]),
            followed=self._followed(head, relation, target),
            paths=self.paths(full.evidence),
            untrained=self._untrained(question),
            moves=moves(full, min(top, 6)),
            themes=self.explainer.memory.themes if self.run.settings.reads_memory else [],
        )

    def paths(self, found: Sequence[Evidence]) -> list[list[Fact]]:
        """The training facts of some rules, in words."""
        entities, relations = self.run.graph.entities, self.run.graph.relations
        return [
            [
                Fact(
                    head=thing(entities, entities.index_of[head]),
                    relation=thing(relations, relations.index_of[relation]),
                    tail=thing(entities, entities.index_of[tail]),
                )
                for head, relation, tail in one.facts
            ]
            for one in found
        ]

    @cached_property
    def _state_map(self) -> StateMap:
        return StateMap(self.explainer)

    def states(self, question: Question, head: int, relation: int) -> StatesReply:
        """The way of a question among the states of others."""
        return self._state_map.of(question, head, relation)

    @cached_property
    def _what_ifs(self) -> WhatIfs:
        """Over a model of its own: rows change while it works, and predictions go on meanwhile."""
        return WhatIfs(self.run.graph, copy.deepcopy(self.run.model))

    def what_if(
        self,
        question: Question,
        head: int,
        relation: int,
        target: int | None,
        without: tuple[Indexed, ...],
        added: tuple[Indexed, ...],
    ) -> WhatIfReply:
        """An answer without and with some facts, or without each that holds it up most."""
        if target is None:
            best = self.run.answers([(head, relation)], top=1)[0][0]
            target = self.run.graph.entities.index_of[best.id]
        found = self._changed(head, relation, target, without, added)
        return WhatIfReply(question=question, answer=self.entity_thing(target), what_if=found)

    def _changed(
        self,
        head: int,
        relation: int,
        target: int,
        without: tuple[Indexed, ...],
        added: tuple[Indexed, ...],
    ) -> WhatIf:
        """Kept for a while: what took too long for one request is there for the next."""
        key = head, relation, target, without, added
        if key not in self._kept_what_ifs:
            if len(self._kept_what_ifs) >= KEPT_WHAT_IFS:
                self._kept_what_ifs.pop(next(iter(self._kept_what_ifs)))
            if without or added:
                found = self._what_ifs.given(head, relation, target, without, added)
            else:
                found = self._what_ifs.most_telling(head, relation, target)
            self._kept_what_ifs[key] = found
        return self._kept_what_ifs[key]

    def _followed(self, head: int, relation: int, target: int | None) -> str | None:
        """The split that has the fact with the answer that is followed."""
        return None if target is None else self.run.known_splits(head, relation).get(target)

    def _untrained(self, question: Question) -> list[Thing]:
        """The parts of a question that no training fact has: their vectors say nothing."""
        graph = self.run.graph
        parts = [
            (question.head, graph.entities, self.facts),
            (question.relation, graph.relations, self.relation_facts),
            (question.tail, graph.entities, self.facts),
        ]
        return [part for part, names, facts in parts if part and not facts[names.index_of[part.id]]]

    def memory(self, top: int, relation: str | None) -> MemoryReply:
        """What each memory vector is used for."""
        one = None if relation is None else self.relation(relation)
        found = self.explainer.memory
        frequent = np.argsort(-found.queries_R, kind="stable")[:HEAT_MAP_RELATIONS]
        rows, columns = found.clustered()
        kept = rows[np.isin(rows, frequent)]
        values = found.attention_RM[np.ix_(kept, columns)].T
        return MemoryReply(
            run=self.summary,
            slots=found.slots(top),
            heat_map=HeatMap(
                slots=columns.tolist(),
                relations=[found.names[row] for row in kept],
                values=np.round(values, 4).tolist(),
            ),
            relations_left_out=len(rows) - len(kept),
            relation=None if one is None else found.relation(self.explainer.relation(one), top),
        )

    def reply(self) -> RunReply:
        """The run, with example questions from its held-out facts."""
        return RunReply(run=self.summary, examples=self.examples)

    @cached_property
    def examples(self) -> list[Example]:
        """Held-out facts with well-known parts, asked as questions; those it answers well first."""
        graph = self.run.graph
        facts = next((part for part in (graph.test, graph.valid, graph.train) if len(part)), None)
        if facts is None:
            return []
        drawn = np.random.default_rng(0).permutation(facts)[:1_000]
        known = np.minimum(self.facts[drawn[:, 0]], self.facts[drawn[:, 2]])
        few = _in_turn(drawn[np.argsort(-known, kind="stable")])[: min(48, 2 * self.batch_size)]
        best = _in_turn(few[np.argsort(self._places(few), kind="stable")])
        return [self._example(*map(int, fact)) for fact in best[:EXAMPLES]]

    def _places(self, facts: Ints) -> Ints:
        """The rank of each fact's tail, up to 10; 11 beyond."""
        ids = self.run.graph.entities.ids
        answers = self.run.answers([(int(h), int(r)) for h, r, _ in facts], top=10)
        return np.array(
            [
                next((a.rank for a in found if a.id == ids[int(fact[2])]), 11)
                for fact, found in zip(facts, answers, strict=True)
            ]
        )

    def _example(self, head: int, relation: int, tail: int) -> Example:
        question = Question(
            head=self.entity_thing(head),
            relation=self.relation_thing(relation),
            tail=None,
            missing="tail",
        )
        return Example(question=question, answer=self.entity_thing(tail))


def _in_turn(facts: Ints) -> Ints:
    """The same facts, the first of every relation first, then the second of each, and so on."""
    order = np.argsort(facts[:, 1], kind="stable")
    relations = facts[order, 1]
    turn = np.arange(len(facts)) - np.searchsorted(relations, relations)
    turns = np.empty(len(facts), np.int64)
    turns[order] = turn
    return facts[np.argsort(turns, kind="stable")]


def _index_of(known: Vocabulary, weights: Ints) -> NameIndex:
    return NameIndex(known.labels, known.ids, weights, known.aliases)


def thing(known: Vocabulary, index: int) -> Thing:
    """A name of a vocabulary."""
    return Thing(
        id=known.ids[index], label=known.labels[index], description=known.descriptions[index]
    )


def moves(explanation: Explanation, best: int) -> list[Move]:
    """The answers among the best of some step and the one followed, with their rank by step."""
    kept: dict[str, Move] = {}
    steps = explanation.steps
    followed = explanation.target and explanation.target.id
    for step in steps:
        for answer in step.answers:
            if answer.rank > best and answer.id != followed:
                continue
            kept.setdefault(
                answer.id,
                Move(
                    id=answer.id,
                    label=answer.label,
                    known=answer.known,
                    ranks=[None] * len(steps),
                    shares=[None] * len(steps),
                ),
            )
    for place, step in enumerate(steps):
        for answer in step.answers:
            if answer.id in kept:
                kept[answer.id].ranks[place] = answer.rank
                kept[answer.id].shares[place] = answer.share
    last = explanation.answering_step - 1
    return sorted(kept.values(), key=lambda move: move.ranks[last] or 10**9)
