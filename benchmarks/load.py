"""Load on the explorer: many clients that ask for predictions, and the record of how it did.

    python benchmarks/load.py RUN --requests 50000 --clients 16 --out results/web/fb15k-237.json

Starts `ekgn serve RUN` as a process of its own and asks it, over real connections on loopback that
are kept open, for the answers of the run's test facts (both sides in turn). Each client sends its
next request when it has the answer to the one before. Before that, one client alone asks for whole
answers, with every step and the evidence. Answers have confidences if the run has one fitted, and
evidence by rules if some were mined.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import posixpath
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import torch

from ekgn.files import write_json
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.records import environment
from ekgn.run import find_run
from ekgn.web.pages import FILES

WARM_UP = 500  # requests before the clock starts
GOAL = {
    "predictions_per_second": 584.0,
    "p99_milliseconds": 45.0,
    "memory_growth_mb": 16.0,
    "answer_p50_milliseconds": 300.0,
    "first_view_kb": 150.0,
}


@contextmanager
def server(run: Path) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """The server as a process, the name of its run, and its port; it must end cleanly."""
    command = [sys.executable, "-m", "ekgn", "serve", str(run), "--port", "0"]
    wide = {**os.environ, "COLUMNS": "300"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=wide) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            found = re.search(r"Exploring (\S+) at http://127\.0\.0\.1:(\d+)/", line)
            if not found:
                raise SystemExit("error: the server did not start")
            yield process, found[1], int(found[2])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def questions(graph: KnowledgeGraph, run: str, count: int) -> list[bytes]:
    """Requests for the answers of test facts in random order, tail and head in turn."""
    facts = graph.test if len(graph.test) else graph.train
    rows = facts[np.random.default_rng(0).integers(len(facts), size=count)].tolist()
    entities, relations = graph.entities.ids, graph.relations.ids
    found = []
    for number, (head, relation, tail) in enumerate(rows):
        side = {"tail": entities[tail]} if number % 2 else {"head": entities[head]}
        query = urlencode({**side, "relation": relations[relation]})
        text = f"GET /api/runs/{run}/predict?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        found.append(text.encode())
    return found


async def get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    """Send one request over an open connection; its status and body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(b" ", 2)[1]), body


