"""Answers to a question, as they are handed out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ekgn.tables import Column, Table, percent

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Prediction:
    """One answer: an entity (or relation), its share, and where it is known from, if it is.

    The share is the answer's part of the softmax over all; the confidence, where one is fitted, is
    the probability that the fact is true.
    """

    rank: int
    id: str
    label: str
    description: str
    share: float
    known: str | None  # the split that holds the fact: "train", "valid", "test", or None
    confidence: float | None = None


class Predictions(list[Prediction]):
    """Answers in order, the largest share first."""

    def frame(self) -> pl.DataFrame:
        """As a polars data frame."""
        import polars as pl

        return pl.DataFrame([asdict(prediction) for prediction in self])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        columns = [*map(Column, ("", "answer", "id", "known")), Column("share", percent)]
        rows = [[one.rank, one.label, one.id, one.known or "new", one.share] for one in self]
        return Table("", columns, rows).html()
