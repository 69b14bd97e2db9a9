"""The report of a run of shortest path synthesis: curve, counts, and drawn examples."""

from __future__ import annotations

from html import escape

import numpy as np

from ekgn import canvas
from ekgn.paths.drawing import explanation_picture
from ekgn.paths.run import PathsRun
from ekgn.report.page import OnProgress, Report, Section, cards, curves, settings, wide
from ekgn.tables import Column, Table, percent

EXAMPLES = 4


def report(run: PathsRun, split: str, limit: int, on_progress: OnProgress | None) -> Report:
    """The report of a run; `limit` has no use here, as counting a split is quick."""
    found = run.evaluate(split, on_progress=on_progress)
    graph, how = run.data.graph, run.decoding()
    counts = {"all": found.all}
    counts |= {f"{hops} hops": count for hops, count in found.by_hops.items()}
    counts |= {f"stopped at step {step}": count for step, count in found.by_step.items()}
    share = Column("share", percent)
    table = Table(
        "",
        ["", "paths", "correct", share, "valid", share],
        [
            [name, c.total, c.correct, c.correct / c.total, c.valid, c.valid / c.total]
            for name, c in counts.items()
        ],
    )
    return Report(
        f"{graph.num_nodes} nodes on a sphere: the paths it writes",
        f"{len(run.data.train):,} training paths, {graph.k} neighbours a node. "
        f"{run.settings.num_slots} memory vectors, up to {run.steps} steps. "
        f"Numbers are on the {split} split, decoded by {how}.",
        cards(found.headline()),
        [
            Section("curves", "Training", curves(run)),
            Section("metrics", "Metrics", wide(table)),
            Section("examples", "Examples", _examples(run, split)),
            Section("settings", "Settings", settings(run)),
        ],
        "A path is valid if the hidden graph has all its edges, and correct if it is also the "
        "shortest.",
    )


def _examples(run: PathsRun, split: str) -> str:
    """Some questions of the split, of different lengths, step by step."""
    paths = run.data.split(split)
    drawn = [paths[i] for i in np.random.default_rng(0).permutation(len(paths))]
    by_hops = {len(path): path for path in drawn}
    pictures = []
    for _, path in sorted(by_hops.items())[:EXAMPLES]:
        found = run.explain(path[0], path[-1])
        picture = canvas.as_svg(explanation_picture(found, run.data.graph))
        words = f"{path[0]} to {path[-1]}, {len(path) - 1} hops: answered {found.answer}"
        pictures.append(f"<h3>{escape(words)}</h3><figure>{picture}</figure>")
    return "".join(pictures)
