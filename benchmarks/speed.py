"""Measure the engine on this machine, in one run: `make bench`. Results go to results/bench.

Every figure is a rate beside a yardstick of the same run: the machine's own matrix products, a
plain transcription of the equations (reference.py), PyKEEN's evaluator, or a smaller graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ekgn.checkpoint import RunFolder
from ekgn.files import write_json
from ekgn.kbc.answers import Answers
from ekgn.kbc.choose import choose
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary, load_graph
from ekgn.kbc.model import scorer
from ekgn.kbc.ranking import rank_split
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.records import environment, peak_memory
from ekgn.trainer import Trainer
from reference import PlainComplEx, ReferenceModel

GROWTH = {
    "entities": (15_000, 150_000, 1_500_000),
    "max_steps": (1, 2, 3, 5, 8),
    "num_slots": (16, 64, 256, 1024),
}
PRESETS = ("paper-log", "auto")
TRIPLES = 4000  # ranked by both evaluators
TURNS = 10  # measurements that are compared take turns: the machine is not always as fast
Turn = Callable[[float], dict[str, float]]  # what is measured in so many seconds


def seconds_per_call(call: Callable[[], object], budget: float) -> float:
    """The median time of a call over `budget` seconds."""
    times: list[float] = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or not times:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def product_rate() -> float:
    """FLOP/s of float32 matrix products of 1024 x 1024."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / seconds_per_call(lambda: a @ b, 0.5)


def speed_settings(preset: str, graph: KnowledgeGraph) -> KbcSettings:
    """A preset with its sizes chosen for the graph; any penalty costs the same."""
    settings = KbcSettings.build(preset)
    return choose(graph, settings.model_copy(update={"penalty": max(0.05, settings.penalty)}))[0]


def engine(preset: str) -> Turn:
    """Triples per second of training on FB15k-237, beside the machine's own matrix products."""
    graph = load_graph("fb15k-237")
    trainer = Trainer(KbcTask(graph, speed_settings(preset, graph)), RunFolder(Path("unused")))
    counter = FlopCounterMode(display=False)
    with counter:
        trainer.update()
    needed = counter.get_total_flops()

    def turn(budget: float) -> dict[str, float]:
        seconds = seconds_per_call(trainer.update, budget)
        available = product_rate()
        return {
            "seconds_per_step": seconds,
            "triples_per_second": 2 * len(graph.train) / trainer.per_epoch / seconds,
            "seconds_per_epoch": seconds * trainer.per_epoch,
            "product_gflops": available / 1e9,
            "share_of_product_rate": needed / seconds / available,
            "share_of_product_rate_in_products": needed
            / product_seconds(trainer.update)
            / available,
        }

    return turn


def product_seconds(step: Callable[[], object], steps: int = 10) -> float:
    """Seconds that a step spends in matrix products, by the profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            step()
    products = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
    spent = sum(e.self_cpu_time_total for e in profile.key_averages() if e.key in products)
    return float(spent) / 1e6 / steps


def reference(preset: str) -> Turn:
    """The same of a plain model from stock parts, at the same sizes, with the same optimizer."""
    graph = load_graph("fb15k-237")
    settings = speed_settings(preset, graph)
    torch.manual_seed(0)
    sizes = graph.num_entities, graph.num_relations, settings
    model = PlainComplEx(*sizes) if settings.has_product else ReferenceModel(*sizes)
    kind: Any = torch.optim.Adagrad if settings.has_product else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=settings.learning_rate)
    known = Answers(graph.train, graph.num_relations)
    rows = np.repeat(np.arange(len(known)), np.diff(known.offsets))
    rng = np.random.default_rng(0)

    def step() -> None:
        chosen = rng.integers(len(rows), size=settings.batch_size)
        heads, relations = known.heads[rows[chosen]], known.relations[rows[chosen]]
        parts = [heads, relations, known.tails[chosen]]
        if not settings.has_product:
            parts.append(rng.integers(graph.num_entities, size=(len(chosen), settings.negatives)))
        optimizer.zero_grad()
        model.loss(*(torch.from_numpy(part) for part in parts)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def turn(budget: float) -> dict[str, float]:
        seconds = seconds_per_call(step, budget)
        return {"seconds_per_step": seconds, "triples_per_second": settings.batch_size / seconds}

    return turn


def training(preset: str, budget: float) -> dict[str, Any]:
    """The engine beside the reference, turn by turn: the medians, also of the ratio in each."""
    here, plain = in_turn(
        [("engine", {"preset": preset}), ("reference", {"preset": preset})], budget
    )
    ratios = [
        a["triples_per_second"] / b["triples_per_second"] for a, b in zip(here, plain, strict=True)
    ]
    return {
        **medians(here),
        "reference": medians(plain),
        "times_reference": float(np.median(ratios)),
        "times_reference_range": [min(ratios), max(ratios)],
    }


def made_graph(entities: int, triples: int = 200_000, relations: int = 50) -> KnowledgeGraph:
    """Random triples over many entities."""
    rng = np.random.default_rng(0)
    facts = np.stack(
        [rng.integers(n, size=triples) for n in (entities, relations, entities)], axis=1
    )
    names = tuple(map(str, range(entities)))
    kinds = tuple(map(str, range(relations)))
    return KnowledgeGraph(
        "made",
        Vocabulary(names, names, names),
        Vocabulary(kinds, kinds, kinds),
        facts,
        facts[:10],
        facts[:10],
        source={},
    )


def growth(entities: int, changes: dict[str, Any]) -> Turn:
    """A training step and the peak memory at these sizes."""
    graph = made_graph(entities)
    sampled = {"negatives": 1000, "steps_from": 0.0, **changes}
    settings = speed_settings("auto", graph).model_copy(update=sampled)
    trainer = Trainer(KbcTask(graph, settings), RunFolder(Path("unused")))

    def turn(budget: float) -> dict[str, float]:
        seconds = seconds_per_call(trainer.update, budget)
        return {"seconds_per_step": seconds, "peak_bytes": peak_memory()}

    return turn


def ranking_here(triples: int) -> Turn:
    """Ranking test triples of FB15k-237 on both sides, filtered."""
    graph = load_graph("fb15k-237")
    model = KbcTask(graph, speed_settings("auto", graph)).new_model().eval()

    def turn(_: float) -> dict[str, float]:
        start = time.perf_counter()
        rank_split(scorer(model), graph, "test", limit=triples)
        return {"seconds": time.perf_counter() - start, "peak_bytes": peak_memory()}

    return turn


def ranking_pykeen(triples: int) -> Turn:
    """The same by PyKEEN's evaluator, with its ComplEx."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import ComplEx
    from pykeen.triples import CoreTriplesFactory

    graph = load_graph("fb15k-237")
    tensors = [torch.from_numpy(part) for part in (graph.train, graph.valid, graph.test)]
    factory = CoreTriplesFactory(tensors[0], graph.num_entities, graph.num_relations)
    model = ComplEx(triples_factory=factory, embedding_dim=100).eval()

    def turn(_: float) -> dict[str, float]:
        start = time.perf_counter()
        RankBasedEvaluator(filtered=True).evaluate(
            model, tensors[2][:triples], additional_filter_triples=tensors[:2], use_tqdm=False
        )
        return {"seconds": time.perf_counter() - start, "peak_bytes": peak_memory()}

    return turn


