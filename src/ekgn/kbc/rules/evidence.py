"""Rules as evidence: the training facts that lead from a question to an answer, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ekgn.kbc.answers import Ints
from ekgn.kbc.rules.bodies import path_between
from ekgn.kbc.rules.facts import Facts, find_row
from ekgn.kbc.rules.rulebook import NONE, PRIOR
from ekgn.kbc.rules.scoring import Rules
from ekgn.kbc.words import fact_in_words, listing, rule_in_words

Fact = tuple[int, int, int]


@dataclass(frozen=True)
class Evidence:
    """One rule that leads to an answer, and the training facts it leads there by."""

    rule: str
    path: list[str]
    facts: list[tuple[str, str, str]]  # ids of head, relation, tail, as in training
    support: int
    predictions: int
    confidence: float


def evidence(rules: Rules, head: int, relation: int, answer: int, top: int = 3) -> list[Evidence]:
    """The best rules for an answer with one path each; none where no rule leads to it.

    A fact of training is no evidence for itself: it is not counted in its rules' support.
    """
    row = find_row(rules.facts.rows_of, rules.facts.relations, head, relation)
    known = row != NONE and answer in _tails(rules.facts, row)
    found = [
        _one(rules, rule, (head, relation, answer), int(known))
        for rule, _ in rules.of_answer(head, relation, answer)
    ]
    found = [each for each in found if each.support > 0]
    return sorted(found, key=lambda each: -each.confidence)[:top]


def in_words(found: list[Evidence], answer: str) -> list[str]:
    """Sentences for an explanation."""
    if not found:
        return [f"No rule leads to {answer} from the facts of training."]
    return [f"{each.rule}. Here: {listing(each.path, len(each.path))}." for each in found]


def _one(rules: Rules, rule: int, asked: Fact, known: int) -> Evidence:
    table, graph = rules.table, rules.graph
    support = int(table.support[rule]) - known
    predictions = max(int(table.predictions[rule]) - known, support)
    facts = _facts(rules, rule, asked)
    confidence = support / (predictions + PRIOR)
    ids = graph.entities.ids, graph.relations.ids
    return Evidence(
        rule=f"{rule_in_words(graph, table, rule)}: so it is {support:,} of {predictions:,} times "
        f"(confidence {confidence:.2f})",
        path=[fact_in_words(graph, fact) for fact in facts],
        facts=[(ids[0][head], ids[1][relation], ids[0][tail]) for head, relation, tail in facts],
        support=support,
        predictions=predictions,
        confidence=confidence,
    )


def _facts(rules: Rules, rule: int, asked: Fact) -> list[Fact]:
    """The training facts of one path of a rule, in the direction in which training has them."""
    head, relation, answer = asked
    table, facts = rules.table, rules.facts
    forward = relation == table.relation[rule]
    x, y = (head, answer) if forward else (answer, head)
    body = table.body[rule].astype(np.int64)
    if table.closed[rule]:
        stops = path_between(facts.rows_of, facts.relations, facts.starts, facts.tails, x, y, body)
        path = [x, *(int(stop) for stop in stops if stop != NONE), y]
    else:
        end = int(table.body_constant[rule])
        if end == NONE:
            tails = _tails(facts, find_row(facts.rows_of, facts.relations, x, body[0]))
            end = int(tails[(tails != x) & (tails != y)][0])
        path = [x, end]
    count = rules.graph.num_relations
    steps = zip(path, path[1:], body.tolist(), strict=False)
    return [(a, r, b) if r < count else (b, r - count, a) for a, b, r in steps]


def _tails(facts: Facts, row: int) -> Ints:
    return facts.tails[facts.starts[row] : facts.starts[row + 1]]
