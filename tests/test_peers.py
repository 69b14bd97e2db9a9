"""Agreement of every metric with PyKEEN's evaluator on the same scores, ties included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.ranking import Evaluation, rank_split, summarise

pytestmark = pytest.mark.slow


def pykeen_model(graph: KnowledgeGraph, digits: int) -> Any:
    """A PyKEEN TransE whose scores are rounded, so that there are many ties."""
    models = pytest.importorskip("pykeen.models", reason="needs PyKEEN: run make test-slow")
    from pykeen.triples import CoreTriplesFactory

    class Rounded(models.TransE):  # type: ignore[misc, name-defined]
        def score_t(self, *args: Any, **kwargs: Any) -> Tensor:
            return torch.round(super().score_t(*args, **kwargs), decimals=digits)

        def score_h(self, *args: Any, **kwargs: Any) -> Tensor:
            return torch.round(super().score_h(*args, **kwargs), decimals=digits)

    factory = CoreTriplesFactory(
        torch.from_numpy(graph.train), graph.num_entities, graph.num_relations
    )
    return Rounded(triples_factory=factory, embedding_dim=16, random_seed=0).eval()


def ours(model: Any, graph: KnowledgeGraph) -> Evaluation:
    @torch.no_grad()
    def scores(heads: Ints, relations: Ints) -> Tensor:
        table = torch.empty(len(heads), graph.num_entities)
        tails = torch.from_numpy(relations < graph.num_relations)
        known, relation = torch.from_numpy(heads), torch.from_numpy(relations % graph.num_relations)
        table[tails] = model.score_t(torch.stack([known, relation], dim=1)[tails])
        table[~tails] = model.score_h(torch.stack([relation, known], dim=1)[~tails])
        return table

    return summarise(rank_split(scores, graph, "test"), graph, "test")


def theirs(model: Any, graph: KnowledgeGraph) -> Any:
    from pykeen.evaluation import RankBasedEvaluator

    return RankBasedEvaluator(filtered=True).evaluate(
        model=model,
        mapped_triples=torch.from_numpy(graph.test),
        additional_filter_triples=[torch.from_numpy(graph.train), torch.from_numpy(graph.valid)],
        batch_size=256,
        use_tqdm=False,
    )


@pytest.mark.parametrize("name", ["kinship", "umls", "nations"])
@pytest.mark.parametrize("digits", [1, 5])
def test_every_metric_agrees(benchmarks: Path, name: str, digits: int) -> None:
    graph = load_graph(name, data_dir=benchmarks)
    model = pykeen_model(graph, digits)
    mine, peer = ours(model, graph), theirs(model, graph)
    ties = {"optimistic": mine.optimistic, "realistic": mine.micro, "pessimistic": mine.pessimistic}
    for kind, metrics in ties.items():
        expected = {
            "mean_rank": metrics.mean_rank,
            "mean_reciprocal_rank": metrics.mrr,
            "hits_at_1": metrics.hits_at_1,
            "hits_at_3": metrics.hits_at_3,
            "hits_at_10": metrics.hits_at_10,
        }
        for metric, value in expected.items():
            assert peer.get_metric(f"both.{kind}.{metric}") == pytest.approx(value, rel=1e-5)
    for side in ("head", "tail"):
        value = mine.sides[side].mean_rank
        assert peer.get_metric(f"{side}.realistic.mean_rank") == pytest.approx(value, rel=1e-5)
    index = peer.get_metric("both.realistic.adjusted_arithmetic_mean_rank_index")
    assert index == pytest.approx(mine.micro.adjusted_mean_rank_index, rel=1e-5, abs=1e-6)
    assert np.isfinite(mine.micro.mrr)
