"""Measure several processes beside one on this machine: results/bench/ranks.json.

The same training, on a made graph of the size of FB15k-237, by one process with one thread, one
with two, and two and three with one each. They take turns, as the machine is not always as fast.
Efficiency is the speed of two processes over that of one, one thread each. On a busy machine their
processor time says more: what a process of two spends beside one alone.
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
from ekgn.distributed import world
from ekgn.files import write_json
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.records import environment
from ekgn.tables import Column, Table
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
        "seconds_per_update": {name: medians([turn[name] for turn in turns]) for name in WORKERS},
        "efficiency": ratio("1 x 1", "2 x 1"),
        "efficiency_by_processor_time": ratio("1 x 1", "2 x 1", "processor"),
        "two_processes_over_two_threads": ratio("1 x 2", "2 x 1"),
    }


def table(record: dict[str, Any]) -> Table:
    """The record as docs/distributed.md has it."""
    columns = [Column("training"), *(Column(f"{name}, ms", "{:.1f}".format) for name in WORKERS)]
    ratios = ("efficiency", "by processor time", "2 x 1 over 1 x 2")
    columns += [Column(name, "{:.2f}".format) for name in ratios]
    rows = [
        [
            case,
            *(1000 * found["seconds_per_update"][name]["seconds"] for name in WORKERS),
            found["efficiency"],
            found["efficiency_by_processor_time"],
            found["two_processes_over_two_threads"],
        ]
        for case, found in record["cases"].items()
    ]
    return Table("", columns, rows)


def main() -> None:
    """Measure every case and write one record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="budget of each measurement")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each measurement")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), help="only these")
    parser.add_argument("--case", choices=sorted(CASES), help="be a worker of this one")
    parser.add_argument("--threads", type=int, default=1, help="with --case")
    parser.add_argument("--out", type=Path, default=Path("results/bench/ranks.json"))
    given = parser.parse_args()
    if given.case:
        measure(given.case, given.threads)
        return
    record: dict[str, Any] = {"environment": environment(torch.device("cpu"))}
    record |= {"seconds_per_measurement": given.seconds, "turns": given.turns}
    record["cases"] = {
        case: compare(case, given.seconds, given.turns) for case in given.only or CASES
    }
    record["load_average_after"] = os.getloadavg()[0]
    write_json(given.out, record)
    print(table(record).markdown())


if __name__ == "__main__":
    main()