async def client(port: int, requests: Iterator[bytes], times: list[float]) -> int:
    """One client: asks until there are no questions left; how many were not answered well."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    errors = 0
    for request in requests:
        started = time.perf_counter()
        status, body = await get(reader, writer, request)
        times.append(time.perf_counter() - started)
        errors += status != 200 or b'"answers":[{' not in body
    writer.close()
    return errors


def first_view_kb() -> float:
    """What the first page fetches of the site's own files, compressed."""
    found = {"index.html", "css/base.css", "css/parts.css", "css/cytoscape.css", "icon.svg"}
    waiting = ["js/theme.js", "js/app.js"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        text = FILES[name].body.decode()
        for other in re.findall(r'^(?:import|export) .*?from "(\.[^"]+)";', text, re.MULTILINE):
            waiting.append(posixpath.normpath(posixpath.join(posixpath.dirname(name), other)))
    return round(sum(len(FILES[name].packed) for name in found) / 1000, 1)


def milliseconds(times: list[float]) -> dict[str, float]:
    """The usual percentiles of some seconds."""
    p50, p90, p99 = np.percentile(np.array(times) * 1000, [50, 90, 99]).round(1).tolist()
    return {"p50": p50, "p90": p90, "p99": p99, "max": round(1000 * max(times), 1)}


def cpu_seconds(process: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(process: int) -> float:
    """The memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def watch(process: int, times: list[float], every: float, memory: list[list[float]]) -> None:
    """Note the server's memory again and again."""
    while True:
        memory.append([len(times), round(resident_mb(process), 1)])
        await asyncio.sleep(every)


async def warm_up(port: int, run: str, requests: list[bytes]) -> None:
    """Wait for what the server prepares in the background, then ask a few questions."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    address = f"GET /api/runs/{run} HTTP/1.1\r\nhost: localhost\r\n\r\n"
    await get(reader, writer, address.encode())
    writer.close()
    await client(port, iter(requests[:WARM_UP]), [])


async def attack(
    process: int, port: int, requests: list[bytes], clients: int
) -> tuple[list[float], int, float, list[list[float]]]:
    """All clients at once: the times, the errors, the seconds it took, memory over time."""
    times: list[float] = []
    memory: list[list[float]] = []
    watching = asyncio.create_task(watch(process, times, 1.0, memory))
    shared = iter(requests)
    started = time.perf_counter()
    errors = await asyncio.gather(*(client(port, shared, times) for _ in range(clients)))
    seconds = time.perf_counter() - started
    watching.cancel()
    memory.append([len(times), round(resident_mb(process), 1)])
    return times, sum(errors), seconds, memory


def growth(memory: list[list[float]]) -> float:
    """How much larger the last tenth of the measurements is than the second tenth, in MB."""
    values = [value for _, value in memory]
    tenth = max(1, len(values) // 10)
    return round(float(np.mean(values[-tenth:]) - np.mean(values[tenth : 2 * tenth] or values)), 1)


def thinned(memory: list[list[float]], most: int = 60) -> list[list[float]]:
    """Some of the measurements, evenly spread, the last one among them."""
    places = np.linspace(0, len(memory) - 1, min(most, len(memory))).astype(int)
    return [memory[place] for place in places]


async def mean_batch(port: int) -> float:
    """Queries per pass through the model so far."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _, body = await get(reader, writer, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    writer.close()
    totals = re.findall(rb"ekgn_batch_queries_(sum|count) ([\d.]+)", body)
    found = {name: float(value) for name, value in totals}
    return round(found[b"sum"] / max(1.0, found[b"count"]), 2)


def measure(run: Path, requests: int, clients: int, answers: int) -> dict[str, Any]:
    """Serve, attack, and sum up."""
    alone: list[float] = []
    graph = KnowledgeGraph.load(run)
    begun = time.perf_counter()
    with server(run) as (process, name, port):
        started = time.perf_counter() - begun
        asked = questions(graph, name, requests)
        asyncio.run(warm_up(port, name, asked))
        whole = [one.replace(b"/predict?", b"/explain?") for one in asked[: answers + 1]]
        asyncio.run(client(port, iter(whole), alone))
        before = cpu_seconds(process.pid)
        times, errors, seconds, memory = asyncio.run(attack(process.pid, port, asked, clients))
        spent = cpu_seconds(process.pid) - before
        batch = asyncio.run(mean_batch(port))
    return {
        "what": "GET /api/runs/RUN/predict, top 10, over loopback, kept-alive connections",
        "graph": graph.name,
        "entities": graph.num_entities,
        "clients": clients,
        "requests": len(times),
        "errors": errors,
        "seconds": round(seconds, 1),
        "predictions_per_second": round(len(times) / seconds, 1),
        "milliseconds": milliseconds(times),
        "answer_milliseconds": milliseconds(alone[1:]),  # the first one finds nothing prepared
        "first_view_kb": first_view_kb(),
        "has_confidence": (run / "confidence.json").exists(),
        "has_rules": (run / "rules.safetensors").exists(),
        "mean_batch": batch,
        "server_cpu_milliseconds_per_request": round(1000 * spent / len(times), 2),
        "startup_seconds": round(started, 1),
        "memory_growth_mb": growth(memory),
        "memory_mb_by_requests": thinned(memory),
        "server_exit_code": process.returncode,
        "goal": GOAL,
        "environment": environment(torch.device("cpu")),
    }


def main() -> None:
    """Read the command line, measure, print, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("run", help="a run's folder, or its name under runs/")
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--answers", type=int, default=100, help="whole answers asked for alone")
    parser.add_argument("--out", type=Path, help="file for the record")
    given = parser.parse_args()
    record = measure(find_run(given.run), given.requests, given.clients, given.answers)
    shown = {name: value for name, value in record.items() if name != "environment"}
    print(json.dumps({**shown, "memory_mb_by_requests": "..."}, indent=2))
    if given.out:
        write_json(given.out, record)


if __name__ == "__main__":
    main()
