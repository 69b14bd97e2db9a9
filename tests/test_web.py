"""The JSON API: answers, errors of one shape, guards, limits, batching."""

from __future__ import annotations

import asyncio
import hmac
import re
import threading
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import ASGITransport, AsyncClient, Response

from ekgn import api
from ekgn.errors import EkgnError
from ekgn.web.app import create_app
from ekgn.web.pages import FILES, PAGES
from ekgn.web.server import check_token, listen
from ekgn.web.site import Site
from tests.tolerance import assert_same_answers
from tests.web_material import HOSTILE, run_folders

pytestmark = pytest.mark.numerical

HOME = "http://127.0.0.1"
TOKEN = "a-token-that-is-long-enough"
ATLAS = "/api/runs/atlas"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site(run_folders())
    site.start()
    yield site
    site.close()


@pytest.fixture(scope="module")
def web(site: Site) -> TestClient:
    """The whole server, in process."""
    return TestClient(create_app(site), base_url=HOME, raise_server_exceptions=False)


def error_of(reply: Response, status: int) -> dict[str, Any]:
    """The error in a reply, after checking that it has the one shape."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "suggestions"}
    error: dict[str, Any] = body["error"]
    return error


def likely(reply: dict[str, Any]) -> list[tuple[str, float]]:
    """The answers of a reply with their shares."""
    return [(answer["id"], answer["share"]) for answer in reply["answers"]]


def test_runs_and_their_numbers(web: TestClient) -> None:
    runs = web.get("/api/runs").json()["runs"]
    assert [(run["name"], run["task"]) for run in runs] == [("atlas", "kbc"), ("sphere", "paths")]
    assert runs[0]["sizes"]["entities"] == 58
    assert runs[0]["measured_on"] == "test"
    assert 0 <= runs[0]["metrics"]["hits_at_10"] <= 1
    assert set(runs[1]["metrics"]) == {"correct", "valid"}


def test_examples_are_held_out_questions(web: TestClient) -> None:
    examples = web.get(ATLAS).json()["examples"]
    run = api.load(run_folders()[0])
    test = {tuple(fact) for fact in run.graph.test.tolist()}
    assert examples
    for example in examples:
        question = example["question"]
        parts = (question["head"]["id"], question["relation"]["id"], example["answer"]["id"])
        fact = run.entity(parts[0]), run.relation(parts[1]), run.entity(parts[2])
        assert fact in test


def test_metrics_hold_the_curve_and_the_evaluations(web: TestClient) -> None:
    record = web.get(f"{ATLAS}/metrics").json()
    assert [line["step"] for line in record["curve"]] == sorted(
        line["step"] for line in record["curve"]
    )
    assert record["evaluations"]["test/argmax"]["micro"]["count"] > 0
    assert record["settings"]["max_steps"] == 3


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ({"head": "France", "relation": "in continent"}, "tail"),
        ({"relation": "in_continent", "tail": "Europe"}, "head"),
        ({"head": "France", "tail": "Europe"}, "relation"),
        ({"head": "/m/003", "relation": "IN_CONTINENT"}, "tail"),
    ],
)
def test_predictions_are_those_of_the_library(
    web: TestClient, asked: dict[str, str], missing: str
) -> None:
    reply = web.get(f"{ATLAS}/predict", params={**asked, "top": 5}).json()
    expected = api.load(run_folders()[0]).predict(
        asked.get("head"), asked.get("relation"), asked.get("tail"), top=58
    )
    assert reply["question"]["missing"] == missing
    assert_same_answers(likely(reply), [(answer.id, answer.share) for answer in expected[:5]])
    known = {answer.id: answer.known for answer in expected}
    assert all(answer["known"] == known[answer["id"]] for answer in reply["answers"])


def test_an_inverse_relation_is_the_question_from_the_other_end(web: TestClient) -> None:
    inverse = web.get(
        f"{ATLAS}/predict", params={"head": "Europe", "relation": "^in_continent"}
    ).json()
    plain = web.get(
        f"{ATLAS}/predict", params={"tail": "Europe", "relation": "in_continent"}
    ).json()
    assert inverse["question"] == plain["question"]
    assert_same_answers(likely(inverse), likely(plain))


def test_many_questions_at_once(web: TestClient) -> None:
    queries = [
        {"head": "France", "relation": "in_continent"},
        {"head": "France", "tail": "Europe"},
        {"relation": "located_in", "tail": "Japan"},
    ]
    body = {"queries": queries, "top": 3, "hide_known": True}
    replies = web.post(f"{ATLAS}/predict", json=body).json()["replies"]
    assert [reply["question"]["missing"] for reply in replies] == ["tail", "relation", "head"]
    for query, reply in zip(queries, replies, strict=True):
        alone = web.get(f"{ATLAS}/predict", params={**query, "top": 3, "hide_known": True}).json()
        assert_same_answers(likely(alone), likely(reply))
        assert all(answer["known"] is None for answer in reply["answers"])


def test_one_bad_name_does_not_fail_the_others(web: TestClient) -> None:
    queries = [
        {"head": "Frence", "relation": "in_continent"},
        {"head": "France", "relation": "in_continent"},
        {"head": "France"},
    ]
    replies = web.post(f"{ATLAS}/predict", json={"queries": queries}).json()["replies"]
    codes = [reply.get("error", {}).get("code") for reply in replies]
    assert codes == ["unknown_entity", None, "incomplete_question"]
    assert replies[1]["question"]["head"]["id"] and replies[1]["answers"]


def test_an_explanation_has_every_step_and_moves(web: TestClient) -> None:
    asked = {"head": "Japan City", "relation": "located_in", "tail": "Japan"}
    reply = web.get(f"{ATLAS}/explain", params=asked).json()
    steps = reply["explanation"]["steps"]
    assert reply["explanation"]["target"]["label"] == "Japan"
    assert [step["number"] for step in steps] == [1, 2, 3]
    assert sum(step["stop_weight"] for step in steps) == pytest.approx(1, abs=1e-4)
    assert all(sum(step["attention_all"]) == pytest.approx(1, abs=1e-4) for step in steps[:-1])
    assert len(reply["themes"]) == 8
    for move in reply["moves"]:
        for step, rank in zip(steps, move["ranks"], strict=True):
            here = [answer["rank"] for answer in step["answers"] if answer["id"] == move["id"]]
            assert here in ([], [rank])


def test_memory_shares_and_map(web: TestClient) -> None:
    reply = web.get(f"{ATLAS}/memory", params={"relation": "located_in"}).json()
    assert sum(slot["share"] for slot in reply["slots"]) == pytest.approx(1, abs=1e-4)
    heat = reply["heat_map"]
    assert len(heat["values"]) == len(heat["slots"]) == 8
    assert {len(row) for row in heat["values"]} == {len(heat["relations"])}
    assert reply["relation"]["relation"] == "located in"


def test_a_neighbourhood_tells_facts_from_predictions(web: TestClient) -> None:
    reply = web.get(f"{ATLAS}/neighbourhood", params={"entity": "France"}).json()
    run = api.load(run_folders()[0])
    train = {tuple(fact) for fact in run.graph.train.tolist()}
    shown = {node["id"] for node in reply["nodes"]}
    assert reply["edges"]
    for edge in reply["edges"]:
        assert {edge["source"], edge["target"]} <= shown
        parts = edge["source"], edge["relation"]["id"], edge["target"]
        fact = run.entity(parts[0]), run.relation(parts[1]), run.entity(parts[2])
        assert (fact in train) == (edge["kind"] == "train")
        assert (edge["share"] is None) == (edge["kind"] == "train")


def test_relations_of_an_entity_come_first(web: TestClient) -> None:
    hits = web.get(f"{ATLAS}/relations", params={"entity": "Europe", "side": "tail"}).json()["hits"]
    assert {hit["id"] for hit in hits[:2]} == {"in_continent", "city_in_continent"}
    assert [hit["facts"] for hit in hits[2:]] == [0, 0]
    entity = web.get(f"{ATLAS}/entity", params={"entity": "France"}).json()
    assert {hit["id"] for hit in entity["as_head"]} == {"in_continent", "borders"}


def test_paths_step_by_step(web: TestClient) -> None:
    sphere = web.get("/api/runs/sphere/paths").json()
    assert len(sphere["points"]) == 60
    pair = sphere["examples"][0]
    reply = web.get("/api/runs/sphere/paths", params=pair).json()["explanation"]
    assert reply["shortest"]["nodes"][0]["node"] == pair["start"]
    assert len(reply["steps"]) == 3
    assert web.get("/api/runs/sphere").json()["pairs"][0] == pair


def test_unknown_names_are_answered_with_suggestions(web: TestClient) -> None:
    asked = {"head": "Frnace", "relation": "in_continent"}
    error = error_of(web.get(f"{ATLAS}/predict", params=asked), 404)
    assert error["code"] == "unknown_entity"
    assert error["message"] == "No entity of Atlas is called 'Frnace'. Did you mean France?"
    assert error["suggestions"][0] == {"id": "/m/003", "label": "France", "description": "thing 3"}
    asked = {"head": "France", "relation": "in contnent"}
    error = error_of(web.get(f"{ATLAS}/explain", params=asked), 404)
    assert error["suggestions"][0]["id"] == "in_continent"


def test_ambiguous_names_are_answered_with_their_ids(web: TestClient) -> None:
    error = error_of(web.get(f"{ATLAS}/entity", params={"entity": "Springfield"}), 409)
    assert error["code"] == "ambiguous_entity"
    assert len(error["suggestions"]) == 2
    by_id = web.get(f"{ATLAS}/entity", params={"entity": error["suggestions"][1]["id"]})
    assert by_id.json()["entity"]["label"] == "Springfield"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"{ATLAS}/predict?head=France", 422, "incomplete_question"),
        (f"{ATLAS}/predict", 422, "incomplete_question"),
        (f"{ATLAS}/explain?head=France&tail=Europe", 422, "incomplete_question"),
        (f"{ATLAS}/predict?head=France&relation=borders&top=0", 422, "invalid"),
        (f"{ATLAS}/predict?head=France&relation=borders&top=9999", 422, "invalid"),
        (f"{ATLAS}/predict?head=France&relation=borders&readout=guess", 422, "unknown_readout"),
        (f"{ATLAS}/predict?head=France&relation=borders&readout=step:9", 422, "unknown_readout"),
        (f"{ATLAS}/predict?head={'x' * 501}&relation=borders", 422, "invalid"),
        (f"{ATLAS}/neighbourhood", 422, "invalid"),
        (f"{ATLAS}/paths", 404, "wrong_task"),
        ("/api/runs/sphere/memory", 404, "wrong_task"),
        ("/api/runs/sphere/paths?start=1", 422, "incomplete_question"),
        ("/api/runs/sphere/paths?start=1&end=1", 422, "cannot_answer"),
        ("/api/runs/sphere/paths?start=1&end=60", 422, "cannot_answer"),
        ("/api/runs/nope", 404, "unknown_run"),
        ("/api/runs/..%2f..%2fetc", 404, "not_found"),
        ("/api/nothing", 404, "not_found"),
        ("/static/%2e%2e/server.py", 404, "not_found"),
        (f"{ATLAS}/entities?q={'x' * 9000}", 414, "too_large"),
    ],
)
def test_bad_requests_are_clear(web: TestClient, path: str, status: int, code: str) -> None:
    error = error_of(web.get(path), status)
    assert error["code"] == code
    assert "Traceback" not in error["message"]
    assert "/" + "ekgn-web-" not in error["message"], "no path of the server is told"


def test_bad_bodies_are_clear(web: TestClient) -> None:
    url = f"{ATLAS}/predict"
    assert error_of(web.post(url, content=b"{", headers=JSON), 400)["code"] == "unreadable"
    assert error_of(web.post(url, json={"queries": []}), 422)["code"] == "invalid"
    many = {"queries": [{"head": "France", "relation": "borders"}] * 257}
    assert error_of(web.post(url, json=many), 422)["code"] == "invalid"
    assert error_of(web.post(url, json={"queries": [{"nose": 1}]}), 422)["code"] == "invalid"
    assert error_of(web.post(url, content=b"x" * 300_000), 413)["code"] == "too_large"
    chunks = (b"[" * 50_000 for _ in range(8))
    assert error_of(web.post(url, content=chunks, headers=JSON), 413)["code"] == "too_large"
    assert error_of(web.put(url, json={}), 405)["code"] == "wrong_method"


def test_every_page_has_its_json_twin(web: TestClient) -> None:
    parameters = {
        "entity": "entity=France",
        "explain": "head=France&relation=borders",
        "predict": "head=France&tail=Europe",
        "compare": "head=France&relation=borders",
        "neighbourhood": "entity=France",
        "paths": "",
    }
    for pattern in PAGES:
        run = "sphere" if pattern.endswith("paths") else "atlas"
        page = pattern.replace("{run}", run)
        address = f"{page}?{parameters.get(page.rpartition('/')[2], '')}"
        shown = web.get(address)
        assert shown.status_code == 200
        assert shown.headers["content-type"].startswith("text/html")
        twin = {"/": "/api/runs", "/api-docs": "/api/openapi.json"}.get(page, "/api" + address)
        assert web.get(twin).status_code == 200, twin


def test_an_unknown_page_is_the_page_that_says_so(web: TestClient) -> None:
    reply = web.get("/nowhere")
    assert reply.status_code == 404
    assert "text/html" in reply.headers["content-type"]


def test_security_headers_are_on_every_answer(web: TestClient) -> None:
    for path in ("/", "/static/js/app.js", ATLAS, "/api/nothing", "/healthz", "/static/nothing"):
        headers = web.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


def test_the_page_is_self_contained() -> None:
    """No inline script or style, which the policy forbids, and no address of another site."""
    for name, file in FILES.items():
        text = file.body.decode()
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)", text)
            assert "<style" not in text
            assert not re.search(r"\son\w+=|\sstyle=", text)
        if not name.startswith("vendor/"):
            found = re.findall(r"https?://[^\s\"'<>]+", text)
            assert found in ([], ["http://www.w3.org/2000/svg"]), name
    vendored = resources.files("ekgn.web") / "static" / "vendor"
    for library in ("htm-preact", "cytoscape"):
        assert any("LICENSE" in entry.name for entry in (vendored / library).iterdir())


def test_names_with_markup_stay_data(web: TestClient) -> None:
    reply = web.get(f"{ATLAS}/entities", params={"q": "<img src"})
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["hits"][0]["label"] == HOSTILE
    error = error_of(web.get(f"{ATLAS}/entity", params={"entity": "<b>x</b>"}), 404)
    assert "<b>x</b>" in error["message"]


def test_static_files_are_kept_by_browsers_until_they_change(web: TestClient) -> None:
    first = web.get("/static/js/app.js")
    again = web.get("/static/js/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code) == (200, 304)
    assert not again.content


def test_static_files_are_compressed_for_those_who_take_it(web: TestClient) -> None:
    largest = max(FILES, key=lambda name: len(FILES[name].body))
    packed = web.get(f"/static/{largest}", headers={"accept-encoding": "gzip"})
    plain = web.get(f"/static/{largest}", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert packed.content == plain.content == FILES[largest].body
    assert packed.headers["etag"] != plain.headers["etag"]


def test_health_and_counters(web: TestClient) -> None:
    assert web.get("/healthz").json()["status"] == "ok"
    web.get(f"{ATLAS}/predict", params={"head": "France", "relation": "borders"})
    text = web.get("/metrics").text
    assert re.search(
        r'ekgn_requests_total\{method="GET",route="/api/runs/\{run\}/predict",status="200"\} \d+',
        text,
    )
    assert re.search(r"ekgn_batch_queries_count [1-9]", text)
    assert re.search(r"process_resident_memory_bytes [1-9]\d{6,}", text)
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{.*\})? [0-9.e+-]+", line), line


def test_only_this_machine_is_answered_without_a_token(web: TestClient) -> None:
    for host in ("127.0.0.1:8000", "localhost", "[::1]:99", "LOCALHOST:1"):
        assert web.get("/healthz", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "", "10.0.0.1"):
        assert error_of(web.get(ATLAS, headers={"host": host}), 421)["code"] == "wrong_host", host


@pytest.fixture(scope="module")
def locked(site: Site) -> TestClient:
    """The server as it is beyond loopback."""
    app = create_app(site, token=TOKEN, local_only=False)
    return TestClient(app, base_url="http://ekgn.example", follow_redirects=False)


def test_a_token_is_needed_and_enough(locked: TestClient) -> None:
    assert error_of(locked.get("/api/runs"), 401)["code"] == "token_needed"
    assert error_of(locked.get("/metrics"), 401)["code"] == "token_needed"
    assert locked.get("/healthz").status_code == 200
    good = {"authorization": f"Bearer {TOKEN}"}
    assert locked.get("/api/runs", headers=good).status_code == 200
    for bad in (f"Bearer {TOKEN}x", "Bearer", f"Basic {TOKEN}", "Bearer \xff", TOKEN):
        reply = locked.get("/api/runs", headers={"authorization": bad.encode("latin-1")})
        assert error_of(reply, 401)["code"] == "token_needed", bad


def test_the_token_in_a_link_becomes_a_cookie(site: Site) -> None:
    locked = TestClient(
        create_app(site, token=TOKEN, local_only=False),
        base_url="http://ekgn.example",
        follow_redirects=False,
    )
    reply = locked.get(f"/runs/atlas/memory?relation=borders&token={TOKEN}")
    assert reply.status_code == 303
    assert reply.headers["location"] == "/runs/atlas/memory?relation=borders"
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert locked.get("/api/runs").status_code == 200
    elsewhere = locked.get(f"//evil.example/?token={TOKEN}")
    assert not elsewhere.headers.get("location", "/").startswith("//")


def test_the_login_page(site: Site) -> None:
    locked = TestClient(
        create_app(site, token=TOKEN, local_only=False),
        base_url="http://ekgn.example",
        follow_redirects=False,
    )
    asked = locked.get("/", headers={"accept": "text/html"})
    assert (asked.status_code, asked.headers["location"]) == (303, "/login")
    assert locked.get("/login").status_code == 200
    wrong = locked.post("/login", data={"token": "not it"})
    assert wrong.headers["location"] == "/login?wrong=1"
    assert "set-cookie" not in wrong.headers
    right = locked.post("/login", data={"token": TOKEN})
    assert right.headers["location"] == "/"
    assert locked.get("/api/runs").status_code == 200


def test_the_token_is_compared_in_constant_time(
    locked: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    real = hmac.compare_digest

    def noted(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return real(given, expected)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    locked.get("/api/runs", headers={"authorization": "Bearer guess"})
    assert (b"guess", TOKEN.encode()) in compared


def test_it_does_not_listen_beyond_loopback_without_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_token(host, None)
    check_token("0.0.0.0", TOKEN)
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org"):
        with pytest.raises(EkgnError, match=f"Host {host} can be reached from other machines"):
            check_token(host, None)
    with pytest.raises(EkgnError, match="The token has 5 characters: give at least 16"):
        check_token("0.0.0.0", "short")


def test_a_port_that_is_taken_is_said() -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EkgnError, match=f"Cannot listen on 127.0.0.1 port {port}: .*--port"):
            listen("127.0.0.1", port)


def test_a_request_has_an_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(site, max_seconds=0.05)
    web = TestClient(app, base_url=HOME)
    answered = threading.Event()
    monkeypatch.setattr(type(site.run("atlas")), "memory", lambda *_: answered.wait(60))
    error = error_of(web.get(f"{ATLAS}/memory"), 503)
    assert not answered.is_set()
    answered.set()
    assert error["code"] == "too_slow"


def test_a_failure_of_ours_tells_nothing_of_its_inside(
    web: TestClient, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(type(site.run("atlas")), "memory", fail)
    error = error_of(web.get(f"{ATLAS}/memory"), 500)
    assert error["code"] == "internal"
    assert "secret" not in error["message"]


def batches(app: Any) -> dict[str, float]:
    """How many batches there were so far, and how many questions in them, as the server says."""
    text = TestClient(app, base_url=HOME).get("/metrics").text
    found = re.findall(r"^ekgn_batch_queries_(count|sum) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_questions_that_come_together_go_through_the_model_together(site: Site) -> None:
    app = create_app(site)
    before = batches(app)
    heads = [f"/m/{3 + n % 18:03d}" for n in range(60)]

    async def everyone() -> list[Response]:
        transport = ASGITransport(app)
        async with AsyncClient(transport=transport, base_url=HOME) as client:
            asked = [
                client.get(f"{ATLAS}/predict", params={"head": head, "relation": "borders"})
                for head in heads
            ]
            return await asyncio.gather(*asked)

    replies = asyncio.run(everyone())
    after = batches(app)
    assert after["sum"] - before["sum"] == 60
    assert after["count"] - before["count"] < 60
    run = api.load(run_folders()[0])
    for head, reply in zip(heads, replies, strict=True):
        expected = run.predict(head=head, relation="borders")
        assert_same_answers(likely(reply.json()), [(a.id, a.share) for a in expected])


@pytest.mark.parametrize("readout", ["step:²", "step:٣", "step:0", "step:4", "step:1e9", "step:"])
def test_a_readout_that_is_none_is_refused(web: TestClient, readout: str) -> None:
    asked = {"head": "France", "relation": "borders", "readout": readout}
    assert error_of(web.get(f"{ATLAS}/predict", params=asked), 422)["code"] == "unknown_readout"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/login", "GET, POST"), (f"{ATLAS}/predict", "GET, POST"), ("/api/runs", "GET"),
     ("/", "GET, HEAD"), ("/api/openapi.json", "GET")],
)  # fmt: skip
def test_a_wrong_method_is_told_all_that_are_right(
    web: TestClient, path: str, allowed: str
) -> None:
    reply = web.put(path)
    error_of(reply, 405)
    assert reply.headers["allow"] == allowed


def test_a_login_form_may_have_other_fields(site: Site) -> None:
    door = TestClient(create_app(site, token=TOKEN), base_url=HOME)
    fields = {f"field{number}": "x" for number in range(50)}
    assert "wrong" in door.post("/login", data=fields, follow_redirects=False).headers["location"]
    reply = door.post("/login", data={**fields, "token": TOKEN}, follow_redirects=False)
    assert reply.headers["location"] == "/"


def test_long_answers_are_compressed_for_those_who_take_it(web: TestClient) -> None:
    path = "/api/runs/atlas/explain?head=France&relation=borders&top=40"
    packed = web.get(path, headers={"accept-encoding": "gzip"})
    plain = web.get(path, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    short = web.get("/api/runs/atlas/entities?q=fra&limit=1", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in short.headers


def test_a_run_is_prepared_in_pieces_between_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(run_folders()[:1])
    done: list[int] = []

    def pieces() -> Iterator[object]:
        for number in range(3):
            done.append(number)
            yield number

    monkeypatch.setattr(site.runs["atlas"], "pieces", pieces)
    site.start()
    seen = [site._long.submit(lambda: len(done)).result() for _ in range(5)]
    site.close()
    assert seen == sorted(seen) and seen[-1] == 3
