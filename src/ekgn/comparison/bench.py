"""The comparison: each model in a process of its own, then one table of all that were measured.

    OUT/comparison.json    what is compared: the graph, the minutes, the seed
    OUT/MODEL.json         the record of a model that is done, or what went wrong
    OUT/MODEL.log          what its process said
    OUT/MODEL/             the run, of a model that ekgn trained
    OUT/table.md, .json, comparison.svg

A comparison that was killed goes on: models that are done are not run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ekgn.comparison.paper import TABLE_1, Figures
from ekgn.errors import EkgnError, did_you_mean
from ekgn.files import locked, read_json, replace_file, write_json
from ekgn.tables import METRICS, Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ekgn.kbc.graph import KnowledgeGraph

MODELS = {
    "ekgn": "EKGN",
    "complex": "ComplEx",
    "distmult": "DistMult",
    "rescal": "RESCAL",
    "transe": "TransE",
    "transh": "TransH",
    "transr": "TransR",
    "transd": "TransD",
    "ntn": "NTN",
    "kg2e": "KG2E",
    "hole": "HolE",
    "conve": "ConvE",
    "proje": "ProjE",
    "rotate": "RotatE",
}
"""What can be compared: names, and how they are written. The rules' baseline is always there."""
OWN = ("ekgn", "complex", "distmult", "rescal")
RULES = "rules"
LABELS = {**MODELS, RULES: "rules of one fact"}

OnProgress = Callable[[str, str, float], None]
"""Called with a model, what it is doing, and how much of that is done."""
OnModel = Callable[[dict[str, Any], int, int], None]
"""Called with the record of a model, how many are done, and how many there are."""


@dataclass(frozen=True)
class Comparison:
    """The records of the models, in the order of `MODELS`."""

    data: str
    minutes: float
    path: Path
    records: tuple[dict[str, Any], ...]

    def table(self) -> Table:
        """One row for each model."""
        return comparison_table(self.data, self.minutes, self.records)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON-able values."""
        about = {"data": self.data, "minutes": self.minutes, "path": str(self.path)}
        return {**about, "table": self.table().as_dict(), "records": list(self.records)}

    def figure(self) -> Figure:
        """Hits@10 and MRR of each model, beside the paper's figures."""
        return picture(self.table().title, self.data, self.records)


def parse_models(models: str | Iterable[str]) -> list[str]:
    """Names of models from a list, or from "ekgn,transe"; "all" stands for all there are."""
    parts = models.split(",") if isinstance(models, str) else models
    names = list(dict.fromkeys(part.strip().casefold() for part in parts if part.strip()))
    for name in names:
        if name != "all" and name not in MODELS:
            raise EkgnError(
                f"Unknown model '{name}'. {did_you_mean(name, MODELS)} "
                f"Models: {', '.join(MODELS)}, or all.".replace("  ", " ")
            )
    if not names:
        raise EkgnError(f"No models to compare. Models: {', '.join(MODELS)}, or all.")
    return [name for name in MODELS if name in names or "all" in names]


def compare(
    data: Any,
    models: str | Iterable[str] = OWN,
    *,
    minutes: float = 5.0,
    out: str | Path | None = None,
    seed: int = 0,
    data_dir: str | Path | None = None,
    on_progress: OnProgress | None = None,
    on_model: OnModel | None = None,
) -> Comparison:
    """Train models on DATA under the same budget, rank the test split with each, in one table.

    Each trains for so many minutes of one processor core. A model that fails has a row that says
    so; called again with the same folder, those that are done are not run again.
    """
    from ekgn.kbc.graph import KnowledgeGraph, load_graph
    from ekgn.run import RUNS

    names = [*parse_models(models), RULES]
    if not 0 < minutes < 1e6:
        raise EkgnError(f"minutes = {minutes:g}: expected more than 0.")
    where = Path(data_dir) if data_dir else None
    known = isinstance(data, KnowledgeGraph)
    graph = data if known else load_graph(data, data_dir=where, seed=seed)
    folder = Path(out) if out else RUNS / f"compare-{graph.name.casefold()}"
    with locked(folder):
        _claim(graph, minutes, seed, folder)
        for place, name in enumerate(names):
            record = _held(folder, name)
            if record is None or "problem" in record:
                record = _run(folder, name, on_progress)
            if on_model:
                on_model(record, place + 1, len(names))
        found = Comparison(graph.name, minutes, folder, read_records(folder))
        _write(found)
    return found


