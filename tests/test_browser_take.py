"""Sharing and taking away: links, pictures, tables, commands, and known answers left out."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path
from typing import Any

from tests.browsing import address, browser, expect, needs_chromium, page

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium
EXPLAIN = "/runs/atlas/explain?head=France&relation=borders"


def saved(page: Any, button: Any) -> Path:
    with page.expect_download() as download:
        button.click()
    return Path(download.value.path())


def test_pictures_are_saved_as_svg_and_png(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    chart = page.locator("section[aria-labelledby=moves]")
    drawn = saved(page, chart.get_by_role("button", name="Save as SVG")).read_text("utf-8")
    assert drawn.startswith("<svg")
    assert "Germany" in drawn
    assert "var(--" not in drawn, "the colours are written into it"
    picture = saved(page, chart.get_by_role("button", name="Save as PNG")).read_bytes()
    assert picture.startswith(b"\x89PNG")
    page.goto(f"{address}/runs/atlas/neighbourhood?entity=France")
    expect(page.locator(".graph[data-drawn]")).to_be_visible()
    graph = saved(page, page.get_by_role("button", name="Save as PNG"))
    assert graph.read_bytes().startswith(b"\x89PNG")
    drawn = saved(page, page.get_by_role("button", name="Save as SVG")).read_text("utf-8")
    assert drawn.count("<circle") == int(page.locator(".graph").get_attribute("data-drawn"))
    assert ">Germany</text>" in drawn


def test_a_table_is_saved_as_csv(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    answers = page.locator("section[aria-labelledby=answers]")
    text = saved(page, answers.get_by_role("button", name="Save as CSV")).read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    shown = answers.locator(".answers a").all_inner_texts()
    assert [row["name"] for row in rows][: len(shown)] == shown
    answers.get_by_role("button", name="less likely").click()
    expect(answers.locator(".answers li")).to_have_count(len(rows))
    page.goto(f"{address}/runs/atlas/metrics")
    tables = page.locator("section[aria-labelledby=evaluations]")
    text = saved(page, tables.get_by_role("button", name="Save as CSV")).read_text("utf-8-sig")
    assert next(csv.reader(io.StringIO(text)))[:2] == ["split", "hits@10"]


def test_no_cell_is_a_formula(page: Any, address: str) -> None:
    page.goto(address)
    rows = [["a"], ["=1+1", -2, 'say "b", c']]
    made = page.evaluate("async rows => (await import('/static/js/take.js')).asCsv(rows)", rows)
    assert made == 'a\r\n\'=1+1,-2,"say ""b"", c"\r\n'


def test_the_page_is_copied_as_a_link_and_as_a_command(page: Any, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(address + EXPLAIN)
    page.get_by_text("Share and take away").click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == address + EXPLAIN
    page.get_by_role("button", name="Copy curl").click()
    expect(page.get_by_text("curl copied.")).to_be_visible()
    command, url = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert command == "curl"
    assert page.request.get(url).json()["question"]["head"]["label"] == "France"
    expect(page.locator(".take-away pre").nth(1)).to_contain_text("import requests")


def test_known_answers_are_hidden(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    expect(page.locator(".answers .known").first).to_be_visible()
    page.locator("#hide-known").check()
    expect(page.locator(".answers .known")).to_have_count(0)
    expect(page.locator(".tops .known")).to_have_count(0)
    first = page.locator(".answers a").first.inner_text()
    expect(page.locator(".verdict .best")).to_have_text(first)
    expect(page.locator(".verdict")).to_contain_text("known answers left out")
    expect(page.locator(".step-answers .step-best bdi")).to_have_text(first)
    places = [str(place) for place in range(1, 7)]
    expect(page.locator(".tops .rank")).to_have_text(places)
    expect(page.locator(".bump .name", has_text=first)).to_have_count(1)
    page.locator(".step button").nth(1).click()
    expect(page.locator(".tops .rank")).to_have_text(places)
    expect(page.locator(".answers li")).to_have_count(10)
    page.reload()
    expect(page.locator("#hide-known")).to_be_checked()
    expect(page.locator(".answers li")).to_have_count(10)
    expect(page.locator(".answers .known")).to_have_count(0)
