"""What a file of triples gives, and how a header says which column holds what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

COLUMNS = ("head", "relation", "tail")
_TAIL_OF_HEAD = {
    "head": "tail",
    "h": "t",
    "subject": "object",
    "s": "o",
    "source": "target",
    "src": "dst",
    "from": "to",
}
RELATION_WORDS = {
    *("relation", "rel", "r", "predicate", "pred", "p", "property"),
    *("edge", "type", "label", "interaction", "relationship", "relation_type", "edge_type"),
}

Names = dict[str, tuple[str, str]]
"""Label and description by identifier; the label is "" where only the description is known."""


@dataclass(frozen=True)
class TripleFile:
    """What one file says: its triples, the names it carries itself, and what was left out."""

    frame: pl.DataFrame
    names: Names = field(default_factory=dict)
    literals_skipped: int = 0
    header_skipped: str = ""
    """A first line that names no columns we know, but is no fact either."""


def header_order(fields: Sequence[str | None]) -> list[str] | None:
    """What each column of a header row holds (head, relation, tail or ""), None if it is no header.

    >>> header_order(["Predicate", "Subject", "Object"])
    ['relation', 'head', 'tail']
    >>> header_order(["netherlands", "ngo", "uk"]) is None
    True
    """
    words = [(value or "").lstrip("#?").strip().casefold().replace(" ", "_") for value in fields]
    for head, tail in _TAIL_OF_HEAD.items():
        relation = next((word for word in words if word in RELATION_WORDS), None)
        if relation is not None and words.count(head) == 1 and words.count(tail) == 1:
            roles = {head: "head", tail: "tail", relation: "relation"}
            return [roles.pop(word, "") for word in words]
    return None


def pick(frame: pl.DataFrame, what: str) -> tuple[pl.DataFrame, str]:
    """The triples of a table as text, or what is wrong with it, in words that follow its name.

    Columns go by their names, or in order if there are just three.
    """
    order = header_order(frame.columns) or (list(COLUMNS) if frame.width == 3 else None)
    nothing = pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
    if order is None:
        return nothing, (
            f" has the columns {', '.join(frame.columns)}: "
            "expected head, relation, tail (or subject, predicate, object)."
        )
    try:
        frame = frame.select(
            pl.col(frame.columns[order.index(name)]).cast(pl.String).alias(name) for name in COLUMNS
        )
    except pl.exceptions.PolarsError:
        kinds = ", ".join(f"{name}: {kind}" for name, kind in frame.schema.items())
        return nothing, f" has columns that are not text or numbers ({kinds})."
    for name in COLUMNS:
        empty = (frame[name].is_null() | (frame[name].str.strip_chars() == "")).arg_true()
        if len(empty):
            return nothing, f", {what} {empty[0] + 1}: the {name} is empty. Every field is needed."
    return frame, ""
