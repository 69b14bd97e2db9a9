"""Facts with what the network says of them from both sides, as a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.asking import Asker, Floats, Side
from ekgn.kbc.completion.roles import Choice

FEATURES = (
    *("tail_log_share", "tail_log_rank", "tail_margin", "tail_known", "tail_step"),
    *("head_log_share", "head_log_rank", "head_margin", "head_known", "head_step"),
    *("head_degree", "tail_degree", "rule"),
)
"""What a confidence is made of: of the tail asked for, of the head asked for, of the fact."""


def candidates(asker: Asker, role: int, entities: Ints, choice: Choice) -> pl.DataFrame:
    """The facts that the questions (entity, role, ?) propose."""
    considered = asker.roles.considered(role, choice)
    pairs, asked = asker.best(entities, role, choice.depth, considered)
    heads, answers = pairs.T
    return answered(asker, heads, np.full(len(pairs), role), answers, asked)


def given(asker: Asker, facts: Ints) -> pl.DataFrame:
    """Given facts, known or not."""
    return answered(asker, *facts.T)


def answered(
    asker: Asker, heads: Ints, roles: Ints, answers: Ints, asked: Side | None = None
) -> pl.DataFrame:
    """The facts that answers to (head, role, ?) make, known or not."""
    if asked is None:
        asked = asker.places(heads, roles, answers)
    count = asker.graph.num_relations
    back = asker.places(answers, (roles + count) % (2 * count), heads)
    rule = asker.by_rules(heads, roles, answers)
    # Over an inverse the answer is the fact's head.
    inverse = roles >= count
    tail, head = (
        Side(*(np.where(inverse, other, one) for one, other in zip(*sides, strict=True)))
        for sides in ((asked, back), (back, asked))
    )
    ends = np.where(inverse, (answers, heads), (heads, answers))
    return _frame(asker, np.stack([ends[0], roles % count, ends[1]], axis=1), tail, head, rule)


def _frame(asker: Asker, facts: Ints, tail: Side, head: Side, rule: Floats) -> pl.DataFrame:
    columns: dict[str, NDArray[Any]] = {
        "head": facts[:, 0],
        "relation": facts[:, 1],
        "tail": facts[:, 2],
    }
    for name, side in (("tail", tail), ("head", head)):
        columns |= {
            f"{name}_share": np.exp(side.log_share),
            f"{name}_rank": side.rank,
            f"{name}_log_share": side.log_share,
            f"{name}_log_rank": np.log(side.rank),
            f"{name}_margin": side.margin,
            f"{name}_known": np.log1p(side.answers),
            f"{name}_step": side.step,
        }
    columns |= {
        "head_degree": np.log1p(asker.degree[facts[:, 0]]),
        "tail_degree": np.log1p(asker.degree[facts[:, 2]]),
        "rule": rule,
    }
    return pl.DataFrame(columns)
