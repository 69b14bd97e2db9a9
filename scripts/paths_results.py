"""Train every system of shortest path synthesis for each graph seed, and write the page of results.

    python scripts/paths_results.py train --work runs/paths-results [--seeds 0 1 2]
    python scripts/paths_results.py page

`train` skips runs whose record is in results/paths already; `page` reads nothing but records.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
from pathlib import Path
from typing import Any

from ekgn import api
from ekgn.files import read_json, write_json
from ekgn.paths.baselines import baseline_record, dynamic_programming
from ekgn.paths.evaluate import evaluate
from ekgn.paths.graphs import PathsData, make
from marks import write
from paths_tables import (
    DECODINGS,
    MAIN,
    decoding_table,
    departures_table,
    evaluation_of,
    hops_table,
    read_records,
    steps_table,
    system_rows,
    systems_table,
)

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "paths"
PAGE = ROOT / "docs" / "paths.md"
# What each system changes of the preset `base`. Every one gets the same number of updates. The
# baseline has more dropout: with as little as the network it overfits (the last of EXTRA).
BASELINE: dict[str, Any] = {
    "system": "seq2seq",
    **dict.fromkeys(("input_dropout", "output_dropout", "decoder_dropout"), 0.15),
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "EKGN": {},
    "seq2seq": BASELINE,
    "EKGN, T_max = 1": {"max_steps": 1},
    "MLP in the network's place": {"controller": "mlp", "max_steps": 2, "step_loss": 0.0},
}
# Trained for the first seed only.
EXTRA: dict[str, dict[str, Any]] = {
    "EKGN, asked once": {"lookups": "once", "decoder_dropout": 0.05},
    "seq2seq, the network's dropout": {"system": "seq2seq", "decoder_dropout": 0.05},
    "seq2seq, with sub-paths": {**BASELINE, "subpaths": True, "epochs": 12},
    "seq2seq, with sub-paths, longer": {**BASELINE, "subpaths": True, "epochs": 50},
    "seq2seq, as long as EKGN": {**BASELINE, "epochs": 400},
}

log = logging.getLogger("paths_results")


def train_all(work: Path, seeds: list[int], threads: int, only: list[str] | None) -> None:
    """Make the graphs, train what is missing, evaluate it, keep the records."""
    jobs = [(label, seed) for seed in seeds for label in SYSTEMS]
    kept = [read_json(file) for file in RECORDS.glob("*.json")]
    done = {(record["label"], record["data"]["seed"]) for record in kept}
    for label, seed in [*jobs, *((label, seeds[0]) for label in EXTRA)]:
        if (label, seed) not in done and (only is None or label in only):
            train_one(label, seed, work, threads)
    for seed in seeds:
        data = graph_of(seed, work)
        result = evaluate(dynamic_programming(data), data.graph, data.test, "test")
        write_json(RECORDS / f"dynamic-programming-seed{seed}.json", baseline_record(data, result))


def graph_of(seed: int, work: Path) -> PathsData:
    """The paper's graph for a seed, made once."""
    folder = work / f"graph{seed}"
    if not folder.exists():
        make(seed=seed).save(folder)
    return PathsData.load(folder)


def train_one(label: str, seed: int, work: Path, threads: int) -> None:
    """One training, evaluated in every way the page shows."""
    changes = {**SYSTEMS, **EXTRA}[label]
    name = re.sub(r"\W+", "-", label.casefold())
    folder = work / f"{name}-seed{seed}"
    log.info("training %s, graph seed %d", label, seed)
    if (folder / "training_state.safetensors").exists():
        run = api.resume(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        changes = {**changes, "seed": seed, "threads": threads}
        run = api.train(graph_of(seed, work), changes, task="paths", out=folder)
    ways = list(DECODINGS.values()) if label in ("EKGN", "seq2seq") and seed == 0 else [MAIN]
    for way in ways:
        run.evaluate("test", way)
    for step in range(1, run.steps + 1 if run.steps > 1 else 1):
        run.evaluate("test", run.decoding(f"step:{step}"))
    write_json(RECORDS / f"{name}-seed{seed}.json", {**run.record, "label": label})
    log.info("%s seed %d: %s", label, seed, evaluation_of(run.record)["all"])


def page(template: str, folder: Path = RECORDS) -> str:
    """The page: its prose stays, each table between markers is made anew from the records."""
    records = read_records(folder)
    rows = {row.system: row for row in system_rows(records)}
    network, baseline = rows["EKGN"], rows["seq2seq"]
    ratio = sum(network.correct) / len(network.correct)
    ratio /= sum(baseline.correct) / len(baseline.correct)
    tables = {
        "systems": systems_table(records)
        + f"\nEKGN finds {ratio:.2f} times as many correct paths as seq2seq.\n",
        "decoding": decoding_table(records),
        "steps": steps_table(records),
        "hops": hops_table(records),
        "settings": departures_table(),
    }
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = template.partition(begin)
        _, _, after = rest.partition(end)
        template = f"{before}{begin}\n{table}\n{end}{after}"
    return template


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--work", type=Path, required=True, help="folder for graphs and runs")
    training.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    training.add_argument("--threads", type=int, default=0)
    training.add_argument("--only", nargs="+", help="only these systems")
    commands.add_parser("page")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if options.command == "train":
        train_all(options.work, options.seeds, options.threads, options.only)
    else:
        write(PAGE, page(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
