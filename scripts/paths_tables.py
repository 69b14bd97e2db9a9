"""The tables of docs/paths.md, made from the records in results/paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from ekgn.errors import EkgnError
from ekgn.files import read_json
from ekgn.paths.run import Decoding
from ekgn.paths.settings import PathsSettings
from ekgn.tables import Table

Record = dict[str, Any]
MAIN = Decoding("argmax", 4, "any")
DECODINGS = {
    "beam 4": MAIN,
    "greedy": replace(MAIN, beam=1),
    "beam 8": replace(MAIN, beam=8),
    "beam 4, mixture of the steps": replace(MAIN, readout="mixture"),
    "beam 4, only nodes seen in training": replace(MAIN, emit="seen_nodes"),
    "beam 4, only along edges seen in training": replace(MAIN, emit="seen_edges"),
}
PAPER = {"dynamic programming": "589", "seq2seq": "904, 69.1%", "EKGN": "1,319, 76.9%"}
ORDER = (
    "EKGN",
    "MLP in the network's place",
    "seq2seq",
    "dynamic programming",
    "EKGN, T_max = 1",
    "EKGN, asked once",
    "seq2seq, as long as EKGN",
    "seq2seq, with sub-paths",
    "seq2seq, with sub-paths, longer",
    "seq2seq, the network's dropout",
)


@dataclass(frozen=True)
class Row:
    """One system over its graph seeds."""

    system: str
    seeds: list[int]
    correct: list[int]
    valid: list[int]
    total: int
    parameters: int
    minutes: float
    updates: float

    @property
    def paper(self) -> str:
        """What the paper reports for this system: correct, and valid if it says so."""
        return PAPER.get(self.system, "")

    def cells(self) -> list[str]:
        """As text."""
        return [
            self.system,
            f"{mean(self.correct):,.0f}",
            " / ".join(f"{value:,}" for value in self.correct),
            f"{100 * mean(self.valid) / self.total:.1f}%",
            f"{self.parameters:,}" if self.parameters else "none",
            f"{self.minutes:.1f}" if self.minutes else "none",
        ]


def read_records(folder: Path) -> list[Record]:
    """The records in a folder; raises if there is none."""
    records = [read_json(file) for file in sorted(folder.glob("*.json"))]
    if not records:
        raise EkgnError(
            f"No records in '{folder}': expected .json files, each the record.json of a run."
        )
    return records


def groups(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by system, in the order of the tables, each by graph seed."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record["data"]["seed"]):
        found.setdefault(record["label"], []).append(record)
    known = [name for name in ORDER if name in found]
    return {name: found[name] for name in [*known, *(set(found) - set(known))]}


def evaluation_of(record: Record, decoding: Decoding = MAIN) -> dict[str, Any]:
    """What was counted this way, {} if nothing; dynamic programming has but one way."""
    name = f"test: {decoding}"
    names = (name, "test: fewest hops") if decoding == MAIN else (name,)
    found = record["evaluations"]
    return next((found[name] for name in names if name in found), {})


def system_rows(records: Iterable[Record], decoding: Decoding = MAIN) -> list[Row]:
    """One row per system that was evaluated this way."""
    rows = []
    for system, members in groups(records).items():
        done = [record for record in members if evaluation_of(record, decoding)]
        if not done:
            continue
        counts = [evaluation_of(record, decoding)["all"] for record in done]
        rows.append(
            Row(
                system,
                [record["data"]["seed"] for record in done],
                [count["correct"] for count in counts],
                [count["valid"] for count in counts],
                counts[0]["total"],
                done[0].get("parameters", 0),
                mean(record.get("wall_seconds", 0) / 60 for record in done),
                mean(record.get("steps", 0) for record in done),
            )
        )
    return rows


def systems_table(records: list[Record]) -> str:
    """The three systems and their ablations beside the paper's numbers."""
    columns = ["system", "correct (mean)", "by graph seed", "valid", "paper"]
    columns += ["parameters", "updates", "minutes"]
    rows = []
    for row in system_rows(records):
        _, correct, by_seed, valid, parameters, minutes = row.cells()
        updates = f"{row.updates:,.0f}" if row.updates else "none"
        rows.append([row.system, correct, by_seed, valid, row.paper, parameters, updates, minutes])
    return Table("", columns, rows).markdown()


def decoding_table(records: list[Record]) -> str:
    """Correct and valid by how the paths are written, on the first graph."""
    systems = ("EKGN", "seq2seq")
    first = min(record["data"]["seed"] for record in records)
    records = [record for record in records if record["data"]["seed"] == first]
    rows = []
    for words, decoding in DECODINGS.items():
        by_system = {row.system: row for row in system_rows(records, decoding)}
        if all(system in by_system for system in systems):
            found = [by_system[system].cells() for system in systems]
            rows.append([words, *(cell for cells in found for cell in (cells[1], cells[3]))])
    return Table(
        "", ["decoding", "EKGN correct", "valid", "seq2seq correct", "valid"], rows
    ).markdown()


def steps_table(records: list[Record]) -> str:
    """What each step would answer if forced, where the queries stop, and T_max = 1."""
    members = groups(records).get("EKGN", [])
    alone = {row.system: row for row in system_rows(records)}.get("EKGN, T_max = 1")
    rows = []
    for step in range(1, 6):
        way = replace(MAIN, readout=f"step:{step}")
        done = [r for r in members if evaluation_of(r, way)]
        if not done:
            continue
        forced = [evaluation_of(r, way)["all"] for r in done]
        stopped = [evaluation_of(r)["by_step"].get(str(step)) for r in done]
        share = mean(s["total"] if s else 0 for s in stopped)
        right = sum(s["correct"] for s in stopped if s)
        asked = sum(s["total"] for s in stopped if s)
        rows.append(
            [
                f"step {step}",
                f"{mean(c['correct'] for c in forced):,.0f}",
                f"{mean(c['valid'] for c in forced) / 100:.1f}%",
                f"{share:,.0f}",
                f"{100 * right / asked:.1f}%" if asked else "",
            ]
        )
    if alone:
        cells = alone.cells()
        rows.append(["trained with T_max = 1", cells[1], cells[3], "10,000", ""])
    columns = ["answer taken from", "correct", "valid", "queries that stop here"]
    return Table("", [*columns, "correct of these"], rows).markdown()


def hops_table(records: list[Record]) -> str:
    """Share correct and valid by the hops of the shortest path."""
    systems = [s for s in ("EKGN", "seq2seq", "dynamic programming") if s in groups(records)]
    by_hops: dict[int, list[str]] = {}
    for system in systems:
        members = [evaluation_of(r)["by_hops"] for r in groups(records)[system]]
        for hops in sorted({int(h) for member in members for h in member}):
            counts = [member[str(hops)] for member in members if str(hops) in member]
            total = sum(c["total"] for c in counts)
            cells = by_hops.setdefault(hops, [str(hops), f"{total / len(members):,.0f}"])
            cells += [
                f"{100 * sum(c[what] for c in counts) / total:.1f}%"
                for what in ("correct", "valid")
            ]
    columns = ["hops", "paths", *(f"{s}: {w}" for s in systems for w in ("correct", "valid"))]
    return Table("", columns, by_hops.values()).markdown()


def departures_table() -> str:
    """What the preset `base` changes of the paper's settings."""
    fields = PathsSettings.model_fields
    rows = [
        [f"`{name}`", str(fields[name].default), str(value), str(fields[name].description)]
        for name, value in PathsSettings.PRESETS["base"].items()
    ]
    return Table("", ["setting", "paper", "base", "meaning"], rows).markdown()
