"""A SPARQL endpoint on this machine that answers well, badly, or not at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.kbc import unpack
from ekgn.kbc.sparql import fetch
from ekgn.kbc.triples import read_triples
from tests.test_readers import FORMS, A, B, R

pytest.importorskip("httpx")
pytest.importorskip("pyoxigraph")
FACT = f"<{A}> <{R}> <{B}> .\n".encode()
QUERY = "CONSTRUCT WHERE { ?s ?p ?o }"
ANSWERS = {
    "/construct": (200, "application/n-triples", FACT),
    "/select": (200, "application/sparql-results+json; charset=utf-8", FORMS["x.srj"].encode()),
    "/page": (200, "text/html", b"<html>Welcome</html>"),
    "/refused": (400, "text/plain", b"Parse error: line 1"),
    "/broken": (200, "application/n-triples", FACT + b"<oops"),
    "/nothing": (200, "application/n-triples", b""),
}


class Endpoint(BaseHTTPRequestHandler):
    """One answer by path; /hang never answers, /cut sends half of what it promised."""

    ended = threading.Event()

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"]))
        assert b"query=CONSTRUCT" in asked
        if self.path == "/hang":
            self.ended.wait()
            return
        status, kind, body = ANSWERS["/construct" if self.path == "/cut" else self.path]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path == "/cut" else body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    Endpoint.ended.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.parametrize(("path", "file"), [("/construct", "x.nt"), ("/select", "x.srj")])
def test_an_answer_is_kept_and_read(endpoint: str, path: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "query.rq").write_text(QUERY)
    told = CliRunner().invoke(
        app,
        ["fetch", endpoint + path, str(tmp_path / "query.rq"), str(tmp_path / "x")],
        catch_exceptions=False,
    )
    assert told.exit_code == 0
    assert read_triples(tmp_path / file).frame.rows() == [(A, R, B)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/page", "answered with text/html, not with triples. Is it the address of the endpoint"),
        ("/refused", "refused the query (400): Parse error: line 1"),
        ("/broken", "sent no usable triples. The answer, line 2: "),
        ("/nothing", "sent no usable triples. The answer is empty."),
        ("/hang", "was silent for 0.5 s. Ask for less (LIMIT), or later."),
        ("/cut", "could not be asked: "),
    ],
)
def test_a_bad_answer_is_one_message_and_no_file(
    endpoint: str, path: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(EkgnError) as caught:
        fetch(endpoint + path, QUERY, tmp_path / "x", silent_seconds=0.5)
    assert str(caught.value).startswith(f"{endpoint}{path} {message}")
    assert list(tmp_path.iterdir()) == []


def test_limits_and_addresses(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EkgnError, match="is no address of an endpoint: expected http://"):
        fetch("ftp://x", QUERY, tmp_path / "x")
    with pytest.raises(EkgnError, match=r"127\.0\.0\.1:1/x could not be asked: "):
        fetch("http://127.0.0.1:1/x", QUERY, tmp_path / "x")
    with pytest.raises(EkgnError, match="is too slow: "):
        fetch(f"{endpoint}/construct", QUERY, tmp_path / "x", most_seconds=-1)
    monkeypatch.setenv(unpack.MOST, "0.00000001")
    with pytest.raises(EkgnError, match="ask for less, or set EKGN_MAX_GB"):
        fetch(f"{endpoint}/construct", QUERY, tmp_path / "x")
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(EkgnError, match=r"needs httpx. Install it with: pip install 'ekgn\[sparql"):
        fetch(f"{endpoint}/construct", QUERY, tmp_path / "x")
