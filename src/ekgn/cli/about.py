"""The commands that tell what there is: datasets, info, settings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import DataDir, Json
from ekgn.errors import EkgnError
from ekgn.kbc.settings import KbcSettings

if TYPE_CHECKING:
    from ekgn.kbc.graph import Vocabulary


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (info, runs, datasets, settings):
        app.command()(command)


def info(
    what: Annotated[str, typer.Argument(help="A run, or data: a benchmark, folder or file.")],
    relations: Annotated[bool, typer.Option("--relations", help="List the relations.")] = False,
    entities: Annotated[bool, typer.Option("--entities", help="List the entities.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What a run or a data set holds."""
    from ekgn.cli import display
    from ekgn.kbc.task import KbcTask
    from ekgn.run import find_run

    path = find_run(what)
    is_run = (path / "config.json").is_file()
    task = (
        _task_of(path)
        if is_run
        else KbcTask.open(what, KbcSettings(), data_dir=Path(data_dir) if data_dir else None)
    )
    if relations or entities:
        if not isinstance(task, KbcTask):
            raise EkgnError(f"{what} is a run of task '{task.name}': it has no such names.")
        _print_names(task.graph.relations if relations else task.graph.entities, json)
        return
    summary = task.describe()
    if is_run:
        summary |= _run_summary(path)
    if json:
        display.print_json(summary)
        return
    rows = [[key, str(value)] for key, value in summary.items() if not isinstance(value, dict)]
    display.table(f"{'Run' if is_run else 'Data'} {what}", ["", ""], rows)
    for key in ("best", "overrides", "settings"):
        if summary.get(key):
            display.console.print()
            display.table(key, ["", ""], [[k, str(v)] for k, v in summary[key].items()])


def _print_names(names: Vocabulary, json: bool) -> None:
    from ekgn.cli import display

    rows = list(zip(names.ids, names.labels, names.descriptions, strict=True))
    if json:
        keys = ("id", "label", "description")
        display.print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    for identifier, label, _ in rows:
        display.console.print(identifier if label == identifier else f"{identifier}  {label}")


def _task_of(path: Path) -> Any:
    """The task of a run, over the data that the run keeps."""
    from ekgn.files import read_json
    from ekgn.tasks import pieces

    config = read_json(path / "config.json")
    task_class = pieces(config["task"]).get("run").task_class
    return task_class.load(path, task_class.settings_class.parse(config["settings"]))


def _run_summary(path: Path) -> dict[str, Any]:
    from ekgn.files import read_json

    record = path / "record.json"
    known = read_json(record) if record.exists() else {}
    config = read_json(path / "config.json")
    shown = ("parameters", "epochs", "ended_by", "wall_seconds", "best")
    return {
        "task": config["task"],
        "finished": bool(known),
        **{key: known[key] for key in shown if key in known},
        "preset": config.get("preset"),
        "overrides": config.get("overrides", {}),
        "settings": config["settings"],
    }


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds them.")] = Path("runs"),
    json: Json = False,
) -> None:
    """The runs there are: task, data, preset with what was changed, best validation."""
    from ekgn import api
    from ekgn.cli import display
    from ekgn.tables import Table, in_words

    found = api.list_runs(folder)
    if json:
        display.print_json(found)
        return
    if not found:
        raise EkgnError(f"No runs in '{folder}'. Make one with: ekgn train world")
    columns = ["run", "task", "data", "recipe", "best validation", "epochs", "minutes"]
    rows = [
        [
            run["run"],
            run["task"],
            run["data"],
            ", ".join([run["preset"] or "", *(f"{k}={v}" for k, v in run["overrides"].items())]),
            in_words({k: v for k, v in run["best"].items() if k != "step"}),
            f"{run['epochs']:.0f}",
            f"{run['wall_seconds'] / 60:.1f}",
        ]
        if run["finished"]
        else [run["run"], run["task"], run["data"], run["preset"], "not finished", None, None]
        for run in found
    ]
    display.show(Table(f"Runs in {folder}", columns, rows))


def datasets(data_dir: DataDir = None, json: Json = False) -> None:
    """The benchmarks that can be named, and where they were found."""
    from ekgn.cli import display
    from ekgn.kbc.datasets import dataset_table

    rows = dataset_table(Path(data_dir) if data_dir else None)
    if json:
        display.print_json([{**asdict(row), "found": str(row.found or "")} for row in rows])
        return
    display.table(
        "Benchmarks",
        ["name", "triples", "entities", "relations", "here", "what it is"],
        [
            [
                row.name,
                f"{row.triples:,}",
                f"{row.entities:,}",
                f"{row.relations:,}",
                "yes" if row.found else "no",
                row.description,
            ]
            for row in rows
        ],
    )


def settings(
    preset: Annotated[str | None, typer.Option(help="Show the values of this preset.")] = None,
    config: Annotated[Path | None, typer.Option(help="Apply this TOML file first.")] = None,
    json: Json = False,
) -> None:
    """Every setting with its meaning, the paper's value and the preset's."""
    from ekgn.cli import display

    chosen = KbcSettings.build(preset, config)
    if json:
        display.print_json(chosen.model_dump(mode="json"))
        return
    rows = []
    for name, field in KbcSettings.model_fields.items():
        extra = field.json_schema_extra
        symbol = str(extra.get("symbol", "")) if isinstance(extra, dict) else ""
        value = str(getattr(chosen, name))
        changed = "" if getattr(chosen, name) == field.default else str(field.default)
        meaning = str(field.description) + (f" ({symbol})" if symbol else "")
        rows.append([name, value, changed, meaning])
    title = f"Settings of preset {preset or KbcSettings.DEFAULT_PRESET}"
    display.table(title, ["setting", "value", "paper", "meaning"], rows)
