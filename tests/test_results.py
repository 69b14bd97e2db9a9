"""The results page says what the records say."""

from __future__ import annotations

import importlib.util
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
