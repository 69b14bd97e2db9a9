"""What the memory holds: which relations look at which vector, and a theme in words.

Shape letters: R relations (with their inverses), M memory slots, L lookups, Q queries.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.words import relation_name, short_relation
from ekgn.network.inference import Inference
from ekgn.network.network import Memory

Floats = NDArray[np.float64]
QUERIES_PER_RELATION = 64
QUERY_CHUNK = 2_048
TOP_RELATIONS = 8  # as many as the paper's Table 3 shows
_FILLER = frozenset(
    {"an", "and", "as", "at", "by", "for", "from", "has", "have", "in", "is", "it"}
    | {"of", "on", "or", "that", "the", "this", "to", "was", "with"}
)


@dataclass(frozen=True)
class RelationShare:
    """A relation, and the average attention that it gives to a memory vector."""

    relation: str
    attention: float


@dataclass(frozen=True)
class SlotUse:
    """One memory vector: its share of all attention and the relations that look at it most."""

    slot: int
    share: float
    unused: bool
    theme: str
    relations: list[RelationShare]


@dataclass(frozen=True)
class SlotShare:
    """A memory vector, and the average attention it gets from a relation."""

    slot: int
    attention: float
    theme: str


@dataclass(frozen=True)
class RelationUse:
    """One relation: the memory vectors it looks at most."""

    relation: str
    queries: int
    effective_slots: float  # exp of the entropy of its average attention
    slots: list[SlotShare]


@dataclass(frozen=True)
class MemoryMap:
    """The average attention that each relation's training queries give to each memory vector."""

    names: list[str]  # of the relations that have training facts, inverses marked with ^
    queries_R: Ints  # their training queries
    attention_RM: Floats  # means over lookups and queries
    peak_M: Floats  # the most attention any lookup gave

    @cached_property
    def share_M(self) -> Floats:
        """Each vector's share of the attention of all training queries."""
        share_M: Floats = (self.queries_R @ self.attention_RM) / self.queries_R.sum()
        return share_M

    @cached_property
    def unused_M(self) -> NDArray[np.bool_]:
        """Vectors that no lookup ever gave as much as an even share, 1/M."""
        return self.peak_M * len(self.peak_M) < 1 - 1e-6

    @cached_property
    def themes(self) -> list[str]:
        """What each vector stands for: the words that its relations have in common.

        Where they have none, or another vector has the same ones, the names of the two relations
        that read it most.
        """
        words = [relation_words(name) for name in self.names]
        found = [_theme(words, self.attention_RM[:, slot]) for slot in range(len(self.peak_M))]
        used = Counter(
            theme for theme, unused in zip(found, self.unused_M, strict=True) if not unused
        )
        return [
            "unused" if unused else theme if theme and used[theme] == 1 else self._readers(slot)
            for slot, (theme, unused) in enumerate(zip(found, self.unused_M, strict=True))
        ]

    def _readers(self, slot: int) -> str:
        """The two relations that read a vector most, by name."""
        order = np.argsort(-self.attention_RM[:, slot], kind="stable")[:2]
        return " / ".join(short_relation(self.names[row]) for row in order)

    def slots(self, top: int = TOP_RELATIONS) -> list[SlotUse]:
        """Every memory vector, the most used first."""
        return [
            SlotUse(
                slot=int(slot),
                share=float(self.share_M[slot]),
                unused=bool(self.unused_M[slot]),
                theme=self.themes[slot],
                relations=[
                    RelationShare(self.names[row], float(self.attention_RM[row, slot]))
                    for row in np.argsort(-self.attention_RM[:, slot], kind="stable")[:top]
                ],
            )
            for slot in np.argsort(-self.share_M, kind="stable")
        ]

    def relations(self, top: int = TOP_RELATIONS) -> list[RelationUse]:
        """Every relation, in the graph's order, with the vectors it looks at most."""
        return [self._relation(row, top) for row in range(len(self.names))]

    def relation(self, name: str, top: int = TOP_RELATIONS) -> RelationUse:
        """One relation by name; it must have training facts."""
        if name not in self.names:
            raise EkgnError(
                f"The relation '{short_relation(name)}' has no training facts: there are no "
                f"lookups to average. Ask for one of the {len(self.names):,} that have."
            )
        return self._relation(self.names.index(name), top)

    def _relation(self, row: int, top: int) -> RelationUse:
        attention_M = self.attention_RM[row]
        return RelationUse(
            relation=self.names[row],
            queries=int(self.queries_R[row]),
            effective_slots=float(np.exp(_entropy(attention_M))),
            slots=[
                SlotShare(int(slot), float(attention_M[slot]), self.themes[slot])
                for slot in np.argsort(-attention_M, kind="stable")[:top]
            ],
        )

    def clustered(self) -> tuple[Ints, Ints]:
        """An order of relations and one of slots that puts those of like attention together."""
        return cluster_order(self.attention_RM), cluster_order(self.attention_RM.T)


