"""Questions put to the network: the first places of each, or the places of given answers.

Known facts of training take no place, nor does an entity as its own answer where training never
has that. A share is the softmax over all entities.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.roles import Bools, Roles
from ekgn.kbc.ranking import MEMORY_BUDGET, chunks
from ekgn.kbc.search import Asked, Hidden, pair_shares
from ekgn.network.inference import step_weights

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

Floats = NDArray[np.float64]

_WIDEST = 30.0  # margins beyond it say nothing more
_QUESTIONS = 256  # asked at once
_KEPT = 50_000  # questions whose totals are kept: about 10 MB


class Side(NamedTuple):
    """What one question says of one answer, for many pairs of them."""

    log_share: Floats
    margin: Floats  # log share over the best other answer's
    step: Ints  # the step that answers
    answers: Ints  # how many the question has in training

    @classmethod
    def joined(cls, parts: list[Side]) -> Side:
        """Several, one after the other."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def at(self, order: Ints) -> Side:
        """The pairs at some places."""
        share, margin, step, answers = self
        return Side(share[order], margin[order], step[order], answers[order])


class Questions(NamedTuple):
    """[head, role, ?] as the entities see them, with what else is said of each."""

    heads: Ints
    roles: Ints
    asked: Asked
    step: Ints  # that answers
    answers: Ints  # how many are known


