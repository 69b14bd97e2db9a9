"""Do the lookups pay: variations over one first answer, which is trained once and rests.

    python scripts/steps.py first DATA OUT [--epochs N]    # the shared first answer
    python scripts/steps.py train OUT sizes [--keep DIR]   # the paper's Appendix A
    python scripts/steps.py train OUT ways [--only NAME]   # other ways to look up
    python scripts/steps.py page                           # docs/steps.md

The first answer sees 95% of the training facts; every row trains its steps over it on the other 5%,
with the same updates, and is measured on validation: by the gate, at every forced step, and by an
oracle that takes the best step of each question, which is the room there is. A row that is in its
file of results/steps is not trained again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

import lookups
from ekgn import api, canvas
from ekgn.checkpoint import RunFolder
from ekgn.distributed import ALONE, Group
from ekgn.files import read_json, write_json
from ekgn.kbc.analysis import Replay
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.choose import choose
from ekgn.kbc.graph import KnowledgeGraph, load_graph, spare_rows
from ekgn.kbc.model import KbcModel
from ekgn.kbc.ranking import Floats, Metrics, filter_answers, rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.records import environment
from ekgn.tables import Table
from ekgn.trainer import Trainer
from marks import filled, write

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "steps"
PAGE = ROOT / "docs" / "steps.md"
PICTURE = ROOT / "docs" / "images" / "steps-sizes.svg"
CHUNK = 256  # questions scored at once
# Of a picture's metrics: in words, by what they are multiplied, their place in the paper's pairs.
NAMES = {"hits_at_10": ("hits@10, %", 100, 0), "mean_rank": ("mean rank", 1, 1)}

log = logging.getLogger("steps")


class Row(NamedTuple):
    """A variation: what it is in words, and what it changes."""

    words: str
    settings: Mapping[str, Any] = MappingProxyType({})
    change: Callable[[KbcTask], lookups.Change] | None = None


# |E_KG|, T_max: hits@10 (%) and mean rank on FB15k's test split, from the paper's Appendix A.
PAPER = {
    (64, 1): (80.7, 55.7),
    (64, 2): (87.4, 49.2),
    (64, 5): (92.7, 38.0),
    (64, 8): (88.8, 32.9),
    (1, 5): None,
    (32, 5): (90.1, 38.7),
    (128, 5): (92.2, 36.1),
    (512, 5): (90.0, 35.3),
    (4096, 5): (88.7, 34.7),
}
SIZES = {
    f"{slots}x{steps}": Row(f"{slots:,} x {steps}", {"num_slots": slots, "max_steps": steps})
    for slots, steps in PAPER
    if steps > 1
}


WAYS = {
    "default": Row("the default's lookups: 64 slots, 3 steps"),
    "one-slot": Row("one slot: nothing to choose from", {"num_slots": 1}),
    "mlp": Row(
        "no lookups: a residual MLP", {"controller": "mlp", "max_steps": 2, "readout": "last"}
    ),
    "many-slots": Row("1,024 slots", {"num_slots": 1024}),
    "product-keys": Row(
        "16,384 slots read sparsely (product keys)", change=lambda task: lookups.product_keys
    ),
    "maps": Row("32 slots that are maps of rank 16", change=lambda task: lookups.maps),
    "hops": Row("soft relations followed, soft entities read", change=lambda task: lookups.hops),
    "known-answers": Row(
        "a first state told the question's other answers",
        change=lambda task: lookups.known_answers(*_known(task)),
    ),
    "no-change-penalty": Row("no penalty on what a step changes", {"change_penalty": 0.0}),
    "no-dropout": Row("no dropout", {"dropout": 0.0}),
    "no-step-loss": Row("no loss of each step", {"step_loss": 0.0}),
}
KINDS = {"sizes": SIZES, "ways": WAYS}


def _known(task: KbcTask) -> tuple[Answers, Answers]:
    """The answers of the facts that the tables were trained on, and those of all of training."""
    train, count = task.graph.train, task.graph.num_relations
    held_out = spare_rows(train, task.settings.seed)[: round(task.settings.held_out * len(train))]
    return Answers(np.delete(train, held_out, axis=0), count), Answers(train, count)


class OverFirst(KbcTask):
    """The steps alone, over the tables of a run, with what a row changes of the model."""

    def __init__(self, run: KbcRun, settings: KbcSettings, row: Row) -> None:
        super().__init__(run.graph, settings)
        self._run, self._row = run, row

    def new_model(self, group: Group = ALONE) -> KbcModel:
        model = super().new_model(group)
        with torch.no_grad():
            model.entities.weight.copy_(self._run.model.entities.weight)
            model.relations.weight.copy_(self._run.model.relations.weight)
        if self._row.change:
            self._row.change(self)(model)
        return model


def first(given: argparse.Namespace) -> None:
    """Train the first answer on the facts that are not held out for the steps."""
    graph = load_graph(given.data)
    # Without a phase of steps the whole training is the product's, less what is held out.
    asked: dict[str, Any] = {
        "max_steps": 2,
        "steps_from": 1.0,
        "tables_from": 1.0,
        "threads": given.threads,
    }
    asked |= {"epochs": given.epochs} if given.epochs else {}
    for name in ("embedding_dim", "penalty"):
        asked |= {name: getattr(given, name)} if getattr(given, name) else {}
    settings, why = choose(graph, KbcSettings.build("auto", None, asked))
    log.info("chosen: %s", why)
    api.train(graph, settings, preset="auto", out=given.out)


def train(given: argparse.Namespace) -> None:
    """Train the rows that have no record yet."""
    run = api.load(given.out)
    rows = KINDS[given.kind]
    target = RECORDS / f"{run.graph.name.casefold()}-{given.kind}.json"
    record = read_json(target) if target.exists() else _about(run, given)
    done = {(row["label"], row["seed"]) for row in record["rows"]}
    for seed in given.seeds:
        for label in given.only or rows:
            if (label, seed) not in done:
                record["rows"].append({"label": label, **train_row(run, label, seed, given)})
                write_json(target, record)


def _about(run: KbcRun, given: argparse.Namespace) -> dict[str, Any]:
    """The head of a file: the first answer that its rows share."""
    about = {key: run.record[key] for key in ("settings", "epochs", "wall_seconds", "parameters")}
    about["validation"] = {
        key: run.record["curve"][-1][key] for key in ("hits_at_10", "mean_rank", "mrr")
    }
    graph = {"name": run.graph.name, "train": len(run.graph.train), "valid": len(run.graph.valid)}
    return {"data": graph, "first": about, "epochs": given.epochs or 1, "rows": []}


def train_row(run: KbcRun, label: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Train one row: what it changed, and what its steps do on validation."""
    row = KINDS[given.kind][label]
    epochs = given.epochs or 1
    changes = {"max_steps": 3, **row.settings, "steps_from": 0.0, "seed": seed, "epochs": epochs}
    changes |= {"valid_every": epochs, "threads": given.threads}
    settings = run.settings.model_copy(update=changes)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        folder = given.keep / f"{label}-seed{seed}" if given.keep else Path(work) / "run"
        trainer = Trainer(OverFirst(run, settings, row), RunFolder(folder))
        trainer.fit()
    minutes = (time.process_time() - started) / 60
    found = measured(run.graph, trainer.model.eval())
    log.info("%s: %s", row.words, {name: round(one["mrr"], 4) for name, one in found.items()})
    learned = sum(p.numel() for p in trainer.model.network.parameters())
    return {
        "seed": seed,
        "change": dict(row.settings),
        "metrics": found,
        "processor_minutes": round(minutes, 2),
        "network_parameters": learned,
        "environment": environment(torch.device("cpu")),
    }


