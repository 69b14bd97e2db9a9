"""What each part of the default buys: one change of preset `auto` a row, all else the same.

    python scripts/ablation.py DATA [--only NAME ...] [--epochs N] [--threads 1] [--work runs]
    python scripts/ablation.py --list

Every row is trained for the same epochs with the sizes and the penalty that the first row chose.
Rows that have a record in results/ablation are skipped; a row that was interrupted goes on.
Everything is measured on validation.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from ekgn import api
from ekgn.checkpoint import RunFolder
from ekgn.files import write_json
from ekgn.kbc.choose import choose
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.settings import KbcSettings

ROOT = Path(__file__).resolve().parent.parent
ROWS: dict[str, dict[str, Any]] = {
    "auto": {},
    "one-step": {"max_steps": 1},
    "two-steps": {"max_steps": 2},
    "five-steps": {"max_steps": 5},
    "one-slot": {"num_slots": 1},
    "last": {"answer_rule": "last"},
    "expected": {"objective": "expected"},
    "no-step-loss": {"step_loss": 0.0},
    "no-dropout": {"dropout": 0.0},
    "no-change-penalty": {"change_penalty": 0.0},
    "none-held-out": {"held_out": 0.0},
    "no-decay": {"decay_from": 1.0},
    "half-size": {"embedding_dim": 400},
    "no-penalty": {"penalty": 0.0},
    "sampled": {"negatives": 1000},
    "distmult": {"first_answer": "distmult"},
    "rescal": {"first_answer": "rescal", "embedding_dim": 128},
}

log = logging.getLogger("ablation")


def train_row(
    label: str, graph: KnowledgeGraph, settings: KbcSettings, row: dict[str, Any], work: Path
) -> None:
    """Train one row and keep its record, with what its steps do on validation."""
    name = f"{graph.name.casefold()}-{label}"
    folder, target = work / "ablation" / name, ROOT / "results" / "ablation" / f"{name}.json"
    if target.exists():
        return
    if RunFolder(folder).config.exists():
        run = api.resume(folder)
    else:
        run = api.train(graph, settings, preset="auto", out=folder)
    analysis = run.analyze("valid").overall()
    write_json(target, {**run.record, "label": label, "row": row, "analysis": analysis})
    log.info("%s: %s", label, analysis["metrics"][settings.answer_rule])


def main() -> None:
    """Train the rows that have no record yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", help="a benchmark, folder or file")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), help="only these rows")
    parser.add_argument("--epochs", type=int, help="epochs of every row")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (0: all cores)")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder for runs")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if given.list or not given.data:
        print(*(f"{name}: {change}" for name, change in ROWS.items()), sep="\n")
        return
    graph = load_graph(given.data)
    fixed = {"threads": given.threads, **({"epochs": given.epochs} if given.epochs else {})}
    first, _ = choose(graph, KbcSettings.build("auto", None, fixed))
    for label, row in ROWS.items():
        if label in (given.only or ROWS):
            train_row(label, graph, first.model_copy(update=row), row, given.work)


if __name__ == "__main__":
    main()
