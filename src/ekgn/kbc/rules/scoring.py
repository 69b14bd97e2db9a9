"""Answers by rules: every rule of a question walked from its head, the best few of an answer kept.

An answer with rules of confidence c1 >= c2 >= ... scores the discounted noisy-or
-log(1 - c1) - β log(1 - c2) - β² log(1 - c3) ..., over its best few rules. β = 1 is noisy-or;
a small β orders by the best rule, then by the next (AnyBURL's max+).
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.rules.bodies import ends_of
from ekgn.kbc.rules.compiled import compiled
from ekgn.kbc.rules.constants import others
from ekgn.kbc.rules.facts import Facts, find_row, index_facts, inverse
from ekgn.kbc.rules.mining import Mining, mine
from ekgn.kbc.rules.rulebook import NONE, PRIOR, RuleTable, as_int32

Floats32 = NDArray[np.float32]
Ints32 = NDArray[np.int32]

FEW = 10  # rules of an answer that count
DISCOUNT = 0.6  # β
_RULE_STEPS = 20_000  # of a walk by one rule
_QUERY_STEPS = 2_000_000  # of all walks of a question, the most confident rules first
ONE_FACT = Mining(max_length=1, constants=False, min_support=1, min_confidence=0.0)
_SURE = np.float32(1 - 1e-6)  # -log(1 - c) stays finite
_BLOCK = 16  # questions answered in one go


class Index(NamedTuple):
    """Rules in the order in which questions ask for them; `rule` leads back to the table.

    Closed rules by the relation asked, inverses included; rules with a constant by the body row
    that holds the asked entity, by the body relation for r1(x, anything), and by the head row of
    the constant where that is the asked entity. Within each, the most confident first.
    """

    closed_starts: Ints
    closed_bodies: Ints
    closed_rule: Ints32
    body_starts: Ints
    body_relations: Ints32
    body_answers: Ints32
    body_rule: Ints32
    any_starts: Ints
    any_answers: Ints32
    any_rule: Ints32
    head_starts: Ints
    head_bodies: Ints32
    head_rule: Ints32


def index_rules(facts: Facts, table: RuleTable) -> Index:
    """The index of a table over the facts it was mined from."""
    width = facts.width
    rows = facts.heads * width + facts.relations
    closed, fixed = np.flatnonzero(table.closed), np.flatnonzero(~table.closed)
    bodies = np.concatenate([table.body[closed], _backwards(table.body[closed], width)])
    asked = np.concatenate([table.relation[closed], table.relation[closed] + width // 2])
    both = np.concatenate([closed, closed])
    order = np.lexsort((-table.confidence[both], asked))
    relation, constant = table.relation[fixed].astype(np.int64), table.constant[fixed]
    first, whatever = table.body[fixed, 0].astype(np.int64), table.body_constant[fixed] == NONE
    ends = np.where(whatever, 0, table.body_constant[fixed]).astype(np.int64)
    body = np.searchsorted(rows, ends * width + _inverse(first, width))
    body = np.where(whatever, -1 - first, body)
    head = np.searchsorted(rows, constant.astype(np.int64) * width + _inverse(relation, width))
    named, cell = np.flatnonzero(~whatever), first * width + relation
    named = named[np.lexsort((relation[named], body[named]))]
    anys = np.flatnonzero(whatever)
    anys = anys[np.argsort(cell[anys], kind="stable")]
    by_head = np.lexsort((-table.confidence[fixed], head))
    return Index(
        closed_starts=np.searchsorted(asked[order], np.arange(width + 1)),
        closed_bodies=bodies[order].astype(np.int64),
        closed_rule=as_int32(both[order]),
        body_starts=np.searchsorted(body[named], np.arange(len(rows) + 1)),
        body_relations=as_int32(relation[named]),
        body_answers=as_int32(constant[named]),
        body_rule=as_int32(fixed[named]),
        any_starts=np.searchsorted(cell[anys], np.arange(width * width + 1)),
        any_answers=as_int32(constant[anys]),
        any_rule=as_int32(fixed[anys]),
        head_starts=np.searchsorted(head[by_head], np.arange(len(rows) + 1)),
        head_bodies=as_int32(body[by_head]),
        head_rule=as_int32(fixed[by_head]),
    )


def _inverse(relations: NDArray[Any], width: int) -> NDArray[Any]:
    return np.where(relations == NONE, NONE, (relations + width // 2) % width)


def _backwards(bodies: Ints32, width: int) -> Ints32:
    """The same paths walked from y to x."""
    turned, length = np.full_like(bodies, NONE), (bodies != NONE).sum(axis=1)
    for size in (1, 2, 3):
        here = length == size
        turned[here, :size] = _inverse(bodies[here, :size][:, ::-1], width)
    return turned


@compiled
def _keep(best, rules, answer, confidence, rule):  # type: ignore[no-untyped-def]
    """Keep a rule among the most confident of an answer, in falling order."""
    place = best.shape[1] - 1
    if confidence <= best[answer, place]:
        return
    while place > 0 and best[answer, place - 1] < confidence:
        best[answer, place] = best[answer, place - 1]
        rules[answer, place] = rules[answer, place - 1]
        place -= 1
    best[answer, place] = confidence
    rules[answer, place] = rule


@compiled
def _by_closed(facts, index, confidence, x, relation, stamp, ends, best, rules):  # type: ignore[no-untyped-def]
    """The answers that closed rules lead to from x."""
    walk = facts.rows_of, facts.relations, facts.starts, facts.tails
    bodies, rule_of, spent = index.closed_bodies, index.closed_rule, 0
    stamp[:] = NONE
    for at in range(index.closed_starts[relation], index.closed_starts[relation + 1]):
        count, steps = ends_of(walk, x, bodies[at], _RULE_STEPS, stamp, at, ends)
        for i in range(count):
            _keep(best, rules, ends[i], confidence[rule_of[at]], rule_of[at])
        spent += steps
        if spent > _QUERY_STEPS:
            break


@compiled
def _by_constant_answers(facts, index, confidence, x, relation, best, rules):  # type: ignore[no-untyped-def]
    """The constants that follow from what x is known for."""
    rows_of, relations, starts, tails = facts.rows_of, facts.relations, facts.starts, facts.tails
    body_starts, body_relations = index.body_starts, index.body_relations
    body_answers, body_rule = index.body_answers, index.body_rule
    any_starts, any_answers, any_rule = index.any_starts, index.any_answers, index.any_rule
    width = len(facts.domain) - 1
    for row in range(rows_of[x], rows_of[x + 1]):
        cell, back = relations[row] * width + relation, inverse(relations[row], width)
        many = starts[row + 1] - starts[row] > 2
        for at in range(any_starts[cell], any_starts[cell + 1]):
            answer, rule = any_answers[at], any_rule[at]
            if answer != x and (many or others(facts, row, answer) > 0):
                _keep(best, rules, answer, confidence[rule], rule)
        for fact in range(starts[row], starts[row + 1]):
            if tails[fact] == x:
                continue
            body = find_row(rows_of, relations, tails[fact], back)
            low, high = body_starts[body], body_starts[body + 1]
            while low < high:
                middle = (low + high) // 2
                if body_relations[middle] < relation:
                    low = middle + 1
                else:
                    high = middle
            while low < body_starts[body + 1] and body_relations[low] == relation:
                if body_answers[low] != x:
                    rule = body_rule[low]
                    _keep(best, rules, body_answers[low], confidence[rule], rule)
                low += 1


@compiled
def _by_constant_asked(facts, index, confidence, x, relation, best, rules):  # type: ignore[no-untyped-def]
    """The entities that the rules with x as their constant hold for."""
    head = find_row(facts.rows_of, facts.relations, x, relation)
    if head == NONE:
        return
    starts, tails, domain = facts.starts, facts.tails, facts.domain
    heads, by_relation, spent = facts.heads, facts.by_relation, 0
    for at in range(index.head_starts[head], index.head_starts[head + 1]):
        body, rule = index.head_bodies[at], index.head_rule[at]
        if body >= 0:
            for i in range(starts[body], starts[body + 1]):
                if tails[i] != x and tails[i] != heads[body]:
                    _keep(best, rules, tails[i], confidence[rule], rule)
            spent += starts[body + 1] - starts[body]
        else:
            for i in range(domain[-1 - body], domain[-body]):
                row = by_relation[i]
                many = starts[row + 1] - starts[row] > 2
                if heads[row] != x and (many or others(facts, row, x) > 0):
                    _keep(best, rules, heads[row], confidence[rule], rule)
            spent += domain[-body] - domain[-1 - body]
        if spent > _QUERY_STEPS:
            break


@compiled
def best_rules(facts, index, confidence, x, relation, stamp, ends, best, rules):  # type: ignore[no-untyped-def]
    """Fill `best` and `rules` (entities, few) with the confidences and rules of every answer."""
    best[:] = 0
    _by_closed(facts, index, confidence, x, relation, stamp, ends, best, rules)
    _by_constant_answers(facts, index, confidence, x, relation, best, rules)
    _by_constant_asked(facts, index, confidence, x, relation, best, rules)


@compiled
def _score(facts, index, confidence, heads, relations, few, discount, out):  # type: ignore[no-untyped-def]
    """The discounted noisy-or of every answer, 0 where no rule leads."""
    size = out.shape[1]
    stamp, ends = np.empty(size, np.int64), np.empty(size, np.int64)
    best, rules = np.empty((size, few), np.float32), np.empty((size, few), np.int32)
    for query in range(len(heads)):
        best_rules(
            facts, index, confidence, heads[query], relations[query], stamp, ends, best, rules
        )
        for answer in range(size):
            total, weight = 0.0, 1.0
            for place in range(few):
                if best[answer, place] == 0:
                    break
                total -= weight * math.log1p(-best[answer, place])
                weight *= discount
            out[query, answer] = total


class Rules:
    """A table of rules over the facts it was mined from: scores, and the best rules of an answer.

    Without a table, the rules of one fact: a baseline that copies reversed or renamed facts.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        table: RuleTable | None = None,
        *,
        prior: float = PRIOR,
        few: int = FEW,
        discount: float = DISCOUNT,
        threads: int = 0,
    ) -> None:
        if table is None:
            table, few, prior = mine(graph, ONE_FACT).rules, 1, 0.0
        self.graph, self.table, self.few, self.discount = graph, table, few, discount
        self.facts = index_facts(graph)
        self.index = index_rules(self.facts, table)
        self._threads = threads or os.cpu_count() or 1
        self._confidence = np.minimum(table.confidence_at(prior), _SURE)

    def scores(self, heads: Ints, relations: Ints) -> Tensor:
        """-log(1 - p) of every entity as the answer, (B, N); p is 0 where no rule leads."""
        out = np.zeros((len(heads), self.graph.num_entities), np.float32)

        def fill(start: int) -> None:
            here = slice(start, start + _BLOCK)
            settings = self.few, self.discount, out[here]
            _score(
                self.facts, self.index, self._confidence, heads[here], relations[here], *settings
            )

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(fill, range(0, len(heads), _BLOCK)))
        return torch.from_numpy(out)

    def of_answer(self, head: int, relation: int, answer: int) -> list[tuple[int, float]]:
        """The best few rules of one answer: (row of the table, confidence), the surest first."""
        size = self.graph.num_entities
        stamp, ends = np.empty(size, np.int64), np.empty(size, np.int64)
        best, rules = np.empty((size, self.few), np.float32), np.empty((size, self.few), np.int32)
        best_rules(
            self.facts, self.index, self._confidence, head, relation, stamp, ends, best, rules
        )
        return [
            (int(rule), float(sure))
            for rule, sure in zip(rules[answer], best[answer], strict=True)
            if sure > 0
        ]
