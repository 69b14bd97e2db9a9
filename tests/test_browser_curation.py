"""Working on a graph in a real browser: deciding about missing facts, the entity as a hub."""

from __future__ import annotations

import re
from typing import Any

from tests.browsing import address, browser, expect, needs_chromium, page

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium


def test_a_queue_is_decided_by_keyboard_and_taken_back(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/curate")
    page.locator(".choices a").filter(has_text=re.compile("^in continent")).first.click()
    now = page.locator(".curate-fact")
    expect(now).to_be_visible()
    left = page.locator("[data-count=left]")
    start, first = int(left.inner_text()), now.inner_text()
    page.locator("#curate-who").fill("Ada")
    page.locator("h1").click()

    page.keyboard.press("e")
    expect(page.locator(".evidence")).to_contain_text("Share")
    page.keyboard.press("a")
    expect(page.locator("[data-count=accepted]")).to_have_text("1")
    expect(now).not_to_have_text(first)
    second = now.inner_text()
    page.keyboard.press("s")
    expect(now).not_to_have_text(second)
    page.keyboard.press("r")
    expect(page.locator("[data-count=rejected]")).to_have_text("1")
    expect(page.locator("[data-count=precision]")).to_have_text("50%")
    expect(left).to_have_text(str(start - 2))

    kept = page.request.get(f"{address}/api/runs/atlas/decisions").json()["decisions"]
    assert [(one["verdict"], one["who"]) for one in kept] == [
        ("accepted", "Ada"),
        ("rejected", "Ada"),
    ]
    decided = page.locator(".decided li")
    expect(decided).to_have_text([re.compile("rejected.*by Ada"), re.compile("accepted.*by Ada")])
    decided.first.get_by_role("button", name="Take back").click()
    expect(decided).to_have_count(1)
    page.goto(f"{address}/runs/atlas/curate?relation=in_continent")
    expect(decided).to_have_text([re.compile("accepted.*by Ada")])
    decided.first.get_by_role("button", name="Take back").click()
    expect(decided).to_have_count(0)
    expect(page.locator("[data-count=accepted]")).to_have_text("0")
    expect(now).to_have_text(first)

    for key in "ar":
        page.keyboard.press(key)
    expect(decided).to_have_count(2)
    page.keyboard.press("u")
    expect(page.locator("[data-count=rejected]")).to_have_text("0")
    page.keyboard.press("s")
    page.keyboard.press("u")
    expect(now).to_have_text(second)
    page.keyboard.press("u")
    expect(now).to_have_text(first)
    expect(page.locator("[data-count=accepted]")).to_have_text("0")
    expect(page.get_by_role("link", name="TSV").first).to_have_attribute(
        "href", re.compile("verdict=accepted&form=tsv")
    )
    expect(page.get_by_text("ekgn extend RUN accepted.tsv")).to_be_visible()


def test_an_entity_is_a_hub(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/entity?entity=Portugal")
    expect(page.locator(".known-facts")).to_contain_text("borders")
    expect(page.locator(".gaps")).to_contain_text("in continent")
    missing = page.locator(".missing > li").first
    missing.get_by_role("button", name="Why").click()
    expect(missing.locator(".evidence")).to_contain_text("Share")
    accept = missing.get_by_role("button", name="Accept")
    accept.click()
    expect(accept).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(accept).to_have_attribute("aria-pressed", "true")
    accept.click()
    expect(accept).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".graph[data-drawn]")).to_be_visible()


def test_less_likely_facts_are_folded(page: Any, address: str) -> None:
    def with_confidences(route: Any) -> None:
        reply = route.fetch().json()
        one = reply["facts"][0]
        sure = [0.9, 0.5, 0.05, 0.01]
        reply["facts"] = [
            {**one, "confidence": p, "held_out": "test", "tail": {**one["tail"], "id": str(p)}}
            for p in sure
        ]
        route.fulfill(json=reply)

    page.route("**/missing?*", with_confidences)
    page.goto(f"{address}/runs/atlas/entity?entity=Portugal")
    facts = page.locator(".missing > li")
    expect(facts).to_have_text([re.compile("90% confidence"), re.compile("50% confidence")])
    page.get_by_role("button", name="Show 2 less likely").click()
    expect(facts).to_have_count(4)
    expect(page.locator(".legend .known-test")).to_be_visible()


