"""A backtest: take facts away, train on the rest, complete, and count what comes back.

What is taken away becomes the test split. Validation is drawn in the same way and as large: a
confidence is fitted under the assumption that what is missing is like validation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ekgn import api
from ekgn.errors import EkgnError, did_you_mean
from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.confidence import Bools, Floats, Promise, calibration_error
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.tables import Column, Table, percent

_WAYS = ("random", "newest")
_POINTS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)


@dataclass(frozen=True)
class Backtest:
    """What came back of the facts taken away."""

    run: str
    by: str
    taken: int
    curve: list[
        dict[str, float | None]
    ]  # the surest facts: count, lowest confidence, precision, recall
    promised: float | None  # the precision asked for: a lower bound
    expected: float | None  # what validation had where the bound is met
    at_promise: dict[str, float | None] | None  # the curve at the confidence that --precision chose
    calibration_error: float | None  # none: validation was too small to fit a confidence

    def headline(self) -> dict[str, float]:
        """How good the promise was."""
        found = self.at_promise["precision"] if self.at_promise else None
        return {} if found is None else {"precision": found}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def table(self) -> Table:
        """The curve."""
        keys = ("facts", "confidence", "precision", "recall")
        columns = [Column("facts"), *(Column(key, percent) for key in keys[1:])]
        rows = [[row[key] for key in keys] for row in self.curve]
        return Table(f"What came back of {self.taken:,} facts taken away", columns, rows)

    def in_words(self) -> str:
        """Whether the promise was kept."""
        if self.promised is None or self.at_promise is None:
            return "No confidence was known to give the precision asked for."
        at = self.at_promise
        return (
            f"Promised a precision of at least {self.promised:g}, {self.expected:.3f} expected: "
            f"from a confidence of {at['confidence']:.3f} up {at['facts']:,.0f} facts, "
            f"{at['precision']:.3f} of them right, {at['recall']:.3f} of what was taken away."
        )


def backtest(
    data: Any,
    *,
    share: float = 0.1,
    by: str = "random",
    precision: float | None = 0.9,
    preset: str | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    **overrides: Any,
) -> Backtest:
    """Take a share of the facts away, train with the default, complete, and count."""
    if not 0 < share <= 0.4:
        raise EkgnError(f"share = {share}: expected a part of the facts, above 0 and up to 0.4.")
    folder = Path(data_dir) if data_dir else None
    graph = data if isinstance(data, KnowledgeGraph) else load_graph(data, data_dir=folder)
    left = take_away(graph, share, by, seed)
    run = api.train(left, preset=preset, out=out, **overrides)
    facts = run.complete(explained=0, on_progress=on_progress).facts
    facts = facts.filter(pl.col("held_out") != "valid")
    right, taken = (facts["held_out"] == "test").to_numpy(), len(left.test)
    sure = facts["confidence"].to_numpy()
    counts = [count for count in _POINTS if count < len(facts)] + [len(facts)]
    promise = _promise(run, precision)
    kept = int((sure >= promise.level).sum()) if promise else 0
    found = Backtest(
        run=str(run.path),
        by=by,
        taken=taken,
        curve=[_point(sure, right, taken, count) for count in counts if count],
        promised=precision if promise else None,
        expected=promise.expected if promise else None,
        at_promise={**_point(sure, right, taken, kept), "confidence": promise.level}
        if promise and kept
        else None,
        calibration_error=calibration_error(sure, right) if run.confidence else None,
    )
    run.store("backtest", by, found)
    return found


def take_away(graph: KnowledgeGraph, share: float, by: str, seed: int = 0) -> KnowledgeGraph:
    """The graph with a share of all its facts as test, and as many others as validation.

    By "newest", both are drawn from every second fact of the entities that came last.
    """
    if by not in _WAYS:
        raise EkgnError(f"by = '{by}': expected random or newest. {did_you_mean(by, _WAYS)}")
    facts = np.unique(np.concatenate([graph.train, graph.valid, graph.test]), axis=0)
    order = np.random.default_rng(seed).permutation(len(facts))
    count = round(share * len(facts))
    if not count or len(facts) < 3 * count:
        raise EkgnError(f"{graph.name} has {len(facts):,} facts: too few to take {share:g} away.")
    if by == "newest":
        order = order[_newest_first(facts[order])]
    held, kept = order[: 2 * count], order[2 * count :]
    return dataclasses.replace(
        graph, train=facts[kept], valid=facts[held[1::2]], test=facts[held[::2]]
    )


def _newest_first(facts: Ints) -> Ints:
    """An order in which every second fact of the newest entities comes first."""
    newest = facts[:, [0, 2]].max(axis=1)
    order = np.argsort(-newest, kind="stable")
    return np.concatenate([order[::2], order[1::2]])


def _promise(run: Any, precision: float | None) -> Promise | None:
    """What a precision asks of the confidence, where it can be had."""
    if precision is None or run.confidence is None:
        return None
    try:
        found: Promise = run.confidence.check.promise(precision)
    except EkgnError:
        return None
    return found


def _point(sure: Floats, right: Bools, taken: int, count: int) -> dict[str, float | None]:
    hits = int(right[:count].sum())
    return {
        "facts": count,
        "confidence": None if np.isnan(sure[count - 1]) else float(sure[count - 1]),
        "precision": hits / count,
        "recall": hits / taken,
    }
