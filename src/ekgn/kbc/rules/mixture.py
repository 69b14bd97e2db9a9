"""Rules as a voice in the answer: their evidence added to the network's, as loud as it pays.

log p(y) + w s(y), p by the network's softmax, s = -log(1 - p) by the rules (`Rules.scores`). The
weight w is chosen on validation, for every relation asked that validation has enough pairs of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json
from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Scorer, filter_answers, rank_split

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
ENOUGH = 40  # validation pairs of a relation, to choose its own weight
WEIGHTS_FILE = "rules_weights.json"  # where a run keeps those that were chosen
_PIECE_BYTES = 128 * 2**20  # of the scores that are kept while the weights are tried


@dataclass(frozen=True, eq=False)
class Weights:
    """The weight of the rules for every relation asked, as validation chose it.

    A relation with fewer than ENOUGH validation pairs has the weight that is best for all.
    """

    of_relation: NDArray[np.float32]  # (2R,)
    pairs: Ints  # (2R,) of validation
    best_for_all: float

    def save(self, path: Path, graph: KnowledgeGraph, chosen_for: dict[str, Any]) -> None:
        """Write them with the names of the relations, and what they were chosen for."""
        rows = [
            {
                "relation": graph.relations.ids[asked % graph.num_relations],
                "missing": "head" if asked >= graph.num_relations else "tail",
                "weight": float(self.of_relation[asked]),
                "pairs": int(self.pairs[asked]),
            }
            for asked in range(len(self.of_relation))
        ]
        about = {"chosen_for": chosen_for, "best_for_all": self.best_for_all}
        write_json(path, {**about, "relations": rows})

    @classmethod
    def load(cls, path: Path, chosen_for: dict[str, Any]) -> Weights | None:
        """Those that `save` wrote, if they were chosen for the same."""
        kept = read_json(path) if path.is_file() else None
        if kept is None or kept["chosen_for"] != chosen_for:
            return None
        weights = np.array([row["weight"] for row in kept["relations"]], np.float32)
        pairs = np.array([row["pairs"] for row in kept["relations"]], np.int64)
        return cls(weights, pairs, kept["best_for_all"])

    def in_words(self) -> str:
        """A sentence for those who read a result with rules."""
        own = int((self.pairs >= ENOUGH).sum())
        of_own = f", its own for each of {own} relations asked that have enough" if own else ""
        return (
            f"The weight of the rules was chosen on {int(self.pairs.sum()):,} validation pairs: "
            f"{self.best_for_all:g}{of_own}."
        )


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


def fit_weights(
    network: Scorer,
    rules: Scorer,
    graph: KnowledgeGraph,
    *,
    limit: int = 5000,
    seed: int = 0,
    weights: Sequence[float] = WEIGHTS,
) -> Weights:
    """The weights with the best MRR on (a part of) validation, by relation where it has enough."""
    if not len(graph.valid):
        raise EkgnError(
            f"{graph.name} has no validation facts to choose the weight of the rules on. "
            f"Train on data with a validation split."
        )
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
    best_for_all = weights[int(table.mean(axis=1).argmax())]
    best, pairs = np.full(width, best_for_all, np.float32), np.bincount(asked, minlength=width)
    for relation in np.flatnonzero(pairs >= ENOUGH):
        own = table[:, asked == relation].mean(axis=1)
        best[relation] = weights[int(own.argmax())]
    return Weights(best, pairs, best_for_all)


def _remembering(scorer: Scorer) -> Scorer:
    """The same scorer, which does not work out twice what it is asked."""
    kept: dict[tuple[bytes, bytes], Tensor] = {}

    def scores(heads: Ints, relations: Ints) -> Tensor:
        key = heads.tobytes(), relations.tobytes()
        if key not in kept:
            kept[key] = scorer(heads, relations)
        return kept[key]

    return scores
