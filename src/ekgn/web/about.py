"""One entity: its training facts by relation, and the relations that its kind has and it lacks."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ekgn.web.schema import EntityReply, Gap, Group
from ekgn.web.served_kbc import USUAL, ServedKbc

SHOWN = 12  # things by one relation
MOST_GAPS = 20
SIDES: tuple[Literal["head", "tail"], ...] = ("head", "tail")


def about_entity(served: ServedKbc, entity: int) -> EntityReply:
    """What training says of an entity, and what it does not."""
    hits = {side: served.search_relations("", 50, entity, side) for side in SIDES}
    gaps = [gap for side in SIDES for gap in _gaps(served, entity, side)]
    return EntityReply(
        entity=served.entity_thing(entity),
        facts=int(served.facts[entity]),
        as_head=[hit for hit in hits["head"] if hit.facts],
        as_tail=[hit for hit in hits["tail"] if hit.facts],
        known=[group for side in SIDES for group in _groups(served, entity, side)],
        gaps=sorted(gaps, key=lambda gap: -gap.usual)[:MOST_GAPS],
    )


def _groups(served: ServedKbc, entity: int, side: Literal["head", "tail"]) -> list[Group]:
    width = served.run.graph.num_relations
    counts = served.relations_of(entity, side)
    found = []
    for relation in np.flatnonzero(counts)[np.argsort(-counts[counts > 0], kind="stable")].tolist():
        role = relation + width * (side == "tail")
        others = served.run.known["train"].of(entity, role)
        best = others[np.argsort(-served.facts[others], kind="stable")][:SHOWN]
        found.append(
            Group(
                relation=served.relation_thing(relation),
                side=side,
                others=[served.entity_thing(other) for other in best.tolist()],
                facts=int(counts[relation]),
            )
        )
    return found


def _gaps(served: ServedKbc, entity: int, side: Literal["head", "tail"]) -> list[Gap]:
    usual = served.usual_relations(entity, side)
    lacking = (served.relations_of(entity, side) == 0) & (usual >= USUAL)
    return [
        Gap(relation=served.relation_thing(relation), side=side, usual=float(usual[relation]))
        for relation in np.flatnonzero(lacking).tolist()
    ]
