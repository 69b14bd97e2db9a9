"""The results page says what the records say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from . import torture

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def results() -> ModuleType:
    """scripts/results.py."""
    spec = importlib.util.spec_from_file_location("results", ROOT / "scripts" / "results.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_results_page_is_current(results: ModuleType) -> None:
    assert results.PAGE.read_text(encoding="utf-8") == results.page()
    drawn_from = re.search(r"<!-- (\w+) -->", results.PICTURE.read_text(encoding="utf-8"))
    assert drawn_from and drawn_from[1] in results.page(), "the picture is of other curves"


def test_the_results_of_the_readme_are_current(results: ModuleType) -> None:
    assert results.README.read_text(encoding="utf-8") == results.readme()


def test_the_numbers_of_the_readme_are_those_of_the_demo_record() -> None:
    record = json.loads((ROOT / "results" / "demo" / "world.json").read_text())
    micro = record["evaluations"]["test/argmax"]["micro"]
    row = next(
        line for line in (ROOT / "README.md").read_text().splitlines() if line[:6] == "model "
    )
    assert row.split()[1:4] == [f"{100 * micro[f'hits_at_{k}']:.1f}%" for k in (10, 3, 1)]
    assert float(row.split()[4]) == round(micro["mrr"], 3)


def test_every_picture_of_the_docs_is_shown() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert {name for name in pictures if f"images/{name}" not in text} == set()


def test_the_figures_of_the_reliability_page_are_those_of_its_record() -> None:
    record = json.loads(torture.RECORD.read_text(encoding="utf-8"))
    assert torture.PAGE.read_text(encoding="utf-8") == torture.page(record)
    assert not record["problems"]
