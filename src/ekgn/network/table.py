"""Vectors by row: what a batch looks up, and the gradient of just that."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ekgn.distributed import ALONE, Group

BLOCK = 2**16  # rows drawn at once, of which a shard keeps its own


class Table(nn.Module):
    """N vectors. A training looks up rows of it, or every row, and gathers their gradients.

    Autograd never sees the table itself: a lookup is a leaf of its own, so that an update costs
    what its batch used, however many rows there are. Each process of a group has all rows, and
    gathers the gradients of all processes.
    """

    shards: Group = ALONE  # the processes among which the rows are divided

    def __init__(self, weight_NK: Tensor, group: Group = ALONE) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_NK, requires_grad=False)
        self._group = group
        self._lookups: list[tuple[Tensor, Tensor]] = []
        self._whole_NK: Tensor | None = None  # the gradient of every row
        self._asked_whole = False

    def __len__(self) -> int:
        return len(self.weight)

    def forward(self, index: Tensor) -> Tensor:
        """The vectors of some rows."""
        flat = index.reshape(-1)
        return self._noted(flat, self.weight.index_select(0, flat)).view(*index.shape, -1)

    def own(self, index: Tensor) -> Tensor:
        """The vectors of those rows that are kept here: all, if the table is not divided."""
        return self.forward(index)

    def _noted(self, index: Tensor, rows: Tensor) -> Tensor:
        """Rows whose gradient is gathered, if somebody trains."""
        if self.training and torch.is_grad_enabled():
            self._lookups.append((index, rows.requires_grad_()))
        return rows

    def gradient_of_all(self) -> Tensor | None:
        """Where the gradient of every row kept here is to be written; None if nobody trains."""
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
        found = self._gradients()
        if self._asked_whole:
            assert self._whole_NK is not None
            for index, grad in found:
                self._whole_NK.index_add_(0, index, grad)
            self.weight.grad = self._sum(self._whole_NK)
            return None
        if not found:
            return torch.empty(0, dtype=torch.long, device=self.weight.device)
        rows = torch.cat([index for index, _ in found])
        self.weight.grad = self._sum(self._sparse(rows, torch.cat([grad for _, grad in found])))
        touched: Tensor = self.weight.grad.indices()[0]
        return touched

    def _gradients(self) -> list[tuple[Tensor, Tensor]]:
        """The rows that were looked up, with their gradients."""
        return [(index, rows.grad) for index, rows in self._lookups if rows.grad is not None]

    def _sparse(self, rows: Tensor, values: Tensor) -> Tensor:
        """A gradient that has each row once."""
        shape = self.weight.shape
        sparse = torch.sparse_coo_tensor(rows[None], values, shape, check_invariants=False)
        return sparse.coalesce()

    def _sum(self, grad: Tensor) -> Tensor:
        """A gradient added up over the processes: whole, or by the rows that it has."""
        if self._group.size == 1:
            return grad
        if not grad.is_sparse:
            self._group.sum(grad)
            return grad
        (rows, values), _ = self._group.gather(grad.indices()[0], grad.values())
        return self._sparse(rows, values)


class Route(NamedTuple):
    """Which rows kept here were sent to whom by a lookup, and how many came from each process."""

    rows: Tensor
    sent: list[int]
    received: list[int]


class ShardedTable(Table):
    """A table divided among the processes of a group: row i is kept by process i mod size.

    A lookup asks the owners; the gradients of what it got go back to them.
    """

    def __init__(self, own_NK: Tensor, rows: int, group: Group) -> None:
        super().__init__(own_NK)
        self.shards = group
        self._rows = rows
        self._routes: list[tuple[Route, Tensor]] = []

    def __len__(self) -> int:
        return self._rows

    def forward(self, index: Tensor) -> Tensor:
        """The vectors of some rows, each fetched once."""
        group = self.shards
        distinct_U, place = torch.unique(index.reshape(-1), return_inverse=True)
        by_owner_U = torch.argsort(distinct_U % group.size, stable=True)
        asked = torch.bincount(distinct_U % group.size, minlength=group.size).tolist()
        asking = group.counts(asked)
        wanted = group.swap(distinct_U[by_owner_U], asked, asking) // group.size
        fetched_UK = group.swap(self.weight.index_select(0, wanted), asking, asked)
        if self.training and torch.is_grad_enabled():
            self._routes.append((Route(wanted, asking, asked), fetched_UK.requires_grad_()))
        place_of_U = torch.empty_like(by_owner_U)
        place_of_U[by_owner_U] = torch.arange(len(by_owner_U), device=index.device)
        return fetched_UK.index_select(0, place_of_U[place]).view(*index.shape, -1)

    def own(self, index: Tensor) -> Tensor:
        """The vectors of those rows that are kept here."""
        here = index[self.keeps(index)] // self.shards.size
        return self._noted(here, self.weight.index_select(0, here))

    def keeps(self, index: Tensor) -> Tensor:
        """Whether each row is kept here."""
        return index % self.shards.size == self.shards.rank

    def forget(self) -> None:
        super().forget()
        self._routes.clear()

    def _gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Those of rows kept here: from this process, and sent back by the others."""
        found = super()._gradients()
        for route, fetched in self._routes:
            if fetched.grad is not None:
                back = self.shards.swap(fetched.grad, route.received, route.sent)
                found.append((route.rows, back))
        return found


def drawn(rows: int, draw: Callable[[int], Tensor], group: Group, shard: bool) -> Table:
    """A new table of rows made by draw(how many); a shard of it draws all and keeps its own."""
    if not shard:
        return Table(draw(rows), group)
    kept = [
        draw(min(BLOCK, rows - start))[(group.rank - start) % group.size :: group.size].clone()
        for start in range(0, rows, BLOCK)
    ]
    return ShardedTable(torch.cat(kept), rows, group)
