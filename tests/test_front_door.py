"""One front door for every task: a toy task of one file and one line goes through all of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import typer
from typer.testing import CliRunner

import ekgn
from ekgn import api, report
from ekgn.checkpoint import load_tensors
from ekgn.cli.app import app
from ekgn.cli.train import mount
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.run import KbcRun
from ekgn.kbc.settings import KbcSettings
from ekgn.paths.graphs import make
from ekgn.paths.run import PathsRun
from ekgn.sweep import Sweep, parse_axes, run_sweep
from ekgn.tasks import TASKS
from ekgn.trainer import Progress
from ekgn.web.server import running
from tests.conftest import tiny_settings
from tests.toy_task import ONE_LINE, ToyRun, ToySettings
from tests.web_material import run_folders


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy task in the table."""
    for name, where in ONE_LINE.items():
        monkeypatch.setitem(TASKS, name, where)


@pytest.fixture
def run(tmp_path: Path) -> ToyRun:
    trained: ToyRun = ekgn.train("16", task="toy", width=4, threads=1, out=tmp_path / "toy")
    return trained


def command_line(*words: object) -> str:
    """What a command prints; those under `toy` are mounted as the others are."""
    with_toy = typer.Typer()
    mount(with_toy, "toy")
    chosen = with_toy if words[0] == "toy" else app
    result = CliRunner().invoke(chosen, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_toy_task_is_trained_and_loaded(run: ToyRun) -> None:
    loaded = ekgn.load(run.path)
    assert isinstance(loaded, ToyRun) and isinstance(loaded.settings, ToySettings)
    assert loaded.evaluate("test").right == run.record["best"]["right"]
    assert ekgn.load(run.path).headline() == ({"right": run.record["best"]["right"]}, "test")


def test_a_run_says_what_was_asked_for(run: ToyRun) -> None:
    for said in (run.config, run.record):
        assert said["task"] == "toy" and said["preset"] == "quick"
        assert said["overrides"] == {"width": 4, "threads": 1}
        assert said["settings"]["epochs"] == 6 and said["settings"]["width"] == 4
    assert run.record["ended_by"] == "epochs"


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_tensors(path / "training_state.safetensors")[0]


def test_a_toy_training_goes_on_after_ctrl_c_as_if_nothing_had_been(
    run: ToyRun, tmp_path: Path
) -> None:
    def interrupt(progress: Progress, total: int, share: float) -> None:
        if progress.step == 5:
            raise KeyboardInterrupt

    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        ekgn.train("16", task="toy", width=4, threads=1, out=cut, listener=interrupt)
    ekgn.resume(cut)
    whole, resumed = weights(run.path), weights(cut)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


KILLED = """
import os, signal, sys
import ekgn
from ekgn.tasks import TASKS
from tests.toy_task import ONE_LINE
TASKS.update(ONE_LINE)
def kill(progress, total, share):
    if progress.step == 9:
        os.kill(os.getpid(), signal.SIGKILL)
ekgn.train("16", task="toy", width=4, threads=1, out=sys.argv[1], listener=kill)
"""


def test_a_killed_toy_training_goes_on(run: ToyRun, tmp_path: Path) -> None:
    cut, root = tmp_path / "cut", Path(__file__).resolve().parent.parent
    where = f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(cut)], env={**os.environ, "PYTHONPATH": where}
    )
    assert done.returncode == -signal.SIGKILL
    ekgn.resume(cut)
    whole, resumed = weights(run.path), weights(cut)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_training_can_be_made_longer_but_not_another(run: ToyRun) -> None:
    run.evaluate("test")
    longer = ekgn.resume(run.path, epochs=9)
    assert longer.record["epochs"] == 9.0 and longer.record["overrides"]["epochs"] == 9
    assert longer.config["settings"]["epochs"] == 9 and len(longer.curve) == 5
    kept = longer.record["evaluations"]
    assert bool(kept) == (longer.record["best"]["step"] == run.record["best"]["step"])
    with pytest.raises(EkgnError, match="width cannot be changed in a training that goes on"):
        ekgn.resume(run.path, width=9)


def test_the_command_line_knows_the_toy_task(run: ToyRun, tmp_path: Path) -> None:
    words = ["toy", "train", 16, "--out", tmp_path / "other", "--threads", 1, "--epochs", 2]
    assert "Best validation: right" in command_line(*words)
    told = json.loads(command_line("info", tmp_path / "other", "--json"))
    assert told["task"] == "toy" and told["train"] == 16 and told["overrides"]["epochs"] == 2
    assert "numbers-below-16" in command_line("info", run.path)
    assert "right" in command_line("evaluate", run.path)
    again = command_line("train", "--resume", tmp_path / "other", "--epochs", 4, "--json")
    assert json.loads(again)["epochs"] == 4.0
    rows = {row["run"]: row for row in json.loads(command_line("runs", tmp_path, "--json"))}
    assert rows[str(run.path)]["task"] == "toy" and rows[str(run.path)]["preset"] == "quick"
    assert "width=4" in command_line("runs", tmp_path).replace("\n", "")


def test_the_budget_is_named_when_it_ends_a_training(tmp_path: Path) -> None:
    words = ["--epochs", 10**6, "--valid-every", 10**6, "--threads", 1, "--budget-minutes", 0.002]
    said = command_line("toy", "train", 16, "--out", tmp_path / "run", *words)
    assert "The budget of 0.002 minutes ended it at epoch" in " ".join(said.split())
    assert json.loads((tmp_path / "run" / "record.json").read_text())["ended_by"] == (
        "budget_minutes"
    )


