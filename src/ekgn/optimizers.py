"""The updates: dense parameters by torch's fused optimizers, tables by the rows that were used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ekgn.config import Settings
from ekgn.distributed import ALONE, Group
from ekgn.network.table import Table

Touched = dict[Tensor, Tensor | None]
"""For each table, the rows that an update changed; None: all of them."""


def rate_factor(done: float, decay_from: float) -> float:
    """1, then falling linearly to 0 from `decay_from` on, `done` of it being over."""
    return 1.0 if done <= decay_from else (1 - done) / (1 - decay_from)


class RowSgd(torch.optim.Optimizer):
    """w ← w - η g, on the rows that have a gradient."""

    def __init__(self, tables: Sequence[Tensor], lr: float) -> None:
        super().__init__(tables, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update, by sparse or by dense gradients."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, table.grad, group["lr"])

    def _update(self, table: Tensor, grad: Tensor, rate: float) -> None:
        if grad.is_sparse:
            table.index_add_(0, grad.indices()[0], grad.values(), alpha=-rate)
        else:
            table.add_(grad, alpha=-rate)


class RowAdagrad(RowSgd):
    """Adagrad: w ← w - η g / √(Σ g²). Rows without a gradient are left as they are."""

    EPSILON = 1e-10
    BLOCK = 2**18  # numbers updated at once: what is in the cache is read once

    def __init__(self, tables: Sequence[Tensor], lr: float) -> None:
        super().__init__(tables, lr)
        for table in tables:
            self.state[table] = {"sum": torch.zeros_like(table)}

    def _update(self, table: Tensor, grad: Tensor, rate: float) -> None:
        total: Tensor = self.state[table]["sum"]
        if grad.is_sparse:
            rows, values = grad.indices()[0], grad.values()
            squares = total.index_select(0, rows).addcmul_(values, values)
            total.index_copy_(0, rows, squares)
            step = values / squares.sqrt_().add_(self.EPSILON)
            table.index_add_(0, rows, step, alpha=-rate)
            return
        height = max(1, self.BLOCK // table.shape[1])
        parts = (torch.split(whole, height) for whole in (table, grad, total))
        for part, by, squares in zip(*parts, strict=True):
            squares.addcmul_(by, by)
            part.addcdiv_(by, squares.sqrt().add_(self.EPSILON), value=-rate)


class Optimizers:
    """One optimizer for dense parameters, one for tables.

    The loss of a group of processes is the sum of theirs, and so are the gradients.
    """

    def __init__(self, model: nn.Module, settings: Settings, group: Group = ALONE) -> None:
        self._group = group
        self.tables = [module for module in model.modules() if isinstance(module, Table)]
        self.dense = [p for p in model.parameters() if p.requires_grad]
        self._clip_norm = settings.clip_norm
        self._rates = {"dense": settings.dense_rate, "tables": settings.learning_rate}
        for_dense: Any = torch.optim.SGD if settings.optimizer == "sgd" else torch.optim.Adam
        self.parts: dict[str, torch.optim.Optimizer] = {
            "dense": for_dense(self.dense, lr=self._rates["dense"], fused=True)
        }
        if self.tables:
            weights = [table.weight for table in self.tables]
            for_tables = RowSgd if settings.optimizer == "sgd" else RowAdagrad
            self.parts["tables"] = for_tables(weights, lr=self._rates["tables"])

    def update(self, loss: Tensor, rate_factor: float) -> Touched:
        """One update by the gradient of `loss`; returns the rows each table had changed."""
        loss.backward()  # type: ignore[no-untyped-call]
        self.add_up([])
        return self.step(rate_factor)

    def add_up(self, numbers: list[float]) -> list[float]:
        """Sum the dense gradients over the processes, and some numbers with them."""
        if self._group.size == 1:
            return numbers
        grads = [p.grad for p in self.dense if p.grad is not None]
        flat = [torch.cat([grad.flatten() for grad in grads])] if grads else []
        told = torch.tensor(numbers, dtype=torch.float64)
        self._group.sum(told, *flat)
        sizes = [grad.numel() for grad in grads]
        parts = [part for whole in flat for part in torch.split(whole, sizes)]
        for grad, part in zip(grads, parts, strict=True):
            grad.copy_(part.view_as(grad))
        summed: list[float] = told.tolist()
        return summed

    def step(self, rate_factor: float) -> Touched:
        """One update by the gradient there is; returns the rows each table had changed."""
        touched: Touched = {table.weight: table.gather() for table in self.tables}
        if self._clip_norm:
            self._clip()
        for name, part in self.parts.items():
            part.param_groups[0]["lr"] = self._rates[name] * rate_factor
            part.step()
        self.forget()
        return touched

    def forget(self) -> None:
        """Drop all gradients."""
        for parameter in self.dense:
            parameter.grad = None
        for table in self.tables:
            table.forget()

    def _clip(self) -> None:
        """Scale all gradients, dense and sparse, to the largest norm allowed."""
        grads = [p.grad for p in self.dense if p.grad is not None]
        elsewhere = torch.zeros(())  # squares of the gradients of rows that others keep
        for table in self.tables:
            grad = table.weight.grad
            if grad is not None:
                grads.append(grad.values() if grad.is_sparse else grad)
                elsewhere = elsewhere.to(grad.device) + _squares_elsewhere(grads[-1], table.shards)
        norms = torch.stack([torch.linalg.vector_norm(grad) for grad in grads])
        norm = (norms.square().sum() + elsewhere).sqrt()
        scale = (self._clip_norm / (norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(scale)


def _squares_elsewhere(grad: Tensor, shards: Group) -> Tensor:
    """Σ g² of the other processes' rows of a table."""
    own = grad.square().sum()
    total = own.clone()
    shards.sum(total)
    return total - own
