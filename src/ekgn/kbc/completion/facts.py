"""Facts with what the network says of them from both sides, as a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.asking import Asker, Questions, Side
from ekgn.kbc.completion.roles import Choice

FEATURES = (
    *("tail_log_share", "tail_margin", "tail_known", "tail_step"),
    *("head_log_share", "head_margin", "head_known", "head_step"),
    *("head_degree", "tail_degree", "rule"),
)
"""What a confidence is made of: of the tail asked for, of the head asked for, of the fact."""


def candidates(asker: Asker, role: int, entities: Ints, choice: Choice) -> pl.DataFrame:
    """The facts that the questions (entity, role, ?) propose, with their ranks."""
    considered = asker.roles.considered(role, choice)
    pairs, asked, ranks = asker.best(entities, role, choice.depth, considered)
    heads, answers = pairs.T
    return _ranked(asker, heads, np.full(len(pairs), role), answers, asked, ranks)


def given(asker: Asker, facts: Ints) -> pl.DataFrame:
    """Given facts, known or not, with their ranks."""
    heads, relations, tails = facts.T
    asked, ranks = asker.places(heads, relations, tails)
    return _ranked(asker, heads, relations, tails, asked, ranks)


def answered(asker: Asker, some: Questions, rows: Ints, answers: Ints) -> NDArray[np.float64]:
    """The FEATURES of the facts that answers to questions make, known or not."""
    heads, roles = some.heads[rows], some.roles[rows]
    columns = _columns(asker, heads, roles, answers, *asker.both(some, rows, answers))
    return np.column_stack([columns[name] for name in FEATURES])


def _ranked(
    asker: Asker, heads: Ints, roles: Ints, answers: Ints, asked: Side, ranks: Ints
) -> pl.DataFrame:
    back, back_ranks = asker.places(answers, asker.inverse(roles), heads)
    frame = pl.DataFrame(_columns(asker, heads, roles, answers, asked, back))
    over = roles >= asker.graph.num_relations
    tail, head = np.where(over, back_ranks, ranks), np.where(over, ranks, back_ranks)
    return frame.with_columns(tail_rank=tail, head_rank=head)


def _columns(
    asker: Asker, heads: Ints, roles: Ints, answers: Ints, asked: Side, back: Side
) -> dict[str, NDArray[Any]]:
    count = asker.graph.num_relations
    over = roles >= count  # over an inverse the answer is the fact's head
    ends = np.where(over, (answers, heads), (heads, answers))
    columns: dict[str, NDArray[Any]] = {"head": ends[0], "relation": roles % count, "tail": ends[1]}
    for name, one, other in (("tail", asked, back), ("head", back, asked)):
        side = Side(*(np.where(over, *parts) for parts in zip(other, one, strict=True)))
        columns |= {
            f"{name}_share": np.exp(side.log_share),
            f"{name}_log_share": side.log_share,
            f"{name}_margin": side.margin,
            f"{name}_known": np.log1p(side.answers),
            f"{name}_step": side.step,
        }
    return columns | {
        "head_degree": np.log1p(asker.degree[ends[0]]),
        "tail_degree": np.log1p(asker.degree[ends[1]]),
        "rule": asker.by_rules(heads, roles, answers),
    }
