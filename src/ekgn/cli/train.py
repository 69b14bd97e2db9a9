"""`ekgn train`, and `ekgn TASK train` for every other task: one command, made from the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import DataDir, Json, settings_flags
from ekgn.errors import EkgnError
from ekgn.tasks import TASKS, pieces

if TYPE_CHECKING:
    from ekgn.run import Run
    from ekgn.trainer import Trainer

MAIN = "kbc"  # the task whose commands have no prefix
Config = Annotated[Path | None, typer.Option(help="A TOML file with settings.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/NAME).")]
Resume = Annotated[
    Path | None,
    typer.Option(help="Go on with this run instead; --epochs and the like may be changed."),
]


def register(app: typer.Typer) -> None:
    """Add `train` to the commands, and the commands of the other tasks under their names."""
    flags = settings_flags(pieces(MAIN).get("settings"))
    app.command()(flags(train))
    for task in TASKS:
        if task != MAIN:
            mount(app, task)


def mount(app: typer.Typer, task: str) -> None:
    """Add the commands of a task under its name; each has `train`, and what else it brings."""
    found = pieces(task)
    group = found.get("commands") if found.commands else typer.Typer(help=f"Task '{task}'.")
    group.command("train")(_train_of(task))
    app.add_typer(group, name=task)


def train(
    overrides: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Argument(help="A benchmark's name, a folder with train/valid/test, or one file."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Settings to start from.")] = None,
    config: Config = None,
    out: Out = None,
    names: Annotated[
        list[Path] | None, typer.Option(help="Files of id, label, description.")
    ] = None,
    data_dir: DataDir = None,
    resume: Resume = None,
    json: Json = False,
) -> None:
    """Train on DATA and keep the best weights by validation hits@10."""
    new = {"preset": preset, "settings": config, "out": out}
    _train(MAIN, data, resume, overrides, json, {**new, "names": names, "data_dir": data_dir})


def _train_of(task: str) -> Callable[..., Any]:
    """The command that trains another task."""

    def command(
        overrides: dict[str, Any],
        data: Annotated[str | None, typer.Argument(help="The data of the task.")] = None,
        preset: Annotated[str | None, typer.Option(help="Settings to start from.")] = None,
        config: Config = None,
        out: Out = None,
        resume: Resume = None,
        json: Json = False,
    ) -> None:
        """Train on DATA and keep the best weights by validation."""
        new = {"preset": preset, "settings": config, "out": out}
        _train(task, data, resume, overrides, json, new)

    return settings_flags(pieces(task).get("settings"))(command)


def _train(
    task: str,
    data: str | None,
    resume: Path | None,
    overrides: dict[str, Any],
    json: bool,
    new: dict[str, Any],
) -> None:
    """Train on the data, or go on with a run, of whatever task it is."""
    data = data or (None if resume else pieces(task).data or None)
    if (data is None) == (resume is None):
        raise EkgnError("Give either DATA to train on, or --resume RUN to go on with a run.")
    unused = [name for name in ("preset", "settings", "out", "names") if new.get(name)]
    if resume and unused:
        raise EkgnError(
            f"--resume goes on with the run's own data and settings: leave out "
            f"{', '.join('--' + name.replace('settings', 'config') for name in unused)}."
        )
    from ekgn import api
    from ekgn.cli import display

    given = {name: value for name, value in new.items() if value}
    with display.ranking_progress("choosing settings") as on_progress:
        trainer = (
            api.reopen(resume, **overrides)
            if resume
            else api.prepare(data, task=task, on_progress=on_progress, **given, **overrides)
        )
    path = trainer.run.path
    _announce(trainer)
    try:
        with display.training_progress(
            trainer.task.unit, trainer.settings.batch_size
        ) as trainer.listener:
            trainer.fit(resume=resume is not None)
    except KeyboardInterrupt:
        display.messages.print(f"Interrupted. Go on with: ekgn train --resume {path}", markup=False)
        raise
    if not trainer.group.is_first:  # the run may be on another machine
        return
    run: Run = api.load(path)
    if json:
        display.print_json({"run": str(path), **run.record})
        return
    display.console.print(summary(run), markup=False)


def _announce(trainer: Trainer) -> None:
    from ekgn.cli import display

    about = trainer.task.describe()
    sizes = ", ".join(f"{name} {size:,}" for name, size in about.items() if type(size) is int)
    display.messages.print(
        f"Training on {about['name']} ({sizes}). Run folder: {trainer.run.path}", markup=False
    )
    for note in trainer.task.notes():
        display.messages.print(note, markup=False)


def summary(run: Run) -> str:
    """How a training ended, in words."""
    from ekgn.tables import in_words

    record, settings = run.record, run.settings
    step = record["best"]["step"]
    best = {name: value for name, value in record["best"].items() if name != "step"}
    ending = {
        "epochs": "",
        "patience": f" It stopped after {settings.patience} validations without gain, at epoch "
        f"{record['epochs']:.1f} of {settings.epochs}.",
        "budget_minutes": f" The budget of {settings.budget_minutes:g} minutes ended it at epoch "
        f"{record['epochs']:.1f} of {settings.epochs}.",
    }[record["ended_by"]]
    return (
        f"Best validation: {in_words(best)} at step {step:,} of {record['steps']:,}, "
        f"{record['wall_seconds']:.0f} s, {record['parameters']:,} parameters.{ending} "
        f"Next: ekgn evaluate {run.path}"
    )