@torch.no_grad()
def measured(graph: KnowledgeGraph, model: KbcModel) -> dict[str, Any]:
    """Validation metrics by the gate, at every step, and of the best step of each question."""
    replayed = Replay(model, Answers(graph.valid, graph.num_relations))
    known, steps = filter_answers(graph, "valid"), model.settings.max_steps
    names = ["argmax", "mixture", *(f"step:{n + 1}" for n in range(steps))]
    ranks = {name: rank_split(replayed.scorer(name), graph, "valid", known=known) for name in names}
    by_step_TP = np.stack([ranks[f"step:{n + 1}"].realistic for n in range(steps)])
    one = ranks["step:1"]
    of_pair = replayed.queries.rows(one.heads, one.relations)
    ranks_of = {name: found.realistic for name, found in ranks.items()}
    ranks_of["oracle"] = by_step_TP.min(axis=0)
    chosen_P = learned_gate(replayed, by_step_TP, of_pair)
    ranks_of["learned gate"] = by_step_TP[chosen_P, np.arange(len(chosen_P))]
    return {name: asdict(Metrics.over(each, one.candidates)) for name, each in ranks_of.items()}


def learned_gate(replayed: Replay, by_step_TP: Floats, of_pair: Ints) -> Ints:
    """The step of each pair's question, chosen by how sure the answers of all steps look.

    Top probability, margin, entropy, whether the first answer changed, and the gate's own logits.
    Trees learn what each step gains over the first on one half of the validation questions and
    choose on the other, and the other way round: more than a gate could know, as it is told of
    validation.
    """
    steps, queries = len(by_step_TP), len(replayed.queries)
    tops, looks = zip(*(_looks(replayed, n + 1) for n in range(steps)), strict=True)
    changed = [(top_Q != tops[0]).astype(float)[:, None] for top_Q in tops]
    stops = replayed.record.stop_logits_TB.T.cpu().numpy()
    features_QF = np.concatenate([*looks, *changed, stops], axis=1)
    count_Q = np.bincount(of_pair, minlength=queries)
    gain_TP = 1 / by_step_TP - 1 / by_step_TP[0]
    gain_TQ = np.stack([np.bincount(of_pair, gain, queries) / count_Q for gain in gain_TP])
    half_Q = np.random.default_rng(0).random(queries) < 0.5
    guess_TQ = np.zeros((steps, queries))
    for fits in (half_Q, ~half_Q):
        for step in range(1, steps):
            trees = HistGradientBoostingRegressor(max_depth=4, random_state=0)
            trees.fit(features_QF[fits], gain_TQ[step, fits], sample_weight=count_Q[fits])
            guess_TQ[step, ~fits] = trees.predict(features_QF[~fits])
    chosen: Ints = guess_TQ.argmax(axis=0)[of_pair]
    return chosen


