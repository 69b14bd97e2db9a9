"""Rules as a voice in the answer: their evidence added to the network's, as loud as it pays.

log p(y) + w s(y), p by the network's softmax, s = -log(1 - p) by the rules (`Rules.scores`). The
weight w is chosen on validation, for every relation asked that validation has enough pairs of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Scorer, filter_answers, rank_split

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
ENOUGH = 40  # validation pairs of a relation, to choose its own weight
_PIECE_BYTES = 128 * 2**20  # of the scores that are kept while the weights are tried


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
    width, known = 2 * graph.num_relations, filter_answers(graph, "valid")
    facts = np.random.default_rng(seed).permutation(graph.valid)[:limit]
    size = max(1, _PIECE_BYTES // (4 * 4 * graph.num_entities))  # two scorers, two sides
    gains, relations = [], []
    for start in range(0, len(facts), size):
        piece = replace(graph, valid=facts[start : start + size])
        # Whatever the number of weights, both are asked once.
        scorers = _remembering(network), _remembering(rules)
        ranks = [
            rank_split(
                Mixture(*scorers, np.full(width, weight, np.float32)), piece, "valid", known=known
            )
            for weight in weights
        ]
        gains.append(np.stack([1 / found.realistic for found in ranks]))
        relations.append(ranks[0].relations)
    table, asked = np.concatenate(gains, axis=1), np.concatenate(relations)
    best = np.full(width, weights[int(table.mean(axis=1).argmax())], np.float32)
    for relation in np.flatnonzero(np.bincount(asked, minlength=width) >= ENOUGH):
        own = table[:, asked == relation].mean(axis=1)
        best[relation] = weights[int(own.argmax())]
    return Mixture(network, rules, best)


def _remembering(scorer: Scorer) -> Scorer:
    """The same scorer, which does not work out twice what it is asked."""
    kept: dict[tuple[bytes, bytes], Tensor] = {}

    def scores(heads: Ints, relations: Ints) -> Tensor:
        key = heads.tobytes(), relations.tobytes()
        if key not in kept:
            kept[key] = scorer(heads, relations)
        return kept[key]

    return scores
