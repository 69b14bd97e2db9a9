"""Training facts in both directions, indexed for walks: plain arrays that compiled loops read.

Relation r + R is the inverse of r, so every fact can be walked either way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.rules.compiled import compiled


class Facts(NamedTuple):
    """Facts by [entity, relation] (rows), by relation, and by pair of entities (links).

    Row i is [heads[i], relations[i]]; its tails are tails[starts[i]:starts[i + 1]], sorted. The
    rows of entity e are rows_of[e] to rows_of[e + 1]; those of relation r are
    by_relation[domain[r]:domain[r + 1]].
    Link j leads from an entity to neighbours[j] by link_relations[link_starts[j]:...]; the links of
    entity e are links_of[e] to links_of[e + 1], sorted by neighbour.
    """

    heads: Ints
    relations: Ints
    starts: Ints
    tails: Ints
    rows_of: Ints
    by_relation: Ints
    domain: Ints
    links_of: Ints
    neighbours: Ints
    link_starts: Ints
    link_relations: Ints

    @property
    def num_entities(self) -> int:
        return len(self.rows_of) - 1

    @property
    def width(self) -> int:
        """How many relations there are, inverses included."""
        return len(self.domain) - 1


def index_facts(graph: KnowledgeGraph) -> Facts:
    """The index of a graph's training facts."""
    known = Answers(graph.train, graph.num_relations)
    entities, width = np.arange(graph.num_entities + 1), 2 * graph.num_relations
    by_relation = np.argsort(known.relations, kind="stable")
    counts = np.diff(known.offsets)
    heads, relations = np.repeat(known.heads, counts), np.repeat(known.relations, counts)
    order = np.lexsort((relations, known.tails, heads))
    pairs = (heads * graph.num_entities + known.tails)[order]
    links, link_starts = np.unique(pairs, return_index=True)
    return Facts(
        heads=known.heads,
        relations=known.relations,
        starts=known.offsets,
        tails=known.tails,
        rows_of=np.searchsorted(known.heads, entities),
        by_relation=by_relation,
        domain=np.searchsorted(known.relations[by_relation], np.arange(width + 1)),
        links_of=np.searchsorted(links, entities * graph.num_entities),
        neighbours=links % graph.num_entities,
        link_starts=np.append(link_starts, len(pairs)),
        link_relations=relations[order],
    )


@compiled
def inverse(relation, width):  # type: ignore[no-untyped-def]
    """The index of the inverse relation."""
    half = width // 2
    return relation + half if relation < half else relation - half


@compiled
def find_row(rows_of, relations, entity, relation):  # type: ignore[no-untyped-def]
    """The row of [entity, relation], or -1."""
    low, high = rows_of[entity], rows_of[entity + 1]
    while low < high:
        middle = (low + high) // 2
        if relations[middle] < relation:
            low = middle + 1
        else:
            high = middle
    found = low < rows_of[entity + 1] and relations[low] == relation
    return low if found else -1


@compiled
def find_link(links_of, neighbours, entity, neighbour):  # type: ignore[no-untyped-def]
    """The link from an entity to a neighbour, or -1."""
    low, high = links_of[entity], links_of[entity + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < neighbour:
            low = middle + 1
        else:
            high = middle
    found = low < links_of[entity + 1] and neighbours[low] == neighbour
    return low if found else -1


@compiled
def holds(starts, tails, row, tail):  # type: ignore[no-untyped-def]
    """Whether a row has a tail."""
    at = starts[row] + np.searchsorted(tails[starts[row] : starts[row + 1]], tail)
    return at < starts[row + 1] and tails[at] == tail
