"""Honest filtered ranking: one function that ranks, one that sums ranks up.

The rules: ties count half (with both bounds beside), the true answer's score comes from the same
matrix as the others', validation is filtered with train + valid and test with all three, unseen
entities count, both sides are ranked, memory is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.distributed import ALONE, Group
from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints, with_inverses
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.summary import relation_categories
from ekgn.tables import METRICS, Column, Table, metrics_table, sampled_name

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Scorer = Callable[[Ints, Ints], Tensor]
"""(heads, relations) -> scores of all entities, (B, N), higher is better."""

MEMORY_BUDGET = 64 * 2**20  # bytes of scores and their copies held at once; small fits the cache


@dataclass(frozen=True)
class Ranks:
    """The rank bounds of each (query, true answer) pair, and what the pair was."""

    heads: Ints
    relations: Ints  # r, or r + R for the inverse: then the "answer" is the triple's head
    targets: Ints
    optimistic: Ints
    pessimistic: Ints
    candidates: Ints  # how many entities were ranked: those not filtered out, and the target

    @property
    def realistic(self) -> Floats:
        """The mean of the two bounds."""
        return (self.optimistic + self.pessimistic) / 2


def filter_answers(graph: KnowledgeGraph, split: str) -> Answers:
    """The answers left out of a split's ranking: never test answers when validating."""
    parts = [graph.train, graph.valid] + ([graph.test] if split == "test" else [])
    return Answers(np.concatenate(parts), graph.num_relations)


