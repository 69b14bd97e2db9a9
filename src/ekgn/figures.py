"""The pictures: training curves, stopping steps, the memory map, a sweep, models
side by side. Each returns a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ekgn.canvas import BLUE, GREY, RED, Panel, new_figure, plain_look, write_as
from ekgn.errors import EkgnError
from ekgn.tables import metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ekgn.kbc.analysis import Analysis
    from ekgn.kbc.memory_map import MemoryMap
    from ekgn.sweep import Axis, Sweep, Trial

MOST_LABELS = 70  # relations named on an axis; beyond it names cannot be read


def step_panels(analysis: Analysis) -> list[Panel]:
    """What each fixed step reaches, beside the readout, and where the queries stop."""
    steps = list(range(1, analysis.max_steps + 1))
    fixed = [analysis.metrics[f"step:{step}"] for step in steps]
    answer = analysis.metrics[analysis.readout]

    def draw(name: str, title: str, factor: float) -> Panel:
        def on(panel: Axes) -> None:
            panel.plot(steps, [factor * getattr(m, name) for m in fixed], "o-", color=BLUE)
            panel.axhline(factor * getattr(answer, name), color=RED, linestyle="--", linewidth=1)
            panel.set(xlabel=f"step (dashed: {analysis.readout})", title=title, xticks=steps)

        return on

    def stops(panel: Axes) -> None:
        for shift, shares, color, label in (
            (-0.2, analysis.stop.answering, BLUE, "answers here"),
            (0.2, analysis.stop.weights, GREY, "mean stop weight"),
        ):
            places = [step + shift for step in steps]
            panel.bar(places, [100 * share for share in shares], 0.4, color=color, label=label)
        panel.set(xlabel="step", title="where it stops (%)", xticks=steps)
        panel.legend(fontsize="x-small", frameon=False)

    hits = draw("hits_at_10", "hits@10 (%) by step", 100)
    return [hits, draw("mean_rank", "mean rank by step", 1), stops]


def memory_heat_map(memory: MemoryMap, name_relations: bool = True) -> Figure:
    """Average attention, memory vectors by relations, both ordered by clustering."""
    rows, columns = memory.clustered()
    shown = memory.attention_RM[np.ix_(rows, columns)]
    named = name_relations and len(rows) <= MOST_LABELS
    height = min(12.0, max(3.0, 0.16 * len(rows) + 0.8)) if named else 5.0
    figure = new_figure(8, height)
    panel = figure.subplots()
    image = panel.imshow(shown, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    panel.set_xlabel(f"{len(columns)} memory vectors, ordered by clustering", fontsize=8)
    panel.set_ylabel(f"{len(rows)} relations, ordered by clustering", fontsize=8)
    if len(columns) <= MOST_LABELS:
        panel.set_xticks(range(len(columns)), [str(slot) for slot in columns], fontsize=6)
        panel.tick_params(axis="x", rotation=90)
    else:
        panel.set_xticks([])
    if named:
        from ekgn.kbc.words import short_relation

        names = [short_relation(memory.names[row])[:44] for row in rows]
        panel.set_yticks(range(len(rows)), names, fontsize=6, parse_math=False)
    else:
        panel.set_yticks([])
    bar = figure.colorbar(image, shrink=0.8, pad=0.01)
    bar.set_label("average attention", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def sweep_plot(sweep: Sweep, trials: Sequence[Trial]) -> Figure:
    """Validation metrics over the varied settings, as the paper's Appendix A varies two."""
    from ekgn.sweep import varied

    finished = [trial for trial in trials if trial.state == "finished"]
    if not finished:
        raise EkgnError("No trial of the sweep has finished: there is nothing to plot.")
    axes = sorted(varied(sweep), key=lambda axis: len(axis.values), reverse=True)
    measured = list(finished[0].valid)
    figure = new_figure(4.5 * len(measured), 3.6)
    panels = figure.subplots(1, len(measured), squeeze=False)[0]
    style = "o-" if sweep.search == "grid" else "o"
    for panel, name in zip(panels, measured, strict=True):
        for line in _lines(axes, finished):
            points = [(t.settings[axes[0].name], t.valid[name]) for t in line]
            label = ", ".join(f"{axis.name} {line[0].settings[axis.name]}" for axis in axes[1:])
            panel.plot(*zip(*_by_place(axes[0], points), strict=True), style, label=label or None)
        write_as(panel, metric(name).write)
        panel.set(xlabel=axes[0].name, ylabel=f"validation {metric(name).name}")
        if not axes[0].is_range:
            panel.set_xticks(range(len(axes[0].values)), [str(v) for v in axes[0].values])
        plain_look(panel)
    if len(axes) > 1 and sweep.search == "grid":
        panels[-1].legend(fontsize="small", frameon=False)
    figure.suptitle(f"{sweep.data}, {len(finished)} runs", parse_math=False)
    return figure


def comparison_plot(
    title: str,
    measured: Mapping[str, Mapping[str, float]],
    quoted: Mapping[str, float],
) -> Figure:
    """Hits@10 and MRR of each model as bars, the best on top; a line where the paper quotes it."""
    order = sorted(measured, key=lambda label: measured[label]["hits_at_10"])
    figure = new_figure(7.5, 0.9 + 0.24 * max(len(order), 3))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, name in zip(panels, ("hits_at_10", "mrr"), strict=True):
        panel.barh(order, [measured[label][name] for label in order], color=BLUE, height=0.7)
        panel.xaxis.set_major_formatter(lambda value, _, name=name: metric(name).write(value))
        panel.set(title=f"test {metric(name).name}", xlim=(0, None))
        plain_look(panel)
    for place, label in enumerate(order):
        if label in quoted:
            share = quoted[label] / 100
            panels[0].plot([share, share], [place - 0.45, place + 0.45], color=RED, linewidth=2)
    if quoted:
        panels[0].set_xlabel("red: as the paper quotes it")
    figure.suptitle(title, parse_math=False)
    return figure


def _lines(axes: Sequence[Axis], trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials that differ only in the first axis, together."""
    lines: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in trials:
        lines.setdefault(tuple(trial.settings[axis.name] for axis in axes[1:]), []).append(trial)
    return list(lines.values())


def _by_place(axis: Axis, points: list[tuple[Any, float]]) -> list[tuple[float, float]]:
    """Points with listed values by their place in the list: 32, 64, 4096 are evenly spaced."""
    placed = [(x if axis.is_range else axis.values.index(x), y) for x, y in points]
    return sorted(placed)
