"""Mini-batches of queries with their answers, and what the answers compete with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ekgn.distributed import Group, Share
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.settings import KbcSettings


class Batch(NamedTuple):
    """B queries, their P answers, and N sampled candidates: shared, per query, or none (all)."""

    heads_B: Tensor
    relations_B: Tensor
    answers_P: Tensor
    query_of_answer_P: Tensor  # which of the B queries each answer belongs to
    negatives: Tensor | None = None  # (N,) shared by the batch, (B, N), or None: every entity
    # (query, place among the candidates) of those that do not compete, by place in order.
    left_out: tuple[Tensor, Tensor] | None = None

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device.type == "cpu":
            return self

        def moved(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            return None if part is None else part.to(device)

        return Batch(*map(moved, self))

    def part(self, group: Group) -> tuple[Batch, Share]:
        """The queries of one process of a group, and how much of the batch they are.

        With more processes than queries, those left over get the first query with weight 0.
        """
        if group.size == 1:
            return self, Share()
        queries, answers = len(self.heads_B), len(self.answers_P)
        own = group.part(queries)
        is_none = own.start == own.stop
        rows = slice(0, 1) if is_none else own
        low, high = torch.searchsorted(
            self.query_of_answer_P, torch.tensor([rows.start, rows.stop])
        ).tolist()
        part = Batch(
            heads_B=self.heads_B[rows],
            relations_B=self.relations_B[rows],
            answers_P=self.answers_P[low:high],
            query_of_answer_P=self.query_of_answer_P[low:high] - rows.start,
            negatives=self.negatives,
            left_out=self.left_out,
        )
        if self.negatives is not None and self.negatives.dim() == 2:
            part = part._replace(negatives=self.negatives[rows])
        if self.left_out is not None:
            query, place = self.left_out
            here = (query >= rows.start) & (query < rows.stop)
            part = part._replace(left_out=(query[here] - rows.start, place[here]))
        share = Share((rows.stop - rows.start) / queries, (high - low) / answers, rows, queries)
        return part, share._replace(of_loss=0.0, of_reward=0.0) if is_none else share


class Batches:
    """The batches of an epoch; batch `i` of epoch `e` depends on (seed, e, i) and nothing else.

    The paper's instances are triples, each with negatives of its own. Over a product an instance is
    a distinct query with all its answers, which compete with every entity (1vsAll), or with a
    sample shared by the batch. Facts known `besides` do not compete.
    """

    def __init__(
        self,
        known: Answers,
        num_entities: int,
        settings: KbcSettings,
        besides: Answers | None = None,
    ) -> None:
        self._known = known
        self._besides = besides
        self._num_entities = num_entities
        self._settings = settings
        self._by_query = settings.has_product
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
        known = [np.empty(0, np.int64)] * 2
        if self._besides is not None:
            known = list(self._besides.gather(self._besides.rows(*self._questions(rows))))
        if not self._settings.negatives:
            return batch._replace(left_out=_in_order(*known)) if len(known[0]) else batch
        draws = rng.integers(self._num_entities, size=self._settings.negatives)
        negatives = np.unique(draws)
        queries = np.concatenate([query_of_answer, known[0]])
        right = np.concatenate([answers, known[1]])
        place = np.minimum(np.searchsorted(negatives, right), len(negatives) - 1)
        hit = negatives[place] == right
        return batch._replace(
            negatives=torch.from_numpy(negatives), left_out=_in_order(queries[hit], place[hit])
        )

    def _questions(self, rows: Ints) -> tuple[Ints, Ints]:
        return self._known.questions(rows)

    def _triples(self, chosen: Ints, rng: np.random.Generator) -> Batch:
        """Single triples, each with its own negatives; only the answer itself is none of them."""
        answers = self._known.tails[chosen]
        shape = (len(chosen), self._settings.negatives)
        negatives = rng.integers(self._num_entities, size=shape)
        query, place = np.nonzero(negatives == answers[:, None])
        rows = np.searchsorted(self._known.offsets, chosen, side="right") - 1
        batch = self._batch(rows, answers, np.arange(len(chosen)))
        return batch._replace(
            negatives=torch.from_numpy(negatives),
            left_out=(torch.from_numpy(query), torch.from_numpy(place)),
        )

    def _batch(self, rows: Ints, answers: Ints, query_of_answer: Ints) -> Batch:
        heads, relations = self._questions(rows)
        return Batch(
            heads_B=torch.from_numpy(heads),
            relations_B=torch.from_numpy(relations),
            answers_P=torch.from_numpy(answers),
            query_of_answer_P=torch.from_numpy(query_of_answer),
        )


def _in_order(queries: Ints, places: Ints) -> tuple[Tensor, Tensor]:
    order = np.argsort(places, kind="stable")
    return torch.from_numpy(queries[order]), torch.from_numpy(places[order])


class Phases:
    """The batches of each phase; a phase of fewer batches goes over them more often."""

    def __init__(self, phases: list[Batches], settings: KbcSettings) -> None:
        self._phases = phases
        self._settings = settings

    def __len__(self) -> int:
        return len(self._phases[-1])

    def __call__(self, epoch: int, index: int, done: float) -> Batch:
        """Batch `index` of epoch `epoch`, `done` of the training being over."""
        batches = self._phases[self._settings.phase(done)]
        return batches(*divmod(epoch * len(self) + index, len(batches)))
