"""The summary one reads before training, against slow counts and planted cases."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary, load_graph
from ekgn.kbc.summary import SAME_FROM, relation_categories, summarise_graph
from tests.conftest import vocabulary

FACTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), min_size=1, unique=True
)


def graph_of(train: object, test: object, entities: int = 5, relations: int = 3) -> KnowledgeGraph:
    shape = (-1, 3)
    return KnowledgeGraph(
        name="drawn",
        entities=vocabulary(*(f"e{i}" for i in range(entities))),
        relations=vocabulary(*(f"r{i}" for i in range(relations))),
        train=np.array(train, np.int64).reshape(shape),
        valid=np.empty((0, 3), np.int64),
        test=np.array(test, np.int64).reshape(shape),
        source={},
    )


@given(FACTS, FACTS)
def test_twins_and_what_they_give_away_as_counted_slowly(
    train: list[tuple[int, int, int]], test: list[tuple[int, int, int]]
) -> None:
    found = summarise_graph(graph_of(train, test))
    known = set(train)
    told: set[tuple[int, int, int]] = set()
    expected = set()
    for r in range(3):
        facts = [fact for fact in train if fact[1] == r]
        for other in range(3):
            for kind in ("inverse", "duplicate"):
                if not facts or (kind == "duplicate" and r == other):
                    continue

                def twin(fact: tuple[int, int, int], kind: str = kind, other: int = other) -> bool:
                    head, _, tail = fact
                    return (
                        (tail, other, head) if kind == "inverse" else (head, other, tail)
                    ) in known

                share = sum(map(twin, facts)) / len(facts)
                if share >= SAME_FROM:
                    now = {fact for fact in test if fact[1] == r and twin(fact)}
                    told |= now
                    name = "symmetric" if r == other else kind
                    expected.add((f"R{r}", f"R{other}", name, share, len(now)))
    assert {dataclasses.astuple(twin) for twin in found.twins} == expected
    share = found.given_away["by_inverse_or_duplicate_relations"]
    assert share == pytest.approx(len(told) / len(test))


def test_relations_degrees_and_the_unseen(family: KnowledgeGraph) -> None:
    found = summarise_graph(family)
    assert [row.label for row in found.relations] == ["Next", "Previous", "After Next"]
    assert sum(row.train for row in found.relations) == len(family.train)
    assert {row.category for row in found.relations} == {"1-1"}
    assert found.degrees["mean"] == pytest.approx(2 * len(family.train) / 30)
    kinds = {(twin.relation, twin.other): twin.kind for twin in found.twins}
    assert kinds == {("Next", "Previous"): "inverse", ("Previous", "Next"): "inverse"}
    lonely = summarise_graph(graph_of([(0, 0, 1)], [(2, 1, 1), (0, 0, 1)]))
    assert lonely.unseen["test"] == {"entities": 1, "relations": 1, "triples": 1}
    assert lonely.degrees["with_none"] == 3
    assert relation_categories(graph_of([(0, 0, 1)], [])) == ["1-1", "unseen", "unseen"]


def test_names_to_look_at(family: KnowledgeGraph) -> None:
    labels = ["a\x1bb", " x", "caf\ufffd", "NaN", "1999-12-31", "y" * 300, "Rome", "rome "]
    ids = family.entities.ids
    names = Vocabulary(ids, (*labels, *family.entities.labels[8:]), ("",) * len(ids))
    odd = summarise_graph(dataclasses.replace(family, entities=names)).odd_names
    assert [(one.problem, one.count) for one in odd] == [
        ("holds control characters", 1),
        ("begins or ends with a space", 2),
        ("was decoded wrongly", 1),
        ("stands for nothing", 1),
        ("is a number or a date", 1),
        ("is longer than 200 letters", 1),
        ("is shared by several ids, but for case and spaces", 2),
    ]
    assert odd[-1].examples == (f"Rome ({ids[6]})", f"rome  ({ids[7]})")


def test_info_shows_it_and_gives_it_as_json() -> None:
    shown = CliRunner().invoke(app, ["info", "world"], catch_exceptions=False).stdout
    for words in (
        "Relations",
        "borders",
        "Facts per entity",
        "symmetric",
        "Told by training: 20.6%",
    ):
        assert words in shown
    told = CliRunner().invoke(app, ["info", "world", "--json"], catch_exceptions=False).stdout
    assert json.loads(told)["summary"]["given_away"]["reversed_pair_in_train"] > 0.2


@pytest.mark.parametrize(
    ("name", "reversed_pairs"),
    [("FB15k", 0.776), ("WN18", 0.940), ("WN18RR", 0.349), ("FB15k-237", 0.0)],
)
def test_the_leaks_of_the_benchmarks(benchmarks: Path, name: str, reversed_pairs: float) -> None:
    found = summarise_graph(load_graph(name, data_dir=benchmarks))
    assert found.given_away["reversed_pair_in_train"] == pytest.approx(reversed_pairs, abs=0.001)
