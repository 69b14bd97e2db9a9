"""The hidden graph on the sphere, and the shortest paths drawn from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial import cKDTree

from ekgn.checkpoint import load_tensors, save_tensors
from ekgn.errors import EkgnError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Path_ = tuple[int, ...]
SPLITS = ("train", "valid", "test")
FILE = "paths.safetensors"
NO_NODE = -1


class SphereGraph:
    """Points on the unit sphere, each with edges to its k nearest; weight = Euclidean distance."""

    def __init__(self, points: Floats, neighbours: Ints) -> None:
        self.points = points
        self.neighbours = neighbours

    @classmethod
    def random(cls, nodes: int, k: int, seed: int) -> SphereGraph:
        """`nodes` points uniform on the sphere; raises if k is too large or too small."""
        if nodes < 3:
            raise EkgnError(
                f"nodes = {nodes}: a path needs at least 3 nodes. Give --nodes 3 or more."
            )
        if not 1 <= k < nodes:
            raise EkgnError(
                f"k = {k} neighbours: a graph of {nodes} nodes allows 1 to {nodes - 1}. "
                f"Give a smaller --k or more --nodes."
            )
        points = np.random.default_rng([seed, 0]).normal(size=(nodes, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return cls.from_points(points, k)

    @classmethod
    def from_points(cls, points: Floats, k: int) -> SphereGraph:
        """The graph of given points; raises if some node cannot be reached from another."""
        neighbours = cKDTree(points).query(points, k=k + 1)[1][:, 1:].astype(np.int64)
        graph = cls(points, neighbours)
        parts = connected_components(graph.weights, connection="strong", return_labels=False)
        if parts > 1:
            raise EkgnError(
                f"The graph of {len(points)} nodes with k = {k} is not connected: it falls into "
                f"{parts} parts. Give a larger --k."
            )
        return graph

    @property
    def num_nodes(self) -> int:
        return len(self.points)

    @property
    def k(self) -> int:
        return int(self.neighbours.shape[1])

    @cached_property
    def weights(self) -> csr_matrix:
        """The weighted adjacency matrix."""
        starts = np.repeat(np.arange(self.num_nodes), self.k)
        ends = self.neighbours.ravel()
        lengths = np.linalg.norm(self.points[starts] - self.points[ends], axis=1)
        return csr_matrix((lengths, (starts, ends)), shape=(self.num_nodes, self.num_nodes))

    @cached_property
    def has_edge(self) -> NDArray[np.bool_]:
        """Whether there is an edge, for each pair of nodes."""
        matrix = np.zeros((self.num_nodes, self.num_nodes), bool)
        matrix[np.repeat(np.arange(self.num_nodes), self.k), self.neighbours.ravel()] = True
        return matrix

    @cached_property
    def _shortest(self) -> tuple[Floats, Ints]:
        distances, before = shortest_path(self.weights, method="D", return_predecessors=True)
        return distances, before

    @property
    def distances(self) -> Floats:
        """The cost of the shortest path, for each pair of nodes."""
        return self._shortest[0]

    def shortest(self, start: int, end: int) -> Path_:
        """The nodes of the shortest path, both ends included."""
        before = self._shortest[1][start]
        nodes = [end]
        while nodes[-1] != start:
            nodes.append(int(before[nodes[-1]]))
        return tuple(reversed(nodes))

    def length(self, a: int, b: int) -> float:
        """The Euclidean distance of two nodes."""
        return float(np.linalg.norm(self.points[a] - self.points[b]))

    def cost(self, path: Path_) -> float | None:
        """The cost of a path, or None where it uses an edge that does not exist."""
        hops = list(pairwise(path))
        if not all(self.has_edge[hop] for hop in hops):
            return None
        return sum(self.length(*hop) for hop in hops)

    def check_query(self, start: int, end: int) -> None:
        """Raise, with the reason, if (start, end) is no question of this task."""
        for node in (start, end):
            if not 0 <= node < self.num_nodes:
                raise EkgnError(
                    f"Node {node} is not in the graph: its {self.num_nodes} nodes are numbered "
                    f"0 to {self.num_nodes - 1}."
                )
        if start == end:
            raise EkgnError(f"Start and end are both node {start}: give two different nodes.")
        if self.has_edge[start, end]:
            raise EkgnError(
                f"There is a direct edge from {start} to {end}, so the shortest path has no node "
                f"in between to predict. Give two nodes that are further apart."
            )


def plain_path(row: list[int]) -> Path_:
    """A row of paths without its filling."""
    return tuple(node for node in row if node != NO_NODE)


def subpaths(path: Path_, least: int = 3) -> Iterator[Path_]:
    """Every contiguous sub-path of at least `least` nodes, the path itself included."""
    for first in range(len(path) - least + 1):
        for last in range(first + least, len(path) + 1):
            yield path[first:last]


@dataclass(frozen=True)
class PathsData:
    """A graph and the shortest paths drawn from it, in three splits."""

    graph: SphereGraph
    train: list[Path_]
    valid: list[Path_]
    test: list[Path_]
    seed: int

    def split(self, name: str) -> list[Path_]:
        """The paths of one split."""
        if name not in SPLITS:
            raise EkgnError(f"Unknown split '{name}': expected train, valid or test.")
        paths: list[Path_] = getattr(self, name)
        return paths

    @cached_property
    def seen_nodes(self) -> NDArray[np.bool_]:
        """Which nodes occur in training paths."""
        seen = np.zeros(self.graph.num_nodes, bool)
        seen[list({node for path in self.train for node in path})] = True
        return seen

    @cached_property
    def seen_edges(self) -> NDArray[np.bool_]:
        """Which edges occur in training paths: all that a model can know of the graph."""
        seen = np.zeros((self.graph.num_nodes, self.graph.num_nodes), bool)
        for path in self.train:
            seen[path[:-1], path[1:]] = True
        return seen

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the points and all paths."""
        digest = hashlib.sha256(self.graph.points.tobytes())
        for name in SPLITS:
            digest.update(name.encode())
            digest.update(_padded(self.split(name)).astype("<i4").tobytes())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """What it is, for records."""
        return {
            "name": f"sphere-{self.graph.num_nodes}-{self.graph.k}-seed{self.seed}",
            "nodes": self.graph.num_nodes,
            "k": self.graph.k,
            "seed": self.seed,
            **{name: len(self.split(name)) for name in SPLITS},
            "sha256": self.checksum,
        }

    def save(self, folder: Path) -> Path:
        """Write everything into one file in the folder."""
        tensors = {
            "points": torch.from_numpy(self.graph.points),
            "neighbours": torch.from_numpy(self.graph.neighbours.astype(np.int32)),
        }
        for name in SPLITS:
            tensors[name] = torch.from_numpy(_padded(self.split(name)).astype(np.int32))
        file = folder / FILE
        save_tensors(file, tensors, self.describe())
        return file

    @classmethod
    def load(cls, folder: Path) -> PathsData:
        """What save wrote; raises if it is missing or was changed."""
        file = folder / FILE
        if not file.is_file():
            raise EkgnError(
                f"No paths in '{folder}': expected a folder with {FILE}. "
                f"Make one with: ekgn paths make --out {folder}"
            )
        tensors, about = load_tensors(file)
        graph = SphereGraph(tensors["points"].numpy(), tensors["neighbours"].long().numpy())
        paths = {name: _unpadded(tensors[name].numpy()) for name in SPLITS}
        data = cls(graph=graph, seed=about["seed"], **paths)
        if data.checksum != about["sha256"]:
            raise EkgnError(f"{file} does not match its checksum: it was changed. Make it again.")
        return data


