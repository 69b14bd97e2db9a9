"""What the tests in a real browser share: Chromium, a served site, a window."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ekgn.web.server import running
from screenshots import CHROMIUM, FLAGS
from tests.web_material import run_folders

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="browser tests need Chromium: apt-get install chromium"
)
PATIENCE = 30_000  # milliseconds; the machine may be busy
expect = playwright.expect
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(run_folders()) as address:
        yield address.rstrip("/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A window; at its end nothing may have been refused, failed or fetched from elsewhere."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    outside: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on(
        "request",
        lambda sent: (
            None if sent.url.startswith(("http://127.0.0.1", "data:")) else outside.append(sent.url)
        ),
    )
    yield page
    page.close()
    expected = re.compile(r"Failed to load resource|ERR_CONNECTION_REFUSED")
    assert [text for text in complaints if not expected.search(text)] == []
    assert outside == []
