"""One query step by step: when it would stop, the path it would answer, what that path costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from ekgn.paths.batches import lay_out
from ekgn.paths.decode import Emit, answer
from ekgn.paths.graphs import Path_, SphereGraph, plain_path, words
from ekgn.paths.model import PathsModel


@dataclass(frozen=True)
class Node:
    """A node and where it is on the unit sphere."""

    node: int
    x: float
    y: float
    z: float


@dataclass(frozen=True)
class Route:
    """A path in the hidden graph: its nodes, and its cost or why it has none."""

    nodes: list[Node]
    cost: float | None
    missing: list[tuple[int, int]]  # hops that are no edges of the graph
    correct: bool  # connected, at the cost of the shortest path

    @property
    def path(self) -> Path_:
        """The numbers of the nodes."""
        return tuple(place.node for place in self.nodes)

    @property
    def reason(self) -> str:
        """Why the path is not connected; "" if it is."""
        return ", ".join(f"no edge {a} → {b}" for a, b in self.missing)

    def __str__(self) -> str:
        return words(self.path)


@dataclass(frozen=True)
class Step:
    """What the network would do at one of its steps."""

    step: int
    stop_probability: float  # v_t
    stop_weight: float  # q_t
    probability: float  # p(path | o_t), of parts the geometric mean
    route: Route


@dataclass(frozen=True)
class Explanation:
    """A query, its shortest path, and every step of the answer."""

    start: int
    end: int
    shortest: Route
    steps: list[Step]
    answer: Route
    answered_at: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


def route(graph: SphereGraph, path: Path_) -> Route:
    """A path with what the hidden graph says about it."""
    hops = pairwise(path)
    cost = graph.cost(path)
    best = float(graph.distances[path[0], path[-1]])
    return Route(
        nodes=[Node(node, *map(float, graph.points[node])) for node in path],
        cost=cost,
        missing=[hop for hop in hops if not graph.has_edge[hop]],
        correct=cost is not None and cost <= best + 1e-9,
    )


def explain(
    model: PathsModel, graph: SphereGraph, emit: Emit, readout: str, beam: int, start: int, end: int
) -> Explanation:
    """The steps of one query: the path each would write, and where the answer stops.

    A network that is asked of parts has a stop probability at each: the mean over the answer's.
    """
    graph.check_query(start, end)
    device = model.symbols.bias_GS.device
    query = torch.tensor([start], device=device), torch.tensor([end], device=device)
    with torch.inference_mode():
        answered = answer(model, *query, emit, readout, beam)
        path = plain_path(answered.paths_BL[0].tolist())
        inference = model.read(lay_out([path], graph.num_nodes).to(device)).inference
        stop_T = inference.stop_probabilities_TB.mean(dim=1)
        weight_T = inference.log_stop_weights_TB.exp().mean(dim=1)
        steps = []
        for step in range(1, len(inference.outputs_TBK) + 1):
            found = answer(model, *query, emit, f"step:{step}", beam)
            steps.append(
                Step(
                    step=step,
                    stop_probability=float(stop_T[step - 1]),
                    stop_weight=float(weight_T[step - 1]),
                    probability=float(found.log_p_B[0].exp()),
                    route=route(graph, plain_path(found.paths_BL[0].tolist())),
                )
            )
    shortest = route(graph, graph.shortest(start, end))
    return Explanation(start, end, shortest, steps, route(graph, path), int(answered.step_B[0]))
