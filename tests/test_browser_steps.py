"""Steps that can be watched: played, scrubbed, walked by keys, and seen as a way among states."""

from __future__ import annotations

import re
from typing import Any

from tests.browsing import address, browser, expect, needs_chromium, page

__all__ = ["address", "browser", "page"]
pytestmark = needs_chromium
EXPLAIN = "/runs/atlas/explain?head=France&relation=borders"


def shown(page: Any, step: int) -> None:
    expect(page.locator(f'.stage[data-shown="{step}"]')).to_be_visible()
    expect(page.locator(".step-shown")).to_have_attribute("data-step", str(step))


def test_steps_are_scrubbed_and_walked_by_keys(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    answering = int(page.locator(".step-answers").get_attribute("data-step"))
    shown(page, answering)
    page.locator(".step button").first.click()
    shown(page, 1)
    expect(page.locator(".stage .change")).to_have_count(0)
    expect(page.locator(".reading-rays path")).not_to_have_count(0)
    page.keyboard.press("ArrowRight")
    shown(page, 2)
    expect(page.locator('[data-step="2"] button')).to_be_focused()
    page.keyboard.press("End")
    shown(page, 3)
    expect(page.locator(".stepper [role=status]")).to_contain_text("Step 3")
    first, last = (page.locator(f'[data-step="{step}"] button') for step in (1, 3))
    first.hover()
    page.mouse.down()
    last.hover()
    shown(page, 3)
    page.mouse.up()


def test_what_changed_since_the_step_before_is_marked(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    page.locator(".step button").nth(1).click()
    shown(page, 2)
    steps = page.request.get(f"{address}/api{EXPLAIN}&top=40").json()["explanation"]["steps"]
    before = {answer["id"]: answer["rank"] for answer in steps[0]["answers"]}
    marks = page.locator(".tops li .change").all_inner_texts()
    for answer, mark in zip(steps[1]["answers"][:6], marks, strict=True):
        was = before.get(answer["id"])
        moved = "new" if was is None else "▲" if was > answer["rank"] else "▼"
        assert mark == (
            "" if was == answer["rank"] else moved + (str(abs(was - answer["rank"])) if was else "")
        )
    old = {(pair["head"]["id"], pair["relation"]) for pair in steps[0]["nearest"]}
    new = [p for p in steps[1]["nearest"] if (p["head"]["id"], p["relation"]) not in old]
    expect(page.locator(".pairs .change")).to_have_count(len(new))


def test_steps_play_and_pause(page: Any, address: str) -> None:
    page.clock.install()
    page.goto(address + EXPLAIN)
    page.locator(".step button").first.click()
    play = page.locator(".play")
    play.click()
    expect(play).to_have_text("Pause")
    page.clock.run_for(2_000)
    shown(page, 2)
    play.click()
    expect(play).to_have_text("Play")
    page.clock.run_for(10_000)
    shown(page, 2)
    play.click()
    page.clock.run_for(2_000)
    page.clock.run_for(2_000)
    shown(page, 3)
    expect(play).to_have_text("Play")


def test_no_motion_for_those_who_ask_for_none(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    page.locator(".step button").first.click()
    ray = page.locator(".reading-rays path").first
    name = "ray => getComputedStyle(ray).animationName"
    assert ray.evaluate(name) == "none"
    page.emulate_media(reduced_motion="no-preference")
    assert ray.evaluate(name) == "reach"


def test_the_way_of_a_question_among_states(page: Any, address: str) -> None:
    page.goto(address + EXPLAIN)
    plane = page.locator(".plane svg")
    expect(plane.locator("g text")).to_have_text(["1", "2", "3"])
    expect(plane.locator(".seen")).not_to_have_count(0)
    expect(plane.locator(".axis").first).to_contain_text("of the variance")
    plane.locator("g circle").first.click()
    shown(page, 1)
    plane.focus()
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".plane-read b")).to_contain_text("?")
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile("head=France&relation=borders$"))
    expect(page.locator(".step")).to_have_count(3)
