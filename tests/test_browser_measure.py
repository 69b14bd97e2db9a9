"""Comparing and measuring in a real browser: two questions side by side, results by relation."""

from __future__ import annotations

import re
from typing import Any

from tests.browsing import address, browser, expect, needs_chromium, page

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium
RELIABILITY = [
    {"from": 0.0, "candidates": 90, "confidence": 0.04, "true": 0.05},
    {"from": 0.5, "candidates": 10, "confidence": 0.6, "true": 0.7},
]


def test_two_questions_are_asked_side_by_side(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?head=France&relation=borders")
    expect(page.locator(".step")).to_have_count(3)
    page.get_by_role("link", name="Compare").click()
    sides = page.locator(".side h2")
    expect(sides).to_have_text([re.compile(r"France\s+borders")] * 2)
    expect(page.locator(".side").first).to_contain_text("1 there")
    page.locator("#right-head").fill("Kenya")
    expect(page.locator("#right-head-list li").first).to_contain_text("Kenya")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".side").nth(1).get_by_role("button", name="Ask").click()
    expect(sides).to_have_text([re.compile(r"France\s+borders"), re.compile(r"Kenya\s+borders")])
    expect(page.locator(".side .bump")).to_have_count(2)
    page.reload()
    expect(sides.nth(1)).to_have_text(re.compile(r"Kenya\s+borders"))
    page.locator(".side").nth(1).get_by_role("link", name="every step").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Kenya\s+borders"))


def test_every_row_of_the_results_leads_to_its_steps(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/metrics")
    rows = page.locator(".results tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("city in continent")
    rows.first.get_by_role("link").click()
    expect(page.locator(".step")).to_have_count(3)
    expect(page.locator(".verdict .target")).to_contain_text("a test fact, rank")
    page.go_back()
    misses = page.locator(".misses tbody tr")
    answer = misses.first.locator("td").first.inner_text()
    misses.first.get_by_role("link").click()
    expect(page.locator(".verdict .target")).to_contain_text(answer)


def test_the_reliability_diagram(page: Any, address: str) -> None:
    def with_confidence(route: Any) -> None:
        error = {"before": 0.2, "after": 0.05}
        check = {"reliability": RELIABILITY, "calibration_error": error, "assumption": "so"}
        route.fulfill(json={**route.fetch().json(), "confidence": check})

    page.goto(f"{address}/runs/atlas/metrics")
    expect(page.get_by_text("No confidence is fitted yet")).to_be_visible()
    page.route("**/api/runs/atlas/metrics", with_confidence)
    page.reload()
    expect(page.locator(".reliability .mark")).to_have_count(2)
    row = page.locator("section[aria-labelledby=reliability] tbody tr").nth(1)
    row.get_by_role("link", name="50%").click()
    expect(page.locator("#curate-least")).to_have_value("0.5")
