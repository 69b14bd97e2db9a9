"""What stands before every request: who may ask, how much, for how long, and what is told back.

Three plain ASGI layers, from the outside in: `Observed` counts and times, `Guarded` checks host and
token and sets the security headers, `Limited` bounds the size and the time of a request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ekgn.web.monitoring import Monitor
from ekgn.web.problems import Problem

log = logging.getLogger(__name__)

COOKIE = "ekgn_session"
LEAST_TOKEN = 16  # characters
MAX_BODY = 256 * 1024
MAX_URL = 8 * 1024
MAX_SECONDS = 20.0
OPEN_PATHS = ("/healthz", "/login")
JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def session_of(token: str) -> str:
    """What the cookie holds instead of the token itself."""
    return hmac.new(token.encode(), b"ekgn explorer session", hashlib.sha256).hexdigest()


def cookie_for(token: str) -> str:
    """The cookie that stands for the token once it was given."""
    return f"{COOKIE}={session_of(token)}; Path=/; HttpOnly; SameSite=Strict"


def same(given: str, expected: str) -> bool:
    """Equality that takes the same time wherever the two differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


async def refuse(send: Send, problem: Problem, extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer with an error of the usual shape."""
    body = problem.json()
    headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [*headers, (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class Observed:
    """Counts requests by route, with status and time."""

    def __init__(self, app: ASGIApp, monitor: Monitor) -> None:
        self.app = app
        self.monitor = monitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 500, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.monitor.in_flight += 1
        try:
            await self.app(scope, receive, noted)
        finally:
            self.monitor.in_flight -= 1
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.monitor.request(method, route, status, time.perf_counter() - started)


METHODS = ("GET", "HEAD", "POST")


class Guarded:
    """Checks the host and the token, and sets the security headers on every answer."""

    def __init__(self, app: ASGIApp, token: str | None, local_only: bool) -> None:
        self.app = app
        self.token = token
        self.local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *SECURITY_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        if self.local_only and not _names_this_machine(headers.get(b"host", b"")):
            # Another site can point its own name at 127.0.0.1 and so read what is served there.
            message = "This server answers only to localhost and 127.0.0.1."
            await refuse(sealed, Problem(421, "wrong_host", message))
        elif self.token and (target := self._login(scope)):
            location, cookie = target
            extra = [(b"location", location.encode()), (b"set-cookie", cookie.encode())]
            await _redirect(sealed, extra)
        elif self.token and not self._may_pass(scope, headers):
            if _wants_page(scope, headers):
                await _redirect(sealed, [(b"location", b"/login")])
                return
            message = "A token is needed: send it as 'Authorization: Bearer TOKEN'."
            extra = [(b"www-authenticate", b'Bearer realm="ekgn"')]
            await refuse(sealed, Problem(401, "token_needed", message), extra)
        else:
            await self.app(scope, receive, sealed)

    def _login(self, scope: Scope) -> tuple[str, str] | None:
        """The address without its ?token=, and the cookie, when the token is the right one."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] != "GET" or not given or not same(given[0], self.token or ""):
            return None
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        # One leading slash only: two would lead to another host.
        path = "/" + scope.get("raw_path", scope["path"].encode()).decode("latin-1").lstrip("/\\")
        return path + ("?" + rest if rest else ""), cookie_for(self.token or "")

    def _may_pass(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        assert self.token
        if scope["path"] in OPEN_PATHS or scope["path"].startswith("/static/"):
            return True
        kind, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() == "bearer":
            return same(given.strip(), self.token)
        cookies = SimpleCookie()
        with suppress(CookieError):
            cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
        return COOKIE in cookies and same(cookies[COOKIE].value, session_of(self.token))


def _names_this_machine(host: bytes) -> bool:
    name = host.decode("latin-1").lower()
    bare = name.rsplit(":", 1)[0] if name.count(":") == 1 or "]:" in name else name
    return is_loopback(bare)


def _wants_page(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    accepts = headers.get(b"accept", b"")
    return scope["method"] == "GET" and b"text/html" in accepts and scope["path"][:5] != "/api/"


class _TooLarge(HTTPException):
    """Raised while a body is read; the routes pass this kind of exception on as it is."""

    def __init__(self) -> None:
        super().__init__(413, f"The body is over {MAX_BODY:,} bytes: ask less.")


class Limited:
    """Bounds the address, the body and the time of a request; the last guard before the routes."""

    def __init__(self, app: ASGIApp, max_seconds: float = MAX_SECONDS) -> None:
        self.app = app
        self.max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        if problem := _too_large(scope):
            await refuse(send, problem)
            return
        try:
            async with asyncio.timeout(self.max_seconds):
                await self.app(scope, _counted(receive), noted)
        except TimeoutError:
            problem = Problem(503, "too_slow", f"This took over {self.max_seconds:g} s: ask less.")
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            problem = Problem(
                500, "internal", "The server failed on this request; its log says why."
            )
        else:
            return
        if not begun:
            await refuse(send, problem)


def _too_large(scope: Scope) -> Problem | None:
    if len(scope["query_string"]) + len(scope.get("raw_path", b"")) > MAX_URL:
        return Problem(414, "too_large", f"The address is over {MAX_URL:,} bytes: ask less.")
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if length.isdigit() and int(length) > MAX_BODY:
        return Problem(413, "too_large", f"The body is over {MAX_BODY:,} bytes: ask less.")
    return None


def _counted(receive: Receive) -> Receive:
    """The same messages, until there are too many bytes of them."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY:
            raise _TooLarge
        return message

    return counted
