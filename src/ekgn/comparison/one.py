"""One model of a comparison, in a process of its own: `python -m ekgn.comparison.one OUT MODEL`.

It reads what OUT/comparison.json asks for and the graph beside it, trains, ranks the test split,
and writes OUT/MODEL.json. Its progress is one JSON line at a time on stdout.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ekgn.comparison import ours, peers
from ekgn.comparison.budget import RANKING_MEMORY, Budget
from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import rank_split, summarise
from ekgn.kbc.rules import Rules
from ekgn.records import environment, peak_memory

RULES = "rules"
EVERY = 0.5  # seconds between two lines of progress


def run(out: Path, name: str) -> dict[str, Any]:
    """Train a model and rank the test split with it; the record of both."""
    torch.set_num_threads(1)
    asked, graph = read_json(out / "comparison.json"), KnowledgeGraph.load(out)
    tell = _teller()
    budget = Budget(60 * asked["minutes"], lambda share: tell("training", share))
    found = _trained(graph, name, budget, asked["seed"], out / name)
    peak, scorer = peak_memory(), found.pop("scorer")
    done = [0]

    def ranked(count: int, total: int) -> None:
        done[0] += count
        tell("ranking", done[0] / total)

    ranks = rank_split(scorer, graph, "test", memory_budget=RANKING_MEMORY, on_progress=ranked)
    return {
        "model": name,
        "data": graph.describe(),
        "minutes": asked["minutes"],
        "seed": asked["seed"],
        **found,
        "training_seconds": round(budget.spent, 2),
        "peak_bytes": peak,
        "test": summarise(ranks, graph, "test").as_dict(),
        "environment": environment(torch.device("cpu")),
    }


def _trained(
    graph: KnowledgeGraph, name: str, budget: Budget, seed: int, folder: Path
) -> dict[str, Any]:
    """What a model scores with after its training, and what is recorded of that."""
    if name in ours.CHANGES:
        return ours.train(graph, name, budget, seed, folder)
    if name in peers.RECIPES:
        return peers.train(graph, name, budget, seed)
    with budget.running():
        rules = Rules(graph, threads=1)
    return {"scorer": rules.scores, "library": "ekgn", "rules": len(rules.table)}


def _teller() -> Callable[[str, float], None]:
    """A function that tells the parent what is being done, and how much of it is; not too often.

    When there is no parent any more, it interrupts.
    """
    parent, last = os.getppid(), [0.0]

    def tell(doing: str, share: float) -> None:
        if os.getppid() != parent:
            raise KeyboardInterrupt
        if time.monotonic() - last[0] > EVERY:
            last[0] = time.monotonic()
            print(json.dumps({"doing": doing, "share": share}), file=_OUTPUT, flush=True)

    return tell


def main() -> int:
    """Write the record of a model; what goes wrong is the last line of stderr."""
    out, name = Path(sys.argv[1]), sys.argv[2]
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("ekgn").setLevel(logging.INFO)
    try:
        write_json(out / f"{name}.json", run(out, name))
    except EkgnError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


_OUTPUT = sys.stdout
if __name__ == "__main__":
    sys.stdout = sys.stderr  # libraries may print: only progress is for the parent
    sys.exit(main())