def _claim(graph: KnowledgeGraph, minutes: float, seed: int, out: Path) -> None:
    """Write what is compared into the folder, or see that the folder holds this comparison."""
    spec = out / "comparison.json"
    about = {"data": graph.describe(), "minutes": minutes, "seed": seed}
    wanted = json.loads(json.dumps(about))
    if not spec.exists():
        graph.save(out)
        write_json(spec, wanted)
    elif (held := read_json(spec)) != wanted:
        differs = [key for key in wanted if held.get(key) != wanted[key]]
        raise EkgnError(
            f"{out} holds another comparison (it differs in: {', '.join(differs)}). "
            f"Give another folder with --out, or repeat its options to go on with it."
        )


def _held(out: Path, name: str) -> dict[str, Any] | None:
    """The record of a model that is done, or that failed."""
    file = out / f"{name}.json"
    return read_json(file) if file.exists() else None


def read_records(folder: Path) -> tuple[dict[str, Any], ...]:
    """The records of a folder, in the order of the models."""
    held = [_held(folder, name) for name in LABELS]
    return tuple(record for record in held if record)


def _run(out: Path, name: str, on_progress: OnProgress | None) -> dict[str, Any]:
    """Run one model in a process of its own; its record, which says so if it failed."""
    journal = out / f"{name}.log"
    one_thread = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with journal.open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "ekgn.comparison.one", str(out), name],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **one_thread},
        )
        try:
            assert child.stdout
            for line in child.stdout:
                if on_progress:
                    said = json.loads(line)
                    on_progress(name, said["doing"], said["share"])
            code = child.wait()
        finally:
            child.terminate()
            child.wait()
    if code:
        write_json(out / f"{name}.json", {"model": name, "problem": _last_line(journal, code)})
    record = _held(out, name)
    assert record
    return record


def _last_line(journal: Path, code: int) -> str:
    lines = journal.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code < 0:
        return f"its process was ended by signal {-code}"
    return lines[-1] if lines else f"its process ended with code {code}"


def _write(found: Comparison) -> None:
    """The table and the picture, into the comparison's folder."""
    from ekgn import canvas

    text = found.table().markdown()
    replace_file(found.path / "table.md", lambda aside: aside.write_text(text, encoding="utf-8"))
    write_json(found.path / "table.json", found.table().as_dict())
    canvas.save(found.figure(), found.path / "comparison.svg")


def quoted(data: str) -> dict[str, Figures]:
    """The figures of the paper's Table 1 on a graph, by how models are written."""
    return {row.label: row.figures[data] for row in TABLE_1 if data in row.figures}


def in_epochs(epochs: float) -> str:
    """How often a training saw its facts; less than once is marked."""
    return f"{epochs:.1f}" if epochs >= 1 else f"{epochs:.2f} (<1)"


def as_quoted(figures: Figures) -> str:
    """Hits@10 and mean rank as the paper has them."""
    hits, mean_rank = figures
    return f"{hits:.1f} / {'–' if mean_rank is None else f'{mean_rank:,.0f}'}"


MEASURED = {
    "hits_at_10": METRICS["hits_at_10"],
    "mean_rank": METRICS["mean_rank"],
    "mrr": METRICS["mrr"],
    "training_seconds": Column("min", lambda seconds: f"{seconds / 60:.1f}"),
    "epochs": Column("epochs", in_epochs),
    "parameters": Column("parameters"),
    "peak_bytes": Column("MB", lambda size: f"{size / 2**20:,.0f}"),
}
"""What the table has of a record, and how it is written."""


def measured(record: Mapping[str, Any]) -> list[Any]:
    """The values of a record's row; those it does not have are None."""
    flat = {**record, **record.get("test", {}).get("micro", {})}
    return [flat.get(name) for name in MEASURED]


def comparison_table(data: str, minutes: float, records: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each record: measured, then what the paper quotes."""
    paper = quoted(data)
    labels = [LABELS[record["model"]] for record in records]
    rows = [
        [label, *measured(record), paper.get(label)]
        for label, record in zip(labels, records, strict=True)
    ]
    columns: list[str | Column] = [
        "model",
        *MEASURED.values(),
        Column("paper hits@10 / MR", as_quoted),
    ]
    if any("problem" in record for record in records):
        columns.append("failed")
        rows = [[*row, one.get("problem")] for row, one in zip(rows, records, strict=True)]
    return Table(f"{data} test, {minutes:g} minutes a model", columns, rows)


def picture(title: str, data: str, records: Sequence[Mapping[str, Any]]) -> Figure:
    """Hits@10 and MRR of each model that has them, beside the paper's figures."""
    from ekgn.figures import comparison_plot

    found = {LABELS[one["model"]]: one["test"]["micro"] for one in records if "test" in one}
    return comparison_plot(title, found, {label: hits for label, (hits, _) in quoted(data).items()})
