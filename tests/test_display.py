"""Names from data on the terminal: shown letter by letter, never obeyed."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from typer.testing import CliRunner

from ekgn import api
from ekgn.cli import _Warnings, display
from ekgn.cli.app import app
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary
from tests.conftest import tiny_settings

CHEMICAL, CLOSING, ESCAPE = "benzo[a]pyrene", "[/red]", "\x1b[2J\x9b31m\u202e:smile:"
RELATION = "[bold]next[/bold] $x_1"


@pytest.fixture(scope="module")
def hostile_run(family: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose names are what a terminal would read as orders."""
    labels = [CHEMICAL, CLOSING, ESCAPE, *family.entities.labels[3:]]
    relations = [RELATION, "[/]", r"after $\next$"]
    graph = dataclasses.replace(
        family,
        name="[/red] ring",
        entities=Vocabulary(family.entities.ids, tuple(labels), (ESCAPE,) * len(labels)),
        relations=Vocabulary(("n", "p", "a"), tuple(relations), ("",) * 3),
    )
    path = tmp_path_factory.mktemp("runs") / "hostile"
    api.train(graph, tiny_settings(epochs=2), out=path)
    return path


def out(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert not display._UNSAFE.search(result.output)
    return result.stdout


def test_names_are_text_in_every_command(hostile_run: Path, tmp_path: Path) -> None:
    run = str(hostile_run)
    answers = out("predict", run, "--head", CLOSING, "--relation", RELATION, "--top", "30")
    assert CHEMICAL in answers
    assert " ".join(answers.split()).startswith("“[/red] [bold]next[/bold] $x 1 ?” on [/red] ring")
    assert "␛[2J\ufffd31m\ufffd:smile:" in answers
    assert CHEMICAL in out("explain", run, "--head", CHEMICAL, "--relation", "n", "--top", "30")
    assert RELATION in out("memory", run)
    assert f"What {RELATION} looks at" in out("memory", run, "--relation", RELATION)
    assert "[/red] ring" in out("analyze", run, "--plot", str(tmp_path / "x.png"))
    out("memory", run, "--plot", str(tmp_path / "y.png"))
    assert "[/red] ring" in out("evaluate", run)
    assert "[/red] ring" in out("info", run)
    assert CLOSING in out("info", run, "--entities")


def test_json_keeps_every_letter_and_sends_none(hostile_run: Path) -> None:
    listed = json.loads(out("info", str(hostile_run), "--entities", "--json"))
    assert [row["label"] for row in listed[:3]] == [CHEMICAL, CLOSING, ESCAPE]


def test_an_error_and_a_warning_send_nothing_either(
    hostile_run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = [str(hostile_run), "--head", f"{ESCAPE}x", "--relation", "n"]
    done = subprocess.run(
        [sys.executable, "-m", "ekgn", "predict", *asked], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: Unknown entity '␛[2J")
    assert "\x1b" not in done.stderr
    record = logging.LogRecord("ekgn", logging.WARNING, "", 1, "[/red] %s", (ESCAPE,), None)
    _Warnings().emit(record)
    assert capfd.readouterr().err.strip() == "[/red] ␛[2J\ufffd31m\ufffd:smile:"


@given(st.text())
def test_only_what_a_terminal_obeys_is_replaced(text: str) -> None:
    shown = display.visible(text)
    assert len(shown) == len(text)
    assert display.visible(shown) == shown
    shown.encode()
    for before, after in zip(text, shown, strict=True):
        assert (before == after) == (display._UNSAFE.match(before) is None)


@given(st.text(min_size=1))
def test_text_and_strings_are_printed_alike(text: str) -> None:
    with display.console.capture() as first:
        display.console.print(text, soft_wrap=True)
    assert not display._UNSAFE.search(first.get())
    with display.console.capture() as second:
        display.console.print(Text(display.visible(text)), soft_wrap=True)
    assert first.get() == second.get()


def commands(group: Any) -> Iterator[Any]:
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from commands(command)


def test_help_texts_lose_no_brackets() -> None:
    for command in commands(typer.main.get_command(app)):
        texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
        for text in texts:
            assert Text.from_markup(text).plain == text.replace(r"\[", "[")
    shown = " ".join(out("train", "--help").replace("│", "").split())
    assert "the paper's [h ; r], or a product" in shown
