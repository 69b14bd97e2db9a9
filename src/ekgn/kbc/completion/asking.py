"""Questions put to the network: the first places of each, or the places of given answers.

Known facts of training take no place, nor does an entity as its own answer where training never
has that. A share is the softmax over all entities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.roles import Bools, Roles
from ekgn.kbc.ranking import MEMORY_BUDGET, chunks, count_by_row
from ekgn.network.inference import step_weights

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

Floats = NDArray[np.float64]

_WIDEST = 30.0  # margins beyond it say nothing more


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


class _Rows(NamedTuple):
    """The answers to a batch of questions: log shares of all entities, and about the questions."""

    log_share: Tensor
    step: Ints
    answers: Ints


class Asker:
    """A run's network, asked in batches that fit the memory."""

    def __init__(self, run: KbcRun) -> None:
        self.graph, self.train, self.rules = run.graph, run.known["train"], run.rules
        self.roles = Roles(run.graph, run.known["train"])
        self._model, self._device = run.model, run.device
        self._rule = run.settings.answer_rule
        if self._rule == "sample":
            self._rule = "mixture"  # its mean: a completion is the same every time
        self._batch = max(1, MEMORY_BUDGET // (16 * run.graph.num_entities))

    def _rows(self, heads: Ints, roles: Ints) -> _Rows:
        query = [torch.from_numpy(np.ascontiguousarray(part)) for part in (heads, roles)]
        with torch.no_grad():
            record = self._model(*(part.to(self._device) for part in query))
            scores = self._model.scores(record, self._rule)
            log_share = scores.sub_(scores.logsumexp(dim=1, keepdim=True)).cpu()
            step = step_weights(record, self._rule).argmax(dim=0).cpu().numpy() + 1
        if torch.isnan(log_share.sum(dim=1)).any():
            raise EkgnError("The model's scores are not numbers (NaN): it diverged. Train it anew.")
        rows = self.train.rows(heads, roles)
        answers = np.where(rows >= 0, np.diff(self.train.offsets, append=0)[rows], 0)
        return _Rows(log_share, step, answers)

    def _hide_known(self, log_share: Tensor, heads: Ints, roles: Ints) -> None:
        row, answer = self.train.gather(self.train.rows(heads, roles))
        log_share[torch.from_numpy(row), torch.from_numpy(answer)] = -torch.inf
        alone = np.flatnonzero(~self.roles.has_loops[roles])
        log_share[torch.from_numpy(alone), torch.from_numpy(heads[alone])] = -torch.inf

    def best(self, heads: Ints, role: int, depth: int, considered: Bools) -> tuple[Ints, Side]:
        """The first places of (head, role, ?): rows of head, answer; and what is said of each."""
        pairs, sides = [np.empty((0, 2), np.int64)], [_nothing()]
        for start in range(0, len(heads), self._batch):
            here = heads[start : start + self._batch]
            roles = np.full(len(here), role)
            rows = self._rows(here, roles)
            self._hide_known(rows.log_share, here, roles)
            looked_at = min(max(depth, 2), self.graph.num_entities)
            values, found = (part.numpy() for part in rows.log_share.topk(looked_at, dim=1))
            keep = considered[found] & np.isfinite(values)
            keep[:, depth:] = False
            row, place = np.nonzero(keep)
            value = values[row, place].astype(np.float64)
            over = values[row, np.where(place == 0, min(1, looked_at - 1), 0)]
            pairs.append(np.stack([here[row], found[row, place]], axis=1))
            sides.append(
                Side(value, place + 1, _margin(value, over), rows.step[row], rows.answers[row])
            )
        return np.concatenate(pairs), Side.joined(sides)

    def places(self, heads: Ints, roles: Ints, answers: Ints) -> Side:
        """What is said of given answers, known or not; those of one question share its batch."""
        if not len(heads):
            return _nothing()
        asked = np.stack([heads, roles, answers], axis=1)
        sides, order = [], []
        for pairs, row, batch_heads, batch_roles in chunks(
            asked, self.graph.num_entities, MEMORY_BUDGET
        ):
            rows = self._rows(batch_heads, batch_roles)
            value = rows.log_share.numpy()[row, answers[pairs]]
            self._hide_known(rows.log_share, batch_heads, batch_roles)
            first = rows.log_share.topk(min(2, self.graph.num_entities), dim=1).values.numpy()[row]
            above, _ = count_by_row(rows.log_share.numpy(), row, value)
            over = np.where(value == first[:, 0], first[:, -1], first[:, 0])
            value = value.astype(np.float64)
            sides.append(
                Side(value, above + 1, _margin(value, over), rows.step[row], rows.answers[row])
            )
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
