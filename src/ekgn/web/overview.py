"""What runs of every task have: a curve, a record, a few numbers that sum them up."""

from __future__ import annotations

import json
from typing import Any, Protocol

from ekgn.checkpoint import RunFolder
from ekgn.config import Settings
from ekgn.web.schema import MetricsReply, RunSummary

SUMMARY = ("parameters", "steps", "epochs", "wall_seconds", "best")


class TrainedRun(Protocol):
    """What a run of either task offers."""

    folder: RunFolder

    @property
    def record(self) -> dict[str, Any]: ...


def curve_of(run: TrainedRun) -> list[dict[str, float | None]]:
    """One line per validation, also of a training that still goes on."""
    path = run.folder.metrics
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break  # the last line of a running training may be half written
    return lines


def headline(run: TrainedRun, wanted: str, by: str, part: str) -> tuple[dict[str, float], str]:
    """The test metrics if the run was evaluated, else the best validation of its curve."""
    evaluations = run.record.get("evaluations", {})
    tested = [name for name in evaluations if name.startswith("test")]
    if tested:
        found = evaluations[wanted if wanted in tested else tested[0]]
        return found.get(part, {}), "test"
    best: dict[str, float | None] = max(
        curve_of(run), key=lambda line: line.get(by) or 0, default={}
    )
    return {name: value for name, value in best.items() if value is not None}, "valid" * bool(best)


def metrics_reply(summary: RunSummary, run: TrainedRun, settings: Settings) -> MetricsReply:
    """The record of a run."""
    record = run.record
    return MetricsReply(
        run=summary,
        data=record.get("data", {}),
        settings=settings.model_dump(mode="json"),
        environment=record.get("environment", {}),
        summary={name: record[name] for name in SUMMARY if name in record},
        curve=curve_of(run),
        evaluations=record.get("evaluations", {}),
        rule_baseline=record.get("rule_baseline", {}),
    )