def test_a_toy_run_is_reported(run: ToyRun) -> None:
    text = report.render(run)
    assert "numbers-below-16: how the training went" in text and "<svg" in text
    assert "Preset quick, with changes" in text and "width" in text


def test_a_toy_run_is_served(run: ToyRun) -> None:
    run.evaluate("test")
    with running([run.path]) as address:
        found = httpx.get(f"{address}api/runs/toy/metrics").json()
        assert found["run"]["task"] == "toy" and found["run"]["metrics"].keys() == {"right"}
        assert found["preset"] == "quick" and found["overrides"]["width"] == 4
        assert len(found["curve"]) == 3 and found["run"]["sizes"] == {"train": 16}
        assert httpx.get(f"{address}api/runs/toy").json()["run"] == found["run"]
        assert httpx.get(f"{address}runs/toy/metrics").status_code == 200
        refused = httpx.get(f"{address}api/runs/toy/predict?head=1&relation=2")
        assert refused.json()["error"]["code"] == "wrong_task"


def test_a_toy_sweep_measures_the_winner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")

    def train_here(sweep: Sweep, out: Path, settings: dict[str, Any], _: Any) -> str:
        from ekgn.sweep import trial_name

        folder = out / trial_name(sweep, settings)
        api.train(sweep.data, settings, task=sweep.task, threads=1, out=folder)
        return ""

    monkeypatch.setattr("ekgn.sweep._train", train_here)
    sweep = Sweep("16", parse_axes(["width=1,4"], "toy"), task="toy")
    found = run_sweep(sweep, tmp_path)
    assert [set(trial.valid) for trial in found] == [{"right"}] * 2
    measured = [trial for trial in found if trial.metrics]
    assert [trial.score for trial in measured] == [max(trial.score or 0 for trial in found)]


def test_load_opens_a_run_of_either_task() -> None:
    kbc, paths = (ekgn.load(folder) for folder in run_folders())
    assert isinstance(kbc, KbcRun) and isinstance(paths, PathsRun)
    with pytest.raises(EkgnError, match="is a run of task 'paths', and this needs one of 'kbc'"):
        KbcRun(paths.path)
    told = json.loads(command_line("info", paths.path, "--json"))
    assert told["task"] == "paths" and told["nodes"] == 60
    assert "drawn" not in command_line("evaluate", paths.path)
    assert "<svg" in report.render(paths)


def test_train_takes_preset_settings_and_overrides_together(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    file = tmp_path / "my.toml"
    file.write_text("num_slots = 4\nepochs = 7\n")
    trainer = api.prepare(family, file, preset="paper", epochs=3, out=tmp_path / "a")
    assert trainer.asked == {"preset": "paper", "overrides": {"num_slots": 4, "epochs": 3}}
    trainer = api.prepare(family, {"num_slots": 4}, preset="paper", out=tmp_path / "a")
    assert trainer.settings == KbcSettings(num_slots=4, threads=trainer.settings.threads)
    whole = tiny_settings()
    trainer = api.prepare(family, whole, epochs=3, out=tmp_path / "a")
    assert trainer.settings == whole.model_copy(update={"epochs": 3})
    trainer = api.prepare(family, KbcSettings(num_slots=4), preset="paper-log", out=tmp_path / "a")
    assert trainer.asked == {"preset": "paper-log", "overrides": {"num_slots": 4}}
    assert trainer.settings.objective == "log" and trainer.settings.num_slots == 4


def test_wrong_tasks_and_settings_are_said(family: KnowledgeGraph) -> None:
    with pytest.raises(EkgnError, match=r"Unknown task 'kcb'\. Did you mean 'kbc'"):
        ekgn.train(family, task="kcb")
    with pytest.raises(EkgnError, match="are ToySettings, and the task has KbcSettings"):
        ekgn.train(family, ToySettings())
    with pytest.raises(EkgnError, match="Unknown setting 'epoch'"):
        ekgn.train(family, epoch=3)


def test_paths_are_trained_by_the_same_function(tmp_path: Path) -> None:
    data = make(nodes=40, k=6, sizes=(60, 20, 20), seed=0)
    small = {"embedding_dim": 8, "num_slots": 4, "epochs": 1, "threads": 1, "max_steps": 2}
    data.save(tmp_path / "data")
    trained = ekgn.train(tmp_path / "data", small, task="paths", out=tmp_path / "run", seed=3)
    assert isinstance(trained, PathsRun) and trained.record["overrides"]["seed"] == 3


def test_a_run_made_before_a_setting_was_renamed_is_read(family_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "before"
    shutil.copytree(family_run, folder)
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["answer_rule"] = "mixture"
    del config["settings"]["readout"]
    (folder / "config.json").write_text(json.dumps(config))
    assert ekgn.load(folder).settings.readout == "mixture"


def test_loading_a_run_imports_no_compiler(family_run: Path) -> None:
    loading = f"import sys, ekgn; ekgn.load({str(family_run)!r})"
    code = f"{loading}; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_the_python_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is written, but for a training of a moment."""
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0].replace("epochs=20", "**brief")
    assert "**brief" in code
    monkeypatch.chdir(tmp_path)
    brief = {"epochs": 1, "embedding_dim": 4, "penalty": 0.05}
    *lines, last = code.strip().splitlines()
    here: dict[str, Any] = {"brief": brief}
    exec("\n".join(lines), here)
    frame = eval(last, here)
    assert len(frame) == 10 and {"rank", "id", "label", "share"} <= set(frame.columns)
