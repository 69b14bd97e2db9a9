"""Mini-batches of queries with their answers and sampled wrong answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.settings import KbcSettings


class Batch(NamedTuple):
    """B queries, their P answers, and N sampled candidates per query or for the whole batch."""

    heads_B: Tensor
    relations_B: Tensor
    answers_P: Tensor
    query_of_answer_P: Tensor  # which of the B queries each answer belongs to
    negatives: Tensor  # (N,) shared by the batch, or (B, N)
    is_answer: tuple[Tensor, ...]  # index of the negatives that are answers after all
    log_weight: Tensor  # log of how many entities a negative stands for: (N,), (B, 1) or (1,)

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""

        def moved(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(part.to(device) for part in value)
            return value.to(device)

        return Batch(*map(moved, self))


class Batches:
    """The batches of an epoch; batch `i` of epoch `e` depends on (seed, e, i) and nothing else."""

    def __init__(self, known: Answers, num_entities: int, settings: KbcSettings) -> None:
        self._known = known
        self._num_entities = num_entities
        self._settings = settings
        self._by_query = settings.batch_by == "query"
        self._instances = len(known) if self._by_query else len(known.tails)
        counts = np.diff(known.offsets)
        self._row_of_triple = np.repeat(np.arange(len(known)), counts)
        self._order: tuple[int, Ints] = (-1, np.empty(0, np.int64))
        # A draw takes an entity with probability `chance`; 1 / (that it is drawn at all) makes the
        # sum over the drawn an unbiased estimate of the sum over all.
        popularity = np.bincount(known.tails, minlength=num_entities) / len(known.tails)
        share = settings.popular_negatives
        chance = share * popularity + (1 - share) / num_entities
        self._up_to = np.cumsum(chance)
        drawn = -np.expm1(settings.negatives * np.log1p(-chance))
        self._log_weight = -np.log(drawn) * settings.full_softmax_scale

    def __len__(self) -> int:
        return -(-self._instances // self._settings.batch_size)

    def __call__(self, epoch: int, index: int) -> Batch:
        """Batch `index` of epoch `epoch`."""
        if self._order[0] != epoch:
            shuffled = np.random.default_rng([self._settings.seed, epoch])
            self._order = (epoch, shuffled.permutation(self._instances))
        size = self._settings.batch_size
        chosen = self._order[1][index * size : (index + 1) * size]
        if self._by_query and epoch >= self._settings.exact_from * self._settings.epochs:
            return self._exact(chosen)
        rng = np.random.default_rng([self._settings.seed, epoch, index])
        return self._queries(chosen, rng) if self._by_query else self._triples(chosen, rng)

    def _exact(self, rows: Ints) -> Batch:
        """Distinct queries with all their answers; every other entity is a wrong answer."""
        query_of_answer, answers = self._known.gather(rows)
        everyone = np.arange(self._num_entities)
        is_answer = (query_of_answer, answers)
        return self._batch(rows, answers, query_of_answer, everyone, is_answer, np.zeros(1))

    def _queries(self, rows: Ints, rng: np.random.Generator) -> Batch:
        """Distinct queries with all their answers; negatives shared by the batch."""
        query_of_answer, answers = self._known.gather(rows)
        draws = self._up_to[-1] * rng.random(self._settings.negatives)
        negatives = np.unique(np.searchsorted(self._up_to, draws, side="right"))
        slot = np.minimum(np.searchsorted(negatives, answers), len(negatives) - 1)
        hit = negatives[slot] == answers
        is_answer = (query_of_answer[hit], slot[hit])
        weight = self._log_weight[negatives]
        return self._batch(rows, answers, query_of_answer, negatives, is_answer, weight)

    def _triples(self, chosen: Ints, rng: np.random.Generator) -> Batch:
        """Single triples, each with its own negatives."""
        rows, answers = self._row_of_triple[chosen], self._known.tails[chosen]
        shape = (len(rows), self._settings.negatives)
        negatives = rng.integers(self._num_entities, size=shape)
        is_answer = np.nonzero(negatives == answers[:, None])
        wrong = shape[1] - np.bincount(is_answer[0], minlength=len(rows))
        stands_for = max(self._num_entities - 1, 1) / np.maximum(wrong, 1)
        weight = np.log(stands_for)[:, None] * self._settings.full_softmax_scale
        return self._batch(rows, answers, np.arange(len(rows)), negatives, is_answer, weight)

    def _batch(
        self,
        rows: Ints,
        answers: Ints,
        query_of_answer: Ints,
        negatives: Ints,
        is_answer: tuple[Ints, ...],
        log_weight: NDArray[np.float64],
    ) -> Batch:
        return Batch(
            heads_B=torch.from_numpy(self._known.heads[rows]),
            relations_B=torch.from_numpy(self._known.relations[rows]),
            answers_P=torch.from_numpy(answers),
            query_of_answer_P=torch.from_numpy(query_of_answer),
            negatives=torch.from_numpy(negatives),
            is_answer=tuple(torch.from_numpy(part) for part in is_answer),
            log_weight=torch.from_numpy(log_weight.astype(np.float32)),
        )
