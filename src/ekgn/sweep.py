"""Sweeps: many runs of one data set under varied settings, each in a process of its own.

What is varied is judged on validation. Only the run that is best there is measured on the test
split, when all have ended.

    OUT/spec.json          what is swept
    OUT/study.journal      the trials so far (optuna's journal): a killed sweep goes on from it
    OUT/NAME/              a normal run folder for each combination of settings, NAME.log beside it
    OUT/sweep.json         every finished combination with its validation and its record

Started by the parent as `python -m ekgn.sweep JOB.json`, this module trains one combination.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ekgn.canvas import NOT_MEASURED
from ekgn.checkpoint import RunFolder
from ekgn.config import Settings
from ekgn.errors import EkgnError, did_you_mean
from ekgn.files import read_json, write_json
from ekgn.run import Run
from ekgn.tasks import pieces

SEARCHES = ("grid", "random", "tpe")


@dataclass(frozen=True)
class Axis:
    """One varied setting: a list of values, or a range from low to high."""

    name: str
    values: list[Any] = field(default_factory=list)
    low: float | None = None
    high: float | None = None

    @property
    def is_range(self) -> bool:
        return self.low is not None


@dataclass(frozen=True)
class Sweep:
    """What is swept; two calls with the same Sweep and folder are the same sweep."""

    data: str
    axes: list[Axis]
    preset: str | None = None
    search: str = "grid"
    budget: float = 0.0  # minutes per trial, 0: no limit
    split: str = "test"  # what the run of the best validation is measured on
    task: str = "kbc"


@dataclass(frozen=True)
class Trial:
    """One combination of settings and what came of it."""

    name: str
    settings: dict[str, Any]
    state: str  # "finished" or "failed"
    problem: str = ""
    seconds: float = 0.0
    epochs: float = 0.0
    score: float | None = None  # of the validation: what the search maximises
    valid: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # of the split, of the winner only


OnTrial = Callable[[Trial, int, int], None]
"""Called with each trial that ends, how many have ended, and how many there will be."""


def parse_axes(pairs: Sequence[str], task: str = "kbc") -> list[Axis]:
    """Axes from "num_slots=32,64" (values) and "learning_rate=0.001..0.01" (a range)."""
    kind = pieces(task).get("settings")
    axes = []
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        name = name.replace("-", "_")
        values = [value.strip() for value in text.split(",") if value.strip()]
        if not equals or not values:
            raise EkgnError(
                f"--set {pair}: expected NAME=VALUE,VALUE,... or NAME=LOW..HIGH, "
                f"for example num_slots=32,64,128."
            )
        if name not in kind.model_fields:
            hint = did_you_mean(name, kind.model_fields)
            raise EkgnError(f"--set {pair}: there is no setting '{name}'. {hint}".strip())
        axes.append(_axis(kind, name, values, pair))
    repeated = {axis.name for axis in axes if sum(axis.name == other.name for other in axes) > 1}
    if repeated:
        raise EkgnError(f"--set {repeated.pop()} is given twice: put all its values into one.")
    if not axes:
        raise EkgnError("Give at least one setting to vary, for example --set num_slots=32,64.")
    return axes


def _axis(kind: type[Settings], name: str, values: list[str], pair: str) -> Axis:
    if len(values) == 1 and ".." in values[0]:
        low, _, high = values[0].partition("..")
        try:
            bounds = float(low), float(high)
        except ValueError:
            raise EkgnError(f"--set {pair}: expected two numbers, LOW..HIGH.") from None
        if bounds[0] >= bounds[1]:
            raise EkgnError(f"--set {pair}: the range is empty, expected LOW below HIGH.")
        if kind.model_fields[name].annotation is int:
            bounds = int(bounds[0]), int(bounds[1])
        return Axis(name, low=bounds[0], high=bounds[1])
    # The settings class knows the type, and refuses what is not of it.
    parsed = [getattr(kind.parse({name: value}), name) for value in values]
    return Axis(name, values=list(dict.fromkeys(parsed)))


def run_sweep(
    sweep: Sweep,
    out: Path,
    *,
    trials: int = 0,
    jobs: int = 1,
    on_trial: OnTrial | None = None,
) -> list[Trial]:
    """Run (or go on with) a sweep in `out` and return its trials, in the order of the settings."""
    _check(sweep, trials, jobs)
    _claim(sweep, out)
    study = _study(sweep, out)
    _queue(study, sweep, trials)
    count = len(_grid(sweep)) if sweep.search == "grid" else trials
    ended = [_trial(sweep, out, t.params) for t in _complete(study)]
    running: dict[Future[str], Any] = {}
    children: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while running or len(ended) < count:
                while len(running) < jobs and len(running) + len(ended) < count:
                    trial = study.ask()
                    settings = {axis.name: _suggest(trial, axis) for axis in sweep.axes}
                    running[pool.submit(_train, sweep, out, settings, children)] = trial
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    ended.append(_tell(study, sweep, out, running.pop(future), future.result()))
                    if on_trial:
                        on_trial(ended[-1], len(ended), count)
        finally:
            for child in children:
                child.terminate()
    found = _measure_winner(sweep, out, _in_order(sweep, ended))
    write_json(out / "sweep.json", summary(sweep, out, found))
    return found


def summary(sweep: Sweep, out: Path, trials: Sequence[Trial]) -> dict[str, Any]:
    """The sweep as one JSON value, with the record of every run."""
    records = {
        trial.name: read_json(out / trial.name / "record.json")
        for trial in trials
        if trial.state == "finished"
    }
    return {"sweep": asdict(sweep), "trials": [asdict(t) for t in trials], "records": records}


def _check(sweep: Sweep, trials: int, jobs: int) -> None:
    """Refuse what cannot work before anything is trained."""
    if sweep.search not in SEARCHES:
        raise EkgnError(
            f"Unknown search '{sweep.search}': expected {', '.join(SEARCHES)}. "
            f"{did_you_mean(sweep.search, SEARCHES)}".strip()
        )
    if jobs < 1:
        raise EkgnError(f"jobs = {jobs}: expected at least one process.")
    if sweep.budget < 0:
        raise EkgnError(f"budget = {sweep.budget}: expected minutes per trial, or 0 for no limit.")
    ranges = [axis.name for axis in sweep.axes if axis.is_range]
    if sweep.search == "grid" and ranges:
        raise EkgnError(
            f"{ranges[0]} is a range, which a grid cannot visit: list its values, "
            f"or use --search random or tpe."
        )
    if sweep.search != "grid" and trials < 1:
        raise EkgnError(f"--search {sweep.search} needs --trials N, how many to run.")
    if sweep.search == "grid" and trials:
        raise EkgnError("--trials is for --search random or tpe: a grid runs every combination.")
    kind = pieces(sweep.task).get("settings")
    for settings in _grid(sweep):
        kind.build(sweep.preset, overrides=_changes(sweep, settings))


def _grid(sweep: Sweep) -> list[dict[str, Any]]:
    """Every combination of the listed values; a range takes part with its two ends."""
    lists = [axis.values or [axis.low, axis.high] for axis in sweep.axes]
    names = [axis.name for axis in sweep.axes]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*lists)]


def _changes(sweep: Sweep, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a trial changes of the preset: one thread each, since several run side by side."""
    budget = {"budget_minutes": sweep.budget} if sweep.budget else {}
    return {"threads": 1, **budget, **settings}