def memory_map(
    graph: KnowledgeGraph,
    model: KbcModel,
    train: Answers,
    per_relation: int = QUERIES_PER_RELATION,
) -> MemoryMap:
    """What the memory is used for, over up to `per_relation` training queries of each relation."""
    if not model.settings.reads_memory:
        settings = model.settings
        raise EkgnError(
            f"This run never looks at a memory: it has max_steps = {settings.max_steps} and "
            f"controller = {settings.controller}. Train with --max-steps 2 or more and "
            f"--controller gru."
        )
    rows = np.concatenate([spread(group, per_relation) for group in groups_of(train.relations)])
    count = 2 * graph.num_relations
    total_RM = np.zeros((count, model.settings.num_slots))
    peak_M = np.zeros(model.settings.num_slots)
    for chunk, record in replay(model, train.heads[rows], train.relations[rows]):
        attention_LQM = record.attention_LBM.cpu().numpy().astype(np.float64)
        np.add.at(total_RM, train.relations[rows[chunk]], attention_LQM.mean(axis=0))
        peak_M = np.maximum(peak_M, attention_LQM.max(axis=(0, 1)))
    used_R = np.bincount(train.relations[rows], minlength=count)
    seen = np.flatnonzero(used_R)
    return MemoryMap(
        names=[relation_name(graph, int(relation)) for relation in seen],
        queries_R=np.bincount(train.relations, minlength=count)[seen],
        attention_RM=total_RM[seen] / used_R[seen, None],
        peak_M=peak_M,
    )


def replay(
    model: KbcModel, heads: Ints, relations: Ints, memory: Memory | None = None
) -> Iterator[tuple[slice, Inference]]:
    """The forward record of many queries, a chunk at a time."""
    device = model.answers.weight.device
    for start in range(0, len(heads), QUERY_CHUNK):
        chunk = slice(start, start + QUERY_CHUNK)
        with torch.no_grad():
            record = model(
                torch.from_numpy(heads[chunk]).to(device),
                torch.from_numpy(relations[chunk]).to(device),
                memory=memory,
            )
        yield chunk, record


def groups_of(values: Ints) -> Iterator[Ints]:
    """The positions of each distinct value."""
    order = np.argsort(values, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def spread(rows: Ints, most: int) -> Ints:
    """At most so many of the rows, evenly spread over them."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def cluster_order(rows: Floats) -> Ints:
    """The order of rows along the leaves of their average-linkage tree by cosine distance."""
    if len(rows) < 3:
        return np.arange(len(rows))
    from scipy.cluster.hierarchy import leaves_list, linkage

    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    tree = linkage(unit, method="average", optimal_ordering=len(rows) <= 600)
    order: Ints = leaves_list(tree).astype(np.int64)
    return order


def _entropy(probabilities: Floats) -> float:
    """Entropy in nats; 0 log 0 is 0."""
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


def relation_words(name: str) -> frozenset[str]:
    """The words in a relation's name, whichever way they are joined.

    >>> sorted(relation_words("^/film/film/directed_by")), sorted(relation_words("birthPlace"))
    (['directed', 'film'], ['birth', 'place'])
    """
    parts = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))
    words = [part.casefold() for part in parts]
    return frozenset(word for word in words if len(word) > 1 and word not in _FILLER)


def _theme(words: Sequence[frozenset[str]], attention_R: Floats) -> str:
    """The words that a slot's strongest relations share and that few other relations have.

    A word counts if relations with 30% of the attention of the strongest ones have it.
    """
    order = np.argsort(-attention_R, kind="stable")[:TOP_RELATIONS]
    strong = order[attention_R[order] >= attention_R[order[0]] / 3]
    everywhere = Counter(word for some in words for word in some)
    weight: dict[str, float] = defaultdict(float)
    carriers: dict[str, set[frozenset[str]]] = defaultdict(set)
    for row in strong:
        for word in words[row]:
            weight[word] += attention_R[row] / attention_R[strong].sum()
            carriers[word].add(words[row])
    common = [word for word in weight if weight[word] >= 0.3]
    shared = [word for word in common if len(carriers[word]) > 1] or common
    scores = {word: weight[word] * np.log((1 + len(words)) / everywhere[word]) for word in shared}
    best = sorted(scores, key=lambda word: (-scores[word], word))[:3]
    return ", ".join(word for word in best if scores[word] >= scores[best[0]] / 2)
