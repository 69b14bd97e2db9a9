"""Triples that are already in Python: frames, arrays, lists and graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc.columns import COLUMNS, RELATION_WORDS, Names, TripleFile, pick

_LABELS = ("label", "name", "title")


def triples_of(data: Any) -> TripleFile:
    """The triples of a polars or pandas frame, an array, a NetworkX graph, a PyKEEN triples
    factory, or rows of three.

    Columns of a frame go by their names (head, relation, tail or the like), or in order if there
    are three. An edge says its relation in an attribute, or by its key in a multigraph.
    """
    library = type(data).__module__.partition(".")[0]
    names: Names = {}
    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    if isinstance(data, pl.DataFrame):
        what, frame = "The frame", data
    elif library == "pandas":
        what, frame = "The frame", _from_pandas(data)
    elif isinstance(data, np.ndarray):
        what, frame = "The array", _from_array(data)
    elif library == "networkx":
        what, (frame, names) = "The graph", _from_networkx(data)
    elif library == "pykeen":
        what, frame = "The triples factory", _from_pykeen(data)
    else:
        what, frame = "The list", _from_rows(data)
    triples, problem = pick(frame, "row")
    if problem:
        raise EkgnError(f"{what}{problem}")
    if triples.is_empty():
        raise EkgnError(f"{what} has no triples: expected rows of head, relation, tail.")
    return TripleFile(triples, names)


def names_of(names: Mapping[str, Any]) -> Names:
    """Labels by id, each a text or a pair of label and description."""
    pairs = {key: (value, "") if isinstance(value, str) else value for key, value in names.items()}
    return {str(key): (str(label), str(about)) for key, (label, about) in pairs.items()}


def _from_pandas(frame: Any) -> pl.DataFrame:
    """The columns as text, without going through Arrow; what pandas counts as missing is null."""
    columns = {}
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        cells = zip(column.tolist(), column.isna().tolist(), strict=True)
        columns[str(name)] = [None if missing else str(value) for value, missing in cells]
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def _from_array(array: np.ndarray[Any, Any]) -> pl.DataFrame:
    if array.ndim != 2 or array.shape[1] != 3:
        raise EkgnError(f"The array has the shape {array.shape}: expected (number of triples, 3).")
    return _from_rows(array.tolist())


def _from_networkx(graph: Any) -> tuple[pl.DataFrame, Names]:
    keyed = graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True)
    rows = []
    for head, tail, *key, about in keyed:
        found = [about[word] for word in about if str(word).casefold() in RELATION_WORDS]
        relation = (found or [name for name in key if isinstance(name, str)] or [None])[0]
        if relation is None:
            raise EkgnError(
                f"The edge from {head!r} to {tail!r} has no relation: "
                "give every edge an attribute 'relation'."
            )
        rows.append((head, relation, tail))
    words = (
        (node, next((about[w] for w in _LABELS if w in about), ""))
        for node, about in graph.nodes(data=True)
    )
    return _from_rows(rows), {str(node): (str(label), "") for node, label in words if label}


def _from_pykeen(factory: Any) -> pl.DataFrame:
    """By its labels, or by its numbers where it has none."""
    rows = factory.mapped_triples
    if hasattr(factory, "label_triples"):
        rows = factory.label_triples(rows)
    return _from_rows(rows.tolist())


def _from_rows(rows: Iterable[Any]) -> pl.DataFrame:
    columns: list[list[str | None]] = [[], [], []]
    try:
        for number, row in enumerate(rows, 1):
            if isinstance(row, str) or len(row) != 3:
                raise EkgnError(f"Row {number} is {row!r:.80}: expected (head, relation, tail).")
            for column, value in zip(columns, row, strict=True):
                column.append(None if value is None else str(value))
    except TypeError:
        raise EkgnError(
            f"Data of type {type(rows).__name__} cannot be read: expected a path, a polars or "
            "pandas frame, an array, a NetworkX graph, a PyKEEN triples factory, or rows of head, "
            "relation, tail."
        ) from None
    schema = dict.fromkeys(COLUMNS, pl.String)
    return pl.DataFrame(dict(zip(COLUMNS, columns, strict=True)), schema=schema)
