"""PyKEEN's models as scorers of all entities.

PyKEEN scores a query with an entity from the vectors of all three, for each query anew. Most models
allow better: a relation gives every entity a vector, and a query is a point among them, so that all
scores are one table of distances or products. The others are asked as PyKEEN asks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Scorer
from ekgn.network.l1 import l1_distances

HELD_NUMBERS = 32 * 2**20  # while PyKEEN scores: queries x entities x dimensions


def _by_l1(points_BK: Tensor, entities_NK: Tensor) -> Tensor:
    return -l1_distances(points_BK, entities_NK)


def _by_l2(points_BK: Tensor, entities_NK: Tensor) -> Tensor:
    return -torch.cdist(points_BK, entities_NK)


def _by_product(points_BK: Tensor, entities_NK: Tensor) -> Tensor:
    return points_BK @ entities_NK.T


class Space(NamedTuple):
    """What a relation makes of a model."""

    entities_NK: Tensor
    tails_of: Callable[[Tensor], Tensor]  # from heads' vectors to where their tails should be
    heads_of: Callable[[Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]


def _moved(entities_NK: Tensor, by_K: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Space:
    """A relation that moves heads to tails."""
    return Space(entities_NK, lambda heads: heads + by_K, lambda tails: tails - by_K, score)


def _transe(entities: list[Tensor], relation: list[Tensor]) -> Space:
    return _moved(entities[0], relation[0], _by_l1)


def _transh(entities: list[Tensor], relation: list[Tensor]) -> Space:
    normal, by = relation
    on_plane = entities[0] - (entities[0] @ normal)[:, None] * normal
    return _moved(on_plane, by, _by_l2)


def _transr(entities: list[Tensor], relation: list[Tensor]) -> Space:
    by, matrix = relation
    return _moved(_at_most_1(entities[0] @ matrix, 1), by, _by_l1)


def _transd(entities: list[Tensor], relation: list[Tensor]) -> Space:
    vectors, projections = entities
    by, projection = relation
    along = (vectors * projections).sum(dim=1, keepdim=True)
    return _moved(_at_most_1(vectors + along * projection, 2), by, _by_l2)


def _at_most_1(vectors: Tensor, power: int) -> Tensor:
    length_N1: Tensor = torch.linalg.vector_norm(vectors, power, dim=1, keepdim=True)
    return vectors / length_N1.clamp(min=1)


def _rotate(entities: list[Tensor], relation: list[Tensor]) -> Space:
    """Complex numbers, turned by the relation; as pairs of real ones when distances are taken."""
    turn = torch.view_as_complex(relation[0].view(-1, 2))

    def turned(vectors: Tensor, by: Tensor) -> Tensor:
        numbers = torch.view_as_complex(vectors.view(len(vectors), -1, 2)) * by
        return torch.view_as_real(numbers).flatten(1)

    return Space(
        entities[0],
        lambda heads: turned(heads, turn),
        lambda tails: turned(tails, turn.conj()),
        _by_l2,
    )


def _hole(entities: list[Tensor], relation: list[Tensor]) -> Space:
    """r · (h ⋆ t) = t · (h * r): the correlation with all tails as one convolution."""
    by, size = torch.fft.rfft(relation[0]), entities[0].shape[1]

    def times(vectors: Tensor, factor: Tensor) -> Tensor:
        product: Tensor = torch.fft.irfft(torch.fft.rfft(vectors) * factor, n=size)
        return product

    return Space(
        entities[0],
        lambda heads: times(heads, by),
        lambda tails: times(tails, by.conj()),
        _by_product,
    )


SPACES: dict[str, Callable[[list[Tensor], list[Tensor]], Space]] = {
    "transe": _transe,
    "transh": _transh,
    "transr": _transr,
    "transd": _transd,
    "rotate": _rotate,
    "hole": _hole,
}


def scorer(model: Any, name: str, graph: KnowledgeGraph) -> Scorer:
    """A model as a function from our queries (inverse: r + R) to scores of all entities."""
    if name not in SPACES:
        return plain_scorer(model, graph)
    count = graph.num_relations
    with torch.no_grad():
        entities = [_real(part()) for part in model.entity_representations]
        relations = [_real(part()) for part in model.relation_representations]

    def scores(heads: Ints, rows: Ints) -> Tensor:
        out = torch.empty(len(heads), graph.num_entities)
        entity, relation = torch.from_numpy(heads), torch.from_numpy(rows)
        with torch.no_grad():
            for row in np.unique(rows).tolist():
                here = torch.nonzero(relation == row).flatten()
                space = SPACES[name](entities, [part[row % count] for part in relations])
                ask = space.tails_of if row < count else space.heads_of
                points_BK = ask(space.entities_NK[entity[here]])
                out[here] = space.score(points_BK, space.entities_NK)
        return out

    return scores


def _real(vectors: Tensor) -> Tensor:
    return torch.view_as_real(vectors).flatten(1) if vectors.is_complex() else vectors


def plain_scorer(model: Any, graph: KnowledgeGraph) -> Scorer:
    """The same, as PyKEEN scores."""
    count = graph.num_relations
    width = max(part().shape[-1] for part in model.entity_representations)
    size = max(1, HELD_NUMBERS // (graph.num_entities * width))

    def scores(heads: Ints, rows: Ints) -> Tensor:
        out = torch.empty(len(heads), graph.num_entities)
        entity, relation = torch.from_numpy(heads), torch.from_numpy(rows)
        with torch.no_grad():
            for start in range(0, len(heads), size):
                for inverse in (False, True):
                    here = torch.nonzero((relation[start : start + size] >= count) == inverse)
                    part = here.flatten() + start
                    if len(part):
                        pair = [entity[part], relation[part] % count]
                        ask = model.predict_h if inverse else model.predict_t
                        out[part] = ask(torch.stack(pair[::-1] if inverse else pair, dim=1))
        return out

    return scores
