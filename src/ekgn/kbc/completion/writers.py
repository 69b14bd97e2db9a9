"""Facts to a file, in the form that its name ends in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import polars as pl

from ekgn.errors import EkgnError
from ekgn.files import replace_file

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*")
_BLANK = re.compile(r"_:[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_OWN = "urn:ekgn:"
_LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame aside, then rename it: nothing half-written is ever seen."""
    writer = WRITERS[_ending(path)]
    replace_file(path, lambda aside: writer(frame, aside))


def check_out(path: Path, facts: bool = True) -> None:
    """Raise, before anything is computed, if a file cannot be written."""
    ending = _ending(path)
    if not facts and ending in (".nt", ".ttl"):
        raise EkgnError(f"{path}: these are no facts alone, so RDF cannot hold them. Use .tsv.")
    if path.is_dir():
        raise EkgnError(f"{path} is a folder: give the name of a file.")


def _ending(path: Path) -> str:
    if path.suffix not in WRITERS:
        raise EkgnError(f"{path}: expected a name that ends in {', '.join(WRITERS)}.")
    return path.suffix


def iri(identifier: str) -> str:
    """An id as a term of RDF; one that is no IRI becomes a URN.

    >>> iri("http://example.org/a"), iri("New York")
    ('<http://example.org/a>', '<urn:ekgn:New%20York>')
    """
    if _BLANK.fullmatch(identifier):
        return identifier
    is_iri = _IRI.fullmatch(identifier)
    return f"<{identifier if is_iri else _OWN + quote(identifier, safe='')}>"


def _triples(frame: pl.DataFrame) -> Iterator[str]:
    columns = ["head", "relation", "tail", "confidence"]
    for head, relation, tail, sure in frame.select(columns).iter_rows():
        note = "" if sure is None else f" # confidence {sure:.3f}"
        property_ = iri(relation) if not relation.startswith("_:") else f"<{_OWN}{quote(relation)}>"
        yield f"{iri(head)} {property_} {iri(tail)} .{note}\n"


def _labels(frame: pl.DataFrame) -> Iterator[str]:
    """A label for each id that has a name besides."""
    names = {
        identifier: name
        for part in ("head", "tail")
        for identifier, name in frame.select(part, f"{part}_name").iter_rows()
        if identifier != name
    }
    for identifier, name in names.items():
        yield f"{iri(identifier)} {_LABEL} {json.dumps(name, ensure_ascii=False)} .\n"


def _write_nt(frame: pl.DataFrame, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_triples(frame))


def _write_ttl(frame: pl.DataFrame, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_triples(frame))
        file.writelines(_labels(frame))


def _write_tsv(frame: pl.DataFrame, path: Path) -> None:
    """Tab-separated text without quotes: tabs and line ends in names become spaces."""
    plain = frame.with_columns(pl.col(pl.String).str.replace_all(r"[\t\r\n]", " "))
    plain.write_csv(path, separator="\t", quote_style="never")


WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    ".tsv": _write_tsv,
    ".csv": lambda frame, path: frame.write_csv(path),
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
    ".nt": _write_nt,
    ".ttl": _write_ttl,
}
