"""`ekgn paths ...`: every command, its JSON, and its errors."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.files import write_json

SMALL = ["--nodes", "40", "--k", "6", "--train", "120", "--valid", "30", "--test", "30"]
TINY = ["--embedding-dim", "8", "--decoder-size", "16", "--num-slots", "4", "--max-steps", "2"]
TINY += ["--epochs", "2", "--threads", "1", "--batch-size", "64"]


def call(*words: object) -> str:
    """What a command prints on stdout."""
    result = CliRunner().invoke(app, ["paths", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def error(*words: object) -> str:
    """The message a command fails with."""
    result = CliRunner().invoke(app, ["paths", *map(str, words)])
    assert isinstance(result.exception, EkgnError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and a run."""
    place = tmp_path_factory.mktemp("cli")
    call("make", "--out", place / "data", *SMALL)
    call("train", place / "data", "--out", place / "run", *TINY)
    return place


def answered(*words: object) -> Any:
    return json.loads(call(*words, "--json"))


def a_query(folder: Path) -> tuple[int, int]:
    from ekgn.paths.graphs import PathsData

    path = PathsData.load(folder / "data").test[0]
    return path[0], path[-1]


def test_make_writes_data_and_a_picture(folder: Path) -> None:
    assert (folder / "data" / "sphere.png").stat().st_size > 5000
    assert answered("verify", folder / "data")["hops"].keys() >= {"2", "3"}
    assert "none contains another" in " ".join(call("verify", folder / "data").split())


def test_make_does_not_write_over_data(folder: Path) -> None:
    assert "already holds paths" in error("make", "--out", folder / "data", *SMALL)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", 10, "--k", 10], "allows 1 to 9. Give a smaller --k"),
        (["--nodes", 50, "--k", 1], "is not connected"),
        (["--nodes", 30, "--k", 5], "40000 were asked for"),
        (["--nodes", 30, "--k", 5, "--test", 0], "at least one path"),
    ],
)
def test_make_answers_bad_sizes_clearly(tmp_path: Path, words: list[object], message: str) -> None:
    assert message in error("make", "--out", tmp_path / "x", *words)
    assert not (tmp_path / "x").exists()


def test_evaluate_counts_every_way(folder: Path) -> None:
    found = answered("evaluate", folder / "run", "--beam", 2, "--emit", "seen_nodes")
    assert found["all"]["total"] == 30 and found["beam"] == 2
    assert set(found["forced"]) == {"1", "2"}
    assert "forced to step 2" in call("evaluate", folder / "run")
    assert "valid: last, beam 4, any" in evaluations(
        folder, "--split", "valid", "--readout", "last"
    )


def evaluations(folder: Path, *words: object) -> dict[str, Any]:
    call("evaluate", folder / "run", "--no-forced", *words)
    record = json.loads((folder / "run" / "record.json").read_text())
    found: dict[str, Any] = record["evaluations"]
    return found


def test_explain_shows_and_draws_the_steps(folder: Path) -> None:
    start, end = a_query(folder)
    picture = folder / "steps.png"
    told = answered("explain", folder / "run", start, end, "--plot", picture)
    assert len(told["steps"]) == 2 and picture.stat().st_size > 5000
    text = call("explain", folder / "run", start, end)
    assert f"{start} ⇝ {end}" in text and "answered from step" in text


def test_explain_answers_bad_queries_clearly(folder: Path) -> None:
    from ekgn.paths.graphs import PathsData

    neighbour = PathsData.load(folder / "data").graph.neighbours[0, 0]
    assert "Node 40 is not in the graph" in error("explain", folder / "run", 0, 40)
    assert "both node 5" in error("explain", folder / "run", 5, 5)
    assert "direct edge" in error("explain", folder / "run", 0, neighbour)
    assert "No run in" in error("explain", folder / "nothing", 0, 1)


def test_train_refuses_what_makes_no_sense(folder: Path) -> None:
    assert "already holds a run" in error("train", folder / "data", "--out", folder / "run", *TINY)
    assert "either DATA" in error("train", folder / "data", "--resume", folder / "run")
    assert "ekgn paths make" in error("train", folder / "none", "--out", folder / "run2")
    assert "Unknown preset 'pape'" in error("train", folder / "data", "--preset", "pape")
    assert "system" in error("train", folder / "data", "--system", "transformer")


def test_train_resumes(folder: Path) -> None:
    found = answered("train", "--resume", folder / "run")
    assert found["task"] == "paths" and found["epochs"] == 2.0


def test_baselines_keep_a_record_that_says_what_it_is(folder: Path, tmp_path: Path) -> None:
    call("baselines", folder / "data", "--out", tmp_path / "b.json")
    record = json.loads((tmp_path / "b.json").read_text())
    assert record["label"] == "dynamic programming" and record["task"] == "paths"
    assert record["evaluations"]["test: fewest hops"]["all"]["total"] == 30


def results_script() -> dict[str, Any]:
    """What scripts/paths_results.py defines; it is no part of the package."""
    return runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "paths_results.py"))


def test_results_page_is_not_stale() -> None:
    """The tables of docs/paths.md are those that the records give."""
    script = results_script()
    text = script["PAGE"].read_text(encoding="utf-8")
    assert script["page"](text) == text, "run: python scripts/paths_results.py page"


def test_the_page_follows_the_records(tmp_path: Path) -> None:
    script = results_script()
    for file in script["RECORDS"].glob("*.json"):
        record = json.loads(file.read_text())
        for evaluation in record["evaluations"].values():
            evaluation["all"]["correct"] += 1
        write_json(tmp_path / file.name, record)
    text = script["PAGE"].read_text(encoding="utf-8")
    assert script["page"](text, tmp_path) != text