def test_tabs_keep_what_is_at_hand(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?head=Portugal&relation=in_continent")
    expect(page.locator(".step")).to_have_count(3)
    tabs = page.get_by_role("navigation", name="Pages")
    tabs.get_by_role("link", name="Neighbourhood").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Around Portugal")
    tabs.get_by_role("link", name="Memory").click()
    expect(page.locator(".relation-use h2")).to_have_text("in continent")
    tabs.get_by_role("link", name="Missing facts").click()
    expect(page.locator(".curate-fact")).to_contain_text("in continent")
    tabs.get_by_role("link", name="Ask").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile(r"Portugal\s+in continent")
    )


def test_an_answer_moves_without_a_fact(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?head=France&relation=in_continent")
    page.locator(".what-if button").click()
    changes = page.locator(".changes li")
    expect(changes.first).to_contain_text("→")
    changes.first.get_by_role("checkbox").check()
    expect(page.locator(".together")).to_contain_text("Without it")
    if changes.count() > 1:
        changes.nth(1).get_by_role("checkbox").check()
        expect(page.locator(".together")).to_contain_text("these 2")


def test_an_answer_moves_with_a_new_fact(page: Any, address: str) -> None:
    page.goto(f"{address}/runs/atlas/explain?head=Portugal&relation=in_continent&tail=Europe")
    page.locator(".what-if button").click()
    expect(page.locator("#add-head")).to_have_value("Portugal")
    page.get_by_role("button", name="Add", exact=True).click()
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("A fact has three parts: fill in relation and to.")
    page.locator("#add-relation").fill("borders")
    page.locator("#add-tail").fill("Springfield")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(alert).to_contain_text("“Springfield” is no name of one thing")
    for box, text in (("#add-relation", "borders"), ("#add-tail", "Germany")):
        page.locator(box).fill(text)
        expect(page.locator(f"{box}-list li").first).to_contain_text(text)
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".changes")).to_contain_text("Portugal borders Germany")
    expect(page.locator(".together")).to_contain_text("With the new fact")
    expect(page.locator(".together .moved")).to_contain_text("→")
    page.get_by_role("button", name="Remove").click()
    expect(page.locator(".together")).to_have_count(0)


def test_evidence_is_drawn_with_its_facts(page: Any, address: str) -> None:
    things = {name: {"id": name, "label": name} for name in ("located_in", "in_continent")}
    for name in ("Spain City", "Spain", "Europe"):
        hits = page.request.get(f"{address}/api/runs/atlas/entities?q={name}").json()["hits"]
        things[name] = hits[0]
    path = [("Spain City", "located_in", "Spain"), ("Spain", "in_continent", "Europe")]
    facts = [{"head": things[h], "relation": things[r], "tail": things[t]} for h, r, t in path]

    def with_a_rule(route: Any) -> None:
        reply = route.fetch().json()
        reply["explanation"]["evidence"] = [{"rule": "22 of 28 pairs joined so"}]
        reply["explanation"]["reasons"].insert(0, "22 of 28 pairs joined so. Here: …")
        route.fulfill(json={**reply, "paths": [facts]})

    page.route("**/api/runs/atlas/explain?*", with_a_rule)
    page.goto(
        f"{address}/runs/atlas/explain?head=Spain+City&relation=city_in_continent&tail=Europe"
    )
    drawn = page.locator(".evidence-path")
    expect(drawn.locator(".name")).to_have_text(["Spain City", "Spain", "Europe"])
    expect(drawn.locator(".fact text")).to_have_text(["↓ located in", "↓ in continent"])
    expect(drawn.locator(".likely")).to_have_count(1)
    expect(page.locator(".reasons")).not_to_contain_text("Here: …")
    drawn.locator(".name").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Europe")
