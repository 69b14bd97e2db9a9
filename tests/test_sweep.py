"""Sweeps: what is run, what is not run again, what is refused; one real sweep survives a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import ekgn.sweep
from ekgn import canvas, figures
from ekgn.cli.inside import register
from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.sweep import Axis, Sweep, parse_axes, run_sweep, trial_name

pytest.importorskip("optuna", reason="needs optuna: pip install 'ekgn[sweep]'")

GRID = Sweep("anything", parse_axes(["num_slots=4,8", "max_steps=1,2,3", "epochs=2"]))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the training by a record made up from the settings; lists what was trained."""
    names: list[str] = []

    def train(sweep: Sweep, out: Path, settings: dict[str, Any], _: Any) -> str:
        name = trial_name(sweep, settings)
        names.append(name)
        if settings.get("num_slots") == 666:
            return "error: The loss is nan at step 3: the training diverged."
        score = settings.get("max_steps", 1) / 10 + settings.get("learning_rate", 0)
        metrics = {"hits_at_10": score, "mrr": 0.1, "mean_rank": 100.0}
        record = {
            "wall_seconds": 1.5,
            "epochs": 2.0,
            "best": {"hits_at_10": score, "step": 4},
            "curve": [{"step": 4, **metrics}],
        }
        write_json(out / name / "record.json", record)
        return ""

    monkeypatch.setattr(ekgn.sweep, "_train", train)
    monkeypatch.setattr(ekgn.sweep, "measure", lambda folder, split: {"hits_at_10": 0.123})
    return names


def test_axes_are_typed_by_the_settings() -> None:
    assert parse_axes(["num-slots=32, 64,32"]) == [Axis("num_slots", [32, 64])]
    assert parse_axes(["learning_rate=0.001..0.1"]) == [Axis("learning_rate", [], 0.001, 0.1)]
    assert parse_axes(["tensorboard=true,false"])[0].values == [True, False]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["num_slots"], "--set num_slots: expected NAME=VALUE,VALUE"),
        (["num_slots="], "expected NAME=VALUE,VALUE"),
        (["num_slot=3"], "there is no setting 'num_slot'. Did you mean 'num_slots'"),
        (["num_slots=many"], "num_slots = 'many'"),
        (["num_slots=0"], "num_slots = '0'"),
        (["learning_rate=a..b"], "expected two numbers, LOW..HIGH"),
        (["learning_rate=2..1"], "the range is empty"),
        (["num_slots=1,2", "num_slots=3"], "--set num_slots is given twice"),
        ([], "at least one setting to vary"),
    ],
)
def test_bad_axes(pairs: list[str], message: str) -> None:
    with pytest.raises(EkgnError) as caught:
        parse_axes(pairs)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"search": "gird"}, {}, "Unknown search 'gird': expected grid, random, tpe."),
        ({}, {"jobs": 0}, "jobs = 0: expected at least one process."),
        ({"budget": -1}, {}, "budget = -1: expected minutes per trial"),
        ({"search": "tpe"}, {}, "--search tpe needs --trials N"),
        ({}, {"trials": 3}, "--trials is for --search random or tpe"),
        ({"axes": parse_axes(["learning_rate=1..2"])}, {}, "learning_rate is a range"),
        ({"preset": "papre"}, {}, "Unknown preset 'papre'"),
        (
            {"axes": [Axis("readout", ["step:4"]), Axis("max_steps", [2])]},
            {},
            "Unknown readout 'step:4'",
        ),
    ],
)
def test_bad_sweeps_train_nothing(
    changes: dict[str, Any],
    options: dict[str, Any],
    message: str,
    trained: list[str],
    tmp_path: Path,
) -> None:
    sweep = Sweep(**{"data": "anything", "axes": GRID.axes, **changes})
    with pytest.raises(EkgnError) as caught:
        run_sweep(sweep, tmp_path / "out", **options)
    assert message in str(caught.value)
    assert trained == []


