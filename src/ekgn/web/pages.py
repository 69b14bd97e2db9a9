"""The page: files read once at the start, addresses that all lead to it, and the login."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Header, Request
from fastapi.responses import RedirectResponse, Response

from ekgn.web.guard import cookie_for, same
from ekgn.web.problems import Problem

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
PAGES = ["/", "/api-docs", "/runs/{run}"]
for _page in ("entity", "explain", "predict", "memory", "metrics", "neighbourhood", "paths"):
    PAGES.append(f"/runs/{{run}}/{_page}")
pages = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    """A file of the page, in memory: an address can only name what was there at the start."""

    body: bytes
    kind: str
    tag: str


def _files(folder: Traversable, prefix: str = "") -> dict[str, StaticFile]:
    found: dict[str, StaticFile] = {}
    for entry in folder.iterdir():
        ending = "." + entry.name.rpartition(".")[2]
        if entry.is_dir():
            found |= _files(entry, f"{prefix}{entry.name}/")
        elif ending in KINDS:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found[prefix + entry.name] = StaticFile(body, KINDS[ending], tag)
    return found


FILES = _files(resources.files("ekgn.web") / "static")


def _reply(name: str, known_tag: str | None, status: int = 200) -> Response:
    file = FILES[name]
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if status == 200 and known_tag == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, status, headers, file.kind)


KnownTag = Annotated[str | None, Header(alias="if-none-match")]


@pages.get("/static/{name:path}")
async def static_file(name: str, known_tag: KnownTag = None) -> Response:
    """A file of the page."""
    if name not in FILES:
        raise Problem(404, "not_found", "There is no such file.")
    return _reply(name, known_tag)


@pages.get("/favicon.ico")
async def icon(known_tag: KnownTag = None) -> Response:
    """The icon, for browsers that ask for it here."""
    return _reply("icon.svg", known_tag)


async def page(known_tag: KnownTag = None) -> Response:
    """The page; what it shows is in its address."""
    return _reply("index.html", known_tag)


for _address in PAGES:
    pages.add_api_route(_address, page, methods=["GET", "HEAD"], include_in_schema=False)


@pages.get("/login")
async def login_page() -> Response:
    """The form that asks for the token."""
    return _reply("login.html", None)


@pages.post("/login")
async def login(request: Request) -> Response:
    """Give the token once; a cookie stands for it from then on."""
    token: str | None = request.app.state.token
    text = (await request.body()).decode("utf-8", "replace")
    given = parse_qs(text).get("token", [""])[0]
    if not token or not same(given.strip(), token):
        return RedirectResponse("/login?wrong=1", 303)
    return RedirectResponse("/", 303, {"set-cookie": cookie_for(token)})