def _looks(replayed: Replay, step: int) -> tuple[Ints, Floats]:
    """The first answer of each question at a step, and its probability, margin and entropy."""
    scores, queries = replayed.scorer(f"step:{step}"), replayed.queries
    tops, looks = [], []
    for start in range(0, len(queries), CHUNK):
        here = slice(start, start + CHUNK)
        log_p_BN = scores(queries.heads[here], queries.relations[here]).log_softmax(dim=1)
        best_B2, first_B2 = log_p_BN.topk(2, dim=1)
        entropy_B = -(log_p_BN.exp() * log_p_BN.clamp(min=-1e4)).sum(dim=1)
        tops.append(first_B2[:, 0].cpu().numpy())
        looks.append(torch.stack([*best_B2.T, entropy_B], dim=1).double().cpu().numpy())
    return np.concatenate(tops), np.concatenate(looks)


def page() -> str:
    """docs/steps.md: its prose stays, the tables are made anew from the records."""
    return filled(PAGE, {"sizes": _sizes_tables(), "ways": _ways_tables()})


def _records(kind: str) -> list[dict[str, Any]]:
    return [read_json(file) for file in sorted(RECORDS.glob(f"*-{kind}.json"))]


def _head(record: dict[str, Any]) -> str:
    first, data = record["first"], record["data"]
    settings, held = first["settings"], first["settings"]["held_out"]
    found = first["validation"]
    return (
        f"\n### {data['name']}\n\nThe first answer: {settings['embedding_dim']} numbers, "
        f"{first['epochs']:.0f} epochs, {1 - held:.0%} of the training facts; validation "
        f"{100 * found['hits_at_10']:.1f} / {found['mean_rank']:,.0f} / {found['mrr']:.4f}. "
        f"Each row: {record['epochs']} epoch's worth of updates on the other {held:.0%}.\n\n"
    )


def _ways_tables() -> str:
    return "".join(_head(record) + _ways_table(record) for record in _records("ways"))


