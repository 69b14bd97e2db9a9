"""Rules as a voice in the answer: their evidence added to the network's, as loud as it pays.

log p(y) + w s(y), p by the network's softmax, s = -log(1 - p) by the rules (`Rules.scores`). The
weight w is chosen on validation, for every relation asked that validation has enough pairs of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Scorer, rank_split

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
ENOUGH = 40  # validation pairs of a relation, to choose its own weight


@dataclass(frozen=True, eq=False)
class Mixture:
    """A scorer of two scorers, with a weight of the rules for every relation asked."""

    network: Scorer
    rules: Scorer
    weights: NDArray[np.float32]  # (2R,)

    def __call__(self, heads: Ints, relations: Ints) -> Tensor:
        scores_BN = self.network(heads, relations).log_softmax(dim=1)
        weights_B1 = torch.from_numpy(self.weights[relations])[:, None].to(scores_BN.device)
        return scores_BN.addcmul_(self.rules(heads, relations).to(scores_BN.device), weights_B1)


def fit_mixture(
    network: Scorer,
    rules: Scorer,
    graph: KnowledgeGraph,
    *,
    limit: int = 5000,
    seed: int = 0,
    weights: Sequence[float] = WEIGHTS,
) -> Mixture:
    """The mixture with the best MRR on (a part of) validation, by relation where it has enough."""
    width, gains = 2 * graph.num_relations, []
    for weight in weights:
        same = Mixture(network, rules, np.full(width, weight, np.float32))
        ranks = rank_split(same, graph, "valid", limit=limit, seed=seed)
        gains.append(1 / ranks.realistic)
    table = np.stack(gains)
    best = np.full(width, weights[int(table.mean(axis=1).argmax())], np.float32)
    counts = np.bincount(ranks.relations, minlength=width)
    for relation in np.flatnonzero(counts >= ENOUGH):
        own = table[:, ranks.relations == relation].mean(axis=1)
        best[relation] = weights[int(own.argmax())]
    return Mixture(network, rules, best)
