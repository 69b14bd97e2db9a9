"""Measure several processes beside one on this machine: results/bench/ranks.json.

The same training, on a made graph of the size of FB15k-237, by one process with one thread, one
with two, and two and three with one each. They take turns, as the machine is not always as fast.
Efficiency is the speed of two processes over that of one, one thread each. On a busy machine their
processor time says more: what a process of two spends beside one alone. The link between the
processes is measured by itself, for the model of step time (scripts/scale_plan.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ekgn.checkpoint import RunFolder
from ekgn.distributed import Group, world
from ekgn.files import write_json
from ekgn.kbc.model import shards
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.records import environment
from ekgn.trainer import Trainer
from speed import TURNS, Told, made_graph, medians, speed_settings

ENTITIES, RELATIONS, TRIPLES = 14_541, 237, 272_115
# The default's sizes on FB15k-237; its steps are trained from 0.8 of the training on.
AUTO = {"embedding_dim": 800, "batch_size": 400, "negatives": 0, "held_out": 0.05}
CASES: dict[str, tuple[str, dict[str, Any], float]] = {
    "default, every entity": ("auto", AUTO, 0.0),
    "default, every entity, replicated": ("auto", {**AUTO, "tables": "replicated"}, 0.0),
    "default, its steps": ("auto", AUTO, 0.8),
    "default, sampled": ("auto", {**AUTO, "negatives": 2000}, 0.0),
    "paper": ("paper", {}, 0.0),
}
WORKERS = {"1 x 1": (1, 1), "1 x 2": (1, 2), "2 x 1": (2, 1), "3 x 1": (3, 1)}  # processes, threads


def trainer_of(case: str, threads: int) -> Trainer:
    """The training of a case, at the share of it that the case is about."""
    preset, changes, share = CASES[case]
    graph = made_graph(ENTITIES, TRIPLES, RELATIONS)
    chosen = speed_settings(preset, graph).model_dump() | changes | {"threads": threads}
    trainer = Trainer(KbcTask(graph, KbcSettings.parse(chosen)), RunFolder(Path("unused")))
    trainer.progress.step = math.ceil(share * trainer.total_steps)
    return trainer


def measure(case: str, threads: int) -> None:
    """Told a number of seconds, say how long an update takes; every process of a group does."""
    trainer, group = trainer_of(case, threads), world()
    seconds = 1.0
    while (budget := group.by_first(sys.stdin.readline).strip()) != "":
        updates = group.every(max(2, round(float(budget) / seconds)))[0]
        start, spent = time.perf_counter(), time.process_time()
        for _ in range(updates):
            trainer.update()
        seconds = (time.perf_counter() - start) / updates
        processor = (time.process_time() - spent) / updates
        if group.is_first:
            print(json.dumps({"seconds": seconds, "processor": processor}), flush=True)


def step_of(case: str) -> dict[str, Any]:
    """What an update of all processes does, as the model of step time has it."""
    trainer = trainer_of(case, 1)
    settings: Any = trainer.settings
    batch: Any = trainer.task.batches(0, 0, CASES[case][2])
    every = settings.has_product and not settings.negatives
    own = 0 if settings.has_product else settings.negatives  # of each triple
    rests = CASES[case][2] > 0  # the tables, while the steps are trained
    network = sum(p.numel() for p in trainer.optimizers.dense)
    return {
        "queries": len(batch.heads_B),
        "answers": len(batch.answers_P) / len(batch.heads_B) + own,
        "candidates": ENTITIES if every else 0 if own else settings.negatives,
        "size": settings.embedding_dim,
        "relations": 2 * RELATIONS,
        "is_exact": every,
        "dense": network if rests or own else 0,
        "sharded": shards(ENTITIES, settings, Group(0, 2)),
    }


LINK = "the link between processes"
MANY = 2**20  # numbers of a large exchange


def measure_link() -> None:
    """Told to, say what a byte and an exchange cost; every process of a group does."""
    group = world()
    while group.by_first(sys.stdin.readline).strip() != "":
        seconds = {}
        for count in (1, MANY):
            rows, parts = torch.ones(count * group.size), [count] * group.size
            times = []
            for _ in range(30):
                start = time.perf_counter()
                group.swap(rows, parts, parts)
                times.append(time.perf_counter() - start)
            seconds[count] = float(np.median(times))
        sent = 4 * MANY * (group.size - 1)
        rate = sent / max(seconds[MANY] - seconds[1], 1e-9)
        if group.is_first:
            print(json.dumps({"bytes_per_second": rate, "seconds": seconds[1]}), flush=True)


def link() -> dict[str, dict[str, float]]:
    """The link between two and between three processes."""
    found = {}
    for name, (processes, threads) in WORKERS.items():
        if processes > 1:
            workers = Workers(LINK, processes, threads)
            workers.turn(0)
            found[name] = workers.turn(0)
            workers.close()
    return found


class Workers(Told):
    """Processes that have one training ready, and measure when told to."""

    def __init__(self, case: str, processes: int, threads: int) -> None:
        print(f"{case}, {processes} x {threads} ...", file=sys.stderr)
        start = [sys.executable, __file__, "--case", case, "--threads", str(threads)]
        if processes > 1:
            run = "--standalone", f"--nproc-per-node={processes}"
            start[1:1] = ["-m", "torch.distributed.run", *run]
        super().__init__(start, OMP_NUM_THREADS=str(threads))


def compare(case: str, budget: float, count: int) -> dict[str, Any]:
    """The median time of an update by each kind of workers, and two beside one in each turn."""
    workers = {name: Workers(case, *sizes) for name, sizes in WORKERS.items()}
    for each in workers.values():
        each.turn(0)
    turns = [
        {name: each.turn(budget / count) for name, each in workers.items()} for _ in range(count)
    ]
    for each in workers.values():
        each.close()

    def ratio(one: str, other: str, of: str = "seconds") -> float:
        return float(np.median([turn[one][of] / turn[other][of] for turn in turns]))

    return {
        "step": step_of(case),
        "seconds_per_update": {name: medians([turn[name] for turn in turns]) for name in WORKERS},
        "efficiency": ratio("1 x 1", "2 x 1"),
        "efficiency_by_processor_time": ratio("1 x 1", "2 x 1", "processor"),
        "two_processes_over_two_threads": ratio("1 x 2", "2 x 1"),
    }


def main() -> None:
    """Measure every case and write one record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="budget of each measurement")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each measurement")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), help="only these")
    parser.add_argument("--case", choices=sorted([*CASES, LINK]), help="be a worker of this one")
    parser.add_argument("--threads", type=int, default=1, help="with --case")
    parser.add_argument("--out", type=Path, default=Path("results/bench/ranks.json"))
    given = parser.parse_args()
    if given.case:
        torch.set_num_threads(given.threads)
        measure_link() if given.case == LINK else measure(given.case, given.threads)
        return
    record: dict[str, Any] = {"environment": environment(torch.device("cpu"))}
    record |= {"seconds_per_measurement": given.seconds, "turns": given.turns}
    record["link"] = link()
    record["cases"] = {
        case: compare(case, given.seconds, given.turns) for case in given.only or CASES
    }
    record["load_average_after"] = os.getloadavg()[0]
    write_json(given.out, record)
    print(f"Wrote {given.out}. The tables: python scripts/scale_plan.py page")


if __name__ == "__main__":
    main()
