"""The front door, the same for every task: train, go on with a training, load a run, list runs.

>>> import ekgn
>>> run = ekgn.train("world", epochs=10, out="runs/short")            # doctest: +SKIP
>>> run = ekgn.resume("runs/short", epochs=20)                        # doctest: +SKIP
>>> run = ekgn.load("runs/short")                                     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ekgn.checkpoint import RunFolder
from ekgn.comparison.bench import compare
from ekgn.config import Settings, read_toml
from ekgn.distributed import may_restart, world
from ekgn.errors import EkgnError, did_you_mean
from ekgn.files import read_json
from ekgn.run import RUNS, Run, find_run, new_run_path
from ekgn.tasks import pieces
from ekgn.trainer import Listener, Trainer

__all__ = [
    "Run",
    "compare",
    "list_runs",
    "load",
    "prepare",
    "reopen",
    "resume",
    "task_of",
    "train",
]

OnProgress = Callable[[int, int], None]
# What a training that goes on may change: anything else would make it another training.
RESUMABLE = (
    *("epochs", "valid_every", "patience", "budget_minutes"),
    *("checkpoint_minutes", "threads", "device", "tensorboard"),
)


def load(run: str | Path, device: str | None = None) -> Any:
    """A trained run by folder, or by its name under runs/: a KbcRun, a PathsRun, by its task."""
    folder = RunFolder.existing(find_run(run))
    return _run_class(folder)(folder.path, device)


def _run_class(folder: RunFolder) -> Any:
    """The kind of run that a folder holds."""
    try:
        return pieces(folder.read_config()["task"]).get("run")
    except EkgnError as error:
        named = str(folder.config) in str(error)
        raise EkgnError(str(error) if named else f"{folder.config}: {error}") from None


def task_of(run: str | Path) -> Any:
    """The task of a run, over the data that the run keeps; no weights are needed."""
    folder = RunFolder.existing(find_run(run))
    task_class = _run_class(folder).task_class
    return task_class.load(folder.path, folder.read_settings(task_class.settings_class))


def train(
    data: Any,
    settings: Settings | Mapping[str, Any] | str | Path | None = None,
    *,
    task: str = "kbc",
    preset: str | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    names: str | Path | Sequence[str | Path] = (),
    listener: Listener | None = None,
    **overrides: Any,
) -> Any:
    """Train on data and return the run.

    The data are what the task takes: a benchmark's name, a folder, a file, a graph. The settings
    start from a preset; those in `settings` (a mapping, or a TOML file) come over it, and those
    given by keyword over both. A whole Settings object stands for itself if no preset is given.
    """
    options: dict[str, Any] = {"task": task, "preset": preset, "out": out}
    trainer = prepare(data, settings, **options, data_dir=data_dir, names=names, **overrides)
    trainer.listener = listener
    trainer.fit()
    return load(trainer.run.path)


def prepare(
    data: Any,
    settings: Settings | Mapping[str, Any] | str | Path | None = None,
    *,
    task: str = "kbc",
    preset: str | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    names: str | Path | Sequence[str | Path] = (),
    on_progress: OnProgress | None = None,
    **overrides: Any,
) -> Trainer:
    """A training that has not begun; fit() begins it.

    What the settings leave open is chosen here; `on_progress` is told of it, if it takes long.
    """
    task_class = pieces(task).get("run").task_class
    chosen, start = _settings(task_class.settings_class, preset, settings, overrides)
    options: dict[str, Any] = {"on_progress": on_progress}
    if data_dir:
        options["data_dir"] = Path(data_dir)
    if names:
        options["names"] = [Path(n) for n in ([names] if isinstance(names, str | Path) else names)]
    job = task_class.open(data, chosen, **options)
    name = "-".join(filter(None, (job.describe()["name"], start)))
    if out is None and may_restart():
        raise EkgnError("Give --out: a training that the launcher restarts goes on in its folder.")
    folder = RunFolder(Path(out) if out else world().by_first(lambda: new_run_path(name)))
    return Trainer(job, folder, None, start, chosen.changes_of(start))


def _settings(
    kind: type[Settings],
    preset: str | None,
    settings: Settings | Mapping[str, Any] | str | Path | None,
    overrides: Mapping[str, Any],
) -> tuple[Any, str | None]:
    """The settings of a new run, and the preset that they start from, if they do."""
    if isinstance(settings, Settings):
        if not isinstance(settings, kind):
            raise EkgnError(
                f"The settings are {type(settings).__name__}, and the task has {kind.__name__}. "
                f"Give the task that the settings are of."
            )
        if preset is None:
            return kind.parse({**settings.model_dump(), **overrides}), None
        settings = settings.model_dump(include=settings.model_fields_set)
    if isinstance(settings, str | Path):
        settings = read_toml(Path(settings))
    given = dict(settings or {})
    start = preset or str(given.pop("preset", "") or kind.DEFAULT_PRESET)
    given.pop("preset", None)
    return kind.build(start, overrides={**given, **overrides}), start


def resume(run: str | Path, listener: Listener | None = None, **changes: Any) -> Any:
    """Go on with a training that was interrupted or killed, or that is to be longer.

    Only how long and where it trains may be changed, for example epochs=80. The learning rate
    then falls over all the epochs, as if they had been asked for at first.
    """
    trainer = reopen(run, **changes)
    trainer.listener = listener
    trainer.fit(resume=True)
    return load(trainer.run.path)


def reopen(run: str | Path, **changes: Any) -> Trainer:
    """The training of a run; fit(resume=True) goes on with it."""
    folder = RunFolder.existing(find_run(run))
    config = folder.read_config()
    if config.get("extended"):
        raise EkgnError(
            f"{run} was extended after its training, which cannot go on with other entities. "
            f"Take that back (ekgn extend {run} --undo), or train a new run on all facts."
        )
    for name in changes:
        if name not in RESUMABLE:
            hint = did_you_mean(name, RESUMABLE)
            raise EkgnError(
                f"{name} cannot be changed in a training that goes on{hint and '. ' + hint}. "
                f"What can: {', '.join(RESUMABLE)}. For other settings, train a new run."
            )
    task_class = _run_class(folder).task_class
    settings = task_class.settings_class.parse({**config["settings"], **changes})
    overrides = {**config["overrides"], **changes} if "overrides" in config else None
    job = task_class.load(folder.path, settings)
    return Trainer(job, folder, None, config.get("preset"), overrides)


def list_runs(folder: str | Path = RUNS) -> list[dict[str, Any]]:
    """The runs in a folder and in the sweeps it holds: path, task, data, preset, best, state."""
    return [_listed(config.parent, read_json(config)) for config in sorted(_configs(Path(folder)))]


def _configs(folder: Path) -> Iterator[Path]:
    for pattern in ("*/config.json", "*/*/config.json"):
        yield from folder.glob(pattern)


def _listed(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    record = read_json(path / "record.json") if (path / "record.json").exists() else {}
    return {
        "run": str(path),
        "task": config["task"],
        "data": record.get("data", {}).get("name"),
        "preset": config.get("preset"),
        "overrides": config.get("overrides", {}),
        "finished": bool(record),
        "epochs": record.get("epochs"),
        "wall_seconds": record.get("wall_seconds"),
        "best": record.get("best"),
        "date": record.get("environment", {}).get("date"),
    }
