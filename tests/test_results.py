"""The results page says what the records say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import ablation
import evidence_docs
import scale_plan
import table1

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


def test_the_page_of_table_1_is_current() -> None:
    assert table1.PAGE.read_text(encoding="utf-8") == table1.page()
    for picture in table1.PICTURES.glob("table1-*.svg"):
        drawn_from = re.search(r"<!-- (\w+) -->", picture.read_text(encoding="utf-8"))
        assert drawn_from and drawn_from[1] in table1.page(), "the picture is of other records"


def test_the_page_of_table_1_says_what_was_run_quoted_and_failed(tmp_path: Path) -> None:
    micro = {"hits_at_10": 0.4567, "mean_rank": 200.0, "mrr": 0.3}
    record = {
        "model": "transe",
        "minutes": 5.0,
        "seed": 0,
        "epochs": 0.5,
        "training_seconds": 300.0,
        "parameters": 10,
        "peak_bytes": 2**20,
        "test": {"micro": micro},
        "environment": {"processor": "a processor"},
        "recipe": {
            "source": "its paper",
            "rates": [0.1],
            "learning_rate": 0.1,
            "negatives": 4,
            "sizes": {"embedding_dim": 50},
            "batch_size": 8,
        },
        "tried": [{"learning_rate": 0.1, "hits_at_10": 0.25}],
    }
    (tmp_path / "fb15k").mkdir()
    (tmp_path / "fb15k" / "transe.json").write_text(json.dumps(record))
    failed = {"model": "conve", "problem": "no memory"}
    (tmp_path / "fb15k" / "conve.json").write_text(json.dumps(failed))
    page = table1.page(tmp_path).split("## FB15k\n")[1].split("## ")[0]
    table = page.split("minutes a model")[0]
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line[:1] == "|"}
    assert "45.7% | 200.0 | 0.300 | 5.0 | 0.50 (<1) | 10 | 1 | 47.1 / 125 |" in rows["TransE"]
    assert "88.2 / 50 | quoted only |" in rows["TransG"]
    assert "failed: no memory" in rows["ConvE"]
    assert "learning rate 0.1 | 0.1: 25.0% |" in page


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


def test_the_tables_made_of_records_are_current() -> None:
    for file, text in {**evidence_docs.pages(), **scale_plan.pages()}.items():
        assert file.read_text(encoding="utf-8") == text


def test_the_page_of_the_parts_is_current() -> None:
    assert ablation.PAGE.read_text(encoding="utf-8") == ablation.page()
