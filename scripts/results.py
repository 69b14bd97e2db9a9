"""Publish runs: evaluate them, keep their records in results/kbc, and write docs/results.md.

    python scripts/results.py add RUN          # evaluate, by readout and by forced step, and keep
    python scripts/results.py add RUN --rules  # also with mined rules as a voice
    python scripts/results.py page             # write the page from the records alone

The table of results in the README is written too. A test fails when either is not what the records
say.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from ekgn.canvas import GREY
from ekgn.files import read_json, write_json
from ekgn.tables import Table
from marks import filled, write
from paths_tables import read_records, system_rows

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
RECORDS = RESULTS / "kbc"
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "curves.svg"
PAPER = {"WN18": (95.3, 249), "FB15k": (92.7, 38), "FB15k-237": (46.4, 211)}
# Best elsewhere, hits@10 / mean rank, with where the figure is from.
ELSEWHERE = {
    "WN18": "96 / – (ComplEx-N3, Lacroix et al. 2018)",
    "FB15k": "91 / – (ComplEx-N3, Lacroix et al. 2018)",
    "FB15k-237": "59.9 / 114 (NBFNet, Zhu et al. 2021)",
    "WN18RR": "66.6 / 636 (NBFNet, Zhu et al. 2021)",
}
INTRO = """# Results

Filtered ranks of both sides of the test split, by the rules in [evaluation.md](evaluation.md). The
weights are those of the best validation hits@10; nothing was chosen on test. Every row is made
from a record in `results/kbc` by `python scripts/results.py page`; a record is made by training
and then `python scripts/results.py add RUN`.

"""
CURVES = """Validation during training, a line for each seed; dashed, the paper's test result.

![Learning curves](images/curves.svg)
<!-- {digest} -->

