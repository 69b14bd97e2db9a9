"""The best answers among all entities, in bounded memory: scores are made by blocks of entities.

A share is the softmax over all entities, hidden ones included. An index (ekgn.kbc.index) answers
the same questions without looking at every entity.

Shape letters: S steps that count, B queries, K vectors, n entities of a block, N all of them,
P (query, answer) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.model import KbcModel
from ekgn.network.inference import Inference, step_weights

BLOCK_BYTES = 32 * 2**20  # of a block's scores, with a working copy; small fits the cache
QUERIES = 64  # asked at once


class Hidden(NamedTuple):
    """(query, entity) pairs that are no answers, by entity in order."""

    rows: Tensor
    entities: Tensor

    @classmethod
    def of(cls, rows: Ints, entities: Ints) -> Hidden:
        """The same pairs in order."""
        order = np.argsort(entities, kind="stable")
        return cls(
            *(torch.from_numpy(np.asarray(part, np.int64)[order]) for part in (rows, entities))
        )

    def hide(self, scores_Bn: Tensor, start: int) -> None:
        """Set the scores of hidden pairs in the block of entities from `start` on to -inf."""
        bounds = torch.tensor([start, start + scores_Bn.shape[1]])
        low, high = torch.searchsorted(self.entities, bounds).tolist()
        device = scores_Bn.device
        rows, columns = self.rows[low:high], self.entities[low:high] - start
        scores_Bn[rows.to(device), columns.to(device)] = -torch.inf


class Best(NamedTuple):
    """The first places of each query: log share and entity; -inf where there are no more."""

    log_share_BP: Tensor
    entity_BP: Tensor
    log_total_SB: Tensor  # log Σ exp of all scores, of each step


class Placed(NamedTuple):
    """What is said of given answers."""

    log_share_P: Tensor
    rank_P: Ints
    first_B2: Tensor  # log shares of each query's first two answers


class Asked(NamedTuple):
    """Queries as the entities see them: the outputs that count, and how much each does."""

    outputs_SBK: Tensor
    log_weights_SB: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, model: KbcModel, heads: Ints, relations: Ints, readout: str | None = None) -> Asked:
        """The questions [head, relation, ?], by a readout or the model's own."""
        readout = readout or model.settings.readout
        device = model.answers.weight.device
        query = [
            torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (heads, relations)
        ]
        if readout != "argmax":
            return cls.by(model(*query), readout)
        return cls.by(model.network.until_left(*model.query(*query)), readout)

    @classmethod
    def by(cls, record: Inference, readout: str) -> Asked:
        """All steps for `mixture`, one for the other rules."""
        weights_TB = step_weights(record, readout)
        if readout == "mixture":
            return cls(record.outputs_TBK, weights_TB.log())
        everyone_B = torch.arange(weights_TB.shape[1], device=weights_TB.device)
        outputs_BK = record.outputs_TBK[weights_TB.argmax(dim=0), everyone_B]
        return cls(outputs_BK[None], torch.zeros_like(weights_TB[:1]))


class Search(Protocol):
    """What finds answers: by a look at every entity, or by an index."""

    def best(self, asked: Asked, top: int, hidden: Hidden) -> Best:
        """The first places of each query among entities that are not hidden."""

    def places(self, asked: Asked, rows: Ints, answers: Ints, hidden: Hidden) -> Placed:
        """The places of given answers, hidden or not, among entities that are not hidden."""


