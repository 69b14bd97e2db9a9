"""The updates: dense parameters by a fused optimizer, tables by the rows that were looked up."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ekgn.config import Settings

Touched = dict[Tensor, Tensor]
"""For each table, the rows that an update changed."""


class RowAdam(torch.optim.Optimizer):
    """Adam on the rows that have a gradient: torch's SparseAdam, in a fraction of its time.

    A row's moments decay only when the row is used, so a step costs the same however long the table
    is.
    """

    BETAS = (0.9, 0.999)
    EPSILON = 1e-8

    def __init__(self, tables: list[Tensor], lr: float) -> None:
        super().__init__(tables, {"lr": lr})
        for table in tables:
            self.state[table] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(table),
                "exp_avg_sq": torch.zeros_like(table),
            }

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update by the coalesced sparse gradients."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group["lr"], **self.state[table])

    def _update(
        self, table: Tensor, rate: float, step: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor
    ) -> None:
        rows, grad = table.grad.indices()[0], table.grad.values()  # type: ignore[union-attr]
        first, second = self.BETAS
        step += 1
        mean = exp_avg.index_select(0, rows).lerp_(grad, 1 - first)
        square = exp_avg_sq.index_select(0, rows)
        square.mul_(second).addcmul_(grad, grad, value=1 - second)
        exp_avg.index_copy_(0, rows, mean)
        exp_avg_sq.index_copy_(0, rows, square)
        rate *= math.sqrt(1 - second ** step.item()) / (1 - first ** step.item())
        table.index_add_(0, rows, mean.div_(square.sqrt_().add_(self.EPSILON)), alpha=-rate)


class Optimizers:
    """One optimizer for dense parameters, one that touches only the used rows of tables."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        tables = [
            module.weight
            for module in model.modules()
            if isinstance(module, nn.Embedding) and module.sparse
        ]
        dense = [p for p in model.parameters() if all(p is not table for table in tables)]
        self.dense, self.tables = dense, tables
        rate = settings.learning_rate
        self._rates = {"dense": rate, "tables": rate * settings.table_rate}
        self._clip_norm = settings.clip_norm
        kinds: dict[str, Any] = {
            "sgd": (torch.optim.SGD, torch.optim.SGD),
            "adam": (torch.optim.Adam, RowAdam),
            "adagrad": (torch.optim.Adagrad, torch.optim.Adagrad),
        }
        for_dense, for_tables = kinds[settings.optimizer]
        self.parts = {"dense": for_dense(dense, lr=rate, fused=True)}
        if tables:
            self.parts["tables"] = for_tables(tables, lr=rate)

    def update(self, loss: Tensor, rate_factor: float) -> Touched:
        """One update by the gradient of `loss`; returns the rows each table had changed."""
        for parameter in (*self.dense, *self.tables):
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        touched: Touched = {}
        for table in self.tables:
            if table.grad is not None:
                table.grad = table.grad.coalesce()
                touched[table] = table.grad.indices()[0]
        if self._clip_norm:
            self._clip()
        for name, part in self.parts.items():
            part.param_groups[0]["lr"] = self._rates[name] * rate_factor
            part.step()
        return touched

    def _clip(self) -> None:
        """Scale all gradients, dense and sparse, to the largest norm allowed."""
        grads = [p.grad for p in self.dense if p.grad is not None]
        grads += [table.grad.values() for table in self.tables if table.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        scale = (self._clip_norm / (norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(scale)
