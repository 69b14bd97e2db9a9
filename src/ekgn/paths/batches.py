"""Mini-batches of paths, laid out for teacher forcing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ekgn.distributed import Group, Share
from ekgn.paths.graphs import Ints, Path_, subpaths
from ekgn.paths.settings import PathsSettings


class Batch(NamedTuple):
    """B paths, longest first, so that the first `active[l]` of them have a symbol at place l."""

    starts_B: Tensor
    ends_B: Tensor
    nodes_BL: Tensor  # start, n_1, n_2, ..., end
    targets_BL: Tensor  # what comes after each node but the end: n_1, n_2, ..., the end symbol
    active: tuple[int, ...]

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(
            self.starts_B.to(device),
            self.ends_B.to(device),
            self.nodes_BL.to(device),
            self.targets_BL.to(device),
            self.active,
        )

    def part(self, group: Group) -> tuple[Batch, Share]:
        """The paths of one process of a group, and how much of the batch they are.

        Every n-th path, so that all processes have long ones. With more processes than paths, those
        left over get the first path with weight 0.
        """
        if group.size == 1:
            return self, Share()
        paths = len(self.starts_B)
        rank = group.rank if group.rank < paths else 0
        starts, ends, nodes, targets = (column[rank :: group.size] for column in self[:4])
        active = tuple(filter(None, (group.owned(count, rank) for count in self.active)))
        share = group.owned(paths, rank) / paths if rank == group.rank else 0.0
        return Batch(starts, ends, nodes, targets, active), Share(share, share)


def lay_out(paths: list[Path_], end_symbol: int) -> Batch:
    """Paths as a batch. Padding is 0: nothing reads it."""
    ordered = sorted(paths, key=len, reverse=True)
    width = len(ordered[0]) - 1
    nodes = np.zeros((len(ordered), width + 1), np.int64)
    targets = np.zeros((len(ordered), width), np.int64)
    for row, path in enumerate(ordered):
        nodes[row, : len(path)] = path
        targets[row, : len(path) - 1] = [*path[1:-1], end_symbol]
    lengths = np.array([len(path) - 1 for path in ordered])
    return Batch(
        starts_B=torch.tensor([path[0] for path in ordered]),
        ends_B=torch.tensor([path[-1] for path in ordered]),
        nodes_BL=torch.from_numpy(nodes),
        targets_BL=torch.from_numpy(targets),
        active=tuple(int((lengths > place).sum()) for place in range(width)),
    )


class Parts(NamedTuple):
    """The contiguous parts of the paths of a batch, from single edges to whole paths."""

    from_P: Tensor
    to_P: Tensor
    next_P: Tensor  # what follows the part's first node; the end symbol if it is one edge
    previous_P: Tensor  # what precedes its last node; likewise
    path_P: Tensor


def parts_of(batch: Batch, end_symbol: int) -> Parts:
    """All parts of a batch's paths."""
    nodes_BL = batch.nodes_BL
    everyone_B = torch.arange(len(nodes_BL), device=nodes_BL.device)
    end_B = torch.full_like(everyone_B, end_symbol)
    found: list[tuple[Tensor, ...]] = []
    for last, count in enumerate(batch.active, start=1):
        for first in range(last):
            is_edge = last == first + 1
            part = (
                nodes_BL[:, first],
                nodes_BL[:, last],
                end_B if is_edge else nodes_BL[:, first + 1],
                end_B if is_edge else nodes_BL[:, last - 1],
                everyone_B,
            )
            found.append(tuple(column_B[:count] for column_B in part))
    return Parts(*(torch.cat(column) for column in zip(*found, strict=True)))


def training_paths(paths: list[Path_], with_subpaths: bool) -> list[Path_]:
    """The instances to train on; sub-paths of a shortest path are shortest paths themselves.

    None of them is a validation or test path: no path of the data contains another.
    """
    if not with_subpaths:
        return paths
    return list(dict.fromkeys(part for path in paths for part in subpaths(path)))


class Batches:
    """The batches of an epoch; batch `i` of epoch `e` depends on (seed, e, i) and nothing else."""

    def __init__(self, paths: list[Path_], end_symbol: int, settings: PathsSettings) -> None:
        self._paths = training_paths(paths, settings.subpaths)
        self._end_symbol = end_symbol
        self._size = settings.batch_size
        self._seed = settings.seed
        self._order: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    @property
    def instances(self) -> int:
        return len(self._paths)

    def __len__(self) -> int:
        return -(-len(self._paths) // self._size)

    def __call__(self, epoch: int, index: int, done: float = 0.0) -> Batch:
        """Batch `index` of epoch `epoch`."""
        if self._order[0] != epoch:
            shuffled = np.random.default_rng([self._seed, epoch])
            self._order = (epoch, shuffled.permutation(len(self._paths)))
        chosen = self._order[1][index * self._size : (index + 1) * self._size]
        return lay_out([self._paths[i] for i in chosen], self._end_symbol)
