"""Questions put to the network: the first places of each, or the places of given answers.

Known facts of training take no place, nor does an entity as its own answer where training never
has that. A share is the softmax over all entities.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.roles import Bools, Floats32, Roles
from ekgn.kbc.ranking import MEMORY_BUDGET, chunks
from ekgn.kbc.search import QUERIES, Asked, Best, Hidden, pair_shares
from ekgn.network.inference import step_weights

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

Floats = NDArray[np.float64]

_WIDEST = 30.0  # margins beyond it say nothing more
_QUESTIONS = 256  # asked at once
_PAIRS = 2048  # answers whose questions are asked back at once
_KEPT = 2**18  # questions whose totals are kept: about 6 MB


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
        self._kept: Kept | None = None  # made once it is known how many steps count
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

    def both(self, some: Questions, rows: Ints, answers: Ints) -> tuple[Side, Side]:
        """What is said of answers to questions, and of the questions' entities asked back.

        `rows` says to which question each answer is given. Nothing is said of ranks.
        """
        count = 2 * self.graph.num_relations
        keys = answers * count + self.inverse(some.roles[rows])
        parts: list[tuple[Side, Side]] = [(_nothing(), _nothing())]
        for start in range(0, len(rows), _PAIRS):
            here = slice(start, start + _PAIRS)
            unique, back = np.unique(keys[here], return_inverse=True)
            every = _joined(some, self.questions(*np.divmod(unique, count)))
            pair_rows = np.concatenate([rows[here], len(some.heads) + back])
            pair_answers = np.concatenate([answers[here], some.heads[rows[here]]])
            side = self._shares_of(every, pair_rows, pair_answers)
            split = len(back)
            parts.append((side.at(np.arange(split)), side.at(np.arange(split, 2 * split))))
        asked, back_asked = zip(*parts, strict=True)
        return Side.joined(list(asked)), Side.joined(list(back_asked))

    def prepare(self, scores: int) -> Iterator[Ints]:
        """Keep what answers are asked back for: the totals of questions with many answers.

        As many questions as so many scores of entities allow, a piece at a time.
        """
        most = min(_KEPT // 8, scores // self.graph.num_entities)
        rows = np.argsort(-np.diff(self.train.offsets), kind="stable")[:most]
        for start in range(0, len(rows), QUERIES):
            some = self.questions(*self.train.questions(rows[start : start + QUERIES]))
            self._totals(some)
            yield rows[start : start + QUERIES]

    def note(self, some: Questions, best: Best, is_open: Bools) -> None:
        """Keep what a search has found anyway; `is_open` marks places that training does not have.

        A question is kept if its first two open answers are among the places.
        """
        first = np.argsort(~is_open, axis=1, kind="stable")[:, :2]
        rows = np.flatnonzero(is_open.sum(axis=1) >= 2)
        shares = np.take_along_axis(best.log_share_BP.cpu().numpy(), first, axis=1)
        totals = best.log_total_SB.T.cpu().numpy()
        made = np.concatenate([totals, shares], axis=1)[rows]
        self._table(made.shape[1]).put(self._keys(some)[rows], made)

    def _keys(self, some: Questions) -> Ints:
        return some.heads * 2 * self.graph.num_relations + some.roles

    def _table(self, width: int) -> Kept:
        if self._kept is None:
            self._kept = Kept(_KEPT, width)
        return self._kept

    def _shares_of(self, some: Questions, rows: Ints, answers: Ints) -> Side:
        """What is said of answers to questions, by the questions' totals."""
        log_total_SB, first_B2 = self._totals(some)
        shares_P = pair_shares(self._model, some.asked, log_total_SB, rows, answers)
        return _side(some, rows, shares_P, first_B2)

    def _totals(self, some: Questions) -> tuple[Tensor, Tensor]:
        """What depends on a question alone, and is kept: its totals and two largest shares."""
        asked, keys = some.asked, self._keys(some)
        table = self._table(len(asked.outputs_SBK) + 2)
        found, is_kept = table.get(keys)
        new = np.flatnonzero(~is_kept)
        if len(new):
            unseen = Asked(asked.outputs_SBK[:, new], asked.log_weights_SB[:, new])
            best = self._search.best(unseen, 2, self._hidden(some.heads[new], some.roles[new]))
            parts = best.log_total_SB.T, best.log_share_BP
            found[new] = np.concatenate([part.cpu().numpy() for part in parts], axis=1)
            table.put(keys[new], found[new])
        kept = torch.from_numpy(found)
        return kept[:, :-2].T.contiguous().to(self._device), kept[:, -2:]

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


class Kept:
    """Numbers of questions by key, in so many places: a new question takes the place of another."""

    def __init__(self, places: int, width: int) -> None:
        self.width = width
        self._keys = np.full(places, -1, np.int64)
        self._numbers = np.empty((places, width), np.float32)
        self._lock = threading.Lock()  # predictions and longer work have a thread each

    def get(self, keys: Ints) -> tuple[Floats32, Bools]:
        """The numbers of some questions, and which of them are kept."""
        at = self._places(keys)
        with self._lock:
            return self._numbers[at], self._keys[at] == keys

    def put(self, keys: Ints, numbers: Floats32) -> None:
        """Keep the numbers of some questions."""
        at, first = np.unique(self._places(keys), return_index=True)
        with self._lock:
            self._keys[at], self._numbers[at] = keys[first], numbers[first]

    def _places(self, keys: Ints) -> Ints:
        """Spread evenly, whatever the keys have in common (Fibonacci hashing)."""
        mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return ((mixed >> np.uint64(32)) % np.uint64(len(self._keys))).astype(np.int64)


def _joined(one: Questions, other: Questions) -> Questions:
    """Both, one after the other."""
    parts = zip(one.asked, other.asked, strict=True)
    asked = Asked(*(torch.cat(pair, dim=1) for pair in parts))
    rest = ("heads", "roles", "step", "answers")
    joined = {name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in rest}
    return Questions(asked=asked, **joined)


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
