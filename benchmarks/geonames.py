"""A real graph of a quarter of a million entities, by the default: trained, ranked, asked.

    python benchmarks/geonames.py --minutes 30        # needs EKGN_DATA; one thread

GeoNames: 945,463 facts, 239,844 entities, 10 relations; validation and test are drawn by seed.
Seconds are those of the processor, so that other work on the machine does not count; the training
has its minutes by the clock. Ranks are exact ones, those of the first answer alone beside them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

ASKED = 20  # questions that are timed alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/scale/geonames.json"))
    parser.add_argument("--run", type=Path, default=Path("runs/geonames"), help="a new folder")
    parser.add_argument("--minutes", type=float, default=30)
    given = parser.parse_args()
    if "EKGN_DATA" not in os.environ:
        parser.error("set EKGN_DATA to the folder of the benchmarks: it holds scale/geonames")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        from ekgn.files import write_json

        found = measure(given.run, given.minutes)
        write_json(given.out, found)


def measure(folder: Path, minutes: float) -> dict[str, Any]:
    """From the file to answers."""
    import torch

    from ekgn import api
    from ekgn.kbc.graph import load_graph
    from ekgn.records import environment, peak_memory

    torch.set_num_threads(1)
    data = Path(os.environ["EKGN_DATA"]) / "scale" / "geonames"
    started = time.process_time()
    graph = load_graph(data / "triples.tsv", names=[data / "names.tsv"])
    loaded = time.process_time()
    run = api.train(graph, preset="auto", out=folder, budget_minutes=minutes, threads=1)
    trained = time.process_time()
    ranked = {readout: run.evaluate("test", readout=readout) for readout in ("argmax", "step:1")}
    done = time.process_time()
    asked = [(graph.entities.ids[h], graph.relations.ids[r]) for h, r, _ in graph.test[:ASKED]]
    run.predict(*asked[0])
    before = time.process_time()
    for question in asked:
        run.predict(*question)
    answered = time.process_time()
    return {
        "entities": graph.num_entities,
        "facts": {split: len(getattr(graph, split)) for split in ("train", "valid", "test")},
        "load_seconds": round(loaded - started, 2),
        "train_seconds": round(trained - loaded, 1),
        "epochs": run.record["epochs"],
        "chosen": run.record["data"].get("chosen"),
        "metrics": {name: found.headline() for name, found in ranked.items()},
        "rank_seconds": round((done - trained) / len(ranked), 1),
        "answer_ms": round(1000 * (answered - before) / ASKED, 2),
        "peak_memory_bytes": peak_memory(),
        "settings": run.settings.model_dump(mode="json"),
        "environment": environment(run.device),
    }


if __name__ == "__main__":
    main()
