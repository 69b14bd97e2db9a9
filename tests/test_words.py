"""One place for words: questions, facts, rules; and no notation in what a person reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ekgn.cli import display
from ekgn.cli.app import app
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.rules import RuleTable
from ekgn.kbc.words import NO_RULES, fact_in_words, listing, question_in_words, rule_in_words


@pytest.mark.parametrize(
    ("relation", "constant", "body", "end", "words"),
    [
        (0, -1, [1, -1, -1], -1, "X Next Y if X Previous Y"),
        (0, -1, [4, -1, -1], -1, "X Next Y if Y Previous X"),
        (2, -1, [0, 3, 1], -1, "X After Next Y if X Next A, B Next A and B Previous Y"),
        (2, 5, [0, -1, -1], 7, "X After Next Person 5 if X Next Person 7"),
        (5, 5, [3, -1, -1], -1, "Person 5 After Next X if anything Next X"),
    ],
)
def test_a_rule_says_which_way_each_fact_goes(
    family: KnowledgeGraph, relation: int, constant: int, body: list[int], end: int, words: str
) -> None:
    one = (np.array([value], np.int32) for value in (relation, constant, body, end, 12, 13))
    assert rule_in_words(family, RuleTable(*one), 0) == words


def test_facts_and_questions(family: KnowledgeGraph) -> None:
    assert fact_in_words(family, (1, 2, 3)) == "Person 1 After Next Person 3"
    assert question_in_words("Blade Runner", "/film/film/directed_by") == (
        "“Blade Runner directed by ?”"
    )
    assert question_in_words("Ridley Scott", "^/film/film/directed_by") == (
        "“? directed by Ridley Scott”"
    )
    assert listing(["a", "b"], 5) == "a, b and 3 more" and listing(["a", "b"], 2) == "a and b"


COMMANDS = {
    "explain": ["--tail", "person_3", "--relation", "next", "--target", "person_2"],
    "explain what-if": ["--tail", "person_3", "--relation", "next", "--what-if"],
    "predict": ["--tail", "person_3", "--relation", "next"],
    "rules": ["--minutes", "1", "--threads", "1"],
    "memory": [],
    "analyze": [],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", ["80", "120"])
def test_no_notation_is_printed(
    steady_run: Path, command: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display.console, "width", int(columns))
    verb = command.split()[0]
    given = [verb, str(steady_run), *COMMANDS[command]]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert not any(mark in done.stdout for mark in ("^", "(?,", ", ?)", "[Person"))
    assert max(map(len, lines)) <= int(columns)


def test_predict_and_explain_say_where_a_fact_is_known_from(family_run: Path) -> None:
    def said(*given: str) -> str:
        return " ".join(CliRunner().invoke(app, [*given]).stdout.split())

    asked = [str(family_run), "--head", "person_3", "--relation", "next"]
    assert "in training" in said("predict", *asked)
    explained = said("explain", *asked, "--target", "person_4")
    assert "The fact is in training. Other known answers are left out of its ranks." in explained
    asked = [str(family_run), "--head", "person_2", "--relation", "previous"]
    assert "in validation, not in training" in said("predict", *asked)
    assert "in validation, not in training" in said("explain", *asked, "--target", "person_1")


def test_explain_says_that_no_rules_were_mined_and_how_to(family_run: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(family_run, run, ignore=shutil.ignore_patterns("rules*"))
    asked = ["explain", str(run), "--head", "person_3", "--relation", "next", "--json"]
    assert json.loads(CliRunner().invoke(app, asked).stdout)["reasons"][0] == NO_RULES
    assert "ekgn rules RUN" in NO_RULES


def test_rules_are_a_table_to_the_left_with_support(steady_run: Path) -> None:
    given = ["rules", str(steady_run), "--minutes", "1", "--threads", "1"]
    done = CliRunner().invoke(app, given, env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    assert " of one fact, " in done.stdout and " of two facts" in done.stdout
    assert "The rules of an answer take" in done.stderr
    record = json.loads((steady_run / "record.json").read_text())
    took = record["evidence"]["rules"]["milliseconds"]
    assert took["questions"] == 4 and took["median"] <= took["slowest"]
    head = next(line for line in lines if line.startswith("confidence"))
    place = head.index("rule")
    rows = lines[lines.index(head) + 1 :]
    assert rows and all(not row[place - 1 : place].strip() and row[place:].strip() for row in rows)
    assert " of " in rows[0]
