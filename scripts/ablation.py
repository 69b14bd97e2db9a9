"""What each departure from the paper buys on FB15k-237: one change a row, equal time for all rows.

    python scripts/ablation.py train --minutes 10 [--only NAME ...] [--threads 1]
    python scripts/ablation.py depth                # T_max 1 and 5 for all epochs of two presets
    python scripts/ablation.py list

In `train`, every row gets as many epochs as fit into its minutes, measured first, so that each
finishes its own schedule of learning rates; rows after the first are timed beside row `base`, and
get as much work as that one got. Rows whose record is in results/ablation (results/depth) are
skipped; a row that was interrupted goes on. Everything is measured on validation. docs/results.md
shows the tables.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import torch

from ekgn import api
from ekgn.checkpoint import RunFolder
from ekgn.files import read_json, write_json
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.trainer import Trainer

ROOT = Path(__file__).resolve().parent.parent
# Name -> (preset, the one change).
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("base", {}),
    "objective": ("base", {"objective": "expected"}),
    "negatives": ("base", {"negatives": 20}),
    "sgd": ("base", {"optimizer": "sgd"}),
    "unit-entities": ("base", {"unit_entities": True}),
    "l1": ("base", {"score": "l1"}),
    "steps-1": ("base", {"max_steps": 1}),
    "steps-2": ("base", {"max_steps": 2}),
    "steps-3": ("base", {"max_steps": 3}),
    "steps-5": ("base", {"max_steps": 5}),
    "steps-8": ("base", {"max_steps": 8}),
    "step-loss": ("base", {"step_loss": 0.0}),
    "rivals": ("base", {"rival_answers": False}),
    "tables": ("base", {"shared_entities": False}),
    "modulation": ("base", {"modulate_head": False}),
    "norm": ("base", {"first_norm": "none"}),
    "dropout": ("base", {"input_dropout": 0.0, "output_dropout": 0.0}),
    "sparse": ("sparse", {}),
    "paper": ("paper", {}),
}
# The data and preset of T_max 1 against 5.
DEPTH = {"fb15k-237": "base", "wn18rr": "sparse"}
WARM_UP, TIMED = 5, 40  # updates

log = logging.getLogger("ablation")


def rows() -> dict[str, KbcSettings]:
    """The settings of every row that differs from the base row."""
    found = {
        name: KbcSettings.build(preset, None, change) for name, (preset, change) in ROWS.items()
    }
    return {
        name: settings
        for name, settings in found.items()
        if name == "base" or settings != found["base"]
    }


def seconds_per_epoch(graph: KnowledgeGraph, *settings: KbcSettings) -> list[float]:
    """Seconds of an epoch at each of the settings, timed in turns by updates of throw-away models.

    In turns, so that what else the machine does slows all of them alike.
    """
    trainers = [Trainer(KbcTask(graph, each), RunFolder(Path("unused"))) for each in settings]
    spent = [0.0] * len(trainers)
    for update in range(WARM_UP + TIMED):
        for place, trainer in enumerate(trainers):
            start = time.monotonic()
            trainer.update()
            spent[place] += (time.monotonic() - start) * (update >= WARM_UP)
    return [s / TIMED * t.per_epoch for s, t in zip(spent, trainers, strict=True)]


def epochs_within(
    graph: KnowledgeGraph, settings: KbcSettings, base: KbcSettings, minutes: float
) -> int:
    """How many epochs fit into the minutes; once row `base` is there, the time it took counts."""
    record = ROOT / "results" / "ablation" / "base.json"
    if not record.exists():
        return max(1, int(60 * minutes / seconds_per_epoch(graph, settings)[0]))
    row, of_base = seconds_per_epoch(graph, settings, base)
    epochs: float = read_json(record)["epochs"]
    return max(1, round(epochs * of_base / row))


def train_row(
    label: str,
    part: str,
    graph: KnowledgeGraph,
    settings: KbcSettings,
    row: dict[str, Any],
    work: Path,
) -> None:
    """Train one row, for some minutes or all epochs of its preset; keep its validation record."""
    folder, target = work / part / label, ROOT / "results" / part / f"{label}.json"
    if target.exists():
        return
    if RunFolder(folder).state.exists():
        run = api.resume(folder)
    else:
        if row["minutes"] is not None:
            epochs = epochs_within(graph, settings, rows()["base"], row["minutes"])
            log.info("%s: %d epochs in %g minutes", label, epochs, row["minutes"])
            changed = {"epochs": epochs, "valid_every": max(1, epochs // 5)}
            settings = settings.model_copy(update=changed)
        run = api.train(graph, settings, preset=row["preset"], out=folder)
    analysis = run.analyze("valid").overall()
    write_json(target, {**run.record, "label": label, "row": row, "analysis": analysis})
    log.info("%s: %s", label, analysis["metrics"]["argmax"])


def train_depth(threads: int, work: Path) -> None:
    """T_max 1 and 5 for all epochs of the presets."""
    for data, preset in DEPTH.items():
        for steps in (1, 5):
            change = {"max_steps": steps}
            settings = KbcSettings.build(preset, None, {**change, "threads": threads})
            row = {"preset": preset, "change": change, "minutes": None}
            label = f"{data}-{preset}+max_steps={steps}"
            train_row(label, "depth", load_graph(data), settings, row, work)


def main() -> None:
    """Train the rows that have no record yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["train", "depth", "list"])
    parser.add_argument("--minutes", type=float, default=10.0, help="training time of a row")
    parser.add_argument("--only", nargs="+", choices=sorted(ROWS), help="only these rows")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (0: all cores)")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder for runs")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(given.threads or torch.get_num_threads())
    if given.action == "depth":
        train_depth(given.threads, given.work)
        return
    wanted = {name: settings for name, settings in rows().items() if name in (given.only or ROWS)}
    if given.action == "list":
        print(*wanted, sep="\n")
        return
    graph = load_graph("fb15k-237")
    for name, settings in wanted.items():
        preset, change = ROWS[name]
        row = {"preset": preset, "change": change, "minutes": given.minutes}
        settings = settings.model_copy(update={"threads": given.threads})
        train_row(name, "ablation", graph, settings, row, given.work)


if __name__ == "__main__":
    main()
