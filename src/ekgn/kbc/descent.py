"""Many small smooth problems at once, each minimised by L-BFGS with a step of its own.

Shape letters: E problems, K unknowns of each, H pairs remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Losses = Callable[[Tensor], Tensor]
"""(E, K) points -> (E,) losses, each a function of its own row alone."""

HISTORY = 10
SHRINK, DECREASE, TRIES = 0.25, 1e-4, 6  # the line search: Armijo's condition
ROUNDING = 3e-7  # of a loss: what falls by less cannot be seen


def minimise(losses: Losses, start_EK: Tensor, iterations: int, tolerance: float) -> Tensor:
    """The points where the gradient's norm is at most `tolerance` of what it was at first.

    A row stops there, after `iterations`, or where rounding lets no step go down any more.
    """
    here = _at(losses, start_EK)
    limit_E = tolerance * here.slope.norm(dim=1).clamp(min=1e-12)
    active_E = torch.ones_like(limit_E, dtype=torch.bool)
    pairs: list[tuple[Tensor, Tensor]] = []
    for _ in range(iterations):
        active_E = active_E & (here.slope.norm(dim=1) > limit_E)
        if not active_E.any():
            break
        direction = -_scaled(here.slope, pairs) * active_E[:, None]
        if not pairs:  # nothing is known of the curvature: no step longer than 1
            direction /= here.slope.norm(dim=1, keepdim=True).clamp(min=1.0)
        there, active_E = _search(losses, here, direction, active_E)
        pairs = [*pairs, (there.point - here.point, there.slope - here.slope)][-HISTORY:]
        here = there
    return here.point


class _Place(NamedTuple):
    """Points with their losses and gradients."""

    point: Tensor
    loss_E: Tensor
    slope: Tensor

    def where(self, chosen_E: Tensor, other: _Place) -> _Place:
        """These rows where they are chosen, else the other's."""
        of_row = chosen_E[:, None]
        return _Place(
            torch.where(of_row, self.point, other.point),
            torch.where(chosen_E, self.loss_E, other.loss_E),
            torch.where(of_row, self.slope, other.slope),
        )


def _at(losses: Losses, point: Tensor) -> _Place:
    leaf = point.detach().requires_grad_()
    with torch.enable_grad():
        loss_E = losses(leaf)
        (slope,) = torch.autograd.grad(loss_E.sum(), leaf)
    return _Place(leaf.detach(), loss_E.detach(), slope)


def _search(
    losses: Losses, here: _Place, direction: Tensor, active_E: Tensor
) -> tuple[_Place, Tensor]:
    """Each row as far along its direction as its loss falls enough; which rows did move."""
    along_E = (here.slope * direction).sum(dim=1)
    noise_E = ROUNDING * here.loss_E.abs()
    active_E = active_E & (-along_E > noise_E)
    found, open_E, step = here, active_E, 1.0
    for _ in range(TRIES):
        if not open_E.any():
            break
        ahead = here.point + step * direction
        tried = _at(losses, torch.where(open_E[:, None], ahead, found.point))
        falls_E = tried.loss_E <= here.loss_E + DECREASE * step * along_E + noise_E
        found = tried.where(open_E & falls_E, found)
        open_E = open_E & ~falls_E
        step *= SHRINK
    return found, active_E & ~open_E


def _scaled(slope: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The gradient times the approximate inverse Hessian of the pairs (the two-loop recursion)."""
    if not pairs:
        return slope.clone()
    result, used = slope.clone(), []
    for change, difference in reversed(pairs):
        curvature_E = (change * difference).sum(dim=1)
        valid_E = curvature_E > 1e-12
        rho_E = torch.where(valid_E, 1 / curvature_E.clamp(min=1e-12), torch.zeros(()).to(slope))
        alpha_E = rho_E * (change * result).sum(dim=1)
        result -= alpha_E[:, None] * difference
        used.append((alpha_E, rho_E))
    result *= _scale(pairs)[:, None]
    for (change, difference), (alpha_E, rho_E) in zip(pairs, reversed(used), strict=True):
        beta_E = rho_E * (difference * result).sum(dim=1)
        result += (alpha_E - beta_E)[:, None] * change
    return result


def _scale(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """s·y / y·y of the latest pair of each row that moved."""
    scale_E = torch.ones_like(pairs[0][0][:, 0])
    for change, difference in pairs:
        curvature_E = (change * difference).sum(dim=1)
        size_E = difference.square().sum(dim=1)
        valid_E = (curvature_E > 1e-12) & (size_E > 0)
        scale_E = torch.where(valid_E, curvature_E / size_E.clamp(min=1e-30), scale_E)
    return scale_E
