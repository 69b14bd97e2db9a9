"""The results page says what the records say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_results_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("results", ROOT / "scripts" / "results.py")
    assert spec and spec.loader
    results = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(results)
    if not list(results.RECORDS.glob("*.json")):
        pytest.skip("no published records yet")
    assert results.PAGE.read_text(encoding="utf-8") == results.page()


def test_the_numbers_of_the_readme_are_those_of_the_demo_record() -> None:
    record = json.loads((ROOT / "results" / "demo" / "world.json").read_text())
    micro = record["evaluations"]["test/argmax"]["micro"]
    row = next(
        line for line in (ROOT / "README.md").read_text().splitlines() if line[:6] == "model "
    )
    assert row.split()[1:4] == [f"{100 * micro[f'hits_at_{k}']:.1f}%" for k in (10, 3, 1)]
    assert float(row.split()[4]) == round(micro["mrr"], 3)


def test_the_results_of_the_readme_are_those_of_the_records() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "results" / "kbc" / "fb15k-237-base.json").read_text())
    micro = record["evaluations"]["test/argmax"]["micro"]
    assert f"| {100 * micro['hits_at_10']:.1f} / {micro['mean_rank']:.0f} |" in readme
    load = json.loads((ROOT / "results" / "web" / "fb15k-237.json").read_text())
    assert f"{load['predictions_per_second']:.0f} predictions a second" in readme