# What is measured in a process of its own: for its peak memory, and untouched by the others' heap.
PARTS: dict[str, Callable[..., Turn]] = {
    "engine": engine,
    "reference": reference,
    "growth": growth,
    "ekgn": ranking_here,
    "pykeen": ranking_pykeen,
}


class Told:
    """A process that has something ready, and measures it when told to."""

    def __init__(self, command: list[str], **variables: str) -> None:
        env = {**os.environ, **variables}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def turn(self, budget: float) -> dict[str, float]:
        """What is measured in so many seconds."""
        assert self._process.stdin and self._process.stdout
        print(budget, file=self._process.stdin, flush=True)
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()


class Worker(Told):
    """One part of this benchmark in a process of its own."""

    def __init__(self, part: str, arguments: dict[str, Any]) -> None:
        print(f"{part}, {arguments} ...", file=sys.stderr)
        given = ["--part", part, "--arguments", json.dumps(arguments)]
        super().__init__([sys.executable, __file__, *given])


def in_turn(
    parts: list[tuple[str, dict[str, Any]]], budget: float, turns: int = TURNS
) -> list[list[dict[str, float]]]:
    """What each part measured in each turn, `budget` seconds a part in all; one more warms up."""
    workers = [Worker(*part) for part in parts]
    for worker in workers:
        worker.turn(0)
    found = [[worker.turn(budget / turns) for worker in workers] for _ in range(turns)]
    for worker in workers:
        worker.close()
    return [list(column) for column in zip(*found, strict=True)]


def medians(turns: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the turns."""
    return {key: float(np.median([found[key] for found in turns])) for key in turns[0]}


def main() -> None:
    """Run every measurement and write one record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="budget of each measurement")
    parser.add_argument("--part", choices=sorted(PARTS), help="only this one, in this process")
    parser.add_argument("--arguments", type=json.loads, help="with --part: its arguments, as JSON")
    parser.add_argument("--out", type=Path, default=Path("results/bench/speed.json"))
    given = parser.parse_args()
    if given.part:
        measure = PARTS[given.part](**given.arguments)
        for line in sys.stdin:
            print(json.dumps(measure(float(line))), flush=True)
        return
    record: dict[str, Any] = {"environment": environment(torch.device("cpu"))}
    record |= {"seconds_per_measurement": given.seconds, "turns": TURNS, "training": {}}
    for preset in PRESETS:
        record["training"][preset] = training(preset, given.seconds)
    systems = ("ekgn", "pykeen")
    ranked = in_turn([(system, {"triples": TRIPLES}) for system in systems], 0, turns=3)
    record["evaluation"] = {"triples": TRIPLES}
    record["evaluation"] |= {
        name: medians(found) for name, found in zip(systems, ranked, strict=True)
    }
    for name, sizes in GROWTH.items():
        parts: list[tuple[str, dict[str, Any]]] = [
            ("growth", {"entities": size, "changes": {"steps_from": 1.0}})
            if name == "entities"
            else ("growth", {"entities": 15_000, "changes": {name: size}})
            for size in sizes
        ]
        found_by_size = in_turn(parts, given.seconds)
        record[f"growth_{name}"] = {
            str(size): medians(found) for size, found in zip(sizes, found_by_size, strict=True)
        }
    record["load_average_after"] = os.getloadavg()[0]
    write_json(given.out, record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
