"""The tables of docs/completion.md, growth.md, explorer.md and rules.md, made from records.

    python scripts/evidence_docs.py keep RUN ...   # the backtest of a run, into results/backtest
    python scripts/evidence_docs.py page

Backtests are made by `ekgn backtest`, the other records by scripts/extend_results.py,
scripts/faithful.py, scripts/rules_results.py and benchmarks/load.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ekgn.files import read_json, write_json
from ekgn.tables import Table, percent
from marks import filled, write

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
COMPLETION = ROOT / "docs" / "completion.md"
GROWTH = ROOT / "docs" / "growth.md"
EXPLORER = ROOT / "docs" / "explorer.md"
RULES = ROOT / "docs" / "rules.md"
WAYS = {
    "what_if": "the what-if's facts",
    "nearest": "the answers of the nearest question",
    "random": "random facts of the same two entities",
}
# As PyClause reports it.
ANYBURL = {"WN18RR": "57.5% / 0.498", "FB15k-237": "52.4% / 0.348"}
Record = dict[str, Any]


def keep(run: Path) -> None:
    """Copy what a backtest found from the record of its run."""
    record = read_json(run / "record.json")
    for by, found in record["backtest"].items():
        parts = ("overrides", "settings", "data", "wall_seconds", "epochs", "best", "confidence")
        kept = {name: record[name] for name in parts}
        name = f"{record['data']['name'].casefold()}-{by}.json"
        write_json(RESULTS / "backtest" / name, {**kept, "backtest": found})


def backtests(folder: Path = RESULTS) -> str:
    """What came back, and whether what was promised held."""
    columns = ["graph", "taken away", "facts", "calibration error, share → confidence"]
    columns += ["promised", "expected", "precision", "recall", "surest 100", "surest 1,000"]
    return Table(
        "", columns, [_backtest(each) for each in _records(folder / "backtest")]
    ).markdown()


def _backtest(record: Record) -> list[str]:
    found, curve = record["backtest"], {one["facts"]: one for one in record["backtest"]["curve"]}
    check = record["confidence"].get("valid")
    error = check and check["calibration_error_first"]
    kept = found["at_promise"] or {}
    return [
        record["data"]["name"],
        found["by"],
        f"{found['taken']:,}",
        f"{error['before']:.3f} → {error['after']:.3f}" if error else "too few to fit",
        *(_number(found[name]) for name in ("promised", "expected")),
        *(_number(kept.get(name)) for name in ("precision", "recall")),
        *(_number(curve.get(count, {}).get("precision")) for count in (100, 1_000)),
    ]


def calibration(folder: Path = RESULTS) -> str:
    """The confidence of published runs."""
    rows = []
    for record in _records(folder / "completion"):
        check = record["confidence"]["valid"]
        errors = [check[f"calibration_error{kind}"] for kind in ("_first", "")]
        pairs = [f"{error['before']:.3f} → {error['after']:.3f}" for error in errors]
        rows.append(
            [record["data"]["name"], f"{check['candidates']:,}", f"{check['true']:,}", *pairs]
        )
    columns = ["graph", "candidates", "true", "error of first places", "of all candidates"]
    return Table("", columns, rows).markdown()


def faithful(folder: Path = RESULTS) -> str:
    """What removing the facts of explanations does to the answers."""
    rows = []
    for record in _records(folder / "faithful"):
        found = record["result"]
        chance = found["random"]["drop"]
        rows += [
            [
                record["graph"],
                words,
                f"{found[way]['removed']:,}",
                f"{found['retrained']['mrr']:.3f} → {found[way]['mrr']:.3f}",
                f"{found[way]['drop']:.3f}",
                f"{found[way]['drop'] / chance:.1f}" if way != "random" and chance > 0 else "",
            ]
            for way, words in WAYS.items()
        ]
    columns = ["graph", "taken out of training", "facts", "MRR", "drop", "times random's"]
    return Table("", columns, rows).markdown()


def rules_alone(folder: Path = RESULTS) -> str:
    """What mined rules reach without a network."""
    rows = []
    for record in _records(folder / "rules"):
        mined, chosen = record["mining"], record["choice"]["best"]
        micro, one_fact = record["test"]["micro"], record["length_1"]["micro"]
        rows.append(
            [
                record["data"]["name"],
                f"{mined['closed'] + mined['constant']:,}",
                f"{mined['cpu_seconds']:,.0f}",
                f"{chosen['few']}, {chosen['discount']:g}",
                f"{_hits(micro)} / {micro['mean_rank']:,.0f} / {micro['mrr']:.3f}",
                f"{_hits(one_fact)} / {one_fact['mrr']:.3f}",
                ANYBURL.get(record["data"]["name"], "–"),
            ]
        )
    columns = ["graph", "rules", "seconds of mining", "rules of an answer, β"]
    columns += ["hits@10 / mean rank / MRR", "rules of one fact", "AnyBURL, hits@10 / MRR"]
    return Table("", columns, rows).markdown()


def growth(folder: Path = RESULTS) -> str:
    """What fitted rows of new entities reach."""
    rows = [
        [
            record["graph"],
            count,
            f"{given['refit']['count']:,}",
            *(_hits(given[row]) for row in ("refit", "retrained", "mean", "random")),
            f"{_hits(given['old_before'])} → {_hits(given['old_after'])}",
        ]
        for record in _records(folder / "extend")
        for count, given in record["given"].items()
    ]
    columns = ["graph", "facts of each, at most", "questions", "fitted rows", "full training"]
    columns += ["mean row", "random row", "old test facts"]
    return Table("", columns, rows).markdown()


def load(folder: Path = RESULTS) -> str:
    """What the server bears."""
    rows = []
    for record in _records(folder / "web"):
        times, alone = record["milliseconds"], record["answer_milliseconds"]
        extras = [name for name in ("confidence", "rules") if record[f"has_{name}"]]
        rows.append(
            [
                f"{record['graph']}, with {' and '.join(extras) or 'neither'}",
                f"{record['predictions_per_second']:,.0f}",
                *(f"{times[name]:,.0f}" for name in ("p50", "p99")),
                f"{alone['p50']:,.0f}",
                f"{record['memory_growth_mb']:,.0f}",
                record["environment"]["processor"],
            ]
        )
    columns = ["run", "predictions a second", "p50, ms", "p99, ms", "a whole answer, ms"]
    columns += ["memory growth, MB", "processor"]
    return Table("", columns, rows).markdown()


def pages() -> dict[Path, str]:
    """The pages with their tables made anew."""
    completion = {"backtests": backtests(), "calibration": calibration()}
    return {
        COMPLETION: filled(COMPLETION, completion),
        GROWTH: filled(GROWTH, {"faithful": faithful(), "growth": growth()}),
        EXPLORER: filled(EXPLORER, {"load": load()}),
        RULES: filled(RULES, {"alone": rules_alone()}),
    }


def _records(folder: Path) -> list[Record]:
    return [read_json(file) for file in sorted(folder.glob("*.json"))]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _hits(metrics: dict[str, float]) -> str:
    return percent(metrics["hits_at_10"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("keep").add_argument("runs", type=Path, nargs="+")
    commands.add_parser("page")
    given = parser.parse_args()
    if given.command == "keep":
        for run in given.runs:
            keep(run)
    for file, text in pages().items():
        write(file, text)


if __name__ == "__main__":
    main()
