"""What graphs of a given size need, by a small model of step time and measured rates.

    python scripts/scale_plan.py page      # the tables of docs/scale.md, from results/scale

A step of one process has three parts, in seconds:

    batch      b                          making the batch, as measured
    compute    6 B S K / G                products of B queries with S candidates of size K,
                                          forward and backward, at the measured rate G
    exchange   bytes / W + c l            on P processes: over a link of W bytes and l seconds

G is what a whole update reaches, everything besides the batch counted as if it were products. Each
process has B queries. Replicated tables send the gradient of every row a process touched to all
others; sharded ones fetch the rows that others own, and send their gradient back. Memory is the
tables with their Adagrad sums, in each process all or a part, the weights of a checkpoint not
counted, and what the batches keep of the triples.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marks import filled, write

RESULTS = Path(__file__).resolve().parent.parent / "results"
PAGE = RESULTS.parent / "docs" / "scale.md"
BATCH, SAMPLED, EPOCHS = 400, 2_000, 20
COLLECTIVES = 6  # of a step
NETWORK = 1_000_000  # dense numbers of the network, about


@dataclass(frozen=True)
class Graph:
    """A published graph by its counts."""

    name: str
    entities: float
    triples: float


@dataclass(frozen=True)
class Machine:
    """Processes of one thread, the memory of each host, and the link between hosts."""

    name: str
    processes: int
    hosts: int
    gigabytes: float  # of a host
    link: float  # bytes a second
    latency: float  # seconds
    speed: float = 1.0  # of a process, beside the one that was measured


GRAPHS = (
    Graph("ogbl-wikikg2", 2.5e6, 16e6),
    Graph("Wikidata5M", 4.6e6, 21e6),
    Graph("Freebase", 86e6, 338e6),
)
MACHINES = (
    Machine("1 core, 16 GB", 1, 1, 16, 1e10, 1e-6),
    Machine("8 cores, 64 GB", 8, 1, 64, 5e9, 2e-5),
    Machine("4 hosts of 16 cores, 128 GB, 10 Gbit/s", 64, 4, 128, 1.25e9, 5e-5),
    Machine("8 hosts of 16 cores, 256 GB, 100 Gbit/s", 128, 8, 256, 1.25e10, 2e-5),
)


@dataclass(frozen=True)
class Rates:
    """What was measured on one process."""

    products: float  # operations a second, in a whole update
    batch: float  # seconds
    answers: float  # of a query, on average
    triple: float  # bytes that a process keeps for each triple, tables not counted

    @classmethod
    def read(cls, found: dict[str, Any]) -> Rates:
        """From results/scale/large.json: the large graph's."""
        large = found["large"]
        settings = large["settings"]
        operations = (
            6.0 * settings["batch_size"] * settings["negatives"] * settings["embedding_dim"]
        )
        batch, update = large["batch_ms"] / 1000, large["update_ms"] / 1000
        tables = 8.0 * large["entities"] * settings["embedding_dim"]
        return cls(
            products=operations / (update - batch),
            batch=batch,
            answers=large["triples_per_second"] * update / settings["batch_size"],
            triple=(large["peak_memory_bytes"] - tables) / large["triples"],
        )


def step_seconds(rates: Rates, size: int, machine: Machine, sharded: bool) -> dict[str, float]:
    """The parts of one step."""
    compute = 6.0 * BATCH * SAMPLED * size / (rates.products * machine.speed)
    rows = BATCH * (1 + rates.answers) + SAMPLED
    others = machine.processes - 1
    # Sharded: the rows of others there, their gradients back. Replicated: gradients to everyone.
    sent = 2 * rows * others / machine.processes if sharded else rows * others
    dense = 2 * 4 * NETWORK * others / machine.processes if others else 0.0
    sharing = machine.processes / machine.hosts if machine.hosts > 1 else 1.0  # of a host's link
    exchange = (sent * (4 * size + 8) + dense) * sharing / machine.link
    return {
        "batch": rates.batch / machine.speed,
        "compute": compute,
        "exchange": exchange + (COLLECTIVES * machine.latency if others else 0.0),
    }


def table_bytes(graph: Graph, size: int) -> float:
    """Vectors and Adagrad sums."""
    return 2 * 4.0 * graph.entities * size


