"""Answers among a million entities: exact by blocks, and by the index, on one thread.

    python benchmarks/index.py --out results/scale/index.json

A made graph (made.py) is trained for a while, its index is built, and the same questions are
answered in both ways, alone and in batches. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

RELATIONS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/scale/index.json"))
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder for graph and run")
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--triples", type=int, default=4_000_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--dim", type=int, default=64)
    args = parser.parse_args()
    os.environ["XDG_CACHE_HOME"] = str(args.work / "cache")
    os.environ["OMP_NUM_THREADS"] = "1"  # torch's threads, and faiss's
    from ekgn.files import write_json
    from ekgn.records import environment, peak_memory

    run = trained(args)
    about = run.index()
    found = {
        "index": asdict(about),
        "index_bytes": sum(file.stat().st_size for file in (run.path / "index").iterdir()),
        **speeds(run),
        "settings": run.settings.model_dump(mode="json"),
        "wall_seconds": run.record.get("wall_seconds"),
        "epochs": run.record.get("epochs"),
        "peak_memory_bytes": peak_memory(),
        "environment": environment(run.device),
    }
    write_json(args.out, found)


def trained(args: argparse.Namespace) -> Any:
    """A run over the made graph; one that is there is taken."""
    from ekgn import api
    from ekgn.kbc.settings import KbcSettings
    from made import made_triples, write_graph

    folder = args.work / f"index-{args.entities}-{args.dim}"
    if (folder / "run" / "record.json").exists():
        return api.load(folder / "run")
    shutil.rmtree(folder / "run", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "triples.tsv"
    write_graph(made_triples(args.entities, RELATIONS, args.triples), file)
    changes = {
        "embedding_dim": args.dim,
        "negatives": 500,
        "penalty": 0.003,
        "held_out": 0.0,
        "max_steps": 1,
        "batch_size": 1024,
        "epochs": 100,
        "valid_every": 100,
        "budget_minutes": args.minutes,
        "threads": 1,
    }
    return api.train(file, KbcSettings.build("auto", overrides=changes), out=folder / "run")


def speeds(run: Any) -> dict[str, Any]:
    """Milliseconds of a question in both ways, and how many of the first ten are the same."""
    from ekgn.kbc.search import Asked, ExactSearch, Hidden

    facts = run.graph.test[:: max(1, len(run.graph.test) // 128)][:128]
    asked = Asked.of(run.model, facts[:, 0], facts[:, 1])
    hidden = Hidden.of(np.empty(0, np.int64), np.empty(0, np.int64))
    found: dict[str, Any] = {}
    answers = {}
    for name, search in (("exact", ExactSearch(run.model)), ("index", run.search)):
        for size in (1, 64):
            parts = [
                Asked(asked.outputs_SBK[:, at : at + size], asked.log_weights_SB[:, at : at + size])
                for at in range(0, 8 * size if size == 1 else 128, size)
            ]
            for part in parts:  # the pages that they look at are mapped then
                search.best(part, 10, hidden)
            start = time.process_time()
            best = [search.best(part, 10, hidden) for part in parts]
            spent = time.process_time() - start
            found[f"{name}_ms_batch_{size}"] = round(1000 * spent / (size * len(parts)), 4)
        answers[name] = np.concatenate([part.entity_BP.numpy() for part in best])
    same = [len(set(a) & set(b)) / 10 for a, b in zip(*answers.values(), strict=True)]
    for size in (1, 64):
        exact, index = (found[f"{name}_ms_batch_{size}"] for name in ("exact", "index"))
        found[f"times_faster_batch_{size}"] = round(exact / index, 1)
    return {**found, "same_of_first_10": float(np.mean(same)), "questions": len(facts)}


if __name__ == "__main__":
    main()
