"""Every page for everybody: axe-core finds nothing in either theme, the keyboard reaches all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browsing import address, browser, expect, needs_chromium, page

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium
AXE = (Path(__file__).parent / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
QUESTION = "head=France&relation=borders"
PAGES = [
    "/",
    "/runs/atlas/entity?entity=Portugal",
    f"/runs/atlas/explain?{QUESTION}&target=Germany",
    "/runs/atlas/predict?head=France&tail=Europe",
    "/runs/atlas/memory?relation=borders",
    "/runs/atlas/neighbourhood?entity=France",
    "/runs/atlas/curate",
    "/runs/atlas/curate?relation=in_continent",
    f"/runs/atlas/compare?{QUESTION}&other_tail=Germany&other_relation=borders",
    "/runs/atlas/metrics",
    "/runs/sphere/paths?start=1&end=30",
    "/runs/sphere/metrics",
    "/runs/atlas/explain?head=Frnace&relation=borders",
    "/nowhere",
    "/api-docs",
]


def open_all(page: Any) -> None:
    """What is shown only when asked for."""
    for name in ("Why", "Try it"):
        button = page.get_by_role("button", name=name, exact=True)
        if button.count():
            button.first.click()
    expect(page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_reports_nothing(page: Any, address: str, path: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.goto(address + path)
    expect(page.get_by_role("heading", level=1).first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    open_all(page)
    page.evaluate(AXE)
    found = page.evaluate("async () => await axe.run()")
    assert "color-contrast" in {rule["id"] for rule in found["passes"]}
    told = [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
    assert told == []


def test_the_graph_is_walked_by_keyboard(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/neighbourhood?entity=France")
    expect(page.locator(".graph[data-drawn]")).to_be_visible()
    page.locator(".graph-frame").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".graph-read b").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".graph-read b")).not_to_have_text(first)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".graph-read b")).to_have_text(first)
    page.keyboard.press("+")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Around {first}")


def test_a_curve_is_read_by_keyboard(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/metrics")
    curve = page.locator(".curve").first
    kept = curve.locator("figcaption").inner_text()
    curve.locator("svg").focus()
    page.keyboard.press("Home")
    expect(curve.locator("figcaption")).not_to_have_text(re.compile("kept"))
    page.keyboard.press("Escape")
    expect(curve.locator("figcaption")).to_have_text(re.compile(r"\s*".join(kept.split())))
