"""Vectors by row: what a batch looks up, and the gradient of just that."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Table(nn.Module):
    """N vectors. A training looks up rows of it, or every row, and gathers their gradients.

    Autograd never sees the table itself: a lookup is a leaf of its own, so that an update costs
    what its batch used, however many rows there are.
    """

    def __init__(self, weight_NK: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_NK, requires_grad=False)
        self._lookups: list[tuple[Tensor, Tensor]] = []
        self._whole_NK: Tensor | None = None  # the gradient of every row
        self._asked_whole = False

    def __len__(self) -> int:
        return len(self.weight)

    def forward(self, index: Tensor) -> Tensor:
        """The vectors of some rows."""
        flat = index.reshape(-1)
        rows = self.weight.index_select(0, flat)
        if self.training and torch.is_grad_enabled():
            self._lookups.append((flat, rows.requires_grad_()))
        return rows.view(*index.shape, -1)

    def gradient_of_all(self) -> Tensor | None:
        """Where the gradient of every row is to be written; None if nobody trains."""
        if not (self.training and torch.is_grad_enabled()):
            return None
        if self._whole_NK is None:
            self._whole_NK = torch.empty_like(self.weight)
        self._asked_whole = True
        return self._whole_NK

    def forget(self) -> None:
        """Drop what was looked up since the last update."""
        self._lookups.clear()
        self._asked_whole = False
        self.weight.grad = None

    def gather(self) -> Tensor | None:
        """Put the gradient together: of every row, or sparse with each row once.

        Returns the rows that have one; None where all have.
        """
        found = [(index, rows.grad) for index, rows in self._lookups if rows.grad is not None]
        if self._asked_whole:
            assert self._whole_NK is not None
            for index, grad in found:
                self._whole_NK.index_add_(0, index, grad)
            self.weight.grad = self._whole_NK
            return None
        if not found:
            return torch.empty(0, dtype=torch.long, device=self.weight.device)
        rows = torch.cat([index for index, _ in found])
        values = torch.cat([grad for _, grad in found])
        shape = self.weight.shape
        sparse = torch.sparse_coo_tensor(rows[None], values, shape, check_invariants=False)
        self.weight.grad = sparse.coalesce()
        touched: Tensor = self.weight.grad.indices()[0]
        return touched
