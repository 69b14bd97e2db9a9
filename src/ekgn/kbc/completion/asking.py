"""Questions put to the network: the first places of each, or the places of given answers.

Known facts of training take no place, nor does an entity as its own answer where training never
has that. A share is the softmax over all entities.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.roles import Bools, Roles
from ekgn.kbc.ranking import MEMORY_BUDGET, chunks
from ekgn.kbc.search import Asked, Hidden
from ekgn.network.inference import step_weights

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

Floats = NDArray[np.float64]

_WIDEST = 30.0  # margins beyond it say nothing more
_QUESTIONS = 256  # asked at once


class Side(NamedTuple):
    """What one question says of one answer, for many pairs of them."""

    log_share: Floats
    rank: Ints
    margin: Floats  # log share over the best other answer's
    step: Ints  # the step that answers
    answers: Ints  # how many the question has in training

    @classmethod
    def joined(cls, parts: list[Side]) -> Side:
        """Several, one after the other."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def at(self, order: Ints) -> Side:
        """The pairs at some places."""
        share, rank, margin, step, answers = self
        return Side(share[order], rank[order], margin[order], step[order], answers[order])


class Asker:
    """A run's network, asked in batches."""

    def __init__(self, run: KbcRun) -> None:
        self.graph, self.train, self.rules = run.graph, run.known["train"], run.rules
        self.roles = Roles(run.graph, run.known["train"])
        self._model, self._device, self._search = run.model, run.device, run.search
        self._readout = run.settings.readout
        if self._readout == "sample":
            self._readout = "mixture"  # its mean: a completion is the same every time

    @cached_property
    def degree(self) -> Ints:
        """How many facts of training each entity is in."""
        return np.bincount(self.graph.train[:, [0, 2]].ravel(), minlength=self.graph.num_entities)

    @torch.no_grad()
    def _asked(self, heads: Ints, roles: Ints) -> tuple[Asked, Ints, Ints]:
        """Questions as the entities see them, the step that answers, how many answers are known."""
        query = [torch.from_numpy(np.ascontiguousarray(part)) for part in (heads, roles)]
        record = self._model(*(part.to(self._device) for part in query))
        step = step_weights(record, self._readout).argmax(dim=0).cpu().numpy() + 1
        rows = self.train.rows(heads, roles)
        answers = np.where(rows >= 0, np.diff(self.train.offsets, append=0)[rows], 0)
        return Asked.by(record, self._readout), step, answers

    def _hidden(self, heads: Ints, roles: Ints) -> Hidden:
        """Known answers, and the entities themselves where training never has that."""
        row, answer = self.train.gather(self.train.rows(heads, roles))
        alone = np.flatnonzero(~self.graph.has_loops[roles])
        return Hidden.of(np.append(row, alone), np.append(answer, heads[alone]))

    def best(self, heads: Ints, role: int, depth: int, considered: Bools) -> tuple[Ints, Side]:
        """The first places of (head, role, ?): rows of head, answer; and what is said of each."""
        pairs, sides = [np.empty((0, 2), np.int64)], [_nothing()]
        looked_at = min(max(depth, 2), self.graph.num_entities)
        for start in range(0, len(heads), _QUESTIONS):
            here = heads[start : start + _QUESTIONS]
            roles = np.full(len(here), role)
            asked, step, answers = self._asked(here, roles)
            best = self._search.best(asked, looked_at, self._hidden(here, roles))
            values, found = (part.cpu().numpy() for part in best)
            keep = considered[found] & np.isfinite(values)
            keep[:, depth:] = False
            row, place = np.nonzero(keep)
            value = values[row, place].astype(np.float64)
            over = values[row, np.where(place == 0, min(1, looked_at - 1), 0)]
            pairs.append(np.stack([here[row], found[row, place]], axis=1))
            sides.append(Side(value, place + 1, _margin(value, over), step[row], answers[row]))
        return np.concatenate(pairs), Side.joined(sides)

    def places(self, heads: Ints, roles: Ints, answers: Ints) -> Side:
        """What is said of given answers, known or not; those of one question share its batch."""
        if not len(heads):
            return _nothing()
        asked_for = np.stack([heads, roles, answers], axis=1)
        sides, order = [], []
        for pairs, row, batch_heads, batch_roles in chunks(asked_for, 1, 16 * _QUESTIONS):
            asked, step, known = self._asked(batch_heads, batch_roles)
            hidden = self._hidden(batch_heads, batch_roles)
            placed = self._search.places(asked, row, answers[pairs], hidden)
            value, first = placed.log_share_P.numpy(), placed.first_B2.numpy()[row]
            is_first = (placed.rank_P == 1) & np.isclose(value, first[:, 0], rtol=1e-5, atol=1e-5)
            over = np.where(is_first, first[:, -1], first[:, 0])
            value = value.astype(np.float64)
            sides.append(Side(value, placed.rank_P, _margin(value, over), step[row], known[row]))
            order.append(pairs)
        return Side.joined(sides).at(np.argsort(np.concatenate(order)))

    def by_rules(self, heads: Ints, roles: Ints, answers: Ints) -> Floats:
        """The rules' -log(1 - p) of given answers; 0 where no rule leads, or there are none."""
        found = np.zeros(len(heads))
        if self.rules is None or not len(heads):
            return found
        asked = np.stack([heads, roles, answers], axis=1)
        for pairs, row, batch_heads, batch_roles in chunks(
            asked, self.graph.num_entities, MEMORY_BUDGET
        ):
            found[pairs] = self.rules.scores(batch_heads, batch_roles).numpy()[row, answers[pairs]]
        return found


def _nothing() -> Side:
    whole, real = np.empty(0, np.int64), np.empty(0)
    return Side(real, whole, real, whole, whole)


def _margin(value: Floats, over: NDArray[np.float32]) -> Floats:
    return np.clip(np.nan_to_num(value - over, posinf=_WIDEST), -_WIDEST, _WIDEST)