def _claim(sweep: Sweep, out: Path) -> None:
    """Write what is swept into the folder, or see that the folder holds this same sweep."""
    spec, wanted = out / "spec.json", json.loads(json.dumps(asdict(sweep)))
    if not spec.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_json(spec, wanted)
    elif (held := read_json(spec)) != wanted:
        differs = [key for key in wanted if held.get(key) != wanted[key]]
        raise EkgnError(
            f"{out} holds another sweep (it differs in: {', '.join(differs)}). "
            f"Give another folder with --out, or repeat that sweep's options to go on with it."
        )


def _study(sweep: Sweep, out: Path) -> Any:
    """The optuna study kept in the sweep's folder."""
    try:
        import optuna
    except ImportError:
        raise EkgnError(
            "A sweep needs optuna. Install it with: pip install 'ekgn[sweep]'"
        ) from None
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(out / "study.journal"))),
        study_name="sweep",
        direction="maximize",
        load_if_exists=True,
    )
    # A sweep that goes on must not draw again what it drew before, hence the seed.
    samplers = optuna.samplers
    kind = samplers.TPESampler if sweep.search == "tpe" else samplers.RandomSampler
    study.sampler = kind(seed=len(study.trials))
    return study


def _complete(study: Any) -> list[Any]:
    from optuna.trial import TrialState

    found: list[Any] = study.get_trials(states=[TrialState.COMPLETE])
    return found


def _queue(study: Any, sweep: Sweep, trials: int) -> None:
    """Queue what is to be run first: the rest of a grid, or what a killed search was running."""
    from optuna.trial import TrialState

    cut_off = study.get_trials(states=[TrialState.RUNNING])
    for trial in cut_off:
        study.tell(trial.number, state=TrialState.FAIL)
    waiting = study.get_trials(states=[TrialState.WAITING])
    queued = [trial.system_attrs.get("fixed_params") for trial in waiting]
    done = [trial.params for trial in _complete(study)]
    wanted = _grid(sweep) if sweep.search == "grid" else [trial.params for trial in cut_off]
    for settings in wanted:
        if settings not in done and settings not in queued:
            study.enqueue_trial(settings)


