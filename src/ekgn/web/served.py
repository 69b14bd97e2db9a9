"""A run as the server holds it: what runs of every task have. A task may serve more of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ekgn.run import Run
from ekgn.web.schema import MetricsReply, RunReply, RunSummary

SUMMARY = ("parameters", "steps", "epochs", "ended_by", "wall_seconds", "best")


class ServedRun:
    """One trained run: its summary, its metrics and its record."""

    def __init__(self, name: str, run: Run) -> None:
        self.name = name
        self._run = run

    def prepare(self) -> None:
        """Do now what the first visitor would otherwise wait for."""

    def pieces(self) -> Iterator[object]:
        """What can be done besides, a piece at a time, while nobody asks for longer work."""
        return iter(())

    def reply(self) -> RunReply:
        """The run, with what to start from."""
        return RunReply(run=self.summary)

    @cached_property
    def data(self) -> dict[str, Any]:
        """What it was trained on: a name, and sizes among the rest."""
        found: dict[str, Any] = self._run.task.describe()
        return found

    @property
    def summary(self) -> RunSummary:
        """The run in a few words and numbers."""
        settings = self._run.settings
        measured, split = self._run.headline()
        return RunSummary(
            name=self.name,
            task=self._run.task.name,
            graph=self.data["name"],
            sizes={name: size for name, size in self.data.items() if type(size) is int},
            max_steps=settings.max_steps,
            num_slots=settings.num_slots,
            readout=settings.readout,
            metrics=measured,
            measured_on=split,
        )

    def metrics(self) -> MetricsReply:
        """The record of the run."""
        record = self._run.record
        return MetricsReply(
            run=self.summary,
            data=record.get("data", {}),
            preset=self._run.config.get("preset"),
            overrides=self._run.config.get("overrides", {}),
            settings=self._run.settings.model_dump(mode="json"),
            environment=record.get("environment", {}),
            summary={name: record[name] for name in SUMMARY if name in record},
            curve=self._run.curve,
            evaluations=record.get("evaluations", {}),
            rule_baseline=record.get("rule_baseline", {}),
            with_rules=record.get("with_rules", {}),
            confidence=record.get("confidence", {}).get("valid", {}),
        )