def plan(rates: Rates, graph: Graph, machine: Machine, shared: bool) -> list[str]:
    """One row: size, memory, step, hours, bottleneck.

    What batches keep of the triples is in each process, or shared by those of a host.
    """
    room = 0.75 * machine.gigabytes * 1e9
    triples = rates.triple * graph.triples
    triples *= 1 if shared else machine.processes / machine.hosts
    steps = EPOCHS * 2 * graph.triples / rates.answers / (BATCH * machine.processes)
    for size in (256, 128, 64, 32):
        fitting = []
        for sharded in (False, True) if machine.processes > 1 else (False,):
            copies = 1 if sharded else machine.processes
            memory = table_bytes(graph, size) * copies / machine.hosts + triples
            if memory <= room:
                parts = step_seconds(rates, size, machine, sharded)
                fitting.append((sum(parts.values()), sharded, memory, parts))
        if fitting:  # the faster way to keep the tables
            _, sharded, memory, parts = min(fitting, key=lambda way: way[0])
            return _row(graph, machine, size, sharded, memory, parts, steps)
    needed = f"does not fit: {triples / 1e9:,.0f} GB of triples a host"
    return [graph.name, machine.name, "–", needed, *"–––"]


def _row(
    graph: Graph,
    machine: Machine,
    size: int,
    sharded: bool,
    memory: float,
    parts: dict[str, float],
    steps: float,
) -> list[str]:
    seconds = sum(parts.values())
    worst = max(parts, key=lambda name: parts[name])
    tables = "one process" if machine.processes == 1 else "sharded" if sharded else "replicated"
    times = " + ".join(f"{1000 * parts[name]:.1f}" for name in ("batch", "compute", "exchange"))
    return [
        graph.name,
        machine.name,
        f"{size}, {tables}",
        f"{memory / 1e9:,.0f} GB a host",
        f"{times} ms",
        f"{steps * seconds / 3600:,.1f}",
        worst,
    ]


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def plan_table(rates: Rates, shared: bool) -> str:
    """Every graph on every machine."""
    columns = ["graph", "machine", "size", "memory", "step: batch + compute + exchange", "hours"]
    rows = [plan(rates, graph, machine, shared) for graph in GRAPHS for machine in MACHINES]
    return markdown([*columns, "most of it"], rows)


def measured_table(found: dict[str, Any]) -> str:
    """What large.py measured."""
    shown: dict[str, Callable[[dict[str, Any]], str]] = {
        "entities": lambda x: f"{x['entities']:,}",
        "triples": lambda x: f"{x['triples']:,}",
        "load from text, s": lambda x: f"{x['load_seconds']:.1f}",
        "load from the cache, s": lambda x: f"{x['load_cached_seconds']:.2f}",
        "before the first update, s": lambda x: f"{x['prepare_seconds']:.0f}",
        "triples a second": lambda x: f"{x['triples_per_second']:,.0f}",
        "an update, ms (of it the batch)": lambda x: f"{x['update_ms']:.1f} ({x['batch_ms']:.1f})",
        "checkpoint": lambda x: (
            f"{x['checkpoint_bytes'] / 1e9:.1f} GB in {x['checkpoint_clock_seconds']:.1f} s"
        ),
        "most memory": lambda x: f"{x['peak_memory_bytes'] / 1e9:.1f} GB",
    }
    sizes = [found["small"], found["large"]]
    return markdown(["", "small", "large"], [[k, *map(f, sizes)] for k, f in shown.items()])


def index_table(found: dict[str, Any]) -> str:
    """What index.py measured."""
    rows = [
        [
            f"{size} at once",
            f"{found[f'exact_ms_batch_{size}']:.2f}",
            f"{found[f'index_ms_batch_{size}']:.2f}",
            f"{found[f'times_faster_batch_{size}']:.1f}",
        ]
        for size in (1, 64)
    ]
    return markdown(["questions", "exact, ms each", "index, ms each", "times faster"], rows)


def write_page() -> None:
    """Put the tables between their marks in docs/scale.md."""
    read = {path.stem: json.loads(path.read_text()) for path in (RESULTS / "scale").glob("*.json")}
    parts: dict[str, str] = {}
    if "large" in read:
        parts |= {
            "measured": measured_table(read["large"]),
            "plan": plan_table(Rates.read(read["large"]), shared=False),
            "shared plan": plan_table(Rates.read(read["large"]), shared=True),
        }
    if "index" in read:
        parts["index"] = index_table(read["index"])
    write(PAGE, filled(PAGE, parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["page"])
    parser.parse_args()
    write_page()


if __name__ == "__main__":
    main()
