"""The application: routes, one shape for all errors, and the guards around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

import ekgn
from ekgn.errors import EkgnError
from ekgn.web.guard import MAX_SECONDS, Guarded, Limited, Observed
from ekgn.web.pages import FILES, pages
from ekgn.web.problems import Problem, shown
from ekgn.web.routes import api, service
from ekgn.web.site import Site

DESCRIPTION = """Ask a trained run for missing facts and see how it came to its answers.

Names or ids are accepted everywhere. An error is always `{"error": {"code", "message",
"suggestions"}}`. The twin of a page of the site is its address with `/api` before it."""
PACKED_FROM = 2048  # bytes of an answer, for clients that take it compressed
CODES = {404: "not_found", 405: "wrong_method", 413: "too_large", 400: "unreadable"}


def create_app(
    site: Site,
    *,
    token: str | None = None,
    local_only: bool = True,
    max_seconds: float = MAX_SECONDS,
) -> ASGIApp:
    """The whole server as one ASGI application."""
    app = create_routes(site, token)
    packed = GZipMiddleware(app, minimum_size=PACKED_FROM, compresslevel=4)
    guarded = Guarded(Limited(packed, max_seconds), token, local_only)
    return Observed(guarded, site.monitor)


def create_routes(site: Site, token: str | None = None) -> FastAPI:
    """The routes alone, without the guards."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        site.start()
        yield
        site.close()

    app = FastAPI(
        title="ekgn explorer",
        version=ekgn.__version__,
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,  # both bring scripts from elsewhere; the page has its own
        redoc_url=None,
        redirect_slashes=False,  # it fails on a query that is no text
        lifespan=lifespan,
    )
    app.state.site = site
    app.state.token = token
    app.include_router(service)
    app.include_router(api)
    app.include_router(pages)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(EkgnError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_crash)
    return app


def _reply(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    extra = {"cache-control": "no-store", **(headers or {})}
    if problem.status == 503:
        extra["retry-after"] = "1"
    return Response(problem.json(), problem.status, extra, "application/json")


async def _on_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return _reply(problem)


async def _on_error(_: Request, error: Exception) -> Response:
    return _reply(Problem(422, "cannot_answer", str(error)))


async def _on_invalid(_: Request, error: Exception) -> Response:
    """The first thing that is wrong with the parameters or the body, in one sentence."""
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    if first["type"] == "json_invalid":
        return _reply(Problem(400, "unreadable", "The body is not JSON."))
    return _reply(Problem(422, "invalid", f"{shown(where)}: {first['msg']}."))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path: str = request.scope["path"]  # request.url fails on a query that is not UTF-8
    if error.status_code == 404 and not path.startswith(("/api", "/static")):
        file = FILES["index.html"]  # the page says in its own words that there is nothing here
        return Response(file.body, 404, {"cache-control": "no-store"}, file.kind)
    code = CODES.get(error.status_code, HTTPStatus(error.status_code).name.lower())
    message, headers = str(error.detail), error.headers
    if error.status_code == 404:
        message = "There is nothing at this address. The API is described at /api/openapi.json."
    elif error.status_code == 405:
        headers = {"allow": ", ".join(_methods(path))}
    return _reply(Problem(error.status_code, code, message), headers)


def _methods(path: str) -> list[str]:
    """What an address takes: one route may serve GET and another POST."""
    routes = (route for part in (service, api, pages) for route in part.routes)
    here = [route for route in routes if isinstance(route, Route) and route.path_regex.match(path)]
    return sorted({method for route in here for method in route.methods or ()} or {"GET"})


async def _on_crash(_: Request, error: Exception) -> Response:
    return _reply(Problem(500, "internal", "The server failed on this request; its log says why."))