def rank_split(
    scorer: Scorer,
    graph: KnowledgeGraph,
    split: str,
    *,
    known: Answers | None = None,
    limit: int = 0,
    seed: int = 0,
    memory_budget: int = MEMORY_BUDGET,
    on_progress: Callable[[int, int], None] | None = None,
    queries: Group = ALONE,
    shards: Group = ALONE,
) -> Ranks:
    """The filtered ranks of both sides of a split's triples (of `limit` of them, drawn by seed).

    Several processes divide the queries, or, if the scorer knows those of its shard, the entities.
    """
    triples = graph.split(split)
    if not len(triples):
        raise EkgnError(f"{graph.name} has no {split} triples: there is nothing to evaluate.")
    if limit and limit < len(triples):
        chosen = np.random.default_rng(seed).choice(len(triples), limit, replace=False)
        triples = triples[np.sort(chosen)]
    known = known or filter_answers(graph, split)
    both = with_inverses(triples, graph.num_relations)
    greater, equal = np.zeros(len(both), np.int64), np.zeros(len(both), np.int64)
    width = shards.owned(graph.num_entities)
    for pairs, rows, heads, relations in chunks(both, width, memory_budget, queries):
        scores_BN = scorer(heads, relations)
        answers = known.gather(known.rows(heads, relations))
        found = filtered_counts(scores_BN, rows, both[pairs, 2], answers, shards)
        greater[pairs], equal[pairs] = found
        if on_progress:
            on_progress(len(pairs), -(-len(both) // queries.size))
    for group in (queries, shards):
        group.sum(torch.from_numpy(greater), torch.from_numpy(equal))
    rows_known = known.rows(both[:, 0], both[:, 1])
    filtered = np.where(rows_known >= 0, np.diff(known.offsets)[rows_known], 1)
    return Ranks(
        heads=both[:, 0],
        relations=both[:, 1],
        targets=both[:, 2],
        optimistic=greater + 1,
        pessimistic=greater + equal + 1,
        candidates=graph.num_entities - filtered + 1,
    )


def chunks(
    both: Ints, num_entities: int, memory_budget: int, group: Group = ALONE
) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Distinct queries in chunks that fit the budget: (pairs, row of each pair, heads, relations).

    Pairs that share a query share its row of scores. A process of a group has its part of them.
    """
    width = int(both[:, 1].max()) + 1
    keys, row_of_pair = np.unique(both[:, 0] * width + both[:, 1], return_inverse=True)
    order = np.argsort(row_of_pair, kind="stable")
    sorted_rows = row_of_pair[order]
    # Scores, and working copies of the same size for the mixture and the comparison.
    size = max(1, memory_budget // (4 * 4 * num_entities))
    own = group.part(len(keys))
    for start in range(own.start, own.stop, size):
        stop = min(start + size, own.stop)
        low, high = np.searchsorted(sorted_rows, [start, stop])
        yield (
            order[low:high],
            sorted_rows[low:high] - start,
            keys[start:stop] // width,
            keys[start:stop] % width,
        )


def filtered_counts(
    scores_BN: Tensor,
    rows: Ints,
    targets: Ints,
    answers: tuple[Ints, Ints],
    shards: Group = ALONE,
) -> tuple[Ints, Ints]:
    """For each (row, target): how many entities outside `answers` score above it, and equal to it.

    All known answers of a row, the target among them, are overwritten with NaN, which is neither
    above nor equal to anything. `scores_BN` is used up. Of shards, those kept here are counted, and
    a target's score comes from where it is kept.
    """
    if torch.isnan(scores_BN.sum(dim=1)).any():
        raise EkgnError("The model's scores are not numbers (NaN): it diverged. Lower the rate.")
    device = scores_BN.device
    (here, row_P, place_P), (_, *known) = (
        _kept(*pairs, shards, device) for pairs in ((rows, targets), answers)
    )
    target_scores_P = scores_BN.new_zeros(len(rows))
    target_scores_P[here] = scores_BN[row_P, place_P]
    shards.sum(target_scores_P)
    scores_BN[known[0], known[1]] = torch.nan
    scores_BN[row_P, place_P] = torch.nan
    if device.type == "cpu":
        return count_by_row(scores_BN.numpy(), rows, target_scores_P.numpy())
    compared, limits = scores_BN[torch.from_numpy(rows).to(device)], target_scores_P[:, None]
    above, equal = (compared > limits).sum(dim=1), (compared == limits).sum(dim=1)
    return above.cpu().numpy(), equal.cpu().numpy()


def _kept(
    rows: Ints, entities: Ints, shards: Group, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """The (row, entity) pairs whose entity is kept here: which they are, their rows and columns."""
    here = np.flatnonzero(entities % shards.size == shards.rank)
    found = here, rows[here], entities[here] // shards.size
    return tuple(torch.from_numpy(part).to(device) for part in found)  # type: ignore[return-value]


def count_by_row(scores: Floats32, rows: Ints, limits: Floats32) -> tuple[Ints, Ints]:
    """Row by row: a mask counted in cache is much faster than the sum of a matrix of masks."""
    counts = np.empty((2, len(rows)), np.int64)
    for pair, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        values = scores[row]
        counts[0, pair] = np.count_nonzero(values > limit)
        counts[1, pair] = np.count_nonzero(values == limit)
    return counts[0], counts[1]


@dataclass(frozen=True)
class Metrics:
    """The usual numbers over some ranks."""

    count: int
    mean_rank: float
    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float
    adjusted_mean_rank_index: float

    @classmethod
    def over(cls, ranks: Floats | Ints, candidates: Ints) -> Metrics:
        """Metrics of ranks; the adjusted index is 1 for perfect, 0 for random order."""
        expected = float(((candidates + 1) / 2).mean())
        mean = float(ranks.mean())
        return cls(
            count=len(ranks),
            mean_rank=mean,
            mrr=float((1 / ranks).mean()),
            hits_at_1=float((ranks <= 1).mean()),
            hits_at_3=float((ranks <= 3).mean()),
            hits_at_10=float((ranks <= 10).mean()),
            adjusted_mean_rank_index=1 - (mean - 1) / (expected - 1) if expected > 1 else 1.0,
        )


HEADLINE = ("hits_at_10", "hits_at_3", "hits_at_1", "mrr", "mean_rank")


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a split: overall (micro), bounds, macro over relations, sides, categories."""

    split: str
    micro: Metrics
    optimistic: Metrics
    pessimistic: Metrics
    macro: dict[str, float]
    sides: dict[str, Metrics]
    categories: dict[str, dict[str, Metrics]] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)
    sampled: int = 0  # how many candidates were drawn; 0: ranks are among all entities
    relations: Table | None = field(default=None, repr=False, compare=False)  # metrics of each

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = {"both": self.micro, **{f"{side} missing": m for side, m in self.sides.items()}}
        among = f" among {self.sampled:,} sampled entities" if self.sampled else ""
        shown = [*HEADLINE, "adjusted_mean_rank_index"]
        return metrics_table(f"{self.split}, filtered ranks{among}", shown, rows).html()

    def headline(self) -> dict[str, float]:
        """The numbers that sum it up."""
        return {sampled_name(name, self.sampled): getattr(self.micro, name) for name in HEADLINE}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; without those of each relation, which are many.

        Metrics among sampled entities are named so.
        """
        found = asdict(replace(self, relations=None))
        del found["relations"]
        return _named(found, self.sampled) if self.sampled else found


def _named(values: dict[str, Any], candidates: int) -> dict[str, Any]:
    """The same values, metrics under the names that say how many candidates were drawn."""
    return {
        sampled_name(name, candidates if name in METRICS else 0): _named(value, candidates)
        if isinstance(value, dict)
        else value
        for name, value in values.items()
    }


CATEGORIES = ("1-1", "1-M", "M-1", "M-M")


def summarise(ranks: Ranks, graph: KnowledgeGraph, split: str, sampled: int = 0) -> Evaluation:
    """All metrics of the ranks of a split, among so many sampled candidates or among all."""
    realistic, candidates = ranks.realistic, ranks.candidates
    inverse = ranks.relations >= graph.num_relations
    relation = ranks.relations % graph.num_relations
    category = np.array(relation_categories(graph))[relation]
    sides = {"head": inverse, "tail": ~inverse}
    per_relation = {
        int(relation[m[0]]): Metrics.over(realistic[m], candidates[m]) for m in _groups(relation)
    }
    return Evaluation(
        split=split,
        micro=Metrics.over(realistic, candidates),
        optimistic=Metrics.over(ranks.optimistic, candidates),
        pessimistic=Metrics.over(ranks.pessimistic, candidates),
        macro={
            name: float(np.mean([getattr(metrics, name) for metrics in per_relation.values()]))
            for name in ("mean_rank", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")
        },
        sides={
            name: Metrics.over(realistic[mask], candidates[mask]) for name, mask in sides.items()
        },
        categories={
            kind: {
                name: Metrics.over(realistic[mask & here], candidates[mask & here])
                for name, mask in sides.items()
            }
            for kind in (*CATEGORIES, "unseen")
            if (here := category == kind).any()
        },
        unseen=_unseen(graph, ranks),
        sampled=sampled,
        relations=_relation_table(graph, per_relation),
    )


def _relation_table(graph: KnowledgeGraph, found: Mapping[int, Metrics]) -> Table:
    """The metrics of each relation, the most frequent first."""
    categories, names = relation_categories(graph), graph.relations
    train = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    rows = [
        [names.labels[at], names.ids[at], categories[at], int(train[at]), metrics.count // 2]
        + [getattr(metrics, name) for name in HEADLINE]
        for at, metrics in sorted(found.items(), key=lambda one: -one[1].count)
    ]
    about = ["relation", "id", "category", "in train", "facts"]
    return Table("By relation", [*about, *(METRICS[name] for name in HEADLINE)], rows)


def _groups(values: Ints) -> Iterator[Ints]:
    """The positions of each distinct value."""
    order = np.argsort(values, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def _unseen(graph: KnowledgeGraph, ranks: Ranks) -> dict[str, int]:
    """How many entities of the split, and triples with one, training never saw."""
    seen = np.zeros(graph.num_entities, bool)
    seen[graph.train[:, [0, 2]]] = True
    half = len(ranks.heads) // 2
    heads, tails = ranks.heads[:half], ranks.targets[:half]
    return {
        "entities": int((~seen[np.unique(np.concatenate([heads, tails]))]).sum()),
        "triples": int((~seen[heads] | ~seen[tails]).sum()),
    }


def category_table(categories: Mapping[str, Mapping[str, Any]]) -> Table:
    """Hits@10 and mean rank by kind of relation, for each side that is missing."""
    shown = [(metric, side) for metric in ("hits_at_10", "mean_rank") for side in ("head", "tail")]
    columns = [
        Column(f"{METRICS[metric].name}, {side} missing", METRICS[metric].write)
        for metric, side in shown
    ]
    rows = [
        [kind, sides["tail"]["count"], *(sides[side][metric] for metric, side in shown)]
        for kind, sides in categories.items()
    ]
    return Table("By relation category", ["category", "triples", *columns], rows)