def _ways_table(record: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for label, row in WAYS.items():
        found = [one for one in record["rows"] if one["label"] == label]
        for one in found:
            seeds = f", seed {one['seed']}" if len(found) > 1 else ""
            rows.append([row.words + seeds, *_cells(one)])
    columns = ["lookups", "step 1", "gate", "last step", "best fixed", "learned gate", "oracle"]
    columns += ["minutes"]
    return Table("", columns, rows).markdown()


def _cells(row: dict[str, Any]) -> list[str]:
    """MRR in each way to read the same weights, and the processor minutes of the training."""
    mrr = {name: found["mrr"] for name, found in row["metrics"].items()}
    fixed = {int(name[5:]): value for name, value in mrr.items() if name.startswith("step:")}
    best = max(fixed, key=lambda step: fixed[step])
    shown = [fixed[1], mrr["argmax"], fixed[max(fixed)], fixed[best], mrr["learned gate"]]
    cells = [f"{value:.4f}" for value in [*shown, mrr["oracle"]]]
    cells[3] += f" (step {best})"
    return [*cells, f"{row['processor_minutes']:.1f}"]


def _sizes_tables() -> str:
    return "".join(_head(record) + _sizes_table(record) for record in _records("sizes"))


def _sizes_table(record: dict[str, Any]) -> str:
    """The cells, the paper's beside them; the first answer is T_max = 1."""
    rows = []
    for (slots, steps), paper in PAPER.items():
        for one in record["rows"]:
            if one["label"] == (f"{slots}x{steps}" if steps > 1 else "64x2"):
                found = one["metrics"]
                ways = ("argmax", f"step:{steps}", "oracle") if steps > 1 else ("step:1",)
                cells = [_figure(found[way]) for way in ways] + [""] * (3 - len(ways))
                quoted = f"{paper[0]} / {paper[1]}" if paper else "–"
                rows.append([f"{slots:,}", str(steps), *cells, quoted])
    columns = ["slots", "T_max", "by the gate", "last step", "oracle", "the paper, test"]
    return Table("", columns, rows).markdown()


def _figure(found: dict[str, float]) -> str:
    return f"{100 * found['hits_at_10']:.2f} / {found['mean_rank']:,.1f} / {found['mrr']:.4f}"


def draw() -> None:
    """Hits@10 and mean rank of the cells by T_max and by size, beside the paper's points."""
    for record in _records("sizes"):
        found = {row["label"]: row["metrics"] for row in record["rows"]}
        panels = [_panel(found, name, by) for name in NAMES for by in ("steps", "slots")]
        figure = canvas.side_by_side(panels)
        canvas.save(figure, PICTURE)
        drawn = PICTURE.read_text(encoding="utf-8") + f"<!-- {_digest(found)} -->\n"
        write(PICTURE, drawn)


def _digest(found: dict[str, Any]) -> str:
    """What the picture was drawn from."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def _panel(found: dict[str, Any], name: str, by: str) -> canvas.Panel:
    """One metric by the number of steps (64 slots) or by the number of slots (5 steps)."""
    place, other, fixed = (1, 0, 64) if by == "steps" else (0, 1, 5)
    cells = sorted((cell for cell in PAPER if cell[other] == fixed), key=lambda cell: cell[place])
    words, scale, at = NAMES[name]

    def ours(cell: tuple[int, int]) -> float:
        label, way = (f"{cell[0]}x{cell[1]}", "argmax") if cell[1] > 1 else ("64x2", "step:1")
        return float(scale * found[label][way][name]) if label in found else math.nan

    def on(panel: Any) -> None:
        x = list(range(len(cells)))
        quoted = [pair[at] if (pair := PAPER[cell]) else math.nan for cell in cells]
        panel.plot(x, [ours(cell) for cell in cells], "o-", label="here, validation")
        panel.plot(x, quoted, "s--", color=canvas.GREY, label="the paper, test")
        panel.set_xticks(x, [f"{cell[place]:,}" for cell in cells])
        panel.set_title(f"{words} by {'T_max, 64 slots' if by == 'steps' else 'slots, T_max 5'}")
        panel.legend(frameon=False)

    return on


def main() -> None:
    """Train the first answer or rows over it, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    begin = commands.add_parser("first")
    begin.add_argument("data", help="a benchmark, folder or file")
    begin.add_argument("out", type=Path, help="folder of the shared first answer")
    begin.add_argument("--embedding-dim", type=int)
    begin.add_argument("--penalty", type=float, help="as the default's record has it: no trials")
    rows = commands.add_parser("train")
    rows.add_argument("out", type=Path, help="folder of the shared first answer")
    rows.add_argument("kind", choices=KINDS)
    rows.add_argument("--only", nargs="+", choices=sorted({*WAYS, *SIZES}), help="these rows")
    rows.add_argument("--seeds", type=int, nargs="+", default=[0])
    rows.add_argument("--keep", type=Path, help="a folder that keeps the runs")
    for command in (begin, rows):
        command.add_argument("--epochs", type=int)
        command.add_argument("--threads", type=int, default=1, help="CPU threads")
    commands.add_parser("page")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if given.command == "page":
        draw()
        write(PAGE, page())
    else:
        {"first": first, "train": train}[given.command](given)


if __name__ == "__main__":
    main()
