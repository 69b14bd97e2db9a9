"""The report is one file that opens offline and shows what was asked of it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ekgn import api
from ekgn.cli.inside import register
from ekgn.errors import EkgnError
from ekgn.kbc.explain import Explainer
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary
from ekgn.kbc.run import KbcRun
from ekgn.report import render
from ekgn.report.kbc import KINDS, choose_examples
from tests.conftest import tiny_settings

VOID = {"meta", "br", "wbr", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Notes ids, links, text and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def weak_run(family: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned too little to be always right."""
    path = tmp_path_factory.mktemp("runs") / "weak"
    api.train(family, tiny_settings(epochs=4, valid_every=4, steps_from=0.5), out=path)
    return path


@pytest.fixture(scope="module")
def run(weak_run: Path) -> KbcRun:
    return KbcRun(weak_run)


@pytest.fixture(scope="module")
def text(run: KbcRun) -> str:
    return render(run)


def test_it_is_whole_and_offline(text: str) -> None:
    page = Page(text)
    assert page.open == []
    assert not re.search(r"https?://|//[a-z]+\.|@import|<script|<link", text)
    for link in page.links:
        assert link.startswith("#"), link
        assert link[1:] in page.ids


def test_it_has_every_part(text: str, run: KbcRun) -> None:
    page = Page(text)
    assert {"curves", "metrics", "steps", "memory", "examples"} <= page.ids
    hits = run.record["evaluations"]["test/argmax"]["micro"]["hits_at_10"]
    assert f"{hits:.1%}" in page.words
    assert "rules of one fact alone" in page.words
    assert "vectors are never used" in page.words
    assert text.count("<svg") == 8
    assert 'name="viewport"' in text and "@media (max-width" in text


def test_examples_are_of_their_kind(run: KbcRun) -> None:
    explainer = Explainer(run.graph, run.model, run.known)
    found = choose_examples(run, explainer, "valid", limit=0)
    found += choose_examples(run, explainer, "test", limit=0)
    assert found
    for example in found:
        steps, rank = example.explanation.steps, example.explanation.target_rank
        first = steps[0].target_rank
        assert example.kind in KINDS and rank is not None and first is not None
        if example.kind == "improved":
            assert rank < first and rank <= 3
        elif example.kind == "early":
            assert rank == 1 and example.explanation.answering_step < len(steps)
        elif example.kind == "wrong":
            assert rank > 10
        else:
            assert rank > first


def test_names_are_escaped(family: KnowledgeGraph, tmp_path: Path) -> None:
    labels = tuple(f"<b>{name} & co</b>" for name in family.entities.ids)
    graph = replace(family, entities=Vocabulary(family.entities.ids, labels, ("",) * 30))
    run = api.train(graph, tiny_settings(epochs=2, valid_every=2), out=tmp_path / "run")
    text = render(run)
    assert "&lt;b&gt;person_<wbr>" in text and "<b>person_" not in text
    assert Page(text).open == []


def test_one_step_runs_have_a_report(family: KnowledgeGraph, tmp_path: Path) -> None:
    settings = tiny_settings(epochs=2, valid_every=2, max_steps=1)
    text = render(api.train(family, settings, out=tmp_path / "run"))
    assert "it has no lookups" in text


def test_empty_split(run: KbcRun, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = replace(run.graph, test=np.empty((0, 3), np.int64))
    monkeypatch.setattr(run, "graph", empty)
    with pytest.raises(EkgnError, match="family has no test triples: there is nothing to report"):
        render(run, split="test")


def load_docs_script() -> ModuleType:
    """scripts/inside_docs.py as a module."""
    file = Path(__file__).parents[1] / "scripts" / "inside_docs.py"
    spec = importlib.util.spec_from_file_location("inside_docs", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_in_the_docs_is_what_the_records_say() -> None:
    script = load_docs_script()
    if not script.RECORDS.exists():
        pytest.skip("results/inside has no records yet: python scripts/inside_docs.py runs/NAME")
    assert script.PAGE.read_text(encoding="utf-8") == script.render(), (
        "docs/inside.md is stale: python scripts/inside_docs.py"
    )
    for picture in re.findall(r"\((images/[^)]+)\)", script.PAGE.read_text(encoding="utf-8")):
        assert (script.PAGE.parent / picture).is_file()


def test_the_docs_script_makes_records_and_page(
    weak_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_docs_script()
    for name in ("RECORDS", "IMAGES"):
        monkeypatch.setattr(script, name, tmp_path / name)
    script.collect_run(weak_run, "test", 0, first=weak_run)
    page = script.render()
    assert "## Each step of a question" in page and "nearest pairs" in page
    assert "## What the memory holds" in page and "no memory" in page
    assert "Six vectors drawn at random" in page and "over a first answer of" in page
    step = script.Printed("0.012", 4, "Swingman")
    assert "| 1 | 0.012 | 4 | not printed | Swingman |" in script._printed([step])


def test_command(family_run: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    file = tmp_path / "deep" / "report.html"
    result = CliRunner().invoke(app, ["report", str(family_run), "--out", str(file)])
    assert result.exit_code == 0, result.exception
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
