"""Going about on the page: what is typed and left, Back, what is at hand, the way in a drawing."""

from __future__ import annotations

import re
from typing import Any

from tests.browsing import address, browser, expect, needs_chromium, page
from tests.web_material import LONG

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium
ASKED = "head=France&relation=borders"


def test_what_is_typed_and_left_is_a_choice_or_is_said_to_be_none(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    head, label = page.locator("#ask-head"), page.locator("label[for=ask-head]")
    for text, told in (
        ("fran", "the start of a name"),
        ("springfield", "several have this name"),
        ("Xyzzy", "nothing has this name"),
    ):
        head.fill(text)
        page.keyboard.press("Tab")
        expect(label).to_contain_text(told)
        expect(head).to_have_value(text)
    head.fill("frg")  # a short form of one
    page.keyboard.press("Tab")
    expect(head).to_have_value("Germany")
    expect(head).to_have_class("picked")
    expect(page.locator(".told")).to_have_count(0)
    head.fill("Xyzzy")
    expect(head).not_to_have_class("picked")


def test_filters_are_no_pages_of_their_own(page: Any, address: str) -> None:
    held: list[Any] = []

    def hold_first(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/api/runs/atlas/curate?*", hold_first)
    page.goto(f"{address}/runs/atlas/curate")
    page.locator("#curate-relation").fill("in continent")
    while not held:
        page.wait_for_timeout(20)  # lets the handler of the route run
    held[0].continue_()
    expect(page.locator(".choices a").first).to_be_visible()
    expect(page.locator("#curate-relation")).to_have_value("in continent")
    page.keyboard.press("Tab")  # an exact name is taken as it is left
    expect(page).to_have_url(re.compile("relation=in_continent"))
    expect(page.locator(".curate-fact")).to_be_visible()
    page.locator("#curate-sort").focus()
    page.locator("#curate-sort").select_option("head")
    expect(page).to_have_url(re.compile("sort=head"))
    expect(page.locator("#curate-sort")).to_be_focused()
    page.reload()
    expect(page.locator("#curate-sort")).to_have_value("head")
    names = [page.locator(".curate-fact .word").first.inner_text()]
    names += page.locator(".coming bdi:first-child").all_inner_texts()
    assert names == sorted(names, key=str.casefold)
    # Without a confidence there is nothing to filter by, and it is said.
    expect(page.locator(".no-confidence")).to_contain_text("no confidences yet")
    expect(page.locator("#curate-least")).to_have_count(0)
    page.goto(f"{address}/runs/atlas/curate?relation=in_continent&least=0.5")
    page.locator(".no-confidence").get_by_role("button", name="take it away").click()
    expect(page.locator(".curate-fact")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#curate-relation")).to_be_focused()


def test_a_step_is_a_part_of_the_address_and_no_page(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    page.goto(f"{address}/runs/atlas/explain?{ASKED}")
    answering = page.locator(".step-answers").get_attribute("data-step")
    other = "1" if answering != "1" else "2"
    page.locator(f'[data-step="{other}"] button').click()
    expect(page).to_have_url(re.compile(f"step={other}$"))
    page.reload()
    expect(page.locator(f'.stage[data-shown="{other}"]')).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#ask-head")).to_be_focused()
    # The last step reads no more: what led to it is shown.
    page.locator('[data-step="3"] button').click()
    looks = page.locator(".looks")
    expect(looks.locator("h3")).to_have_text("What step 2 read in memory")
    expect(looks.locator(".reading-rays path")).not_to_have_count(0)
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Atlas")


def test_what_is_at_hand_is_kept_by_every_link_above(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?{ASKED}")
    expect(page.locator(".step")).to_have_count(3)
    top = page.get_by_role("navigation", name="Pages")
    for name, heading in (
        ("API", "The API"),
        ("Measurements", "How good it is"),
        ("Memory", "What the memory holds"),
        ("Missing facts", "Facts that may be missing"),
        ("Compare", "Side by side"),
        ("Neighbourhood", "Around France"),
    ):
        top.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    page.locator(".brand").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Atlas")
    top.get_by_role("link", name="Ask").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"France\s+borders"))


def test_comparing_says_what_to_fill_in(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/compare")
    expect(page.locator(".compare-how")).to_contain_text("on the left")
    page.goto(f"{address}/runs/atlas/compare?{ASKED}")
    expect(page.locator(".compare-how")).to_contain_text("Fill in another question on the right")
    expect(page.locator(".side .answers-head").first).to_contain_text("share of the answer")


def test_a_neighbourhood_fits_its_frame_and_can_be_read(page: Any, address: str) -> None:
    boxes = """async () => {
        const { default: cytoscape } = await import("/static/vendor/cytoscape/cytoscape.mjs");
        const graph = document.querySelector(".graph")._cyreg.cy;
        const found = graph.nodes().map(node => node.renderedBoundingBox({ includeEdges: false }));
        const size = 12 * graph.zoom();
        return { found, size, width: graph.width(), height: graph.height() };
    }"""
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{address}/runs/atlas/neighbourhood?entity=France")
        expect(page.locator(".graph[data-drawn]")).to_be_visible()
        drawn = page.evaluate(boxes)
        assert drawn["size"] >= 11
        assert len(drawn["found"]) > 5
        for box in drawn["found"]:
            assert 0 <= box["x1"] <= box["x2"] <= drawn["width"] + 1
            assert 0 <= box["y1"] <= box["y2"] <= drawn["height"] + 1
        for place, one in enumerate(drawn["found"]):
            for other in drawn["found"][:place]:
                beside = one["x2"] <= other["x1"] + 8 or other["x2"] <= one["x1"] + 8
                assert beside or one["y2"] <= other["y1"] + 8 or other["y2"] <= one["y1"] + 8
        page.get_by_role("button", name="Larger").click()
        page.get_by_role("button", name="The whole picture").click()


def test_long_names_break_in_tables_too(page: Any, address: str) -> None:
    def with_long_names(route: Any) -> None:
        reply = route.fetch().json()
        for miss in reply["misses"]:
            miss["answer"]["label"] = miss["said"]["label"] = LONG
        for row in reply["relations"]:
            row["relation"]["label"] = LONG
        route.fulfill(json=reply)

    page.set_viewport_size({"width": 390, "height": 844})
    page.route("**/results?*", with_long_names)
    page.goto(f"{address}/runs/atlas/metrics")
    expect(page.locator(".misses")).to_contain_text(LONG)
    for table in page.locator(".results, .misses").all():
        assert table.evaluate("table => table.getBoundingClientRect().width") < 700
    assert page.locator("html").evaluate("html => html.scrollWidth - html.clientWidth") <= 0
