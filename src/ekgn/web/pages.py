"""The page: files read once at the start, addresses that all lead to it, and the login."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
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
KBC_PAGES = ("entity", "explain", "predict", "memory", "neighbourhood", "curate", "compare")
PAGES += [f"/runs/{{run}}/{name}" for name in (*KBC_PAGES, "metrics", "paths")]
pages = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    """A file of the page, in memory: an address can only name what was there at the start."""

    body: bytes
    kind: str
    tag: str

    @cached_property
    def packed(self) -> bytes:
        """The body compressed, once."""
        return gzip.compress(self.body, mtime=0)


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


def _reply(name: str, known_tag: str | None = None, accepted: str = "") -> Response:
    file = FILES[name]
    is_packed = "gzip" in accepted and len(file.packed) < len(file.body)
    tag = file.tag[:-1] + '-gzip"' if is_packed else file.tag
    headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if known_tag == tag:
        return Response(status_code=304, headers=headers)
    if is_packed:
        headers["content-encoding"] = "gzip"
    return Response(file.packed if is_packed else file.body, 200, headers, file.kind)


KnownTag = Annotated[str | None, Header(alias="if-none-match")]
Accepted = Annotated[str, Header(alias="accept-encoding")]


@pages.get("/static/{name:path}")
async def static_file(name: str, known_tag: KnownTag = None, accepted: Accepted = "") -> Response:
    """A file of the page."""
    if name not in FILES:
        raise Problem(404, "not_found", "There is no such file.")
    return _reply(name, known_tag, accepted)


@pages.get("/favicon.ico")
async def icon(known_tag: KnownTag = None) -> Response:
    """The icon, for browsers that ask for it here."""
    return _reply("icon.svg", known_tag)


async def page(known_tag: KnownTag = None, accepted: Accepted = "") -> Response:
    """The page; what it shows is in its address."""
    return _reply("index.html", known_tag, accepted)


for _address in PAGES:
    pages.add_api_route(_address, page, methods=["GET", "HEAD"], include_in_schema=False)


@pages.get("/login")
async def login_page() -> Response:
    """The form that asks for the token."""
    return _reply("login.html")


@pages.post("/login")
async def login(request: Request) -> Response:
    """Give the token once; a cookie stands for it from then on."""
    token: str | None = request.app.state.token
    text = (await request.body()).decode("utf-8", "replace")
    given = parse_qs(text).get("token", [""])[0]
    if not token or not same(given.strip(), token):
        return RedirectResponse("/login?wrong=1", 303)
    return RedirectResponse("/", 303, {"set-cookie": cookie_for(token)})
