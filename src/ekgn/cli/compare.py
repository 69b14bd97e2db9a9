"""The command that trains models side by side: `ekgn compare`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import DataDir, Json

if TYPE_CHECKING:
    from ekgn.comparison.bench import OnModel, OnProgress

TRAINING = 0.8  # share of a model's time, roughly; the rest is ranking


def register(app: typer.Typer) -> None:
    """Add `compare` to the commands."""
    app.command()(compare)


def compare(
    data: Annotated[
        str, typer.Argument(help="A benchmark's name, a folder with train/valid/test, or one file.")
    ],
    models: Annotated[
        str, typer.Option(help="Names of models, by commas, or all.")
    ] = "ekgn,complex,distmult,rescal",
    minutes: Annotated[
        float, typer.Option(help="Training minutes of each model, on one processor core.")
    ] = 5.0,
    out: Annotated[Path | None, typer.Option(help="Folder (default: runs/compare-DATA).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.", min=0)] = 0,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train models under the same budget, rank the test split with each: one table.

    ekgn, complex, distmult and rescal are ekgn's own; transe, transh, transr, transd, ntn, kg2e,
    hole, conve, proje and rotate are PyKEEN's (pip install 'ekgn\\[peers]'). A killed comparison
    goes on when it is started again.
    """
    from ekgn import api
    from ekgn.cli import display
    from ekgn.comparison.bench import parse_models

    with _progress(len(parse_models(models)) + 1) as (on_progress, on_model):
        found = api.compare(
            data,
            models,
            minutes=minutes,
            out=out,
            seed=seed,
            data_dir=data_dir,
            on_progress=on_progress,
            on_model=on_model,
        )
    if json:
        display.print_json(found.as_dict())
        return
    display.show(found.table())
    display.console.print(f"\nRecords, table and picture are in {found.path}", soft_wrap=True)


@contextmanager
def _progress(count: int) -> Iterator[tuple[OnProgress, OnModel]]:
    """A bar over all models with the time left; each that is done is one line."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from ekgn.cli import display
    from ekgn.comparison.bench import LABELS
    from ekgn.tables import in_words

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(compact=True),
        console=display.messages,
        transient=True,
    )
    job, done, began = bar.add_task("starting", total=count), [0], time.monotonic()

    def on_progress(model: str, doing: str, share: float) -> None:
        part = TRAINING * share if doing == "training" else TRAINING + (1 - TRAINING) * share
        bar.update(job, description=f"{LABELS[model]}, {doing}", completed=done[0] + part)

    def on_model(record: dict[str, Any], place: int, total: int) -> None:
        done[0] = place
        bar.update(job, completed=place)
        micro = record.get("test", {}).get("micro", {})
        kept = {name: micro[name] for name in ("hits_at_10", "mean_rank", "mrr") if micro}
        what = in_words(kept) if kept else f"failed: {record['problem']}"
        left = (total - place) * (time.monotonic() - began) / place / 60
        display.messages.print(
            f"{LABELS[record['model']]}: {what} ({place} of {total}, about {left:.0f} min left)"
        )

    with bar:
        yield on_progress, on_model
