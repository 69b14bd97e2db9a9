"""Pictures of the explorer for the docs: `python scripts/screenshots.py RUN`.

Needs playwright and a Chromium (Debian's package `chromium`). The question is the first example of
the graph unless --head and --relation are given.
"""

from __future__ import annotations

import argparse
import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ekgn.web.server import running

CHROMIUM = next(
    (path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAPTOP, PHONE = (1280, 860), (390, 844)
TALLEST = 1700  # of a picture; longer pages are cut


def ask(address: str, path: str) -> Any:
    """JSON from the server that is being photographed."""
    with urllib.request.urlopen(address + path, timeout=60) as reply:
        return json.load(reply)


def shots(address: str, question: dict[str, str]) -> list[tuple[str, str, tuple[int, int]]]:
    """(name, page, window) of every picture."""
    base = f"runs/{ask(address, 'api/runs')['runs'][0]['name']}"
    example = ask(address, f"api/{base}")["examples"][0]["question"]
    asked = question or {part: example[part]["id"] for part in ("head", "relation")}
    explain = f"{base}/explain?{urlencode(asked)}"
    around = f"{base}/neighbourhood?{urlencode({'entity': asked['head']})}"
    queue = {"relation": asked["relation"], "held_out": "true"}
    return [
        ("explain", explain, LAPTOP),
        ("explain-phone", explain, PHONE),
        ("memory", f"{base}/memory", LAPTOP),
        ("neighbourhood", around, LAPTOP),
        ("entity", f"{base}/entity?{urlencode({'entity': asked['head']})}", LAPTOP),
        ("curate", f"{base}/curate?{urlencode(queue)}", LAPTOP),
        ("compare", f"{base}/compare?{urlencode(asked)}", LAPTOP),
        ("metrics", f"{base}/metrics", LAPTOP),
    ]


def photograph(address: str, out: Path, question: dict[str, str]) -> None:
    """Open every page in Chromium and save it as web-NAME.png."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM:
        raise SystemExit("error: no Chromium found. Install it with: apt-get install chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name, path, (width, height) in shots(address, question):
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="light",
                reduced_motion="reduce",
                device_scale_factor=1,
            )
            page.goto(address + path)
            page.wait_for_selector("main h1, main h2")
            page.wait_for_selector(".loading", state="detached")
            page.wait_for_timeout(600)
            tall = page.locator("html").evaluate("html => html.scrollHeight")
            page.set_viewport_size({"width": width, "height": min(tall, TALLEST)})
            page.wait_for_timeout(200)
            page.screenshot(path=out / f"web-{name}.png")
            page.close()
        browser.close()


def main() -> None:
    """Read the command line, serve the run, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--head", default="")
    parser.add_argument("--relation", default="")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    question = {"head": given.head, "relation": given.relation} if given.head else {}
    with running([given.run]) as address:
        photograph(address, given.out, question)


if __name__ == "__main__":
    main()
