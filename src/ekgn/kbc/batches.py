"""Mini-batches of queries with their answers, and what the answers compete with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.settings import KbcSettings


class Batch(NamedTuple):
    """B queries, their P answers, and N sampled candidates: shared, per query, or none (all)."""

    heads_B: Tensor
    relations_B: Tensor
    answers_P: Tensor
    query_of_answer_P: Tensor  # which of the B queries each answer belongs to
    negatives: Tensor | None = None  # (N,) shared by the batch, (B, N), or None: every entity
    # (query, place among the negatives) of those that are answers after all, by place in order.
    is_answer: tuple[Tensor, Tensor] | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device.type == "cpu":
            return self

        def moved(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            return None if part is None else part.to(device)

        return Batch(*map(moved, self))


class Batches:
    """The batches of an epoch; batch `i` of epoch `e` depends on (seed, e, i) and nothing else.

    The paper's instances are triples, each with negatives of its own. Over a product an instance is
    a distinct query with all its answers, which compete with every entity (1vsAll), or with a
    sample shared by the batch.
    """

    def __init__(self, known: Answers, num_entities: int, settings: KbcSettings) -> None:
        self._known = known
        self._num_entities = num_entities
        self._settings = settings
        self._by_query = settings.has_product
        self._row_of_triple = np.repeat(np.arange(len(known)), np.diff(known.offsets))
        self._order: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    @property
    def instances(self) -> int:
        """How many instances an epoch has."""
        return len(self._known) if self._by_query else len(self._known.tails)

    def __len__(self) -> int:
        return -(-self.instances // self._settings.batch_size)

    def __call__(self, epoch: int, index: int) -> Batch:
        """Batch `index` of epoch `epoch`."""
        if self._order[0] != epoch:
            shuffled = np.random.default_rng([self._settings.seed, epoch])
            self._order = (epoch, shuffled.permutation(self.instances))
        size = self._settings.batch_size
        chosen = self._order[1][index * size : (index + 1) * size]
        rng = np.random.default_rng([self._settings.seed, epoch, index])
        return self._queries(chosen, rng) if self._by_query else self._triples(chosen, rng)

    def _queries(self, rows: Ints, rng: np.random.Generator) -> Batch:
        """Distinct queries with all their answers."""
        query_of_answer, answers = self._known.gather(rows)
        batch = self._batch(rows, answers, query_of_answer)
        if not self._settings.negatives:
            return batch
        draws = rng.integers(self._num_entities, size=self._settings.negatives)
        negatives = np.unique(draws)
        place = np.minimum(np.searchsorted(negatives, answers), len(negatives) - 1)
        hit = np.flatnonzero(negatives[place] == answers)
        hit = hit[np.argsort(place[hit], kind="stable")]
        return batch._replace(
            negatives=torch.from_numpy(negatives),
            is_answer=(torch.from_numpy(query_of_answer[hit]), torch.from_numpy(place[hit])),
        )

    def _triples(self, chosen: Ints, rng: np.random.Generator) -> Batch:
        """Single triples, each with its own negatives; only the answer itself is none of them."""
        answers = self._known.tails[chosen]
        shape = (len(chosen), self._settings.negatives)
        negatives = rng.integers(self._num_entities, size=shape)
        query, place = np.nonzero(negatives == answers[:, None])
        batch = self._batch(self._row_of_triple[chosen], answers, np.arange(len(chosen)))
        return batch._replace(
            negatives=torch.from_numpy(negatives),
            is_answer=(torch.from_numpy(query), torch.from_numpy(place)),
        )

    def _batch(self, rows: Ints, answers: Ints, query_of_answer: Ints) -> Batch:
        return Batch(
            heads_B=torch.from_numpy(self._known.heads[rows]),
            relations_B=torch.from_numpy(self._known.relations[rows]),
            answers_P=torch.from_numpy(answers),
            query_of_answer_P=torch.from_numpy(query_of_answer),
        )
