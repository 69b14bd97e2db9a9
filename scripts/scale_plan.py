"""What graphs of a given size need, by a small model of step time and measured rates.

    python scripts/scale_plan.py page      # the tables of docs/scale, distributed and model.md

A step of one process has three parts, in seconds:

    batch      b                          making the batch, as measured
    compute    6 B S K / G                products of B queries with S candidates of size K,
                                          forward and backward, at the measured rate G
    exchange   bytes / W + c l            on P processes: over a link of W bytes and l seconds

G is what a whole update reaches, everything besides the batch counted as if it were products. Each
process has B queries. Replicated tables send the gradient of every row a process touched to all
others. Sharded ones fetch the rows that others own, and send their gradient back; so they do with
the sampled entities, or, where these are more than the queries of all processes, they send the
queries' outputs to everyone and get their gradient back. Memory is the tables with their Adagrad
sums, in each process all or a part, the weights of a checkpoint not counted, and what the batches
keep of the triples. The steps, a twentieth of a training, are left out.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ekgn.tables import Table
from marks import filled, write

RESULTS = Path(__file__).resolve().parent.parent / "results"
DOCS = RESULTS.parent / "docs"
BATCH, SAMPLED, EPOCHS = 400, 2_000, 20
COLLECTIVES = {True: 17, False: 8}  # exchanges of a step, however small: sharded or not


@dataclass(frozen=True)
class Graph:
    """A published graph by its counts."""

    name: str
    entities: float
    triples: float
    relations: float


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
    Graph("ogbl-wikikg2", 2.5e6, 16e6, 535),
    Graph("Wikidata5M", 4.6e6, 21e6, 822),
    Graph("Freebase", 86e6, 338e6, 14_824),
)
MACHINES = (
    Machine("1 core, 16 GB", 1, 1, 16, 1e10, 1e-6),
    Machine("8 cores, 64 GB", 8, 1, 64, 5e9, 2e-5),
    Machine("4 hosts of 16 cores, 128 GB, 10 Gbit/s", 64, 4, 128, 1.25e9, 5e-5),
    Machine("8 hosts of 16 cores, 256 GB, 100 Gbit/s", 128, 8, 256, 1.25e10, 2e-5),
)


@dataclass(frozen=True)
class Step:
    """What one process does in an update."""

    queries: float
    answers: float  # of a query, on average
    candidates: float
    size: int
    relations: float  # of the graph, with their inverses
    is_exact: bool = False  # the candidates are all entities
    dense: float = 0.0  # numbers of the network that are trained

    def sent(self, processes: int, sharded: bool) -> float:
        """Bytes that a process sends to others."""
        others = processes - 1
        row = 4 * self.size + 8
        used = self.relations * -math.expm1(-self.queries / self.relations)  # replicated always
        looked_up = self.queries * (1 + self.answers)
        added_up = 2 / processes * 4 * self.dense  # in a ring, as all that is dense
        if sharded:
            fetched, outputs = looked_up, self.queries
            if not self.is_exact and self.candidates < self.queries * processes:
                fetched, outputs = looked_up + self.candidates, 0.0
            rows = 2 * (fetched / processes + outputs) + used  # there and back
        elif self.is_exact:
            rows = used
            added_up += 2 / processes * 4 * self.candidates * self.size
        else:
            rows = looked_up + self.candidates + used
        return others * (rows * row + added_up)


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


def step_seconds(rates: Rates, step: Step, machine: Machine, sharded: bool) -> dict[str, float]:
    """The parts of one step."""
    products = 6.0 * step.queries * step.candidates * step.size
    sharing = machine.processes / machine.hosts if machine.hosts > 1 else 1.0  # of a host's link
    exchange = step.sent(machine.processes, sharded) * sharing / machine.link
    waits = COLLECTIVES[sharded] * machine.latency if machine.processes > 1 else 0.0
    return {
        "batch": rates.batch / machine.speed,
        "compute": products / (rates.products * machine.speed),
        "exchange": exchange + waits,
    }


def table_bytes(graph: Graph, size: int) -> float:
    """Vectors and Adagrad sums."""
    return 2 * 4.0 * graph.entities * size


def plan(rates: Rates, graph: Graph, machine: Machine) -> list[str]:
    """One row: size, memory, step, hours, bottleneck."""
    room = 0.75 * machine.gigabytes * 1e9
    triples = rates.triple * graph.triples * machine.processes / machine.hosts
    steps = EPOCHS * 2 * graph.triples / rates.answers / (BATCH * machine.processes)
    for size in (256, 128, 64, 32):
        fitting = []
        for sharded in (False, True) if machine.processes > 1 else (False,):
            copies = 1 if sharded else machine.processes
            memory = table_bytes(graph, size) * copies / machine.hosts + triples
            if memory <= room:
                step = Step(BATCH, rates.answers, SAMPLED, size, 2 * graph.relations)
                parts = step_seconds(rates, step, machine, sharded)
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


def plan_table(rates: Rates) -> str:
    """Every graph on every machine."""
    columns = ["graph", "machine", "size", "memory", "step: batch + compute + exchange", "hours"]
    rows = [plan(rates, graph, machine) for graph in GRAPHS for machine in MACHINES]
    return Table("", [*columns, "most of it"], rows).markdown()


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
    rows = [[name, *map(of, sizes)] for name, of in shown.items()]
    return Table("", ["", "small", "large"], rows).markdown()


def geonames_table(found: dict[str, Any]) -> str:
    """What geonames.py measured."""
    settings, facts = found["settings"], found["facts"]
    scores = {
        name: f"{100 * one['hits_at_10']:.1f} / {one['mean_rank']:,.0f} / {one['mrr']:.3f}"
        for name, one in found["metrics"].items()
    }
    rows = [
        [
            "facts to train on, to validate on, to rank",
            " / ".join(f"{n:,}" for n in facts.values()),
        ],
        ["load from text, s", f"{found['load_seconds']:.1f}"],
        ["chosen", f"{settings['embedding_dim']} numbers, penalty {settings['penalty']:g}"],
        [
            "training with its trials, s (epochs)",
            f"{found['train_seconds']:,.0f} ({found['epochs']:.1f})",
        ],
        ["hits@10 / mean rank / MRR among all entities", scores["argmax"]],
        ["the same, its first answer alone", scores["step:1"]],
        ["ranking the test split, s", f"{found['rank_seconds']:,.0f}"],
        ["an answer, ms", f"{found['answer_ms']:.0f}"],
        ["most memory", f"{found['peak_memory_bytes'] / 1e9:.1f} GB"],
    ]
    return Table("", ["GeoNames", f"{found['entities']:,} entities"], rows).markdown()


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
    columns = ["questions", "exact, ms each", "index, ms each", "times faster"]
    return Table("", columns, rows).markdown()


def ranks_table(found: dict[str, Any]) -> str:
    """What ranks.py measured of several processes."""
    cases = found["cases"]
    workers = list(next(iter(cases.values()))["seconds_per_update"])
    rows = []
    for name, case in cases.items():
        times = [f"{1000 * case['seconds_per_update'][w]['seconds']:.1f}" for w in workers]
        ratios = [case["efficiency"], case["two_processes_over_two_threads"]]
        rows.append([name, *times, *(f"{ratio:.2f}" for ratio in ratios)])
    columns = ["training", *workers, "efficiency of 2 x 1", "2 x 1 over 1 x 2"]
    return Table("", columns, rows).markdown()


def check_table(found: dict[str, Any]) -> str:
    """The model beside the measured runs of 2 and 3 processes.

    Batch and compute are those of one process, divided by the processes, as far as there is a core
    for each; the exchange is over the link that was measured.
    """
    cores, rows = found["environment"]["cores"], []
    for name, case in found["cases"].items():
        about = dict(case["step"])
        sharded = about.pop("sharded")
        alone = case["seconds_per_update"]["1 x 1"]["seconds"]
        for processes in (2, 3):
            link = found["link"][f"{processes} x 1"]
            step = Step(**{**about, "queries": about["queries"] / processes})
            compute = alone / min(processes, cores)
            exchange = step.sent(processes, sharded) / link["bytes_per_second"]
            exchange += COLLECTIVES[sharded] * link["seconds"]
            measured = case["seconds_per_update"][f"{processes} x 1"]["seconds"]
            off = (compute + exchange) / measured - 1
            parts = f"{1000 * compute:.1f} + {1000 * exchange:.1f}"
            rows.append([name, str(processes), parts, f"{1000 * measured:.1f}", f"{off:+.0%}"])
    columns = ["training", "processes", "model: compute + exchange, ms", "measured, ms", "off by"]
    return Table("", columns, rows).markdown()


def speed_table(found: dict[str, Any]) -> str:
    """What speed.py measured: training and ranking, each beside its yardsticks."""
    rows = []
    for preset, one in found["training"].items():
        low, high = one["times_reference_range"]
        rows.append(
            [
                f"`{preset}`",
                f"{one['triples_per_second']:,.0f}",
                f"{one['seconds_per_epoch']:.0f}",
                f"{one['share_of_product_rate']:.0%}",
                f"{one['times_reference']:.1f} ({low:.1f} to {high:.1f})",
            ]
        )
    columns = ["preset", "triples a second", "seconds an epoch", "share of the product rate"]
    ranked, about = found["evaluation"], found["environment"]
    ours, theirs = ranked["ekgn"]["seconds"], ranked["pykeen"]["seconds"]
    rate = found["training"]["auto"]["product_gflops"]
    return (
        Table("", [*columns, "times a plain model"], rows).markdown()
        + f"\nFB15k-237, {about['threads']} threads of {about['processor']}, whose products of "
        f"1,024 x 1,024 run at {rate:.0f} GFLOP/s; load average at the end "
        f"{found['load_average_after']:.1f}. Ranking {ranked['triples']:,} test facts takes "
        f"{ours:.1f} s, PyKEEN's evaluator {theirs:.1f} s with ComplEx of 100 numbers.\n"
    )


def pages() -> dict[Path, str]:
    """The pages with their tables made anew; prose stays."""
    large = json.loads((RESULTS / "scale" / "large.json").read_text())
    geonames = json.loads((RESULTS / "scale" / "geonames.json").read_text())
    index = json.loads((RESULTS / "scale" / "index.json").read_text())
    ranks = json.loads((RESULTS / "bench" / "ranks.json").read_text())
    rates = Rates.read(large)
    scale = {
        "measured": measured_table(large),
        "geonames": geonames_table(geonames),
        "index": index_table(index),
        "plan": plan_table(rates),
        "check": check_table(ranks),
    }
    speed = json.loads((RESULTS / "bench" / "speed.json").read_text())
    blocks = {
        DOCS / "scale.md": scale,
        DOCS / "distributed.md": {"ranks": ranks_table(ranks)},
        DOCS / "model.md": {"speed": speed_table(speed)},
    }
    return {page: filled(page, each) for page, each in blocks.items()}


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["page"])
    parser.parse_args()
    for page, text in pages().items():
        write(page, text)


if __name__ == "__main__":
    main()
