"""What once went wrong on the page, in a real browser."""

from __future__ import annotations

import re
from typing import Any

from ekgn.web.server import running
from tests.browsing import PATIENCE, address, browser, expect, needs_chromium, page
from tests.web_material import LEFTWARDS, LONG, UNTRAINED, run_folders

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium
EXPLAIN = "/runs/atlas/explain?"


def wide(page: Any) -> int:
    found: int = page.locator("html").evaluate("html => html.scrollWidth - html.clientWidth")
    return found


def note_where_it_is_left(page: Any) -> None:
    """Have the page keep its scroll position at every click, whatever moved it there."""
    page.evaluate("() => addEventListener('click', () => { window.left = scrollY }, true)")


def test_the_relation_box_offers_what_an_entity_lacks(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/entity?entity=France")
    page.locator("#ask-relation").click()
    options = page.locator("#ask-relation-list li")
    expect(options.filter(has_text="located in")).to_have_count(1)
    expect(options.filter(has_text="none yet")).to_have_count(2)


def test_the_focus_stays_on_the_page_asked_for(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    page.locator(".example").first.click()
    expect(page.locator(".step")).to_have_count(3)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.goto(f"{address}{EXPLAIN}head=Frnace&relation=borders")
    page.get_by_role("alert").get_by_role("button", name="France").first.click()
    expect(page.locator(".step")).to_have_count(3)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_back_returns_to_where_one_was(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders")
    page.wait_for_load_state("networkidle")  # what comes in later moves what is there
    note_where_it_is_left(page)
    page.locator(".answers a").last.click()
    expect(page.locator(".step")).to_have_count(0)
    page.wait_for_function("() => scrollY === 0")
    assert page.evaluate("left") > 100
    page.go_back()
    page.wait_for_function("() => Math.abs(scrollY - left) < 3")


def test_back_returns_to_where_one_was_when_the_page_comes_late(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 500})  # the page between is as long, too
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders")
    page.wait_for_load_state("networkidle")
    note_where_it_is_left(page)
    page.locator(".answers a").last.click()
    expect(page.locator(".step")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    held: list[Any] = []
    page.route("**/explain**", lambda route: held.append(route))
    with page.expect_request("**/explain**"):
        page.go_back()
    while not held:
        page.wait_for_timeout(20)  # lets the handler of the route run
    held[0].continue_()
    expect(page.locator(".step")).to_have_count(3)
    page.wait_for_function("() => Math.abs(scrollY - left) < 3")


def test_enter_takes_the_start_of_a_name(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    page.locator("#ask-head").fill("fran")
    page.locator("#ask-relation").fill("bord")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"France\s+borders"))
    page.goto(f"{address}/runs/atlas/neighbourhood")
    page.locator("#around").fill("ken")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Around Kenya")


def test_a_short_form_from_the_names_file_is_found(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas")
    page.locator("#ask-head").fill("FRG")
    expect(page.locator("#ask-head-list li").first).to_contain_text("Germany")
    page.locator("#ask-relation").fill("borders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"Germany\s+borders"))


def test_long_names_break(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path in (
        f"/runs/atlas/entity?entity={LONG}",
        f"{EXPLAIN}relation=located_in&tail={LONG}",
        f"/runs/atlas/neighbourhood?entity={LONG}",
    ):
        page.goto(address + path)
        expect(page.get_by_role("heading", level=1)).to_contain_text(LONG)
        expect(page.locator(".loading")).to_have_count(0)
        assert wide(page) <= 0
        for card in page.locator("main .card").all():
            assert card.evaluate("card => card.scrollWidth - card.clientWidth") <= 1


def test_right_to_left_names_stay_apart(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head={LEFTWARDS}&relation=in_continent")
    name = page.locator("h1 .word-entity")
    expect(name).to_have_text(LEFTWARDS)
    assert name.evaluate("word => getComputedStyle(word).unicodeBidi") == "isolate"
    loose = """leftwards => [...document.querySelectorAll(".stepper, .answers, .verdict")]
        .flatMap(part => [...part.querySelectorAll("*")])
        .filter(one => [...one.childNodes].some(
            node => node.nodeType === 3 && node.data.includes(leftwards)) && one.tagName !== "BDI")
        .length"""
    assert page.evaluate(loose, LEFTWARDS) == 0


def test_sentences_have_no_notation(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders")
    expect(page.locator(".reasons li").first).to_be_visible()
    assert not set("[^") & set(page.locator("main").inner_text())
    page.goto(f"{address}/runs/atlas/memory?relation=%5Eborders")
    expect(page.locator(".relation-use h2")).to_have_text("borders, backwards")
    assert not set("[^←") & set(page.locator("main").inner_text())
    titles = page.locator("main [title]").evaluate_all("all => all.map(one => one.title)")
    assert not any("^" in title for title in titles)


def test_a_known_fact_is_called_known(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders&tail=Germany")
    expect(page.locator(".verdict .target")).to_contain_text("a training fact, rank")
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders&tail=Japan")
    expect(page.locator(".verdict .target")).to_contain_text("in no split, rank")
    expect(page.locator(".bump .followed .name")).to_have_text("Japan")


def test_it_is_said_why_a_step_answers_and_what_valid_means(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders")
    flagged = page.locator(".step-answers .step-name").inner_text().lower()
    expect(page.locator(".why-step")).to_contain_text(f"{flagged} takes most", ignore_case=True)
    expect(page.locator(".legend .known-valid")).to_be_visible()


def test_an_untrained_entity_gets_a_guess(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head={UNTRAINED}&relation=borders")
    expect(page.locator(".verdict")).to_contain_text(
        f"A guess: training has no fact of {UNTRAINED}"
    )


def test_every_line_of_the_answering_step_has_a_name(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders")
    expect(page.locator(".bump .name").first).to_be_visible()
    names = page.locator(".bump .move:has(circle) .name")
    expect(names).to_have_count(page.locator(".bump .move:has(circle)").count())


def test_no_entity_is_offered_as_its_own_neighbour(page: Any, address: str) -> None:
    reply = page.request.get(f"{address}/api/runs/atlas/neighbourhood?entity=France&predicted=50")
    edges = reply.json()["edges"]
    assert edges
    assert all(edge["source"] != edge["target"] for edge in edges)


def test_the_memory_map_is_read_by_keyboard_and_leads_to_every_vector(
    page: Any, address: str
) -> None:
    page.goto(f"{address}/runs/atlas/memory")
    page.locator(".heat-scroll").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".heat-read b").first).to_be_visible()
    expect(page.locator(".heat-row, .heat-column")).to_have_count(2)
    for _ in range(8):
        page.keyboard.press("ArrowDown")
    vector = re.findall(r"vector (\d+)", page.locator(".heat-read").inner_text())[0]
    page.keyboard.press("Enter")
    expect(page.locator(f"#slot-{vector}")).to_be_in_viewport()
    expect(page.locator(".heat-key")).to_contain_text("0% to 100%")
    expect(page.locator(".heat-names span")).to_have_count(8)
    hidden = "frame => frame.scrollHeight - frame.clientHeight"
    assert page.locator(".heat-scroll").evaluate(hidden) <= 0, "no row is out of sight"
    rows = int(page.locator(".heat canvas").get_attribute("height")) // 16
    for place in (0, rows - 1):
        spot = {"x": 5, "y": place * 16 + 5}
        page.locator(".heat canvas").hover(position=spot)
        read = page.locator(".heat-read", has_text="vector").inner_text()
        page.locator(".heat canvas").click(position=spot)
        expect(page.locator(f"#slot-{re.findall(r'vector ([0-9]+)', read)[0]}")).to_be_in_viewport()


def test_errors_are_pages_with_a_heading(page: Any, address: str) -> None:
    for path in (f"{EXPLAIN}head=Frnace&relation=borders", "/runs/atlas/entity?entity=Frnace"):
        page.goto(address + path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_links_are_not_inside_pictures_and_the_footer_can_be_read(page: Any, address: str) -> None:
    page.goto(f"{address}{EXPLAIN}head=France&relation=borders")
    expect(page.locator(".bump [role=link]").first).to_be_visible()
    assert page.locator("[role=img] [role=link], [role=img] a").count() == 0
    ratio = page.evaluate(
        """() => {
            const light = text => {
                const parts = text.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255)
                    .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
                return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
            };
            const ink = light(getComputedStyle(document.querySelector("footer.bottom")).color);
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
        }"""
    )
    assert ratio >= 4.5


def test_typing_to_a_stopped_server_is_answered(browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    with running(run_folders()[:1]) as address:
        page.goto(f"{address}runs/atlas")
        expect(page.locator(".example")).not_to_have_count(0)
    page.locator("#ask-head").fill("fra")
    expect(page.locator("#ask-head-list")).to_contain_text("The server does not answer")
    page.close()
