"""Requests at random: whatever is sent, only documented answers come back, and never a crash."""

from __future__ import annotations

import asyncio
import atexit
import functools
import random
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

schemathesis = pytest.importorskip("schemathesis")

from schemathesis.specs.openapi import checks  # noqa: E402
from starlette.types import Message, Receive, Scope, Send  # noqa: E402

from ekgn.web.app import create_app, create_routes  # noqa: E402
from ekgn.web.pages import FILES  # noqa: E402
from ekgn.web.site import Site  # noqa: E402
from tests.web_material import run_folders  # noqa: E402

# Valid values need not name something that exists, so they may be answered with 4xx.
NOT_EXPECTED = [checks.positive_data_acceptance, checks.unsupported_method]


@functools.cache
def server() -> Any:
    """The whole server behind its guards, made when the first request comes."""
    site = Site(run_folders())
    site.start()
    atexit.register(site.close)
    return create_app(site, local_only=False, max_seconds=600)  # a busy machine is no crash


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":  # the client would start and end the server with each request
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await server()(scope, receive, send)


schema = schemathesis.openapi.from_dict(create_routes(Site([])).openapi())
schema.app = app
OPERATIONS = {one.ok().label: one.ok() for one in schema.get_all_operations()}


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", OPERATIONS)
def test_only_clean_answers_come_back(label: str, mode: Any) -> None:
    server()
    seen: set[int] = set()

    @settings(
        max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def try_one(case: Any) -> None:
        if "run" in (case.path_parameters or {}) and len(str(case.query)) % 4:
            case.path_parameters["run"] = "sphere" if case.path.endswith("paths") else "atlas"
        response = case.call()
        seen.add(response.status_code)
        assert response.status_code < 500, response.text
        # The tool does not count "too large" among the ways to reject something.
        too_large = [checks.negative_data_rejection] if response.status_code in (413, 414) else []
        case.validate_response(response, excluded_checks=NOT_EXPECTED + too_large)
        if response.status_code >= 400:
            assert set(response.json()["error"]) == {"code", "message", "suggestions"}

    try:
        try_one()
    except Unsatisfiable:
        pytest.skip("nothing can be wrong with a request that takes nothing")
    assert seen


PATHS = [one.path for one in OPERATIONS.values()]
PATHS += ["/", "/login", "/runs/{run}/explain", "/static/{file}", "/nowhere", "//", "/api/", "/%"]
FIELDS = ["head", "relation", "tail", "target", "readout", "top", "nearest", "limit", "q", "entity"]
FIELDS += ["side", "facts", "predicted", "start", "end", "hide_known", "token", "", "é"]
WORDS = ["France", "borders", "^borders", "/m/003", "Springfield", "argmax", "mixture", "step:1"]
WORDS += ["step:²", "step:٣", "step:-1", "sample", "²", "1e400", "NaN", "-1", "0", "1", "3", "true"]
WORDS += [
    "9" * 30,
    "",
    "\0",
    "\x1b[2J",
    "\u202e",
    "😀",
    "a" * 600,
    "[/red]",
    "' OR 1=1",
    "%",
    "null",
]
KINDS = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data", "", "\xff"]
BODIES = ["{", "[]", "null", "{}", '{"queries": []}', '{"queries": [{"head": 1}]}', "[" * 5000]
BODIES += [
    '{"queries": [{"head": "France", "relation": "borders"}], "readout": "step:²"}',
    "\xff\0",
]
HEADERS = ["authorization", "cookie", "accept", "if-none-match", "host", "content-length", "expect"]


def some_request(draw: random.Random) -> tuple[Scope, bytes]:
    """A request that is right in places."""

    def word() -> str:
        text = draw.choice(WORDS)
        return draw.choice([text, text, text, text[::-1], text + draw.choice(WORDS)])

    path = draw.choice(PATHS).replace("{run}", draw.choice(["atlas", "sphere", word()]))
    path = path.replace("{file}", draw.choice([*FILES, "../app.py", word()]))
    fields = [(draw.choice(FIELDS), word()) for _ in range(draw.randrange(6))]
    query = urlencode(fields, errors="replace").encode()
    if not draw.randrange(8):
        query = draw.randbytes(draw.randrange(40))
    body = draw.choice([*BODIES, urlencode(fields * 3)]).encode("latin-1", "replace")
    headers = [(b"host", b"localhost"), (b"content-type", draw.choice(KINDS).encode("latin-1"))]
    for name in draw.sample(HEADERS, draw.randrange(3)):
        headers.append((name.encode(), word().encode("utf-8", "replace")))
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": draw.choice(["GET", "GET", "GET", "POST", "HEAD", "PUT", "OPTIONS", "Ä"]),
        "path": path, "raw_path": quote(path).encode(), "root_path": "", "query_string": query,
        "headers": headers, "server": ("localhost", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    return scope, body


async def statuses(seed: int, count: int) -> dict[int, int]:
    """How many of the requests got which status; a server error fails with the request."""
    draw = random.Random(seed)
    found: dict[int, int] = {}
    for _ in range(count):
        scope, body = some_request(draw)
        sent: list[Message] = []

        async def receive(body: bytes = body) -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message, sent: list[Message] = sent) -> None:
            sent.append(message)

        await server()(scope, receive, send)
        status = sent[0]["status"]
        assert status < 500, (scope, body, sent)
        found[status] = found.get(status, 0) + 1
    return found


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_request_crashes_the_server(count: int) -> None:
    found = asyncio.run(statuses(count, count))
    assert sum(found.values()) == count
    assert {200, 404, 405, 422} <= found.keys()
