"""Facts and questions that somebody gives, by name or id; a bad line stops nobody but itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.asking import Questions
from ekgn.kbc.completion.confidence import Confidence, Floats
from ekgn.kbc.completion.facts import answered, given
from ekgn.kbc.completion.roles import Bools
from ekgn.kbc.completion.shown import named
from ekgn.kbc.triples import numbered_rows

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

FIRST_PLACES = 10  # a fact with one of them, from either side, is plausible
MISSING = ("?", "")

Line = tuple[int, Sequence[str | None]]
"""The number of a line (or row), and its fields."""


@dataclass(frozen=True)
class Problem:
    """A line that cannot be used, and why."""

    line: int
    message: str


def rows_of(facts: str | Path | Iterable[Sequence[str | None]]) -> Iterator[Line]:
    """The rows of a file, or of a list, with their numbers."""
    if isinstance(facts, str | Path):
        return numbered_rows(Path(facts))
    return ((number, list(row)) for number, row in enumerate(facts, 1))


def batches(lines: Iterator[Line], size: int) -> Iterator[list[Line]]:
    """The lines, so many at a time."""
    while some := list(itertools.islice(lines, size)):
        yield some


def question(run: KbcRun, line: int, fields: Sequence[str | None]) -> tuple[int, int] | Problem:
    """The [head, relation] of `head relation ?` or `? relation tail`, or what is wrong with it."""
    if len(fields) != 3:
        wanted = "head, relation and ? (or ?, relation and tail)"
        return Problem(line, f"expected {wanted}, found {len(fields)} fields.")
    head, relation, tail = (None if part is None or part in MISSING else part for part in fields)
    try:
        return run.query(head, relation, tail)
    except EkgnError as error:
        return Problem(line, str(error))


def _fact(run: KbcRun, fields: Sequence[str | None]) -> tuple[int, int, int]:
    if len(fields) != 3:
        raise EkgnError(f"expected head, relation, tail, found {len(fields)} fields.")
    head, relation, tail = (field or "" for field in fields)
    found = run.graph.relations.find(relation, "relation", run.graph.name)
    return run.entity(head), found, run.entity(tail)


class Scored(NamedTuple):
    """Given facts with what the run says of them, and the lines that are none."""

    facts: pl.DataFrame
    problems: list[Problem]


def score(run: KbcRun, lines: Iterable[Line], confidence: Confidence | None) -> Scored:
    """What the run says of given facts, a row each, and the lines that are none."""
    numbers, facts, problems = [], [], []
    for number, fields in lines:
        try:
            facts.append(_fact(run, fields))
            numbers.append(number)
        except EkgnError as error:
            problems.append(Problem(number, str(error)))
    indices = np.array(facts, np.int64).reshape(-1, 3)
    found = given(run.asker, indices)
    sure = pl.Series("confidence", confidence.of(found) if confidence else [None] * len(found))
    joined = ((pl.col("tail_log_share") + pl.col("head_log_share")) / 2).exp()
    plausible = pl.min_horizontal("tail_rank", "head_rank") <= FIRST_PLACES
    numbers_of = found.select(
        *(plausible.alias("plausible"), joined.alias("share")),
        *("tail_share", "tail_rank", "head_share", "head_rank"),
        pl.col("tail_step").alias("step"),
    )
    about = [
        pl.Series("known", [run.known_splits(h, r).get(t) for h, r, t in facts], pl.String),
        pl.Series("note", [_note(run, *fact) for fact in facts], pl.String),
    ]
    line = pl.Series("line", numbers, pl.Int64)
    parts = [pl.DataFrame([line]), named(run, found), pl.DataFrame([sure.cast(pl.Float64)])]
    table = pl.concat([*parts, numbers_of, pl.DataFrame(about)], how="horizontal")
    return Scored(table, problems)


def _note(run: KbcRun, head: int, relation: int, tail: int) -> str | None:
    """What training never has of a fact."""
    train, count = run.known["train"], run.graph.num_relations
    notes = []
    for entity, role, name in ((head, relation, "head"), (tail, relation + count, "tail")):
        low, high = np.searchsorted(train.heads, [entity, entity + 1])
        if low == high:
            notes.append(f"{name} never in training")
        elif role not in train.relations[low:high]:
            notes.append(f"never a {name} of this relation in training")
    return "; ".join(notes) or None


def not_in_training(known: Sequence[Mapping[int, str]], answers: Ints) -> Bools:
    """Which answers of each question training does not have; `known` says which split has some."""
    return np.array(
        [
            [split_of.get(answer) != "train" for answer in row]
            for split_of, row in zip(known, answers.tolist(), strict=True)
        ]
    )


def sure(run: KbcRun, some: Questions, rows: Ints, answers: Ints, confidence: Confidence) -> Floats:
    """The confidence of answers to questions; `rows` says to which."""
    return confidence.of(answered(run.asker, some, rows, answers))
