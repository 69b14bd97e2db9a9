"""The server as a process of its own: where it says it is, what it refuses, how it ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.web import server as web_server
from ekgn.web.pages import FILES
from ekgn.web.server import running
from tests.web_material import run_folders

COMMAND = [sys.executable, "-m", "ekgn", "serve"]


@contextmanager
def process(*words: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A server of the small run, its line and its port; killed at the end if it still lives."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        [*COMMAND, str(run_folders()[0]), "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        try:
            assert server.stdout
            line = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            assert found, line + (server.stderr.read() if server.stderr else "")
            yield server, line, int(found[1])
        finally:
            if server.poll() is None:
                server.kill()


def wait_until_refused(port: int) -> None:
    """Wait until nobody listens on the port any more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=20).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass  # it was closed before this connection was taken
        time.sleep(0.01)
    pytest.fail("the server still takes connections a minute after SIGTERM")


def begin_request(port: int) -> tuple[socket.socket, bytes]:
    """A request of 20 questions that has begun, and the rest of it."""
    body = json.dumps({"queries": [{"head": "France", "relation": "borders"}] * 20}).encode()
    begun = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = (
        "POST /api/runs/atlas/predict HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "expect: 100-continue\r\n\r\n"
    )
    begun.sendall(head.encode())
    assert begun.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    begun.sendall(body[:100])
    return begun, body[100:]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once_and_without_a_word(number: signal.Signals) -> None:
    with process() as (server, _, port):
        begun, _ = begin_request(port)
        server.send_signal(number)
        wait_until_refused(port)
        assert server.poll() is None, "it waits for the rest of the request"
        server.send_signal(number)
        server.wait(timeout=120)
        begun.close()
        assert server.stderr
        assert server.stderr.read() == ""


def test_it_says_where_and_finishes_what_it_had_begun() -> None:
    with process() as (server, line, port):
        assert line.startswith("Exploring atlas at http://127.0.0.1:")
        begun, rest = begin_request(port)
        server.send_signal(signal.SIGTERM)
        wait_until_refused(port)
        begun.sendall(rest)
        reply = http.client.HTTPResponse(begun)
        reply.begin()
        assert reply.status == 200
        assert len(json.load(reply)["replies"]) == 20
        assert server.wait(timeout=120) == 0
        assert server.stdout
        assert server.stdout.read() == ""
        assert server.stderr
        assert server.stderr.read() == ""


def test_a_client_that_never_finishes_its_request_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ekgn.web.server.HEAD_SECONDS", 1)
    with running(run_folders()[:1]) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port), timeout=40) for _ in range(3)]
        idle[1].sendall(b"GET /healthz HTTP/1.1\r\nhost: loc")
        idle[2].sendall(b"POST /api/runs/atlas/predict HTTP/1.1\r\nhost: localhost\r\n")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        client.request("GET", "/healthz")
        assert client.getresponse().status == 200
        for connection in idle:
            assert connection.recv(100) == b""


ASK = (
    b"GET /api/runs/atlas/predict?head=France&relation=borders HTTP/1.1\r\nhost: localhost\r\n\r\n"
)


async def keep_asking(port: int, ended: Counter[str]) -> None:
    """A client on one connection that asks again as soon as it is answered, until told to stop."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = b""
        while b"connection: close" not in head:
            writer.write(ASK)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            assert length and head.startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(int(length[1]))
            ended["answers"] += 1
        ended["told"] += 1
    except (OSError, EOFError) as error:
        ended[type(error).__name__] += 1
    finally:
        writer.close()


def test_clients_that_keep_asking_are_answered_to_the_end() -> None:
    async def crowd(server: subprocess.Popen[str], port: int) -> Counter[str]:
        ended: Counter[str] = Counter()
        clients = [asyncio.create_task(keep_asking(port, ended)) for _ in range(128)]
        while ended["answers"] < 200:
            await asyncio.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*clients), 300)
        return ended

    with process() as (server, _, port):
        ended = asyncio.run(crowd(server, port))
        assert ended.pop("answers") >= 200
        assert ended == {"told": 128}
        assert server.wait(timeout=120) == 0


def test_a_client_that_never_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "WRITE_SECONDS", 0.2)
    with web_server.running([run_folders()[0]]) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        greedy = socket.socket()
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect(("127.0.0.1", port))
        largest = max(FILES, key=lambda name: len(FILES[name].body))
        ask = f"GET /static/{largest} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        greedy.sendall(ask.encode() * 100)
        watch = select.poll()
        watch.register(greedy, select.POLLHUP)
        assert watch.poll(300_000), "the connection is still held"
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        client.request("GET", "/healthz")
        assert client.getresponse().status == 200
        greedy.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "Host 0.0.0.0 can be reached from other machines: give a token"),
        (["--token", "short"], "The token has 5 characters: give at least 16"),
        (["nowhere"], "No run in 'nowhere'"),
    ],
)
def test_it_refuses_before_it_listens(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["serve", str(run_folders()[0]), *words, "--port", "0"]
    with pytest.raises(EkgnError) as refused:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert message in str(refused.value)
