"""Answers to a question, as they are handed out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ekgn.tables import Column, Table, percent

if TYPE_CHECKING:
    import polars as pl

    from ekgn.kbc.vocabulary import Vocabulary


@dataclass(frozen=True)
class Prediction:
    """One answer: an entity (or relation), its share, and where it is known from, if it is.

    The share is the answer's part of the softmax over all; the confidence, where one is fitted, is
    the probability that the fact is true. What training has needs none.
    """

    rank: int
    id: str
    label: str
    description: str
    share: float
    known: str | None  # the split that holds the fact: "train", "valid", "test", or None
    confidence: float | None = None

    @classmethod
    def of(
        cls,
        names: Vocabulary,
        index: int,
        rank: int,
        share: float,
        known: str | None,
        confidence: float = math.nan,
    ) -> Prediction:
        """The entity or relation of an index, by its names; a confidence that is NaN is none."""
        return cls(
            rank=rank,
            id=names.ids[index],
            label=names.labels[index],
            description=names.descriptions[index],
            share=share,
            known=known,
            confidence=None if math.isnan(confidence) else confidence,
        )


class Predictions(list[Prediction]):
    """Answers in order, the largest share first."""

    def frame(self) -> pl.DataFrame:
        """As a polars data frame."""
        import polars as pl

        return pl.DataFrame([asdict(prediction) for prediction in self])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        columns = [*map(Column, ("", "answer", "id", "known"))]
        columns += [Column("share", percent), Column("confidence", percent)]
        rows = [
            [one.rank, one.label, one.id, one.known or "new", one.share, one.confidence]
            for one in self
        ]
        return Table("", columns, rows).html()