def _suggest(trial: Any, axis: Axis) -> Any:
    """The value of one setting for a trial; ranges of positive numbers are searched by ratio."""
    if not axis.is_range:
        return trial.suggest_categorical(axis.name, axis.values)
    suggest = trial.suggest_int if isinstance(axis.low, int) else trial.suggest_float
    return suggest(axis.name, axis.low, axis.high, log=(axis.low or 0) > 0)


def _train(
    sweep: Sweep,
    out: Path,
    settings: dict[str, Any],
    children: list[subprocess.Popen[str]],
) -> str:
    """Train one combination in a process of its own; returns what went wrong, or ""."""
    name = trial_name(sweep, settings)
    if RunFolder(out / name).record.exists():
        return ""
    job = out / f"{name}.json"
    write_json(
        job,
        {
            "data": sweep.data,
            "task": sweep.task,
            "preset": sweep.preset,
            "settings": _changes(sweep, settings),
            "out": name,
        },
    )
    journal = out / f"{name}.log"
    with journal.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "ekgn.sweep", str(job)],
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        )
        children.append(child)
        code = child.wait()
    children.remove(child)
    lines = journal.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "" if code == 0 else (lines[-1] if lines else f"exit code {code}")


def trial_name(sweep: Sweep, settings: Mapping[str, Any]) -> str:
    """The folder name of a combination, by what is varied: num_slots=32,max_steps=5."""
    text = ",".join(f"{axis.name}={settings[axis.name]}" for axis in varied(sweep))
    return re.sub(r"[^\w.,=+-]+", "-", text)


def varied(sweep: Sweep) -> list[Axis]:
    """The axes with more than one value; all of them if there is none."""
    several = [axis for axis in sweep.axes if axis.is_range or len(axis.values) > 1]
    return several or sweep.axes


def _tell(study: Any, sweep: Sweep, out: Path, trial: Any, problem: str) -> Trial:
    """Note how a trial ended."""
    from optuna.trial import TrialState

    if problem:
        study.tell(trial, state=TrialState.FAIL)
        return Trial(trial_name(sweep, trial.params), trial.params, "failed", problem)
    ended = _trial(sweep, out, trial.params)
    study.tell(trial, ended.score)
    return ended


def _trial(sweep: Sweep, out: Path, params: dict[str, Any]) -> Trial:
    """A finished trial, from the record of its run."""
    settings = {axis.name: params[axis.name] for axis in sweep.axes}
    record = read_json(out / trial_name(sweep, settings) / "record.json")
    step = record["best"]["step"]
    best = next(line for line in record["curve"] if line["step"] == step)
    return Trial(
        name=trial_name(sweep, settings),
        settings=settings,
        state="finished",
        seconds=record["wall_seconds"],
        epochs=record["epochs"],
        score=next(value for name, value in record["best"].items() if name != "step"),
        valid={name: value for name, value in best.items() if name not in NOT_MEASURED},
    )


def _in_order(sweep: Sweep, trials: Sequence[Trial]) -> list[Trial]:
    """A grid in the order of its settings, a search with its best first; each only once."""
    distinct = list({trial.name: trial for trial in trials}.values())
    if sweep.search == "grid":
        places = [trial_name(sweep, settings) for settings in _grid(sweep)]
        return sorted(distinct, key=lambda trial: places.index(trial.name))
    return sorted(distinct, key=_score, reverse=True)


def _score(trial: Trial) -> float:
    return -math.inf if trial.score is None else trial.score


def winner(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial of the best validation."""
    finished = [trial for trial in trials if trial.state == "finished"]
    return max(finished, key=_score, default=None)


def _measure_winner(sweep: Sweep, out: Path, trials: list[Trial]) -> list[Trial]:
    """The trials, the best of them with its metrics on the sweep's split."""
    best = winner(trials)
    if best is None:
        return trials
    metrics = measure(out / best.name, sweep.split)
    return [replace(trial, metrics=metrics) if trial is best else trial for trial in trials]


def measure(folder: Path, split: str) -> dict[str, float]:
    """The metrics of a run on a split."""
    from ekgn import api

    run: Run = api.load(folder)
    return run.measured(split)


def train_one(job_file: Path) -> None:
    """Train, or go on with, the run that a job file describes."""
    from ekgn import api

    job = read_json(job_file)
    folder = RunFolder(job_file.parent / job["out"])
    parent = os.getppid()

    def stop_with_parent(*_: Any) -> None:
        if os.getppid() != parent:
            raise KeyboardInterrupt

    if folder.config.exists():
        api.resume(folder.path, stop_with_parent)
    else:
        how = {name: job[name] for name in ("task", "preset", "settings")}
        api.train(job["data"], **how, out=folder.path, listener=stop_with_parent)


def _main() -> int:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        train_one(Path(sys.argv[1]))
    except EkgnError as error:
        print(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(_main())
