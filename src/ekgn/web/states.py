"""The states of a run in a plane: those of observed questions, and the way of one by its steps.

The plane is that of the two directions in which the states of some observed questions, over all
their steps, differ most (PCA).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.kbc.answers import Ints
from ekgn.kbc.explain import Explainer
from ekgn.web.schema import Question, StatePoint, StatesReply, Thing

POINTS = 500  # observed questions that are drawn
NEAR = 3  # observed questions nearest to each state of the question, drawn at that step


class StateMap:
    """The plane of one run, and what lies in it."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        pairs = explainer.known["train"]
        drawn = np.random.default_rng(0).permutation(len(pairs))[:POINTS]
        self._rows: Ints = np.sort(drawn)
        states_TBH = explainer.states(pairs.heads[self._rows], pairs.relations[self._rows])
        all_SH = states_TBH.reshape(-1, states_TBH.shape[-1]).double()
        self._mean_H = all_SH.mean(dim=0)
        _, lengths, axes_SH = torch.linalg.svd(all_SH - self._mean_H, full_matrices=False)
        self._axes_2H = axes_SH[:2]
        squares = lengths.square()
        self.variance = (squares[:2] / squares.sum().clamp_min(1e-12)).tolist()
        self._first = self._plane(states_TBH[0])

    def of(self, question: Question, head: int, relation: int) -> StatesReply:
        """The way of a question, the observed questions near it, and some others."""
        states_TH = self._explainer.states(np.array([head]), np.array([relation]))[:, 0]
        rows_TQ, _ = self._explainer.nearest_pairs(states_TH, NEAR)
        near = rows_TQ[0].tolist()
        others = [place for place, row in enumerate(self._rows) if int(row) not in near]
        points = [self._point(int(self._rows[at]), self._first[at], 0) for at in others]
        return StatesReply(
            question=question,
            variance=self.variance,
            path=self._plane(states_TH).tolist(),
            points=points + self._near_points(rows_TQ),
        )

    def _plane(self, states_BH: Tensor) -> NDArray[np.float64]:
        flat: NDArray[np.float64] = (
            ((states_BH.double() - self._mean_H) @ self._axes_2H.T).cpu().numpy()
        )
        return flat.round(4)

    def _near_points(self, rows_TQ: Ints) -> list[StatePoint]:
        """The questions nearest at each step, where their own states of that step are."""
        pairs, found = self._explainer.known["train"], []
        for step, rows in enumerate(rows_TQ):
            states_QH = self._explainer.states(pairs.heads[rows], pairs.relations[rows])[step]
            places = zip(rows.tolist(), self._plane(states_QH), strict=True)
            found += [self._point(row, place, step + 1) for row, place in places]
        return found

    def _point(self, row: int, place: NDArray[np.float64], step: int) -> StatePoint:
        pairs, names = self._explainer.known["train"], self._explainer
        head = names.name(int(pairs.heads[row]))
        return StatePoint(
            x=float(place[0]),
            y=float(place[1]),
            head=Thing(id=head.id, label=head.label),
            relation=names.relation(int(pairs.relations[row])),
            near=step,
        )
