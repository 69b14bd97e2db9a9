"""Paths drawn on the sphere, seen from straight above their middle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ekgn.canvas import BLUE, GREY, RED, new_figure
from ekgn.paths.explain import Explanation, Step
from ekgn.paths.graphs import Floats, Path_, SphereGraph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREEN, AMBER = "#3f8f4f", "#d9902f"
COLORS = (BLUE, RED, GREEN, AMBER, "#7a5ba6", "#4fa3a5", "#8c6d46", "#c86f9a")


class View:
    """The half of the sphere around a direction, as points of a disc."""

    def __init__(self, centre: Floats) -> None:
        toward = centre / (np.linalg.norm(centre) or 1.0)
        helper = np.eye(3)[np.argmin(np.abs(toward))]
        right = np.cross(helper, toward)
        right /= np.linalg.norm(right)
        self._axes = np.stack([right, np.cross(toward, right), toward], axis=1)

    def __call__(self, points: Floats) -> Floats:
        """(x, y, depth) of each point; depth > 0 is the visible side."""
        seen: Floats = points @ self._axes
        return seen


def draw_sphere(panel: Any, graph: SphereGraph, view: View) -> None:
    """The outline and all nodes, those behind lighter."""
    seen = view(graph.points)
    front = seen[:, 2] >= 0
    angle = np.linspace(0, 2 * np.pi, 181)
    panel.fill(np.cos(angle), np.sin(angle), color="#f4f6f7", zorder=0)
    panel.plot(np.cos(angle), np.sin(angle), color=GREY, linewidth=0.8)
    panel.scatter(*seen[~front, :2].T, s=2, color="#dde2e5", zorder=1)
    panel.scatter(*seen[front, :2].T, s=4, color="#b3bcc2", zorder=2)
    panel.set_aspect("equal")
    panel.axis("off")


def draw_path(
    panel: Any, graph: SphereGraph, view: View, path: Path_, color: str, label: bool = True
) -> None:
    """A path; hops that are no edges of the graph are dashed."""
    seen = view(graph.points[list(path)])
    for place, hop in enumerate(pairwise(path)):
        ends = seen[place : place + 2]
        style = "-" if graph.has_edge[hop] else (0, (2, 2))
        panel.plot(ends[:, 0], ends[:, 1], color=color, linewidth=1.8, linestyle=style, zorder=3)
    panel.scatter(seen[1:-1, 0], seen[1:-1, 1], s=16, color=color, zorder=4)
    panel.scatter(seen[[0, -1], 0], seen[[0, -1], 1], s=30, color="black", zorder=5)
    if label:
        for node, (x, y, _) in zip(path, seen, strict=True):
            panel.annotate(
                str(node), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7, zorder=6
            )


def sphere_picture(graph: SphereGraph, paths: Sequence[Path_]) -> Figure:
    """The sphere with some paths on its visible side."""
    figure = new_figure(5, 5)
    panel = figure.subplots()
    view = View(graph.points[list(paths[0])].mean(axis=0))
    draw_sphere(panel, graph, view)
    front = view(graph.points)[:, 2] > 0
    shown = [path for path in paths if front[list(path)].all()][: len(COLORS)]
    for path, color in zip(shown, COLORS, strict=False):
        draw_path(panel, graph, view, path, color)
    panel.set_title(f"{graph.num_nodes} nodes, k = {graph.k}: {len(shown)} of the paths", size=10)
    return figure


def explanation_picture(explanation: Explanation, graph: SphereGraph) -> Figure:
    """The shortest path, then the predicted path of every step."""
    view = View(graph.points[list(explanation.shortest.path)].mean(axis=0))
    panels = 1 + len(explanation.steps)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = new_figure(3.2 * columns, 3.5 * rows)
    cells = figure.subplots(rows, columns, squeeze=False).ravel()
    draw_sphere(cells[0], graph, view)
    draw_path(cells[0], graph, view, explanation.shortest.path, BLUE)
    cells[0].set_title(f"shortest path\ncost {explanation.shortest.cost:.3f}", size=9)
    for cell, step in zip(cells[1:], explanation.steps, strict=False):
        draw_sphere(cell, graph, view)
        draw_path(cell, graph, view, step.route.path, _color(step))
        answered = ", answered" if step.step == explanation.answered_at else ""
        cell.set_title(
            f"step {step.step}: stop {step.stop_probability:.3f}{answered}\n{verdict(step)}", size=9
        )
    for cell in cells[panels:]:
        cell.axis("off")
    return figure


def verdict(step: Step) -> str:
    """The cost of the step's path, or why it is not connected."""
    if step.route.cost is None:
        return step.route.reason
    return f"cost {step.route.cost:.3f}" + (", shortest" if step.route.correct else "")


def _color(step: Step) -> str:
    if step.route.correct:
        return GREEN
    return RED if step.route.cost is None else AMBER
