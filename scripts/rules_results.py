"""What rules alone reach on the benchmarks: results/rules/NAME.json, one record a benchmark.

    python scripts/rules_results.py wn18rr fb15k-237 fb15k wn18 [--minutes 4] [--threads 1]

The rules are kept in runs/rules/NAME, and mining goes on where it stopped. How many rules of an
answer count, and their discount, are chosen by MRR on a part of validation; test is ranked once.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ekgn.files import write_json
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.ranking import Evaluation, rank_split, summarise
from ekgn.kbc.rules import Rulebook, Rules, mine
from ekgn.records import environment

ROOT = Path(__file__).resolve().parent.parent
CHOICES = [(1, 1.0), (5, 1.0), (10, 0.1), (10, 0.3), (10, 0.6), (10, 0.8)]  # few, discount
VALID_LIMIT = 1500  # triples the choice is made on


def evaluation(rules: Rules, split: str, limit: int = 0) -> Evaluation:
    """The metrics of the rules alone on a split."""
    graph = rules.graph
    return summarise(rank_split(rules.scores, graph, split, limit=limit), graph, split)


def chosen(graph: KnowledgeGraph, book: Rulebook, threads: int) -> dict[str, Any]:
    """Validation MRR and hits@10 of every choice, and the best of them."""
    rules, rows = Rules(graph, book.rules, threads=threads), []
    for few, discount in CHOICES:
        rules.few, rules.discount = few, discount
        micro = evaluation(rules, "valid", VALID_LIMIT).micro
        rows.append({"few": few, "discount": discount, "mrr": micro.mrr, "hits": micro.hits_at_10})
        print(f"{graph.name}: {rows[-1]}", flush=True)
    return {"valid_triples": VALID_LIMIT, "tried": rows, "best": max(rows, key=lambda r: r["mrr"])}


def record(name: str, minutes: float, threads: int) -> dict[str, Any]:
    """Mine, choose on validation, rank test."""
    graph, began = load_graph(name), time.process_time()
    path = ROOT / "runs" / "rules" / name / "rules.safetensors"
    book = mine(graph, minutes=minutes, threads=threads, path=path)
    mined = {
        "rounds": book.rounds,
        "seconds": book.seconds,
        "cpu_seconds": time.process_time() - began,
        "closed": int(book.rules.closed.sum()),
        "constant": int((~book.rules.closed).sum()),
        "settings": asdict(book.mining),
    }
    print(f"{graph.name}: {mined}", flush=True)
    choice = chosen(graph, book, threads)
    best, began = choice["best"], time.process_time()
    rules = Rules(graph, book.rules, few=best["few"], discount=best["discount"], threads=threads)
    test = evaluation(rules, "test").as_dict()
    return {
        "data": graph.describe(),
        "mining": mined,
        "choice": choice,
        "test": test,
        "test_cpu_seconds": time.process_time() - began,
        "length_1": evaluation(Rules(graph, threads=threads), "test").as_dict(),
        "environment": environment(torch.device("cpu")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="+")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    for name in options.names:
        found = record(name, options.minutes, options.threads)
        write_json(ROOT / "results" / "rules" / f"{name}.json", found)
        micro = found["test"]["micro"]
        print(f"{name}: test MRR {micro['mrr']:.4f}, hits@10 {micro['hits_at_10']:.4f}", flush=True)


if __name__ == "__main__":
    main()
