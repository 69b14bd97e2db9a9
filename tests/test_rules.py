"""Rules against plain loops, cases counted by hand, resuming, keeping, and evidence."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ekgn.errors import EkgnError
from ekgn.files import read_json
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.rules import (
    Mining,
    Rulebook,
    Rules,
    RuleTable,
    Weights,
    evidence,
    fit_weights,
    in_words,
    mine,
    mining,
)
from ekgn.kbc.rules.mining import Round
from ekgn.kbc.words import rule_in_words
from tests.conftest import vocabulary

pytestmark = pytest.mark.numerical

EVERYTHING = Mining(
    min_support=1, min_confidence=0.0, min_constant_confidence=0.0, places=2**14, first_facts=1000
)
Fact = tuple[int, int, int]


def graph_of(facts: list[Fact], entities: int, relations: int) -> KnowledgeGraph:
    rows = np.array(sorted(set(facts)), np.int64).reshape(-1, 3)
    return KnowledgeGraph(
        name="small",
        entities=vocabulary(*(f"e{i}" for i in range(entities))),
        relations=vocabulary(*(f"r{i}" for i in range(relations))),
        train=rows,
        valid=rows[:2],
        test=rows[:2],
        source={},
    )


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    entity, relation = st.integers(0, 5), st.integers(0, 1)
    facts = draw(st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=16))
    return graph_of(facts, 6, 2)


def both_ways(graph: KnowledgeGraph) -> set[Fact]:
    count = graph.num_relations
    plain = {(int(h), int(r), int(t)) for h, r, t in graph.train}
    return plain | {(t, r + count, h) for h, r, t in plain}


def joined_by(facts: set[Fact], body: tuple[int, ...]) -> set[tuple[int, int]]:
    """The pairs a body joins, by plain loops: all entities of a longer path are different."""
    paths: list[tuple[int, ...]] = [(h, t) for h, r, t in facts if r == body[0]]
    for step in body[1:]:
        paths = [(*path, t) for path in paths for h, r, t in facts if r == step and h == path[-1]]
    return {(path[0], path[-1]) for path in paths if len(body) == 1 or len(set(path)) == len(path)}


def plain_closed(graph: KnowledgeGraph) -> dict[tuple[int, ...], tuple[int, int]]:
    """Support and predictions of every closed rule, by plain loops."""
    facts, width, found = both_ways(graph), 2 * graph.num_relations, {}
    for length in (1, 2, 3):
        for body in itertools.product(range(width), repeat=length):
            pairs = joined_by(facts, body)
            for relation in range(graph.num_relations):
                counted = pairs
                if body == (relation + graph.num_relations,):
                    counted = {(x, y) for x, y in pairs if x != y}
                support = sum((x, relation, y) in facts for x, y in counted)
                if support and body != (relation,):
                    padded = (*body, -1, -1, -1)[:3]
                    found[relation, *padded] = support, len(counted)
    return found


def plain_constants(graph: KnowledgeGraph) -> dict[tuple[int, ...], tuple[int, int]]:
    """Support and predictions of every rule with a constant, by plain loops."""
    facts, width, size = both_ways(graph), 2 * graph.num_relations, graph.num_entities
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for r, c, r1, d in itertools.product(range(width), range(size), range(width), range(-1, size)):
        if (r, c) == (r1, d):
            continue
        xs = {
            x
            for x, step, z in facts
            if step == r1 and z != x and x != c and (z == d if d >= 0 else z != c)
        }
        support = sum((x, r, c) in facts for x in xs)
        if support:
            found[r, c, r1, d] = support, len(xs)
    return found


@settings(max_examples=40)
@given(graphs())
def test_all_rules_are_counted_as_by_plain_loops(graph: KnowledgeGraph) -> None:
    table = mine(graph, EVERYTHING, threads=1).rules
    counted = [(int(s), int(p)) for s, p in zip(table.support, table.predictions, strict=True)]
    closed, constant = {}, {}
    for row, counts in enumerate(counted):
        if table.closed[row]:
            closed[int(table.relation[row]), *map(int, table.body[row])] = counts
        else:
            key = (table.relation[row], table.constant[row], table.body[row, 0])
            constant[*map(int, key), int(table.body_constant[row])] = counts
    assert closed == plain_closed(graph)
    assert constant == plain_constants(graph)


def plain_confidences(graph: KnowledgeGraph, head: int, asked: int) -> dict[int, list[float]]:
    """The confidences of all rules that lead to each answer of a question, by plain loops."""
    facts, count = both_ways(graph), graph.num_relations
    sure: dict[int, list[float]] = {}
    for (relation, *body), (support, predictions) in plain_closed(graph).items():
        for x, y in joined_by(facts, tuple(step for step in body if step >= 0)):
            for question, answer in (((x, relation), y), ((y, relation + count), x)):
                if question == (head, asked):
                    sure.setdefault(answer, []).append(support / (predictions + 5))
    for (r, c, r1, d), (support, predictions) in plain_constants(graph).items():
        for x in {x for x, s, z in facts if s == r1 and z != x and (z == d if d >= 0 else z != c)}:
            for question, answer in (((x, r), c), ((c, (r + count) % (2 * count)), x)):
                if question == (head, asked) and x != c:
                    sure.setdefault(answer, []).append(support / (predictions + 5))
    return sure


@settings(max_examples=25)
@given(graphs(), st.integers(0, 5), st.integers(0, 3))
def test_scores_are_the_discounted_noisy_or(graph: KnowledgeGraph, head: int, asked: int) -> None:
    rules = Rules(graph, mine(graph, EVERYTHING, threads=1).rules, few=3, discount=0.5, threads=1)
    expected = np.zeros(graph.num_entities)
    for answer, confidences in plain_confidences(graph, head, asked).items():
        best = sorted(confidences, reverse=True)[:3]
        expected[answer] = sum(-np.log1p(-c) * 0.5**i for i, c in enumerate(best))
    scores = rules.scores(np.array([head]), np.array([asked]))[0].numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.fixture(scope="module")
def cities() -> KnowledgeGraph:
    """13 cities with a country (0); the country has a region (1); 12 have that region too (2)."""
    facts = [(city, 0, 20 + city % 3) for city in range(13)]
    facts += [(20 + country, 1, 30) for country in range(3)]
    facts += [(city, 2, 30) for city in range(12)]
    return graph_of(facts, 31, 3)


def test_support_and_confidence_by_hand(cities: KnowledgeGraph) -> None:
    table = mine(cities, threads=1).rules
    row = np.flatnonzero((table.body == [0, 1, -1]).all(axis=1) & (table.relation == 2))
    assert len(row) == 1
    assert (table.support[row[0]], table.predictions[row[0]]) == (12, 13)
    assert table.confidence[row[0]] == pytest.approx(12 / 18)
    words = rule_in_words(cities, table, int(row[0]))
    assert words == "X R2 Y if X R0 A and A R1 Y"


def test_evidence_has_the_facts_of_its_path(cities: KnowledgeGraph) -> None:
    table = mine(cities, Mining(constants=False), threads=1).rules
    rules = Rules(cities, table, threads=1)
    found = evidence(rules, 12, 2, 30)
    by_region = next(each for each in found if len(each.facts) == 2)
    assert by_region.facts == [("e12", "r0", "e20"), ("e20", "r1", "e30")]
    assert (by_region.support, by_region.predictions) == (12, 13)
    assert in_words([by_region], "E30") == [
        "X R2 Y if X R0 A and A R1 Y: so it is 12 of 13 times (confidence 0.67). "
        "Here: E12 R0 E20 and E20 R1 E30."
    ]
    backwards = evidence(rules, 30, 2 + cities.num_relations, 12)
    assert by_region.facts in [each.facts for each in backwards]


def test_a_training_fact_is_no_evidence_for_itself(cities: KnowledgeGraph) -> None:
    rules = Rules(cities, mine(cities, Mining(constants=False), threads=1).rules, threads=1)
    asked = ("e3", "r2", "e30")
    found = evidence(rules, 3, 2, 30)
    assert found
    assert all(asked not in each.facts for each in found)
    by_region = next(each for each in found if len(each.facts) == 2)
    assert (by_region.support, by_region.predictions) == (11, 12)


def test_no_evidence_is_said_as_such(cities: KnowledgeGraph) -> None:
    rules = Rules(cities, mine(cities, threads=1).rules, threads=1)
    assert evidence(rules, 30, 0, 4) == []
    assert in_words([], "E4") == ["No rule leads to E4 from the facts of training."]


def same(one: RuleTable, other: RuleTable) -> bool:
    names = [field.name for field in fields(RuleTable)]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


# Few facts a round and few steps a body: many rounds, and samples in all of them.
SAMPLED = Mining(min_support=1, first_facts=3, candidates=50, links=20, steps=20, seed=3)


def test_a_killed_mining_goes_on_to_the_same_rules(family: KnowledgeGraph, tmp_path: Path) -> None:
    whole = mine(family, SAMPLED, threads=1)
    path = tmp_path / "rules.safetensors"

    class Killed(Exception):
        pass

    def kill(_: object, book: Rulebook) -> None:
        if book.rounds == 4:
            raise Killed

    with pytest.raises(Killed):
        mine(family, SAMPLED, threads=1, path=path, on_round=kill)
    assert Rulebook.load(path, family).rounds == 4
    resumed = mine(family, SAMPLED, threads=2, path=path)
    assert resumed.rounds == whole.rounds > 5
    assert same(resumed.rules, whole.rules)


def test_the_seed_decides_what_is_sampled(family: KnowledgeGraph) -> None:
    other = Mining(**{**SAMPLED.__dict__, "seed": 4})
    assert same(mine(family, SAMPLED, threads=2).rules, mine(family, SAMPLED, threads=1).rules)
    assert not same(mine(family, SAMPLED).rules, mine(family, other).rules)


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_no_time_to_mine_is_one_clear_error(
    family: KnowledgeGraph, family_run: Path, minutes: float
) -> None:
    from ekgn.cli.app import app

    said = rf"minutes = {minutes:g}: expected a time to mine for, more than 0\. To list the rules"
    with pytest.raises(EkgnError, match=said):
        mine(family, minutes=minutes)
    with pytest.raises(EkgnError, match=said):
        given = ["rules", str(family_run), f"--minutes={minutes}"]
        CliRunner().invoke(app, given, catch_exceptions=False)


def test_the_time_to_mine_starts_when_the_loops_are_compiled(
    family: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now, monotonic = 0.0, staticmethod(lambda: Clock.now)

    def compiled() -> None:
        Clock.now += 1000

    monkeypatch.setattr(mining, "time", Clock)
    monkeypatch.setattr(mining, "_compile", compiled)
    book = mine(family, threads=1, minutes=1)
    assert {1, 2, 3} == set(book.rules.length[book.rules.closed].tolist())


def test_a_round_that_would_end_much_too_late_is_not_begun(
    family: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now, monotonic = 0.0, staticmethod(lambda: Clock.now)

    def slow(self: Any, part: Round) -> RuleTable:
        Clock.now += part.last - part.first if part.length == 3 else 0
        return Rulebook.new(family, little).rules

    monkeypatch.setattr(mining, "time", Clock)
    monkeypatch.setattr(mining._Miner, "closed", slow)
    little = Mining(first_facts=1, constants=False)
    assert len(family.train) > 40
    for minutes, seconds in ((0.02, 1), (0.06, 3), (0.1, 7), (0.11, 7), (0.22, 15)):
        Clock.now = 0.0
        mine(family, little, minutes=minutes)
        assert Clock.now == seconds <= 1.25 * 60 * minutes


def test_rules_are_read_back_as_written(
    family: KnowledgeGraph, cities: KnowledgeGraph, tmp_path: Path
) -> None:
    path = tmp_path / "rules.safetensors"
    book = mine(family, path=path, threads=1)
    read = Rulebook.load(path, family)
    assert same(read.rules, book.rules)
    assert (read.mining, read.rounds, read.seconds) == (book.mining, book.rounds, book.seconds)
    with pytest.raises(EkgnError, match=r"family with 82 training facts .* then, small with"):
        Rulebook.load(path, cities)
    path.write_bytes(b"torn")
    with pytest.raises(EkgnError, match="Delete it and mine again"):
        Rulebook.load(path, family)


def test_rules_of_other_facts_are_refused_whatever_their_number(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    path = tmp_path / "rules.safetensors"
    mine(family, path=path, threads=1)
    assert Rulebook.load(path, replace(family, name="renamed")).rounds
    changed = family.train.copy()
    changed[0, 2] = (changed[0, 2] + 5) % family.num_entities
    for use in (Rulebook.load, lambda at, graph: mine(graph, path=at, threads=1)):
        with pytest.raises(EkgnError, match="mined from other facts than this run has"):
            use(path, replace(family, train=changed))


def test_fewer_constants_are_those_with_more_support(cities: KnowledgeGraph) -> None:
    table = mine(cities, Mining(max_constants=10), threads=1).rules
    everything = mine(cities, threads=1).rules
    kept, before = table.take(~table.closed), everything.take(~everything.closed)
    assert 0 < len(kept) <= 10 < len(before)
    assert kept.support.min() > before.support.min()


def test_a_mixture_follows_whoever_is_right(family: KnowledgeGraph) -> None:
    import torch

    def knows_nothing(heads: np.ndarray, relations: np.ndarray) -> torch.Tensor:
        return torch.zeros(len(heads), family.num_entities)

    rules = Rules(family, mine(family, threads=1).rules, threads=1)
    assert (fit_weights(knows_nothing, rules.scores, family).of_relation > 0).all()
    assert (fit_weights(rules.scores, knows_nothing, family).of_relation == 0).all()


def test_the_weight_of_the_rules_is_kept_for_the_same_rules_and_weights(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    path, chosen_for = tmp_path / "weights.json", {"rules": "a", "rounds": 3}
    made = Weights(np.arange(6, dtype=np.float32), np.arange(30, 60, 5), 0.5)
    made.save(path, family, chosen_for)
    kept = Weights.load(path, chosen_for)
    assert kept is not None and kept.in_words() == made.in_words()
    assert (kept.of_relation == made.of_relation).all() and (kept.pairs == made.pairs).all()
    assert Weights.load(path, {**chosen_for, "rounds": 4}) is None
    asked = read_json(path)["relations"][4]
    assert (asked["relation"], asked["missing"], asked["weight"]) == ("previous", "head", 4.0)


def test_without_validation_no_weight_is_chosen(family: KnowledgeGraph) -> None:
    rules = Rules(family, mine(family, threads=1).rules, threads=1)
    with pytest.raises(EkgnError, match="no validation facts to choose the weight"):
        fit_weights(rules.scores, rules.scores, replace(family, valid=family.valid[:0]))


def test_the_command_ranks_with_rules_beside_the_network_alone(
    family_run: Path, tmp_path: Path
) -> None:
    from ekgn.cli.app import app

    run = tmp_path / "run"
    shutil.copytree(family_run, run)
    done = CliRunner().invoke(app, ["evaluate", str(run), "--with-rules"])
    assert done.exit_code == 0, done.output
    lines = [line.strip() for line in done.output.splitlines()]
    for way in ("model ", "model with rules", "rules of one fact alone"):
        assert any(line.startswith(way) for line in lines), done.output
    assert "weight of the rules was chosen on 8 validation pairs" in " ".join(lines)
    record, kept = read_json(run / "record.json"), (run / "rules_weights.json").read_text()
    assert record["with_rules"]["test"]["readout"] == "argmax"
    again = CliRunner().invoke(app, ["evaluate", str(run), "--with-rules", "--json"])
    assert set(json.loads(again.stdout)) == {"model", "rule_baseline", "with_rules"}
    assert (run / "rules_weights.json").read_text() == kept
    sampled = ["evaluate", str(run), "--with-rules", "--candidates", "5"]
    with pytest.raises(EkgnError, match="leave out --candidates"):
        CliRunner().invoke(app, sampled, catch_exceptions=False)


def test_more_than_three_facts_are_refused() -> None:
    with pytest.raises(EkgnError, match="expected 1, 2 or 3"):
        Mining(max_length=4)


def test_the_command_lists_rules_in_words(family_run: Path, tmp_path: Path) -> None:
    from ekgn.cli.app import app

    done = CliRunner().invoke(
        app, ["rules", str(family_run), "--relation", "after_next", "--top", "50", "--threads", "1"]
    )
    assert done.exit_code == 0, done.output
    assert "X After Next Y if X Next A and A Next Y" in " ".join(done.output.split())
    assert (family_run / "rules.safetensors").is_file()
    wrong = CliRunner().invoke(app, ["rules", str(family_run), "--evaluate", "tests"])
    assert isinstance(wrong.exception, EkgnError)
