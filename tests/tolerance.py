"""Comparing what two computations give: equal but for rounding, and for the order of near-ties.

Processors add in different orders, so two ways to the same number differ in its last bits, and
what is ranked by such numbers may trade places where they are that near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Metrics

NEAR = 1e-5  # of the largest score: about a hundred roundings of float32


class RankBounds(NamedTuple):
    """The lowest and highest filtered rank of each pair, and among how many it is ranked."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    candidates: NDArray[np.int64]


def rank_bounds(
    scorer: Callable[[Ints, Ints], Tensor], graph: KnowledgeGraph, split: str, near: float = NEAR
) -> RankBounds:
    """The ranks that each pair may have, by a plain loop; near scores are ties.

    Pairs are in the order of rank_split: all tails, then all heads.
    """
    known = [*graph.train.tolist(), *graph.valid.tolist()]
    known += graph.test.tolist() if split == "test" else []
    facts = {(h, r, t) for h, r, t in known}
    facts |= {(t, r + graph.num_relations, h) for h, r, t in known}
    triples = graph.split(split).tolist()
    queries = triples + [[t, r + graph.num_relations, h] for h, r, t in triples]
    heads, relations, _ = np.array(queries, np.int64).T
    table = scorer(heads, relations).numpy()
    slack = near * np.abs(table[np.isfinite(table)]).max()
    found = []
    for (head, relation, tail), scores in zip(queries, table, strict=True):
        rivals = np.array(
            [
                scores[e]
                for e in range(graph.num_entities)
                if e != tail and (head, relation, e) not in facts
            ]
        )
        above, not_below = rivals > scores[tail] + slack, rivals >= scores[tail] - slack
        found.append((1 + above.sum(), 1 + not_below.sum(), 1 + len(rivals)))
    return RankBounds(*np.array(found, np.int64).T)


def assert_metrics_of(
    found: Metrics,
    scorer: Callable[[Ints, Ints], Tensor],
    graph: KnowledgeGraph,
    split: str,
) -> None:
    """The metrics are those of the scorer's ranks, whichever way its near-ties fall."""
    low, high, candidates = rank_bounds(scorer, graph, split)
    assert found.count == len(low)
    best, worst = Metrics.over(low, candidates), Metrics.over(high, candidates)
    assert best.mean_rank - 1e-9 <= found.mean_rank <= worst.mean_rank + 1e-9
    rising = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10", "adjusted_mean_rank_index")
    for name in rising:
        lowest, value, highest = (getattr(one, name) for one in (worst, found, best))
        assert lowest - 1e-9 <= value <= highest + 1e-9, name


def unclear(values: Tensor, near: float = NEAR) -> Tensor:
    """Whether the two largest along the last dimension are so near that either may be the first."""
    top = values.double().topk(2, dim=-1).values
    return (top[..., 0] - top[..., 1]) <= near * values.abs().max()


def assert_same_answers(
    found: Sequence[tuple[str, float]], expected: Sequence[tuple[str, float]]
) -> None:
    """Two lists of (id, probability), best first: the same but for places of near-ties."""
    assert [p for _, p in found] == pytest.approx([p for _, p in expected], rel=1e-3, abs=1e-5)
    known = dict(expected)
    for name, probability in found:
        # One that is not in the other list was nearly as likely as the last there.
        wanted = known.get(name, expected[-1][1])
        assert probability == pytest.approx(wanted, rel=1e-3, abs=1e-5), name