"""


def label_of(run: Any) -> str:
    """What a run is of: DATA-PRESET, and what was changed of the preset but its seed."""
    changes = {k: v for k, v in run.config["overrides"].items() if k not in ("seed", "threads")}
    words = [f"{run.graph.name.casefold()}-{run.config['preset']}"]
    return "+".join([*words, *(f"{name}={value}" for name, value in changes.items())])


def add(run: Path, with_rules: bool) -> None:
    """Evaluate a run on test, and on validation also at every forced step; keep its record."""
    from ekgn import api

    loaded = api.load(run)
    for readout in ("argmax", "mixture", "last", "step:1"):
        loaded.evaluate("test", readout=readout)
    loaded.rule_baseline("test")
    if with_rules:
        loaded.with_rules("test")
    analysis = loaded.analyze("valid").overall()
    label = label_of(loaded)
    record = {**loaded.record, "label": label, "analysis": analysis}
    write_json(RECORDS / f"{label}-seed{loaded.settings.seed}.json", record)


def page(results: Path = RESULTS) -> str:
    """docs/results.md, from the records."""
    kbc = _records(results / "kbc")
    parts = [INTRO, _main_table(kbc), CURVES.format(digest=_digest(kbc))]
    parts += [_details(record) for record in kbc]
    return "".join(parts).rstrip() + "\n"


def _records(folder: Path) -> list[Any]:
    return [read_json(file) for file in sorted(folder.glob("*.json"))]


def _groups(records: list[Any]) -> dict[str, list[Any]]:
    """The seeds of one label together."""
    groups: dict[str, list[Any]] = {}
    for record in records:
        groups.setdefault(record["label"], []).append(record)
    return groups


def _over_seeds(group: list[Any]) -> tuple[list[Any], dict[str, float], float]:
    """The test metrics of each seed, their means, and the mean minutes of a training."""
    readout = group[0]["settings"]["readout"]
    found = [record["evaluations"][f"test/{readout}"]["micro"] for record in group]
    mean = {key: fmean(micro[key] for micro in found) for key in found[0]}
    return found, mean, fmean(record["wall_seconds"] for record in group) / 60


def _main_table(records: list[Any]) -> str:
    """One row for each data and preset: the mean over its seeds."""
    rows = []
    for name, group in _groups(records).items():
        data, (found, mean, minutes) = group[0]["data"]["name"], _over_seeds(group)
        baseline = group[0]["rule_baseline"]["test"]["micro"]
        first = _mean_of(group, "evaluations", "test/step:1")
        rows.append(
            [
                name,
                _pair(mean),
                " ".join(_pair(micro) for micro in found) if len(found) > 1 else "one seed",
                f"{mean['mrr']:.3f}",
                f"{100 * mean['hits_at_1']:.1f} / {100 * mean['hits_at_3']:.1f}",
                f"{_pair(first)} / {first['mrr']:.3f}",
                f"{100 * baseline['hits_at_10']:.1f}",
                _with_rules(group),
                "{} / {}".format(*PAPER[data]) if data in PAPER else "not reported",
                ELSEWHERE.get(data, ""),
                f"{minutes:.0f}",
            ]
        )
    columns = [
        *("run", "hits@10 / MR", "by seed", "MRR", "hits@1 / 3", "its first answer alone"),
        *("rules of one fact alone, hits@10", "with rules (aux.)", "paper", "elsewhere", "minutes"),
    ]
    return _table(columns, rows) + "\n"


def _mean_of(group: list[Any], section: str, name: str) -> dict[str, float]:
    """The means over seeds of what a section of the records holds."""
    found = [record[section][name]["micro"] for record in group]
    return {key: fmean(each[key] for each in found) for key in found[0]}


def _with_rules(group: list[Any]) -> str:
    """What the mixture with mined rules reaches, where it was measured."""
    if not all("with_rules" in record for record in group):
        return "–"
    mean = _mean_of(group, "with_rules", "test")
    return f"{_pair(mean)} / {mean['mrr']:.3f}"


def readme_table(results: Path = RESULTS) -> str:
    """The results in the README: one row for each data of the paper's first task, one for paths."""
    rows = []
    for label, group in _groups(_records(results / "kbc")).items():
        data, (_, mean, minutes) = group[0]["data"]["name"], _over_seeds(group)
        _, *changes = label.split("+")
        recipe = ", ".join([f"preset `{group[0]['preset']}`", *(f"`{one}`" for one in changes)])
        rows.append(
            [
                f"{data}, {recipe}, {minutes:.0f} minutes",
                f"{_pair(mean)} / {mean['mrr']:.3f} (seeds: {len(group)})",
                f"{_mean_of(group, 'evaluations', 'test/step:1')['mrr']:.3f}",
                _with_rules(group),
                "{} / {}".format(*PAPER[data]) if data in PAPER else "not reported",
                _pair(group[0]["rule_baseline"]["test"]["micro"]),
            ]
        )
    systems = {row.system: row for row in system_rows(read_records(results / "paths"))}
    found = {
        name: f"{fmean(row.correct):,.0f} ({fmean(row.valid) / row.total:.1%})"
        for name, row in systems.items()
    }
    control = found["MLP in the network's place"]
    ours = (
        f"{found['EKGN']}; an MLP in its place {control}; sequence to sequence {found['seq2seq']}"
    )
    task = "shortest paths, correct of 10,000 (valid)"
    rows.append([task, ours, "–", "–", "1,319 (76.9%); 904 (69.1%)", "–"])
    columns = [
        *("data", "hits@10 / mean rank / MRR, network alone", "MRR at step 1"),
        "with rules (aux.)",
        *("the paper, hits@10 / mean rank", "rules of one fact alone"),
    ]
    return _table(columns, rows)


def _digest(records: list[Any]) -> str:
    """What the picture of the curves was drawn from."""
    curves = [[record["label"], record["curve"]] for record in records]
    return hashlib.sha256(json.dumps(curves, sort_keys=True).encode()).hexdigest()[:16]


def draw_curves(records: list[Any]) -> None:
    """Validation hits@10 and mean rank over the minutes of training, one column for each data."""
    from ekgn.canvas import BLUE, new_figure, save

    columns = _by_data(records)
    figure = new_figure(3.0 * len(columns), 4.6)
    panels = figure.subplots(2, len(columns), squeeze=False)
    for column, (data, runs) in enumerate(columns.items()):
        for row, (key, factor) in enumerate((("hits_at_10", 100), ("mean_rank", 1))):
            panel = panels[row][column]
            for run in runs:
                minutes = [line["seconds"] / 60 for line in run["curve"]]
                values = [factor * line[key] for line in run["curve"]]
                panel.plot(minutes, values, ".-", color=BLUE, alpha=0.7, linewidth=1)
            paper = PAPER.get(data)
            if paper:
                panel.axhline(paper[row], color=GREY, linestyle="--", linewidth=1)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0][column].set_title(f"{data}: hits@10 (%)")
        panels[1][column].set_title("mean rank")
        panels[1][column].set_xlabel("minutes")
    save(figure, PICTURE)
    drawn_from = f"<!-- {_digest(records)} -->\n"
    write(PICTURE, PICTURE.read_text(encoding="utf-8") + drawn_from)


