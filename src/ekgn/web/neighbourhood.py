"""An entity in the training graph: its facts, facts among its neighbours, and predicted links."""

from __future__ import annotations

import numpy as np

from ekgn.kbc.answers import Ints
from ekgn.web.curation import Curation
from ekgn.web.schema import Edge, NeighbourhoodReply, Node
from ekgn.web.served_kbc import ServedKbc

MOST_BETWEEN = 60  # facts drawn between neighbours

Link = tuple[int, int, int, float, float | None]
"""Head, relation, tail, the tail's share, and the confidence where one is fitted."""


def neighbourhood(
    curation: Curation, entity: int, facts: int, predicted: int
) -> NeighbourhoodReply:
    """At most `facts` training facts of an entity and `predicted` links it may have besides."""
    served = curation.served
    rows, left_out = _facts_of(served, entity, facts)
    links = _predictions(curation, entity, predicted) if predicted else []
    edges = [_edge(served, row) for row in rows.tolist()]
    shown = {entity, *rows[:, 0].tolist(), *rows[:, 2].tolist()}
    for head, relation, tail, share, sure in links:
        edges.append(_edge(served, (head, relation, tail), share, sure))
        shown |= {head, tail}
    edges += [_edge(served, row) for row in _between(served, shown - {entity}).tolist()]
    things = sorted(shown, key=lambda index: (index != entity, -served.facts[index], index))
    return NeighbourhoodReply(
        centre=served.entity_thing(entity),
        nodes=[
            Node(**served.entity_thing(index).model_dump(), facts=int(served.facts[index]))
            for index in things
        ],
        edges=edges,
        facts_left_out=left_out,
    )


def _facts_of(served: ServedKbc, entity: int, most: int) -> tuple[Ints, int]:
    """Training facts of an entity, taken in turn from each of its relations, and how many more."""
    train, width = served.run.known["train"], served.run.graph.num_relations
    low, high = np.searchsorted(train.heads, [entity, entity + 1])
    rows = np.arange(low, high)
    which, others = train.gather(rows)
    relations = train.relations[rows][which]
    within = np.arange(len(others)) - np.concatenate([[0], np.cumsum(np.bincount(which))])[which]
    order = np.lexsort((relations, within))[:most]
    inverse = relations >= width
    heads = np.where(inverse, others, entity)
    tails = np.where(inverse, entity, others)
    facts = np.stack([heads, relations % width, tails], axis=1)[order]
    # A fact of the entity with itself is found from either end.
    _, first = np.unique(facts, axis=0, return_index=True)
    return facts[np.sort(first)], max(0, len(others) - most)


def _predictions(curation: Curation, entity: int, most: int) -> list[Link]:
    """The surest facts of an entity that training lacks."""
    graph = curation.run.graph
    found = []
    for one in curation.missing(entity, most).facts:
        head, tail = (graph.entities.index_of[part.id] for part in (one.head, one.tail))
        relation = graph.relations.index_of[one.relation.id]
        found.append((head, relation, tail, one.tail_share or 0.0, one.confidence))
    return found


def _between(served: ServedKbc, nodes: set[int]) -> Ints:
    """Some training facts whose both ends are among the nodes."""
    is_shown = np.zeros(served.run.graph.num_entities, bool)
    is_shown[list(nodes)] = True
    train = served.run.graph.train
    inside = train[is_shown[train[:, 0]] & is_shown[train[:, 2]]]
    _, first = np.unique(inside[:, [0, 2]], axis=0, return_index=True)
    return inside[np.sort(first)][:MOST_BETWEEN]


def _edge(
    served: ServedKbc,
    fact: list[int] | tuple[int, int, int],
    share: float | None = None,
    confidence: float | None = None,
) -> Edge:
    head, relation, tail = fact
    ids = served.run.graph.entities.ids
    return Edge(
        source=ids[head],
        target=ids[tail],
        relation=served.relation_thing(relation),
        kind="train" if share is None else "predicted",
        share=share,
        confidence=confidence,
    )
