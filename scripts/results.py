"""Publish runs: evaluate them, keep their records in results/kbc, and write docs/results.md.

    python scripts/results.py add RUN [NAME]   # evaluate, by rule and by forced step, and keep
    python scripts/results.py page             # write the page from the records alone

A test fails when the page is not what the records say.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ekgn.files import read_json, replace_file, write_json

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "kbc"
PAGE = ROOT / "docs" / "results.md"
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


def add(run: Path, name: str) -> None:
    """Evaluate a run on test, and on validation also at every forced step; keep its record."""
    from ekgn import api

    loaded = api.load(run)
    for rule in ("argmax", "mixture"):
        loaded.evaluate("test", rule=rule)
    loaded.rule_baseline("test")
    analysis = loaded.analyze("valid").as_dict()
    write_json(RECORDS / f"{name}.json", {**loaded.record, "analysis": analysis})


def page(folder: Path = RECORDS) -> str:
    """docs/results.md, from the records."""
    records = {file.stem: read_json(file) for file in sorted(folder.glob("*.json"))}
    parts = [INTRO, _main_table(records)]
    parts += [_details(name, record) for name, record in records.items()]
    return "".join(parts).rstrip() + "\n"


def _main_table(records: dict[str, Any]) -> str:
    lines = [
        "| run | data | hits@10 / MR | MRR | hits@1 / 3 | rule | rules alone | paper | elsewhere |"
        " minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, record in records.items():
        data = record["data"]["name"]
        rule = record["settings"]["answer_rule"]
        micro = record["evaluations"][f"test/{rule}"]["micro"]
        baseline = record["rule_baseline"]["test"]["micro"]
        paper = "{} / {}".format(*PAPER[data]) if data in PAPER else "not reported"
        cells = [
            name,
            data,
            _pair(micro),
            f"{micro['mrr']:.3f}",
            f"{100 * micro['hits_at_1']:.1f} / {100 * micro['hits_at_3']:.1f}",
            rule,
            f"{100 * baseline['hits_at_10']:.1f}",
            paper,
            ELSEWHERE.get(data, ""),
            f"{record['wall_seconds'] / 60:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n"


def _details(name: str, record: dict[str, Any]) -> str:
    """One run: its settings, its machine, what each step reaches, its categories."""
    settings, environment = record["settings"], record["environment"]
    evaluations = record["evaluations"]
    analysis = record["analysis"]
    rows = [
        [what + rule, _pair(metrics), f"{metrics['mrr']:.3f}"]
        for what, found in (("", analysis["metrics"]), ("no memory, ", analysis["no_memory"]))
        for rule, metrics in found.items()
    ]
    test = evaluations[f"test/{settings['answer_rule']}"]
    stops = analysis["stop"]["answering"]
    shares = ", ".join(f"step {step + 1}: {share:.1%}" for step, share in enumerate(stops))
    categories = [
        [kind, *(_pair(sides[side]) for side in ("head", "tail"))]
        for kind, sides in test["categories"].items()
    ]
    return (
        f"## {name}\n\n"
        f"{record['epochs']:.0f} epochs in {record['wall_seconds'] / 60:.0f} minutes on "
        f"{environment['threads']} threads of {environment['processor']} (load average at the end "
        f"{environment['load_average']}), seed {settings['seed']}, "
        f"{record['parameters']:,} parameters, {settings['max_steps']} steps, "
        f"{settings['num_slots']} memory vectors, {settings['embedding_dim']} dimensions. "
        f"All settings are in `results/kbc/{name}.json`.\n\n"
        "Validation, by answer rule, at every forced step, and with the attention replaced by its "
        "mean:\n\n"
        + _table(["rule", "hits@10 / MR", "MRR"], rows)
        + f"\nWhere the validation queries stop (step of most weight): {shares}.\n\n"
        f"Test by category, hits@10 / MR (`{settings['answer_rule']}`; mixture: "
        f"{_pair(evaluations['test/mixture']['micro'])}):\n\n"
        + _table(["category", "head missing", "tail missing"], categories)
        + "\n"
    )


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def _pair(metrics: dict[str, Any]) -> str:
    return f"{100 * metrics['hits_at_10']:.1f} / {metrics['mean_rank']:,.0f}"


def main() -> None:
    """Add a run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["add", "page"])
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("name", nargs="?")
    given = parser.parse_args()
    if given.action == "add":
        if given.run is None:
            parser.error("add needs the folder of a run")
        add(given.run, given.name or given.run.name)
    text = page()
    replace_file(PAGE, lambda aside: aside.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
