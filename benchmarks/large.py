"""What a large graph costs on one machine: loading, training, checkpoints, memory.

    python benchmarks/large.py --out results/scale/large.json

A small and a large made graph (made.py) are trained with the same sampled settings, each in a
process of its own on one thread. Seconds are those of the processor, so that other work on the
machine does not count; writing is measured by the clock as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SIZES = {"small": (200_000, 800_000), "large": (5_000_000, 20_000_000)}
RELATIONS = 500
UPDATES = 100
SETTINGS = {
    "negatives": 2000,
    "penalty": 0.05,
    "learning_rate": 0.3,
    "held_out": 0.05,
    "steps_from": 0.8,
    "batch_size": 400,
    "threads": 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/scale/large.json"))
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder for made graphs")
    parser.add_argument("--size", choices=SIZES, help="measure this one, and print it")
    parser.add_argument("--dim", type=int, default=128)
    args = parser.parse_args()
    if args.size:
        print(json.dumps(measure(args.work, args.size, args.dim)))
        return
    from ekgn.files import write_json

    found = {}
    for size in SIZES:
        command = [sys.executable, __file__, "--size", size, "--work", str(args.work)]
        done = subprocess.run(
            [*command, "--dim", str(args.dim)], check=True, capture_output=True, text=True
        )
        found[size] = json.loads(done.stdout.splitlines()[-1])
    rates = [found[size]["triples_per_second"] for size in SIZES]
    write_json(args.out, {**found, "small_rate_over_large": rates[0] / rates[1]})


def measure(work: Path, size: str, dim: int) -> dict[str, Any]:
    """One graph: loaded from text, loaded from the cache, trained for some updates."""
    cache = work / size / "cache"
    shutil.rmtree(cache, ignore_errors=True)  # what was read before would be no load from text
    os.environ["XDG_CACHE_HOME"] = str(cache)
    import torch

    from ekgn.checkpoint import RunFolder
    from ekgn.kbc.graph import load_graph
    from ekgn.kbc.settings import KbcSettings
    from ekgn.kbc.task import KbcTask
    from ekgn.records import environment, peak_memory
    from ekgn.trainer import Trainer
    from made import made_triples, write_graph

    torch.set_num_threads(1)
    entities, triples = SIZES[size]
    file = work / size / "triples.tsv"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_graph(made_triples(entities, RELATIONS, triples), file)
    started = time.process_time()
    graph = load_graph(file)
    loaded = time.process_time()
    graph = load_graph(file)
    cached = time.process_time()
    settings = KbcSettings.build("auto", overrides={**SETTINGS, "embedding_dim": dim})
    folder = RunFolder(work / size / "run")
    task = KbcTask(graph, settings)
    trainer = Trainer(task, folder)
    ready = time.process_time()
    rates = _rates(trainer)
    clock = time.monotonic()
    trainer.save()
    saved = time.monotonic()
    before = time.process_time()
    validation = task.measured._asdict()
    if validation["candidates"]:
        validation |= trainer.task.validate(trainer.model.eval())
        validation["seconds"] = round(time.process_time() - before, 2)
    return {
        "entities": graph.num_entities,
        "triples": len(graph.train) + len(graph.valid) + len(graph.test),
        "load_seconds": round(loaded - started, 2),
        "load_cached_seconds": round(cached - loaded, 2),
        "prepare_seconds": round(ready - cached, 2),
        **rates,
        "checkpoint_clock_seconds": round(saved - clock, 2),
        "checkpoint_bytes": folder.state.stat().st_size,
        "validation": validation,
        "peak_memory_bytes": peak_memory(),
        "settings": settings.model_dump(mode="json"),
        "environment": environment(trainer.device),
    }


def _rates(trainer: Any) -> dict[str, float]:
    """Answers trained on, each second of the processor; the first updates are not counted."""
    for _ in range(10):
        trainer.update()
    steps = range(trainer.progress.step, trainer.progress.step + UPDATES)
    batches = [trainer.task.batches(*divmod(step, trainer.per_epoch), 0.0) for step in steps]
    pairs = sum(len(batch.answers_P) for batch in batches)
    start = time.process_time()
    for step in steps:
        trainer.task.batches(*divmod(step, trainer.per_epoch), 0.0)
    made = time.process_time() - start
    start = time.process_time()
    for _ in steps:
        trainer.update()
    spent = time.process_time() - start
    return {
        "batch_ms": round(1000 * made / UPDATES, 3),
        "triples_per_second": round(pairs / spent, 1),
        "update_ms": round(1000 * spent / UPDATES, 3),
    }


if __name__ == "__main__":
    main()
