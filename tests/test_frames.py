"""Graphs from what is in Python, and names that come later."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.kbc.columns import COLUMNS
from ekgn.kbc.frames import triples_of
from ekgn.kbc.graph import KnowledgeGraph, load_graph

ROWS = [(f"e{i}", "next" if i % 2 else "near", f"e{(i + 1) % 20}") for i in range(20)] * 2
ROWS += [(f"e{i}", "far", f"e{(i + 7) % 20}") for i in range(20)]


def networkx_graph() -> Any:
    graph = importlib.import_module("networkx").MultiDiGraph()
    for head, relation, tail in ROWS:
        graph.add_edge(head, tail, relation=relation)
    graph.add_node("e1", label="First")
    return graph


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS, columns=["s", "p", "o"])


SOURCES: dict[str, Callable[[], Any]] = {
    "polars": lambda: pl.DataFrame(ROWS, schema=["subject", "predicate", "object"], orient="row"),
    "lazy": lambda: pl.DataFrame(ROWS, schema=COLUMNS, orient="row").lazy(),
    "pandas": pandas_frame,
    "array": lambda: np.array(ROWS),
    "rows": lambda: ROWS,
    "generator": lambda: iter(ROWS),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_is_the_same_graph(source: str, tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in ROWS))
    expected = load_graph(file, cache_dir=tmp_path, seed=3)
    found = load_graph(SOURCES[source](), seed=3)
    assert found.entities == expected.entities and found.relations == expected.relations
    for split in ("train", "valid", "test"):
        assert np.array_equal(found.split(split), expected.split(split))


def test_a_networkx_graph_brings_relations_and_labels() -> None:
    pytest.importorskip("networkx")
    found = triples_of(networkx_graph())
    assert sorted(found.frame.rows()) == sorted(ROWS)
    assert found.names == {"e1": ("First", "")}
    graph = networkx_graph()
    graph.add_edge("a", "b")
    with pytest.raises(EkgnError, match="The edge from 'a' to 'b' has no relation: give every"):
        triples_of(graph)


def test_splits_and_names_may_be_given() -> None:
    graph = load_graph(
        {"train": ROWS[:50], "valid": ROWS[50:55], "test": np.array(ROWS[55:])},
        names={"e1": "First", "near": ("is near", "no distance")},
    )
    assert len(graph.valid) == 5 and len(graph.test) == 5
    assert graph.entities.find("first", "entity", "x") == graph.entities.index_of["e1"]
    assert "no distance" in graph.relations.descriptions
    with pytest.raises(EkgnError, match="Data for train, tests: expected train, valid, test"):
        load_graph({"train": ROWS, "tests": ROWS})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([("a", "r", "b"), ("a", "r")], "Row 2 is ('a', 'r'): expected (head, relation, tail)."),
        ([("a", None, "b")], "The list, row 1: the relation is empty. Every field is needed."),
        (["a r b"], "Row 1 is 'a r b': expected (head, relation, tail)."),
        (np.zeros((3, 2)), "The array has the shape (3, 2): expected (number of triples, 3)."),
        (pl.DataFrame({"a": [1], "b": [2]}), "The frame has the columns a, b: expected head,"),
        ([], "The list has no triples: expected rows of head, relation, tail."),
        (7, "Data of type int cannot be read: expected a path, a polars or pandas frame,"),
    ],
)
def test_what_is_no_triples_is_told(data: Any, message: str) -> None:
    with pytest.raises(EkgnError) as caught:
        triples_of(data)
    assert str(caught.value).startswith(message)


def test_names_are_added_to_a_run_later(family: KnowledgeGraph, tmp_path: Path) -> None:
    family.save(tmp_path)
    file = tmp_path / "more.tsv"
    file.write_text("person_3\tAda\tmathematician\nnext\tis followed by\nnobody\tx\n")
    told = CliRunner().invoke(app, ["names", str(tmp_path), str(file)], catch_exceptions=False)
    assert told.stdout.startswith("2 names were added")
    file.write_text("person_4\tBob\n")
    CliRunner().invoke(app, ["names", str(tmp_path), str(file)], catch_exceptions=False)
    graph = KnowledgeGraph.load(tmp_path)
    assert graph.entities.labels[3:6] == ("Ada", "Bob", "Person 5")
    assert graph.entities.descriptions[3] == "mathematician"
    assert graph.relations.labels[0] == "is followed by"
    file.write_text("nobody\tx\n")
    with pytest.raises(EkgnError, match=r"more.tsv names none of the 33 ids of family\."):
        CliRunner().invoke(app, ["names", str(tmp_path), str(file)], catch_exceptions=False)
    (tmp_path / "names.json").write_text("[1]")
    with pytest.raises(EkgnError, match="is damaged: expected a label and a description by id"):
        KnowledgeGraph.load(tmp_path)
