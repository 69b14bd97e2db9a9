"""Ranks against a slow loop; ties, filters, categories and bounds by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Metrics, rank_split, summarise
from ekgn.kbc.rules import Rules
from ekgn.kbc.summary import relation_categories

from .conftest import vocabulary
from .tolerance import rank_bounds

pytestmark = pytest.mark.numerical


def make_graph(
    train: list[list[int]], valid: list[list[int]], test: list[list[int]], n: int = 6, r: int = 2
) -> KnowledgeGraph:
    first, second, third = (np.array(p, np.int64).reshape(-1, 3) for p in (train, valid, test))
    names = vocabulary(*(f"e{i}" for i in range(n))), vocabulary(*(f"r{i}" for i in range(r)))
    return KnowledgeGraph("made", *names, first, second, third, source={})


facts = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)),
    min_size=1,
    max_size=12,
    unique=True,
)


@settings(max_examples=60, deadline=None)
@given(facts, facts, facts, st.integers(0, 2**32 - 1), st.sampled_from(["valid", "test"]))
def test_ranks_are_those_of_the_slow_loop(
    train: list[list[int]], valid: list[list[int]], test: list[list[int]], seed: int, split: str
) -> None:
    graph = make_graph(train, valid, test)
    # Few distinct values: many ties.
    table = np.random.default_rng(seed).integers(0, 4, (6, 4, 6)).astype(np.float32)

    def scores(heads: Ints, relations: Ints) -> Tensor:
        return torch.from_numpy(table[heads, relations].copy())

    for budget in (1, 10**9):
        ranks = rank_split(scores, graph, split, memory_budget=budget)
        found = list(zip(ranks.optimistic.tolist(), ranks.pessimistic.tolist(), strict=True))
        bounds = rank_bounds(scores, graph, split, near=0)
        assert found == list(zip(bounds.low.tolist(), bounds.high.tolist(), strict=True))
        assert ranks.candidates.tolist() == bounds.candidates.tolist()


GRAPH = make_graph([[0, 0, 1], [1, 0, 2], [2, 1, 3]], [[3, 0, 4]], [[4, 0, 5], [0, 0, 2]])


def constant(heads: Ints, relations: Ints) -> Tensor:
    return torch.zeros(len(heads), GRAPH.num_entities)


def test_a_constant_scorer_does_not_win() -> None:
    evaluation = summarise(rank_split(constant, GRAPH, "test"), GRAPH, "test")
    assert evaluation.micro.hits_at_1 == 0
    assert evaluation.micro.adjusted_mean_rank_index == pytest.approx(0)
    assert evaluation.optimistic.hits_at_1 == 1
    assert evaluation.pessimistic.mean_rank > evaluation.micro.mean_rank


def test_validation_is_not_filtered_with_test_triples() -> None:
    graph = make_graph([[0, 0, 1]], [[0, 0, 2]], [[0, 0, 3]])

    def prefers_the_test_answer(heads: Ints, relations: Ints) -> Tensor:
        scores = torch.zeros(len(heads), 6)
        scores[:, 3], scores[:, 2] = 2.0, 1.0
        return scores

    tail_side = rank_split(prefers_the_test_answer, graph, "valid").optimistic[0]
    assert tail_side == 2
    tail_side = rank_split(prefers_the_test_answer, graph, "test").optimistic[0]
    assert tail_side == 1


def test_metrics_by_hand() -> None:
    metrics = Metrics.over(np.array([1.0, 2.0, 10.0, 11.0]), np.array([21, 21, 21, 21]))
    assert metrics.mean_rank == 6
    assert metrics.mrr == pytest.approx((1 + 1 / 2 + 1 / 10 + 1 / 11) / 4)
    assert (metrics.hits_at_1, metrics.hits_at_3, metrics.hits_at_10) == (0.25, 0.5, 0.75)
    assert metrics.adjusted_mean_rank_index == pytest.approx(1 - 5 / 10)


def test_sides_categories_macro_and_unseen_entities() -> None:
    evaluation = summarise(rank_split(constant, GRAPH, "test"), GRAPH, "test")
    assert evaluation.sides["head"].count == evaluation.sides["tail"].count == 2
    assert list(evaluation.categories) == ["1-1"]
    # e4 and e5 occur in test but not in train.
    assert evaluation.unseen == {"entities": 2, "triples": 1}
    assert evaluation.macro["mrr"] == pytest.approx(evaluation.micro.mrr)


def test_relation_categories_by_hand() -> None:
    one_to_many = [[0, 0, t] for t in range(1, 5)]
    many_to_one = [[h, 1, 0] for h in range(1, 5)]
    graph = make_graph(one_to_many + many_to_one, [], [], r=3)
    assert relation_categories(graph) == ["1-M", "M-1", "unseen"]


def test_an_empty_split_is_said() -> None:
    graph = dataclasses.replace(GRAPH, test=np.empty((0, 3), np.int64))
    with pytest.raises(EkgnError, match="has no test triples: there is nothing to evaluate"):
        rank_split(constant, graph, "test")


def test_scores_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(EkgnError, match="not numbers"):
        rank_split(lambda h, r: constant(h, r) * torch.nan, GRAPH, "test")


def test_a_limit_ranks_a_fixed_sample() -> None:
    first = rank_split(constant, GRAPH, "test", limit=1, seed=3)
    again = rank_split(constant, GRAPH, "test", limit=1, seed=3)
    assert len(first.heads) == 2 and (first.heads == again.heads).all()


def test_the_rule_baseline_finds_a_renamed_and_a_reversed_relation() -> None:
    """r1 says the same as r0, r2 the reverse; the held-out r0 fact follows from either."""
    train = [[i, 0, i + 1] for i in range(4)] + [[i, 1, i + 1] for i in range(5)]
    train += [[i + 1, 2, i] for i in range(5)]
    graph = make_graph(train, [], [[4, 0, 5]], r=3)
    scores = Rules(graph).scores(np.array([4, 3]), np.array([0, 0]))
    # Of the 5 pairs of r1, 4 hold for r0: confidence 0.8; a score is -log(1 - confidence).
    assert (1 - (-scores[0]).exp()).tolist() == pytest.approx([0, 0, 0, 0, 0, 0.8], abs=1e-6)
    ranks = rank_split(Rules(graph).scores, graph, "test")
    assert ranks.realistic.tolist() == [1, 1]
    rules = Rules(graph)
    assert [chance for _, chance in rules.of_answer(4, 0, 5)] == pytest.approx([0.8])
    assert rules.of_answer(4, 0, 3) == []


@pytest.mark.parametrize(
    ("name", "hits", "mrr"),
    [
        ("wn18rr", 34.9, 0.348),
        pytest.param("wn18", 93.9, 0.938, marks=pytest.mark.slow),
        pytest.param("fb15k", 79.7, 0.778, marks=pytest.mark.slow),
        pytest.param("fb15k-237", 0, 0, marks=pytest.mark.slow),
    ],
)
def test_the_rule_baseline_on_real_benchmarks(
    benchmarks: object, name: str, hits: float, mrr: float
) -> None:
    from ekgn.kbc.graph import load_graph

    graph = load_graph(name)
    metrics = summarise(rank_split(Rules(graph).scores, graph, "test"), graph, "test").micro
    assert 100 * metrics.hits_at_10 == pytest.approx(hits, abs=0.5)
    assert metrics.mrr == pytest.approx(mrr, abs=0.01)
