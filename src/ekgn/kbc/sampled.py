"""Ranks among sampled entities, where ranks among all would take too long.

A rank among a sample is smaller than the rank among all, so these metrics carry the size of the
sample in their names and are never compared with exact ones. What a validation may cost, and so
what it measures, is decided here by counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints, with_inverses
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.ranking import MEMORY_BUDGET, Ranks, chunks, filter_answers, filtered_counts
from ekgn.kbc.search import Asked
from ekgn.kbc.settings import KbcSettings

VALIDATION_OPERATIONS = 2e12  # of exact ranks in one validation: about a minute of a core
LEAST_FACTS = 2_000  # drawn ones whose exact ranks still tell one checkpoint from another
SAMPLED_FACTS = SAMPLED_CANDIDATES = 10_000


class Measured(NamedTuple):
    """How many facts a validation ranks, and among how many entities; 0: all."""

    facts: int
    candidates: int


def measured(graph: KnowledgeGraph, settings: KbcSettings) -> Measured:
    """All facts among all entities where that costs at most VALIDATION_OPERATIONS.

    Else as many drawn facts as that allows, still among all entities; where these would be fewer
    than LEAST_FACTS, SAMPLED_FACTS among SAMPLED_CANDIDATES.
    """
    wanted = settings.valid_candidates
    if wanted > 0:
        return Measured(SAMPLED_FACTS, min(wanted, graph.num_entities))
    of_fact = 4.0 * graph.num_entities * settings.embedding_dim  # two sides, a product and a sum
    facts = int(VALIDATION_OPERATIONS / max(of_fact, 1.0))
    if wanted == 0 or facts >= len(graph.valid):
        return Measured(0, 0)
    if facts >= LEAST_FACTS:
        return Measured(facts, 0)
    return Measured(SAMPLED_FACTS, min(SAMPLED_CANDIDATES, graph.num_entities))


def rank_sampled(
    model: KbcModel,
    graph: KnowledgeGraph,
    split: str,
    candidates: int,
    *,
    readout: str | None = None,
    known: Answers | None = None,
    limit: int = 0,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Ranks:
    """The filtered ranks of a split's triples among sampled entities, the same for all queries.

    Known answers in the sample do not compete. A sample of all entities gives the exact ranks.
    """
    triples = graph.split(split)
    if not len(triples) or candidates < 1:
        raise EkgnError(
            f"Nothing to rank: {graph.name} has {len(triples):,} {split} triples, and "
            f"{candidates:,} candidates were asked for."
        )
    rng = np.random.default_rng(seed)
    if limit and limit < len(triples):
        triples = triples[np.sort(rng.choice(len(triples), limit, replace=False))]
    drawn = np.random.default_rng([seed, 1]).choice(
        graph.num_entities, min(candidates, graph.num_entities), replace=False, shuffle=False
    )
    sample = np.sort(drawn)
    known = known or filter_answers(graph, split)
    both = with_inverses(triples, graph.num_relations)
    counts = np.empty((3, len(both)), np.int64)  # above, equal, ranked
    for pairs, rows, heads, relations in chunks(both, 2 * len(sample), MEMORY_BUDGET):
        targets = both[pairs, 2]
        others = np.setdiff1d(targets, sample)
        scores_BC = _scores(model, Asked.of(model, heads, relations, readout), sample, others)
        row, answer = known.gather(known.rows(heads, relations))
        place, is_in = _places(sample, answer)
        row, place = row[is_in], place[is_in]
        counts[2, pairs] = len(sample) - np.bincount(row, minlength=len(heads))[rows] + 1
        # The targets that are not in the sample compete with nobody.
        beside = np.arange(len(sample), len(sample) + len(others))
        row = np.append(row, np.repeat(np.arange(len(heads)), len(others)))
        place = np.append(place, np.tile(beside, len(heads)))
        at, is_in = _places(sample, targets)
        at = np.where(is_in, at, len(sample) + np.searchsorted(others, targets))
        counts[0, pairs], counts[1, pairs] = filtered_counts(scores_BC, rows, at, (row, place))
        if on_progress:
            on_progress(len(pairs), len(both))
    above, equal, ranked = counts
    heads, relations, targets = both.T
    return Ranks(heads, relations, targets, above + 1, above + equal + 1, ranked)


def _places(sample: Ints, entities: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Where entities are in the sample, and whether they are."""
    place = np.minimum(np.searchsorted(sample, entities), len(sample) - 1)
    return place, sample[place] == entities


@torch.no_grad()
def _scores(model: KbcModel, asked: Asked, sample: Ints, others: Ints) -> Tensor:
    """Scores of the sample, then of the others; of several steps by shares of the sample."""
    device = asked.outputs_SBK.device
    rows_CK = model.answers(torch.from_numpy(np.append(sample, others)).to(device))
    steps = [model.compare(outputs_BK, rows_CK) for outputs_BK in asked.outputs_SBK]
    if len(steps) == 1:
        return steps[0]
    totals = [scores[:, : len(sample)].logsumexp(dim=1, keepdim=True) for scores in steps]
    weighed = [
        scores - total + weight_B[:, None]
        for scores, total, weight_B in zip(steps, totals, asked.log_weights_SB, strict=True)
    ]
    return torch.stack(weighed).logsumexp(dim=0)
