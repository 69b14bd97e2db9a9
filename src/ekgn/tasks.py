"""The table of tasks: what a task is called, and where its pieces are.

To add a task, write its folder (see ekgn.run) and add one line here. Training, resuming, loading,
sweeps, reports, the command line and the web server all read this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ekgn.errors import EkgnError, did_you_mean


@dataclass(frozen=True)
class Pieces:
    """The pieces of a task, as "module:name": none is imported before it is used."""

    settings: str
    run: str
    served: str = "ekgn.web.served:ServedRun"  # its pages: a run's metrics and record, or more
    report: str = "ekgn.report.page:report"  # its report: curve and metrics, or more
    commands: str = ""  # its commands besides `train`, a typer app
    data: str = ""  # what `train` takes if no data are given

    def get(self, piece: str) -> Any:
        """One of the pieces, imported."""
        module, _, name = getattr(self, piece).partition(":")
        return getattr(import_module(module), name)


TASKS = {
    "kbc": Pieces(
        settings="ekgn.kbc.settings:KbcSettings",
        run="ekgn.kbc.run:KbcRun",
        served="ekgn.web.served_kbc:ServedKbc",
        report="ekgn.report.kbc:report",
    ),
    "paths": Pieces(
        settings="ekgn.paths.settings:PathsSettings",
        run="ekgn.paths.run:PathsRun",
        served="ekgn.web.served_paths:ServedPaths",
        report="ekgn.report.paths:report",
        commands="ekgn.cli.paths:app",
        data="data/paths",
    ),
}


def pieces(task: str) -> Pieces:
    """The pieces of a task; an unknown name is one clear error."""
    if task not in TASKS:
        raise EkgnError(
            f"Unknown task '{task}'. {did_you_mean(task, TASKS)} Tasks: {', '.join(TASKS)}."
        )
    return TASKS[task]
