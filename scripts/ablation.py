"""What each part buys: one change of a preset a row, all else the same.

    python scripts/ablation.py train DATA [--preset auto | paper-log] [--seeds 0 1 2]
                                          [--only NAME ...] [--epochs N] [--embedding-dim N]
    python scripts/ablation.py page
    python scripts/ablation.py list

Every row is trained for the same epochs with the sizes, rate and penalty that the first row chose.
A graph and preset have one file in results/ablation, and one for each number of epochs given; a
row that is in it is not trained again.
Everything is measured on validation.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from ekgn import api
from ekgn.files import read_json, write_json
from ekgn.kbc.choose import EARLY, LATE, SPARED, choose
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.settings import KbcSettings
from ekgn.tables import Table
from marks import write

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "ablation"
PAGE = ROOT / "docs" / "parts.md"
Rows = dict[str, tuple[str, dict[str, Any]]]
CONTROLS: Rows = {
    "one-step": ("T_max = 1: the first answer alone", {"max_steps": 1}),
    "two-steps": ("T_max = 2", {"max_steps": 2}),
    "five-steps": ("T_max = 5", {"max_steps": 5}),
    "one-slot": ("one memory vector: lookups that cannot choose", {"num_slots": 1}),
    "mlp": (
        "a residual MLP in place of the lookups: no memory, no gate",
        {"controller": "mlp", "max_steps": 2, "readout": "last"},
    ),
}
DEFAULT: Rows = {
    "auto": ("the default", {}),
    **CONTROLS,
    "expected": ("the objective as printed, not its log", {"objective": "expected"}),
    "no-step-loss": ("no deep supervision", {"step_loss": 0.0}),
    "no-dropout": ("no dropout", {"dropout": 0.0}),
    "no-change-penalty": ("no penalty on what steps change", {"change_penalty": 0.0}),
    "none-held-out": ("no facts held out for the steps", {"held_out": 0.0}),
    "held-out": (
        "5% of the facts held out for the steps, from 80% of the training on",
        {"held_out": SPARED, "steps_from": EARLY},
    ),
    "late-steps": (
        "none held out; the steps from 95% of the training on",
        {"held_out": 0.0, "steps_from": LATE},
    ),
    "no-decay": ("the rate does not fall", {"decay_from": 1.0}),
    "half-size": ("half the numbers", {}),
    "rate": ("the other learning rate", {}),
    "no-penalty": ("no N3 penalty", {"penalty": 0.0}),
    "sampled": ("1,000 sampled candidates", {"negatives": 1000}),
    "distmult": ("DistMult's product", {"first_answer": "distmult"}),
    "rescal": ("RESCAL's product, 128 numbers", {"first_answer": "rescal", "embedding_dim": 128}),
}
PAPER: Rows = {
    "paper-log": ("the paper's recipe, with the gradient of log J", {}),
    "expected": ("the objective as printed, J: preset `paper`", {"objective": "expected"}),
    **CONTROLS,
}
ROWS = {"auto": DEFAULT, "paper-log": PAPER}  # the row of its own name first

log = logging.getLogger("ablation")


def change_of(label: str, first: KbcSettings) -> dict[str, Any]:
    """What a row changes of the default's settings for this graph."""
    if label == "half-size":
        return {"embedding_dim": first.embedding_dim // 2}
    if label == "rate":
        return {"learning_rate": 0.1 if first.learning_rate > 0.1 else 0.3}
    return (DEFAULT | PAPER)[label][1]


def train_row(
    label: str, seed: int, graph: KnowledgeGraph, first: KbcSettings, preset: str
) -> dict[str, Any]:
    """Train one row: what it changed, and what its steps do on validation."""
    row = change_of(label, first)
    settings = first.model_copy(update={**row, "seed": seed})
    with tempfile.TemporaryDirectory() as work:
        run = api.train(graph, settings, preset=preset, out=Path(work) / "run")
        found, record = run.analyze("valid"), run.record
    kept = found.overall()
    log.info("%s, seed %d: %s", label, seed, found.metrics[settings.readout])
    return {
        "label": label,
        "change": row,
        "seed": seed,
        "analysis": {key: kept[key] for key in ("metrics", "no_memory", "stop", "changes")},
        **{key: record[key] for key in ("settings", "parameters", "wall_seconds", "environment")},
    }


def train(given: argparse.Namespace) -> None:
    """Train the rows that have no record yet."""
    graph = load_graph(given.data)
    asked = {"epochs": given.epochs, "embedding_dim": given.embedding_dim}
    fixed = {"threads": given.threads, **{name: value for name, value in asked.items() if value}}
    preset, rows = given.preset, ROWS[given.preset]
    first, why = choose(graph, KbcSettings.build(preset, None, fixed))
    suffix = "" if preset == "auto" else f"-{preset}"
    suffix += f"-{given.epochs}-epochs" if given.epochs else ""
    target = RECORDS / f"{graph.name.casefold()}{suffix}.json"
    facts = {"name": graph.name, "train": len(graph.train), "valid": len(graph.valid)}
    about = {**facts, "entities": graph.num_entities, "relations": graph.num_relations}
    record: dict[str, Any] = (
        read_json(target)
        if target.exists()
        else {"format": 1, "data": about, "preset": preset, "rows": []}
    )
    record["chosen"] = why
    done = {(row["label"], row["seed"]) for row in record["rows"]}
    for seed in given.seeds:
        for label in given.only or rows:
            if (label, seed) not in done and (
                label == preset or is_a_change(change_of(label, first), first)
            ):
                record["rows"].append(train_row(label, seed, graph, first, preset))
                target.parent.mkdir(exist_ok=True)
                write_json(target, record)


def is_a_change(row: dict[str, Any], first: KbcSettings) -> bool:
    """Whether a row differs from the first; that of a graph may have it already."""
    return any(getattr(first, name) != value for name, value in row.items())


def page(folder: Path = RECORDS) -> str:
    """The page: its prose stays, each graph's table is made anew from its record."""
    text = PAGE.read_text(encoding="utf-8")
    prose = text.split("<!-- tables -->")[0]
    return prose + "<!-- tables -->\n" + "".join(_graph(read_json(f)) for f in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _graph(record: dict[str, Any]) -> str:
    """A table: mean over seeds, each seed, and the difference to the first row."""
    rows, preset = record["rows"], record["preset"]
    of = {label: [row for row in rows if row["label"] == label] for label in ROWS[preset]}
    first = of[preset]
    lines: list[list[str]] = []
    for label, (words, _) in ROWS[preset].items():
        if of[label]:
            lines.append(_line(words, [_main(row) for row in of[label]], first, of[label]))
        if label == preset:
            for readout in ("step:1", "last", "mixture"):
                key = f"step:{first[0]['settings']['max_steps']}" if readout == "last" else readout
                found = [row["analysis"]["metrics"][key] for row in first]
                lines.append(_line(f"the same weights, {READOUTS[readout]}", found, first, []))
            found = [row["analysis"]["no_memory"]["argmax"] for row in first]
            lines.append(
                _line("the same weights, attention replaced by its mean", found, first, [])
            )
    columns = ["row", "hits@10", "MRR", "MRR, by seed", "MRR - first row's", "minutes"]
    data, settings = record["data"], first[0]["settings"]
    seeds = ", ".join(str(row["seed"]) for row in first)
    return (
        f"\n## {data['name']}, preset `{preset}`\n\n"
        f"{data['train']:,} training facts, {data['entities']:,} entities. "
        f"{settings['epochs']} epochs, {settings['embedding_dim']} numbers, penalty "
        f"{settings['penalty']:g}, rate {settings['learning_rate']:g}; seeds {seeds}.\n\n"
        + Table(data["name"], columns, lines).markdown()
    )


READOUTS = {
    "step:1": "answered at step 1",
    "last": "answered at the last step",
    "mixture": "all steps mixed by the gate",
}


def _main(row: dict[str, Any]) -> dict[str, float]:
    """The metrics of the answers by the gate."""
    found: dict[str, float] = row["analysis"]["metrics"][row["settings"]["readout"]]
    return found


def _line(
    words: str,
    found: list[dict[str, float]],
    first: list[dict[str, Any]],
    rows: list[dict[str, Any]],
) -> list[str]:
    mrr = [one["mrr"] for one in found]
    more = mean(mrr) - mean(_main(row)["mrr"] for row in first[: len(mrr)])
    minutes = f"{mean(row['wall_seconds'] for row in rows) / 60:.1f}" if rows else ""
    return [
        words,
        f"{100 * mean(one['hits_at_10'] for one in found):.1f}%",
        f"{mean(mrr):.3f}",
        " / ".join(f"{value:.3f}" for value in mrr),
        f"{more:+.3f}" if rows != first else "",
        minutes,
    ]


def main() -> None:
    """Train rows, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("data", help="a benchmark, folder or file")
    training.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    training.add_argument("--preset", choices=ROWS, default="auto", help="what is changed")
    training.add_argument("--only", nargs="+", choices=sorted(DEFAULT | PAPER), help="these rows")
    training.add_argument("--epochs", type=int, help="epochs of every row")
    training.add_argument("--embedding-dim", type=int, help="numbers of every row")
    training.add_argument("--threads", type=int, default=0, help="CPU threads (0: all cores)")
    commands.add_parser("page")
    commands.add_parser("list")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if given.command == "train":
        train(given)
    elif given.command == "page":
        write(PAGE, page())
    else:
        for preset, rows in ROWS.items():
            print(
                f"{preset}:", *(f"  {name}: {words}" for name, (words, _) in rows.items()), sep="\n"
            )


if __name__ == "__main__":
    main()