def test_a_grid_runs_every_combination_in_order(trained: list[str], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = run_sweep(GRID, tmp_path, jobs=2, on_trial=lambda _, done, n: seen.append((done, n)))
    expected = [f"num_slots={m},max_steps={t}" for m in (4, 8) for t in (1, 2, 3)]
    assert [trial.name for trial in found] == expected
    assert sorted(trained) == sorted(expected)
    assert seen == [(n, 6) for n in range(1, 7)]
    assert found[2].settings == {"num_slots": 4, "max_steps": 3, "epochs": 2}
    assert found[2].valid["hits_at_10"] == found[2].score == pytest.approx(0.3)
    assert [bool(trial.metrics) for trial in found] == [False, False, True, False, False, False]
    kept = json.loads((tmp_path / "sweep.json").read_text())
    assert [trial["name"] for trial in kept["trials"]] == expected
    assert set(kept["records"]) == set(expected)


def test_finished_trials_are_not_run_again(trained: list[str], tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(*_: Any) -> None:
        if len(trained) == 4:
            raise KilledError

    with pytest.raises(KilledError):
        run_sweep(GRID, tmp_path, on_trial=kill)
    first = list(trained)
    assert len(first) == 4
    trained.clear()
    assert len(run_sweep(GRID, tmp_path)) == 6
    assert len(trained) == 2 and not set(trained) & set(first)
    trained.clear()
    assert len(run_sweep(GRID, tmp_path)) == 6
    assert trained == []


def test_a_folder_holds_one_sweep(trained: list[str], tmp_path: Path) -> None:
    run_sweep(GRID, tmp_path)
    other = Sweep("anything", parse_axes(["num_slots=4,16", "max_steps=1,2,3", "epochs=2"]))
    with pytest.raises(EkgnError, match=r"holds another sweep \(it differs in: axes\)"):
        run_sweep(other, tmp_path)


def test_a_failed_trial_is_said_and_the_rest_goes_on(trained: list[str], tmp_path: Path) -> None:
    sweep = Sweep("anything", parse_axes(["num_slots=4,666,8"]))
    found = run_sweep(sweep, tmp_path)
    assert [trial.state for trial in found] == ["finished", "failed", "finished"]
    assert "diverged" in found[1].problem
    trained.clear()
    run_sweep(sweep, tmp_path)
    assert trained == ["num_slots=666"], "a failed trial is tried again, no other"


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_searches_stay_in_their_ranges_and_go_on(
    search: str, trained: list[str], tmp_path: Path
) -> None:
    axes = parse_axes(["learning_rate=0.001..0.1", "max_steps=2..6", "num_slots=4,8"])
    sweep = Sweep("anything", axes, search=search)
    found = run_sweep(sweep, tmp_path, trials=6)
    assert len(found) == len(set(trained)) == 6
    for trial in found:
        assert 0.001 <= trial.settings["learning_rate"] <= 0.1
        assert trial.settings["max_steps"] in range(2, 7)
        assert trial.settings["num_slots"] in (4, 8)
    scores = [trial.valid["hits_at_10"] for trial in found]
    assert scores == sorted(scores, reverse=True)
    trained.clear()
    assert len(run_sweep(sweep, tmp_path, trials=8)) == 8
    assert len(trained) == 2


def test_plots(trained: list[str], tmp_path: Path) -> None:
    found = run_sweep(GRID, tmp_path / "grid")
    canvas.save(figures.sweep_plot(GRID, found), tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    ranges = Sweep("anything", parse_axes(["learning_rate=0.001..0.1"]), search="random")
    found = run_sweep(ranges, tmp_path / "random", trials=3)
    svg = canvas.as_svg(figures.sweep_plot(ranges, found))
    assert svg.startswith("<svg") and "learning_rate" in svg
    with pytest.raises(EkgnError, match="No trial of the sweep has finished"):
        figures.sweep_plot(GRID, [])


def test_command(trained: list[str], tmp_path: Path) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    words = ["sweep", "anything", "--set", "num_slots=4,666", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.exception
    assert "Sweep of anything" in result.output and "failed" in result.output
    assert "diverged" in result.output and "on test: hits@10 12.3%" in result.output
    assert (tmp_path / "out" / "sweep.png").exists()
    trained.clear()
    result = CliRunner().invoke(app, [*words, "--json"])
    assert [t["state"] for t in json.loads(result.stdout)["trials"]] == ["finished", "failed"]


def write_data(graph: KnowledgeGraph, folder: Path) -> Path:
    """The graph as train.txt, valid.txt and test.txt."""
    folder.mkdir()
    for split in ("train", "valid", "test"):
        lines = [
            f"{graph.entities.ids[h]}\t{graph.relations.ids[r]}\t{graph.entities.ids[t]}\n"
            for h, r, t in graph.split(split).tolist()
        ]
        (folder / f"{split}.txt").write_text("".join(lines))
    return folder


def test_a_killed_sweep_goes_on(family: KnowledgeGraph, tmp_path: Path) -> None:
    """Real processes: SIGKILL the sweep after its first trial, then go on with it."""
    data = write_data(family, tmp_path / "family")
    fixed = ["embedding_dim=8", "num_slots=4", "epochs=3", "valid_every=3", "batch_size=32"]
    sweep = Sweep(str(data), parse_axes(["max_steps=1,2", *fixed]))
    out = tmp_path / "out"
    first = out / "max_steps=1" / "model.safetensors"
    code = (
        "import sys, pathlib; from ekgn.sweep import *; "
        f"run_sweep(Sweep({str(data)!r}, parse_axes(sys.argv[2:])), pathlib.Path(sys.argv[1]), "
        "on_trial=lambda *_: print('ended', flush=True))"
    )
    words = ["max_steps=1,2", *fixed]
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(out), *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == "ended"
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    written = first.stat().st_mtime_ns
    found = run_sweep(sweep, out)
    assert [(trial.name, trial.state) for trial in found] == [
        ("max_steps=1", "finished"),
        ("max_steps=2", "finished"),
    ]
    assert first.stat().st_mtime_ns == written, "the finished trial was run again"
    (best,) = [trial for trial in found if trial.metrics]
    assert best.metrics["mean_rank"] >= 1 and best.score == max(t.score or 0 for t in found)
    assert [bool(read_json(out / t.name / "record.json")["evaluations"]) for t in found] == [
        trial is best for trial in found
    ], "only the winner is measured"