def _padded(paths: list[Path_]) -> Ints:
    """Paths as rows, filled up with -1."""
    rows = np.full((len(paths), max(map(len, paths), default=0)), NO_NODE, np.int64)
    for row, path in zip(rows, paths, strict=True):
        row[: len(path)] = path
    return rows


def _unpadded(rows: Ints) -> list[Path_]:
    return [plain_path(row) for row in rows.tolist()]


def make(
    nodes: int = 500,
    k: int = 50,
    sizes: tuple[int, int, int] = (20_000, 10_000, 10_000),
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> PathsData:
    """The paper's data: random pairs' shortest paths, none of which contains another."""
    if min(sizes) < 1:
        raise EkgnError(f"Sizes {sizes}: each of train, valid and test needs at least one path.")
    graph = SphereGraph.random(nodes, k, seed)
    wanted = sum(sizes)
    kept: list[Path_] = []
    for path in independent_paths(graph, seed):
        kept.append(path)
        if on_progress and len(kept) % 500 == 0:
            on_progress(500, wanted)
        if len(kept) == wanted:
            break
    else:
        raise EkgnError(
            f"Only {len(kept)} paths that do not contain one another could be drawn from this "
            f"graph, {wanted} were asked for. Ask for fewer, or give more --nodes or a smaller --k."
        )
    train, valid = sizes[0], sizes[0] + sizes[1]
    return PathsData(graph, kept[:train], kept[train:valid], kept[valid:], seed)


def independent_paths(graph: SphereGraph, seed: int) -> Iterator[Path_]:
    """Shortest paths of random pairs, skipping those that contain an earlier one or lie in one.

    Two sets make the test quick: the paths kept, and all their sub-paths.
    """
    pairs = np.random.default_rng([seed, 1]).permutation(graph.num_nodes**2)
    kept: set[Path_] = set()
    covered: set[Path_] = set()
    for pair in pairs:
        start, end = divmod(int(pair), graph.num_nodes)
        if start == end or graph.has_edge[start, end]:
            continue
        path = graph.shortest(start, end)
        if path in covered or any(part in kept for part in subpaths(path)):
            continue
        kept.add(path)
        covered.update(subpaths(path))
        yield path


def verify(
    data: PathsData, on_progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Prove the rules on the data as read back; raises at the first one that is broken."""
    graph = data.graph
    nearest = SphereGraph.from_points(graph.points, graph.k).neighbours
    if not np.array_equal(np.sort(nearest), np.sort(graph.neighbours)):
        raise EkgnError(f"The edges are not those to the {graph.k} nearest neighbours.")
    everything = [path for name in SPLITS for path in data.split(name)]
    distinct = set(everything)
    if len(distinct) != len(everything):
        raise EkgnError("A path occurs twice: the splits are not disjoint.")
    for number, path in enumerate(everything):
        if on_progress and number % 500 == 0:
            on_progress(500, len(everything))
        _verify_path(graph, path)
        for part in subpaths(path):
            if part != path and part in distinct:
                raise EkgnError(f"Path {words(path)} contains path {words(part)}.")
    hops = np.bincount([len(path) - 1 for path in everything])
    return {
        **data.describe(),
        "edges": graph.num_nodes * graph.k,
        "seen_edges": int(data.seen_edges.sum()),
        "hops": {int(n): int(count) for n, count in enumerate(hops) if count},
    }


def _verify_path(graph: SphereGraph, path: Path_) -> None:
    if len(path) < 3:
        raise EkgnError(f"Path {words(path)} has no intermediate node.")
    cost = graph.cost(path)
    if cost is None:
        raise EkgnError(f"Path {words(path)} uses an edge that is not in the graph.")
    best = float(graph.distances[path[0], path[-1]])
    if abs(cost - best) > 1e-9:
        raise EkgnError(f"Path {words(path)} costs {cost:.6f}, the shortest one {best:.6f}.")


def words(path: Path_) -> str:
    """(215) → 101 → (493)."""
    inner = "".join(f"{node} → " for node in path[1:-1])
    return f"({path[0]}) → {inner}({path[-1]})"
