"""The page in a real browser: a whole visit, by keyboard, on a phone, and when things fail."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from ekgn.web.server import running
from tests.browsing import PATIENCE, address, browser, expect, needs_chromium, page
from tests.web_material import HOSTILE, run_folders

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium


def fill(page: Any, box: str, text: str, choice: str) -> None:
    """Type into a search box and pick a suggestion with the keyboard."""
    page.locator(box).fill(text)
    expect(page.locator("li[role=option]").filter(has_text=choice).first).to_be_visible()
    for _ in range(8):
        page.keyboard.press("ArrowDown")
        active = page.locator("li[role=option].active")
        if any(choice in text for text in active.all_inner_texts()):
            break
    page.keyboard.press("Enter")
    expect(page.locator(box)).to_have_value(choice)


def test_a_whole_visit(page: Any, address: str) -> None:
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Atlas")
    expect(page.locator(".example")).not_to_have_count(0)

    page.keyboard.press("/")
    expect(page.locator("#ask-head")).to_be_focused()
    fill(page, "#ask-head", "japan ci", "Japan City")
    fill(page, "#ask-relation", "locatd in", "located in")
    page.keyboard.press("Enter")

    expect(page.locator(".step")).to_have_count(3)
    expect(page).to_have_url(re.compile(r"/runs/atlas/explain\?head=.*&relation=located_in$"))
    expect(page.locator(".step-answers .flag")).to_have_text("answers here")
    expect(page.locator(".answers li")).to_have_count(10)
    expect(page.locator(".verdict .known, .answers .known").first).to_be_visible()
    expect(page.locator(".bump path")).not_to_have_count(0)
    expect(page.locator(".pairs .pair").first).to_be_visible()
    page.locator(".step button").first.click()
    strip = page.locator(".strip svg")
    strip.hover()
    expect(page.locator(".strip .reading").first).to_be_visible()
    strip.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".strip .reading").first).to_be_visible()

    answer = page.locator(".answers a").first.inner_text()
    page.locator(".answers a").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(answer)
    expect(page.locator(".trail a")).to_have_count(1)
    page.locator(".asks a").first.click()
    expect(page.locator(".step")).to_have_count(3)
    expect(page.locator(".trail a")).to_have_count(2)

    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(answer)
    page.locator(".trail a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Japan City")

    page.get_by_role("link", name="Memory").click()
    expect(page.locator(".slot-card")).not_to_have_count(0)
    page.locator(".heat canvas").hover()
    expect(page.locator(".heat-read b").first).to_be_visible()


def test_the_first_view_is_small(page: Any, address: str) -> None:
    page.goto(address)
    expect(page.locator(".example")).not_to_have_count(0)
    sizes = page.evaluate(
        """() => ["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
            .map(one => one.encodedBodySize)"""
    )
    assert len(sizes) > 10
    assert sum(sizes) < 150_000


def test_a_link_shows_the_same_to_someone_else(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?head=%2Fm%2F003&relation=borders")
    expect(page.get_by_role("heading", level=1)).to_contain_text("France")
    expect(page.locator("#ask-head")).to_have_value("France")
    twin = page.get_by_role("link", name="This page as JSON").get_attribute("href")
    assert page.request.get(address + twin).json()["question"]["head"]["label"] == "France"


def test_heads_and_relations_are_asked_for_too(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    fill(page, "#ask-head", "France", "France")
    fill(page, "#ask-tail", "Europe", "Europe")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".answers li")).to_have_count(4)
    page.locator(".answers a").first.click()
    expect(page.locator(".verdict .target")).to_contain_text("Europe")
    page.goto(f"{address}/runs/atlas/explain?relation=in_continent&tail=Europe")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile(r"\?\s+in continent\s+Europe")
    )


def test_a_bad_name_is_mended_with_one_click(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?head=Frnace&relation=borders")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Frnace")
    alert.get_by_role("button", name="France").first.click()
    expect(page.locator(".step")).to_have_count(3)
    page.locator("#ask-relation").fill("xxxxxxxx")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert")).to_contain_text("That relation is not in the graph")
    page.goto(f"{address}/runs/nope/memory")
    expect(page.get_by_role("alert")).to_contain_text("not served")
    page.goto(f"{address}/nowhere")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no page here")


def test_an_empty_question_is_explained(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert")).to_contain_text("two of the three")


def test_names_with_markup_are_shown_as_text(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/entity?entity=%2Fm%2F056")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.locator("#ask-head").fill("<img")
    expect(page.locator("li[role=option]").first).to_contain_text(HOSTILE)
    page.goto(f"{address}/runs/atlas/neighbourhood?entity=%2Fm%2F056")
    expect(page.locator(".graph[data-drawn]")).to_be_visible()
    page.goto(f"{address}/runs/atlas/explain?head=%2Fm%2F056&relation=located_in")
    expect(page.locator(".step")).to_have_count(3)
    assert "owned" not in page.title().replace(HOSTILE, "")
    assert page.locator("main img").count() == 0


def test_the_neighbourhood_is_drawn_and_can_be_walked(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/neighbourhood")
    fill(page, "#around", "Kenya", "Kenya")
    expect(page.locator(".graph[data-drawn]")).to_be_visible()
    expect(page.locator(".graph canvas").first).to_be_visible()
    expect(page.get_by_text("Kenya City II located in Kenya")).to_be_visible()
    page.locator(".links a").first.click()
    expect(page.locator(".step")).to_have_count(3)


def test_measurements_and_api_pages(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/metrics")
    expect(page.locator(".curve path.line")).not_to_have_count(0)
    expect(page.get_by_text("test, readout argmax")).to_be_visible()
    page.goto(f"{address}/api-docs")
    expect(page.get_by_text("/api/runs/{run}/explain")).to_be_visible()


def test_paths_on_the_sphere(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_label("Run").select_option("sphere")
    page.locator(".chips a").first.click()
    expect(page.locator(".path-step")).to_have_count(3)
    page.locator(".path-step").nth(2).click()
    expect(page.locator(".path-step").nth(2)).to_have_attribute("aria-pressed", "true")
    canvas = page.locator(".sphere canvas")
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    turned = "before => document.querySelector('.sphere canvas').toDataURL() !== before"
    page.wait_for_function(turned, arg=before)
    page.locator("#node-0").fill("9999")
    page.get_by_role("button", name="Find the way").click()
    expect(page.get_by_role("alert")).to_contain_text("Node 9999 is not in the graph")


def test_dark_and_light(page: Any, address: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/runs/atlas")

    def ground() -> str:
        colour: str = page.locator("body").evaluate(
            "body => getComputedStyle(body).backgroundColor"
        )
        return colour

    dark = ground()
    page.get_by_role("button", name="Switch between light and dark").click()
    light = ground()
    assert dark != light
    page.reload()
    expect(page.locator(".example").first).to_be_visible()
    assert ground() == light


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/explain?head=France&relation=borders",
        "/entity?entity=France",
        "/memory",
        "/metrics",
        "/neighbourhood?entity=France",
        "/curate?relation=in_continent",
        "/compare?head=France&relation=borders",
    ],
)
def test_a_phone_is_wide_enough(page: Any, address: str, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{address}/runs/atlas{path}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    wide = page.locator("html").evaluate("html => html.scrollWidth - html.clientWidth")
    assert wide <= 0


def test_a_server_that_goes_away_and_comes_back(browser: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    with running(run_folders()[:1], port=port) as address:
        page.goto(f"{address}runs/atlas/explain?head=France&relation=borders")
        expect(page.locator(".step")).to_have_count(3)
    page.get_by_role("link", name="Memory").click()
    expect(page.get_by_role("alert")).to_contain_text("The server is away")
    expect(page.locator(".away")).to_be_visible()
    with running(run_folders()[:1], port=port):
        expect(page.locator(".slot-card")).not_to_have_count(0)
        expect(page.locator(".away")).to_have_count(0)
    page.close()