class ExactSearch:
    """Every entity is looked at, a block at a time."""

    def __init__(self, model: KbcModel, block_bytes: int = BLOCK_BYTES) -> None:
        self._model = model
        self._bytes = block_bytes

    @property
    def _vectors_NK(self) -> Tensor:
        return self._model.answers.weight

    def best(self, asked: Asked, top: int, hidden: Hidden) -> Best:
        """See Search."""
        top = min(top, len(self._vectors_NK))
        found: Places | None = None
        totals = self._totals(asked)
        for start, scores_Bn in self._blocks(asked, totals):
            hidden.hide(scores_Bn, start)
            block = _first(scores_Bn, top, start)
            found = block if found is None else _merged(found, block, top)
        assert found is not None
        values, entities = found
        return Best(totals.shares(values), entities, totals.log_total_SB)

    def places(self, asked: Asked, rows: Ints, answers: Ints, hidden: Hidden) -> Placed:
        """See Search."""
        device = self._vectors_NK.device
        row_P = torch.from_numpy(rows).to(device)
        answer_P = torch.from_numpy(answers).to(device)
        totals = self._totals(asked)
        value_P = self._pair_scores(asked, row_P, self._vectors_NK[answer_P], totals)
        above_P = torch.zeros(len(rows), dtype=torch.long, device=device)
        first: Places | None = None
        for start, scores_Bn in self._blocks(asked, totals):
            hidden.hide(scores_Bn, start)
            here = (answer_P >= start) & (answer_P < start + scores_Bn.shape[1])
            # An answer is not above itself, whatever the rounding of its two scores.
            scores_of = scores_Bn[row_P[here], answer_P[here] - start]
            above_P[here] -= (scores_of > value_P[here]).long()
            above_P += _count_above(scores_Bn, row_P, value_P)
            block = _first(scores_Bn, 2, start)
            first = block if first is None else _merged(first, block, 2)
        assert first is not None
        shares_P = totals.shares(value_P[:, None], row_P)[:, 0]
        return Placed(shares_P.cpu(), above_P.cpu().numpy() + 1, totals.shares(first[0]).cpu())

    def _pair_scores(
        self, asked: Asked, row_P: Tensor, vectors_PK: Tensor, totals: _Totals
    ) -> Tensor:
        """The score of each (query, entity vector) pair, as blocks have it."""
        if len(asked.outputs_SBK) == 1:
            return pair_scores(self._model, asked.outputs_SBK[0][row_P], vectors_PK)
        return _pair_shares(self._model, asked, totals.log_total_SB, row_P, vectors_PK)

    def _blocks(self, asked: Asked, totals: _Totals) -> Iterator[tuple[int, Tensor]]:
        """Where each block of entities starts, and its scores, (B, n).

        For one step they are its logits, and their total is summed on the way. For several they are
        log Σ_s w_s p_s, whose totals need a pass of their own before.
        """
        if len(asked.outputs_SBK) == 1:
            for start, rows_nK in self._spans(asked):
                scores_Bn = self._model.compare(asked.outputs_SBK[0], rows_nK)
                totals.add(scores_Bn)
                yield start, scores_Bn
            return
        shift_SB = asked.log_weights_SB - totals.log_total_SB
        for start, rows_nK in self._spans(asked):
            mixed: Tensor | None = None
            for outputs_BK, shift_B in zip(asked.outputs_SBK, shift_SB, strict=True):
                scores_Bn = self._model.compare(outputs_BK, rows_nK) + shift_B[:, None]
                mixed = scores_Bn if mixed is None else torch.logaddexp(mixed, scores_Bn)
            assert mixed is not None
            yield start, mixed

    def _totals(self, asked: Asked) -> _Totals:
        """The totals of all scores: of several steps at once, of one as its blocks come."""
        if len(asked.outputs_SBK) == 1:
            return _Totals(None)
        found = []
        for outputs_BK in asked.outputs_SBK:
            totals = _Totals(None)
            for _, rows_nK in self._spans(asked):
                totals.add(self._model.compare(outputs_BK, rows_nK))
            found.append(totals.log_total_SB)
        return _Totals(torch.cat(found))

    def _spans(self, asked: Asked) -> Iterator[tuple[int, Tensor]]:
        queries = asked.outputs_SBK.shape[1]
        width = max(1024, self._bytes // (8 * max(1, queries)))
        for start in range(0, len(self._vectors_NK), width):
            yield start, self._vectors_NK[start : start + width]


class _Totals:
    """log Σ exp of scores that come in blocks; or of each of several steps, known before."""

    def __init__(self, of_steps_SB: Tensor | None) -> None:
        self._of_steps_SB = of_steps_SB
        self._gathered_B: Tensor | None = None

    def add(self, scores_Bn: Tensor) -> None:
        total_B, so_far_B = scores_Bn.logsumexp(dim=1), self._gathered_B
        self._gathered_B = total_B if so_far_B is None else torch.logaddexp(so_far_B, total_B)

    @property
    def log_total_SB(self) -> Tensor:
        found = self._of_steps_SB
        if found is None:
            assert self._gathered_B is not None
            found = self._gathered_B[None]
        if torch.isnan(found).any():
            raise EkgnError("The model's scores are not numbers (NaN): it diverged. Train it anew.")
        return found

    def shares(self, scores: Tensor, rows: Tensor | None = None) -> Tensor:
        """Scores as log shares, by query; `rows` says whose they are. Those of several are."""
        total_B = self.log_total_SB[0]
        if self._of_steps_SB is not None:
            return scores
        return scores - (total_B if rows is None else total_B[rows])[:, None]


Places = tuple[Tensor, Tensor]
"""The first places of each query: values and entities."""


def _first(scores_Bn: Tensor, top: int, start: int) -> Places:
    values, places = scores_Bn.topk(min(top, scores_Bn.shape[1]), dim=1)
    return values, places + start


def _merged(one: Places, other: Places, top: int) -> Places:
    values, entities = (torch.cat(parts, dim=1) for parts in zip(one, other, strict=True))
    values, places = values.topk(min(top, values.shape[1]), dim=1)
    return values, entities.gather(1, places)


def pair_scores(model: KbcModel, outputs_PK: Tensor, vectors_PK: Tensor) -> Tensor:
    """The score of each pair of an output and an entity's vector."""
    if model.settings.has_product:
        return (outputs_PK * vectors_PK).sum(dim=1)
    return -model.settings.distance_scale * (outputs_PK - vectors_PK).abs().sum(dim=1)


def pair_shares(
    model: KbcModel, asked: Asked, log_total_SB: Tensor, rows: Ints, answers: Ints
) -> Tensor:
    """The log share of each (query, answer) pair, by totals that are known."""
    device = model.answers.weight.device
    row_P, answer_P = (torch.from_numpy(part).to(device) for part in (rows, answers))
    return _pair_shares(model, asked, log_total_SB, row_P, model.answers.weight[answer_P]).cpu()


def _pair_shares(
    model: KbcModel, asked: Asked, log_total_SB: Tensor, row_P: Tensor, vectors_PK: Tensor
) -> Tensor:
    shift_SB = asked.log_weights_SB - log_total_SB
    steps = [
        pair_scores(model, outputs_BK[row_P], vectors_PK) + shift_B[row_P]
        for outputs_BK, shift_B in zip(asked.outputs_SBK, shift_SB, strict=True)
    ]
    return torch.stack(steps).logsumexp(dim=0)


def _count_above(scores_Bn: Tensor, row_P: Tensor, value_P: Tensor) -> Tensor:
    """How many scores of each pair's row are above its value."""
    if scores_Bn.device.type != "cpu":
        return (scores_Bn[row_P] > value_P[:, None]).sum(dim=1)
    scores, counts = scores_Bn.numpy(), np.empty(len(row_P), np.int64)
    for pair, (row, value) in enumerate(zip(row_P.tolist(), value_P.numpy(), strict=True)):
        counts[pair] = np.count_nonzero(scores[row] > value)
    return torch.from_numpy(counts)