def _by_data(records: list[Any]) -> dict[str, list[Any]]:
    """Records by the name of their data."""
    found: dict[str, list[Any]] = {}
    for record in records:
        found.setdefault(record["data"]["name"], []).append(record)
    return found


def _details(record: dict[str, Any]) -> str:
    """One run: its settings, its machine, what each step reaches, its categories."""
    settings, environment = record["settings"], record["environment"]
    evaluations = record["evaluations"]
    analysis = record["analysis"]
    rows = [
        [what + readout, _pair(metrics), f"{metrics['mrr']:.3f}"]
        for what, found in (("", analysis["metrics"]), ("no memory, ", analysis["no_memory"]))
        for readout, metrics in found.items()
    ]
    if "oracle" in analysis:
        best = analysis["oracle"]
        rows.append(["the best step of each answer (oracle)", _pair(best), f"{best['mrr']:.3f}"])
    test = evaluations[f"test/{settings['readout']}"]
    stops = analysis["stop"]["answering"]
    shares = ", ".join(f"step {step + 1}: {share:.1%}" for step, share in enumerate(stops))
    categories = [
        [kind, *(_pair(sides[side]) for side in ("head", "tail"))]
        for kind, sides in test["categories"].items()
    ]
    return (
        f"## {record['label']}, seed {settings['seed']}\n\n"
        f"{record['epochs']:.0f} epochs in {record['wall_seconds'] / 60:.0f} minutes on "
        f"{_threads(environment['threads'])} of {environment['processor']} (load average at the "
        f"end {environment['load_average']}), "
        f"{record['parameters']:,} parameters, {settings['max_steps']} steps, "
        f"{settings['num_slots']} memory vectors, {settings['embedding_dim']} dimensions. "
        f"All settings are in its record.{_time_to_paper(record)}\n\n"
        "Validation, by readout, at every forced step, and with the attention replaced by its "
        "mean:\n\n"
        + _table(["readout", "hits@10 / MR", "MRR"], rows)
        + f"\nWhere the validation queries stop (step of most weight): {shares}.\n\n"
        f"Test by category, hits@10 / MR (`{settings['readout']}`; mixture: "
        f"{_pair(evaluations['test/mixture']['micro'])}):\n\n"
        + _table(["category", "head missing", "tail missing"], categories)
        + "\n"
    )


def _time_to_paper(record: dict[str, Any]) -> str:
    """When validation was first as good as the paper's test result, in words."""
    data = record["data"]["name"]
    if data not in PAPER:
        return ""
    hits, rank = PAPER[data]
    minutes = [
        line["seconds"] / 60
        for line in record["curve"]
        if 100 * line["hits_at_10"] >= hits and line["mean_rank"] <= rank
    ]
    when = f"after {minutes[0]:.0f} minutes" if minutes else "at no time"
    return f" Validation was as good as the paper's test result ({hits} / {rank}) {when}."


def _table(columns: list[str], rows: list[list[str]]) -> str:
    return Table("", columns, rows).markdown()


def _threads(number: int) -> str:
    return "one thread" if number == 1 else f"{number} threads"


def _pair(metrics: dict[str, Any]) -> str:
    return f"{100 * metrics['hits_at_10']:.1f} / {metrics['mean_rank']:,.0f}"


def readme() -> str:
    """The README with its table of results made anew."""
    return filled(README, {"results": readme_table()})


def main() -> None:
    """Add a run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["add", "page"])
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--rules", action="store_true", help="also with mined rules as a voice")
    given = parser.parse_args()
    if given.action == "add":
        if given.run is None:
            parser.error("add needs the folder of a run")
        add(given.run, given.rules)
    draw_curves(_records(RECORDS))
    for file, text in ((PAGE, page()), (README, readme())):
        write(file, text)


if __name__ == "__main__":
    main()
