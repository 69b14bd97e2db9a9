"""The command line, as a user runs it: real output, JSON, and the messages for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ekgn
from ekgn.cli.app import app
from ekgn.errors import EkgnError
from tests.tolerance import assert_same_answers
from tests.web_material import run_folders


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def error(*arguments: str) -> str:
    with pytest.raises(EkgnError) as caught:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return str(caught.value)


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with mine.tsv: thirty in a ring, each fact also there reversed."""
    monkeypatch.chdir(tmp_path)
    facts = [f"p{i}\tnext\tp{(i + 1) % 30}\np{(i + 1) % 30}\tprevious\tp{i}" for i in range(30)]
    Path("mine.tsv").write_text("\n".join(facts) + "\n")


@pytest.mark.usefixtures("ring")
def test_train_a_file_then_evaluate_and_predict() -> None:
    Path("my.toml").write_text("embedding_dim = 8\nnum_slots = 4\n")
    trained = run_json(
        "train", "mine.tsv", "--config", "my.toml", "--epochs", "4", "--batch-size", "16",
        "--negatives", "10", "--valid-every", "2", "--threads", "1",
    )  # fmt: skip
    assert trained["settings"]["num_slots"] == 4 and trained["settings"]["epochs"] == 4
    folder = trained["run"]
    assert Path(folder).parent == Path("runs")
    evaluated = run_json("evaluate", folder)
    assert evaluated["model"]["micro"]["count"] == 2 * trained["data"]["test"]
    assert evaluated["rule_baseline"]["micro"]["mrr"] > 0.5
    answers = run_json("predict", folder, "--head", "p3", "--relation", "next", "--top", "5")
    assert [a["rank"] for a in answers] == [1, 2, 3, 4, 5]
    assert "rules of one fact alone" in run("evaluate", Path(folder).name)
    record = json.loads((Path(folder) / "record.json").read_text())
    assert "test/argmax" in record["evaluations"] and "test" in record["rule_baseline"]


@pytest.mark.usefixtures("ring")
def test_predict_marks_and_hides_what_is_known(family_run: Path) -> None:
    question = ("predict", str(family_run), "--head", "Person 3", "--relation", "Next")
    answers = run_json(*question)
    assert [a["id"] for a in answers if a["known"]] == ["person_4"]
    assert answers[0]["id"] == "person_4" and answers[0]["known"] == "train"
    hidden = run_json(*question, "--hide-known")
    assert "person_4" not in [a["id"] for a in hidden]
    assert "Person 4" in run(*question) and "train" in run(*question)


def test_predict_the_head_and_the_relation(family_run: Path) -> None:
    heads = run_json("predict", str(family_run), "--tail", "person_4", "--relation", "next")
    assert heads[0]["id"] == "person_3"
    same = run_json("predict", str(family_run), "--head", "person_4", "--relation", "^next")
    assert_same_answers(*([(a["id"], a["share"]) for a in one] for one in (same, heads)))
    assert {a["id"]: a["known"] for a in same} == {a["id"]: a["known"] for a in heads}
    relations = run_json("predict", str(family_run), "--head", "person_3", "--tail", "person_4")
    assert relations[0]["id"] == "next" and relations[0]["known"] == "train"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--head", "Persn 3", "--relation", "next"], "Unknown entity 'Persn 3': family has 30."),
        (["--head", "person_3", "--relation", "nxt"], "Did you mean 'Next' (next)"),
        (["--head", "person_3"], "A question needs a relation and either a head or a tail"),
        (["--head", "person_3", "--relation", "next", "--tail", "person_4"], "A question needs"),
        (["--head", "person_3", "--relation", "next", "--top", "0"], "at least one answer"),
        (["--head", "person_3", "--relation", "next", "--readout", "b"], "Unknown readout 'b'"),
    ],
)
def test_bad_questions_are_answered_clearly(
    family_run: Path, arguments: list[str], message: str
) -> None:
    assert message in error("predict", str(family_run), *arguments)


def test_bad_commands_are_answered_clearly(tmp_path: Path, family_run: Path) -> None:
    assert "No run in" in error("evaluate", str(tmp_path / "none"))
    assert "Give either DATA to train on, or --resume RUN" in error("train")
    assert "leave out --preset" in error("train", "--resume", "x", "--preset", "demo")
    message = error("train", "--resume", str(family_run), "--num-slots", "3")
    assert "num_slots cannot be changed in a training that goes on" in message
    assert "is a run of task 'paths'" in error("predict", str(run_folders()[1]), "--head", "x")
    assert "Did you mean 'wn18rr'" in error("train", "wn18r")
    assert "num_slots = 0" in error("train", "world", "--num-slots", "0")
    assert "Unknown split 'tset'" in error("evaluate", str(family_run), "--split", "tset")


def test_an_error_is_one_line_on_stderr_and_exit_code_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ekgn", "evaluate", "no-such-run"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: No run in 'no-such-run'")
    assert len(done.stderr.splitlines()) == 1


def test_info_datasets_and_settings(family_run: Path) -> None:
    summary = run_json("info", str(family_run))
    assert summary["train"] == 82 and summary["finished"] is True
    assert next(r["id"] for r in run_json("info", str(family_run), "--relations")) == "next"
    assert "person_7" in run("info", str(family_run), "--entities")
    assert run_json("info", "world")["relations"] >= 8
    assert {row["name"] for row in run_json("datasets")} >= {"world", "fb15k-237", "wn18rr"}
    assert run_json("settings", "--preset", "paper")["sharpness"] == 10.0
    assert "T_max" in run("settings") and "λ" in run("settings")
    assert run_json("settings", "--task", "paths")["lookups"] == "parts"


def test_the_same_from_python_in_three_lines(family_run: Path) -> None:
    loaded = ekgn.load(family_run)
    frame = loaded.predict(head="Person 3", relation="Next", top=4).frame()
    assert frame.shape == (4, 7) and frame["label"][0] == "Person 4"
    assert 0 < frame["share"].sum() <= 1.0001


def test_version() -> None:
    assert run("--version").strip() == f"ekgn {ekgn.__version__}"
