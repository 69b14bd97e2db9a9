"""Triples from RDF in its many forms, and from the answer to a SPARQL query, by pyoxigraph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc.columns import COLUMNS, Names, TripleFile, header_order

RDF_FORMATS = {
    ".nt": "nt",
    ".ttl": "ttl",
    ".n3": "n3",
    ".nq": "nq",
    ".trig": "trig",
    ".rdf": "rdf",
    ".owl": "rdf",
    ".xml": "rdf",
    ".jsonld": "jsonld",
    ".json": "jsonld",
}
RESULT_FORMATS = {".srj": "srj", ".srx": "srx"}
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_ANSWERS = {
    "srj": re.compile(rb'\s*\{\s*"head"\s*:'),
    "srx": re.compile(rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<sparql\b", re.DOTALL),
    "tsv": re.compile(rb"\?\w+(\t\?\w+)+\r?\n"),
}
"""How the answer to a query begins, where the name of the file may stand for other things."""


def answer_format(data: bytes, kind: str) -> str | None:
    """The form of a query's answer: srj, srx or tsv; None if the data is something else."""
    if kind in RESULT_FORMATS:
        return RESULT_FORMATS[kind]
    forms = {".json": "srj", ".xml": "srx"}.get(kind, "" if kind in RDF_FORMATS else "tsv")
    return forms if forms and _ANSWERS[forms].match(data) else None


def read_rdf(path: Path, data: bytes, kind: str) -> TripleFile:
    """Triples between IRIs (and blank nodes); literals give labels or are counted and skipped."""
    library = _library(path)
    form = library.RdfFormat.from_extension(RDF_FORMATS[kind])
    try:
        quads = library.parse(data, format=form, base_iri="file:///")
        return _links(library, ((quad.subject, quad.predicate, quad.object) for quad in quads))
    except SyntaxError as error:
        raise EkgnError(_broken(path, error)) from None


def read_answer(path: Path, data: bytes, form: str) -> TripleFile:
    """The triples that a SELECT query gave: its variables are named like columns, or are three."""
    library = _library(path)
    try:
        found = library.parse_query_results(
            data, format=library.QueryResultsFormat.from_extension(form)
        )
        if not hasattr(found, "variables"):
            raise EkgnError(f"{path} answers an ASK query: expected triples, from SELECT.")
        variables = [variable.value for variable in found.variables]
        order = header_order(variables) or (list(COLUMNS) if len(variables) == 3 else None)
        if order is None:
            raise EkgnError(
                f"{path} has the variables {', '.join(variables) or '(none)'}: "
                "expected ?head ?relation ?tail (or ?s ?p ?o)."
            )
        places = [order.index(name) for name in COLUMNS]
        rows = ([row[place] for place in places] for row in found)
        return _links(library, (row for row in rows if all(node is not None for node in row)))
    except SyntaxError as error:
        raise EkgnError(_broken(path, error)) from None


def _library(path: Path) -> ModuleType:
    try:
        import pyoxigraph
    except ImportError:
        raise EkgnError(
            f"{path} is RDF, which needs pyoxigraph. Install it with: pip install 'ekgn[rdf]'"
        ) from None
    return pyoxigraph


def _broken(path: Path, error: SyntaxError) -> str:
    where = f", line {error.lineno}" if error.lineno else ""
    if "LoadDocumentCallback" in str(error.msg):
        return f"{path}: its @context is on the web, and nothing is fetched. Put it into the file."
    return f"{path}{where}: {error.msg}"


def _links(library: ModuleType, found: Iterable[Any]) -> TripleFile:
    """The triples whose end is a node; the words of the others, or how many there were."""
    triples = list[tuple[str, str, str]]()
    words: dict[str, Names] = {_RDFS + "label": {}, _RDFS + "comment": {}}
    skipped = 0
    for subject, predicate, value in found:
        head, relation = _node(subject), _node(predicate)
        if not isinstance(value, library.Literal):
            triples.append((head, relation, _node(value)))
        elif relation in words:
            _keep(words[relation], head, value.value, value.language or "")
        else:
            skipped += 1
    frame = pl.DataFrame(triples, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")
    return TripleFile(frame, _names(frame, *words.values()), skipped)


def _node(node: object) -> str:
    """The IRI, or the label of a blank node with its usual prefix."""
    text = str(node)
    return text[1:-1] if text.startswith("<") and not text.startswith("<<") else text


def _keep(words: Names, head: str, text: str, language: str) -> None:
    """Keep the first text for a node, but prefer one in English or without a language."""
    plain = language == "" or language.startswith("en")
    if head not in words or (plain and words[head][1] == "other"):
        words[head] = (text, "plain" if plain else "other")


def _names(frame: pl.DataFrame, labels: Names, descriptions: Names) -> Names:
    """A label for every IRI: its rdfs:label, else its last path segment."""
    nodes = pl.concat([frame[name].rename("node") for name in COLUMNS]).unique()
    names: Names = {}
    for node in nodes:
        segment = node.rstrip("/#").replace("#", "/").rpartition("/")[2]
        label = labels[node][0] if node in labels else unquote(segment)
        names[node] = (label or node, descriptions[node][0] if node in descriptions else "")
    return names