class Asker:
    """A run's network, asked in batches."""

    def __init__(self, run: KbcRun) -> None:
        self.graph, self.train, self.rules = run.graph, run.known["train"], run.rules
        self.roles = Roles(run.graph, run.known["train"])
        self._model, self._device, self._search = run.model, run.device, run.search
        self._kept: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        self.readout = run.settings.readout
        if self.readout == "sample":
            self.readout = "mixture"  # its mean: a completion is the same every time

    @cached_property
    def degree(self) -> Ints:
        """How many facts of training each entity is in."""
        return np.bincount(self.graph.train[:, [0, 2]].ravel(), minlength=self.graph.num_entities)

    @torch.no_grad()
    def questions(self, heads: Ints, roles: Ints) -> Questions:
        """Some questions, put to the network."""
        query = [torch.from_numpy(np.ascontiguousarray(part)) for part in (heads, roles)]
        record = self._model(*(part.to(self._device) for part in query))
        step = step_weights(record, self.readout).argmax(dim=0).cpu().numpy() + 1
        rows, offsets = self.train.rows(heads, roles), self.train.offsets
        answers = np.where(rows >= 0, offsets[rows + 1] - offsets[rows], 0)
        return Questions(heads, roles, Asked.by(record, self.readout), step, answers)

    def _hidden(self, heads: Ints, roles: Ints) -> Hidden:
        """Known answers, and the entities themselves where training never has that."""
        row, answer = self.train.gather(self.train.rows(heads, roles))
        alone = np.flatnonzero(~self.graph.has_loops[roles])
        return Hidden.of(np.append(row, alone), np.append(answer, heads[alone]))

    def inverse(self, roles: Ints) -> Ints:
        """The same relations asked from the other side."""
        count = self.graph.num_relations
        return (roles + count) % (2 * count)

    def best(
        self, heads: Ints, role: int, depth: int, considered: Bools
    ) -> tuple[Ints, Side, Ints]:
        """The top answers of (head, role, ?): (head, answer) pairs, their features and ranks."""
        pairs, sides, ranks = [np.empty((0, 2), np.int64)], [_nothing()], [np.empty(0, np.int64)]
        looked_at = min(max(depth, 2), self.graph.num_entities)
        for start in range(0, len(heads), _QUESTIONS):
            here = heads[start : start + _QUESTIONS]
            some = self.questions(here, np.full(len(here), role))
            best = self._search.best(some.asked, looked_at, self._hidden(here, some.roles))
            values, found = best.log_share_BP.cpu().numpy(), best.entity_BP.cpu().numpy()
            keep = considered[found] & np.isfinite(values)
            keep[:, depth:] = False
            row, place = np.nonzero(keep)
            value = values[row, place].astype(np.float64)
            over = values[row, np.where(place == 0, min(1, looked_at - 1), 0)]
            pairs.append(np.stack([here[row], found[row, place]], axis=1))
            margin = _margin(value, over)
            sides.append(Side(value, margin, some.step[row], some.answers[row]))
            ranks.append(place + 1)
        return np.concatenate(pairs), Side.joined(sides), np.concatenate(ranks)

    def places(self, heads: Ints, roles: Ints, answers: Ints) -> tuple[Side, Ints]:
        """What is said of given answers, known or not, and their ranks."""
        sides, ranks, order = [_nothing()], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for pairs, row, batch_heads, batch_roles in _batches(heads, roles, answers):
            some = self.questions(batch_heads, batch_roles)
            hidden = self._hidden(batch_heads, batch_roles)
            placed = self._search.places(some.asked, row, answers[pairs], hidden)
            sides.append(_side(some, row, placed.log_share_P, placed.first_B2))
            ranks.append(placed.rank_P)
            order.append(pairs)
        back = np.argsort(np.concatenate(order))
        return Side.joined(sides).at(back), np.concatenate(ranks)[back]

    def shares(self, heads: Ints, roles: Ints, answers: Ints) -> Side:
        """What is said of given answers, without their ranks."""
        sides, order = [_nothing()], [np.empty(0, np.int64)]
        for pairs, row, batch_heads, batch_roles in _batches(heads, roles, answers):
            some = self.questions(batch_heads, batch_roles)
            sides.append(self.shares_of(some, row, answers[pairs]))
            order.append(pairs)
        return Side.joined(sides).at(np.argsort(np.concatenate(order)))

    def shares_of(self, some: Questions, rows: Ints, answers: Ints) -> Side:
        """What is said of answers to questions; `rows` says to which."""
        log_total_SB, first_B2 = self._totals(some)
        shares_P = pair_shares(self._model, some.asked, log_total_SB, rows, answers)
        return _side(some, rows, shares_P, first_B2)

    def _totals(self, some: Questions) -> tuple[Tensor, Tensor]:
        """What depends on a question alone, and is kept: its totals and two largest shares."""
        heads, roles, asked = some.heads, some.roles, some.asked
        keys = list(zip(heads.tolist(), roles.tolist(), strict=True))
        found = [self._kept.get(key) for key in keys]
        new = [place for place, one in enumerate(found) if one is None]
        if new:
            unseen = Asked(asked.outputs_SBK[:, new], asked.log_weights_SB[:, new])
            best = self._search.best(unseen, 2, self._hidden(heads[new], roles[new]))
            made = zip(best.log_total_SB.T.tolist(), best.log_share_BP.tolist(), strict=True)
            if len(self._kept) > _KEPT:
                self._kept = {}
            for place, one in zip(new, made, strict=True):
                found[place] = self._kept[keys[place]] = one
        totals, firsts = zip(*(one for one in found if one is not None), strict=True)
        return torch.tensor(totals, device=self._device).T, torch.tensor(firsts)

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


def _batches(heads: Ints, roles: Ints, answers: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Given answers; those of one question share its batch."""
    if len(heads):
        yield from chunks(np.stack([heads, roles, answers], axis=1), 1, 16 * _QUESTIONS)


def _side(some: Questions, row: Ints, share_P: Tensor, first_B2: Tensor) -> Side:
    value, first = share_P.numpy(), first_B2.numpy()[row]
    is_first = np.isclose(value, first[:, 0], rtol=1e-5, atol=1e-5)
    over = np.where(is_first, first[:, -1], first[:, 0])
    value = value.astype(np.float64)
    return Side(value, _margin(value, over), some.step[row], some.answers[row])


def _nothing() -> Side:
    whole, real = np.empty(0, np.int64), np.empty(0)
    return Side(real, real, whole, whole)


def _margin(value: Floats, over: NDArray[np.float32]) -> Floats:
    return np.clip(np.nan_to_num(value - over, posinf=_WIDEST), -_WIDEST, _WIDEST)
