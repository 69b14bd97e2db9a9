"""The OpenAPI description, fuzzed: whatever is sent, only documented answers come back."""

from __future__ import annotations

import atexit
import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

schemathesis = pytest.importorskip("schemathesis")

from schemathesis.specs.openapi import checks  # noqa: E402
from starlette.types import Receive, Scope, Send  # noqa: E402

from ekgn.web.app import create_app, create_routes  # noqa: E402
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
    return create_app(site, local_only=False)


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
