"""Publish comparisons: keep their records in results/compare, and write docs/table1.md from them.

    python scripts/table1.py add OUT    # the folder of `ekgn compare`
    python scripts/table1.py page       # write the page from the records alone

A test fails when the page is not what the records say.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from ekgn.comparison.bench import (
    LABELS,
    MEASURED,
    as_quoted,
    measured,
    picture,
    quoted,
    read_records,
)
from ekgn.comparison.paper import TABLE_1
from ekgn.files import read_json, write_json
from ekgn.tables import Column, Table
from marks import write

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "results" / "compare"
PAGE = ROOT / "docs" / "table1.md"
PICTURES = ROOT / "docs" / "images"
GRAPHS = ("FB15k-237", "WN18RR", "FB15k", "WN18")
INTRO = """# Table 1, run again

The paper's Table 1 quotes other models from their papers. Here those that can be run are run: on
the same graph, under the same budget, ranked by the same ranker ([evaluation.md](evaluation.md)).
The rows are made from the records in `results/compare` by `python scripts/table1.py page`.

    ekgn compare FB15k-237 --models all --minutes 6 --out OUT
    python scripts/table1.py add OUT

How it is made fair:

- Every model trains in a process of its own, on one thread, for the same minutes of processor time.
  Validation and ranking are not counted. On a busy machine the clock shows more.
- Three tenths of the budget go to choosing one setting on 1,000 validation facts: the learning rate
  of PyKEEN's models, the N3 penalty of ekgn's. Three values are tried, each for a tenth; the rest
  is the training proper, whose last weights are ranked. What was tried is listed below.
- Every learning rate of PyKEEN's models falls linearly to 0 over its training. The schedule of
  ekgn's models fits as many updates as the budget has time for.
- Each model has the loss, the negatives and the inverse relations of its own paper, or of the
  strongest later account of it. Sizes are for minutes: larger vectors and days would give more.
- EKGN is ComplEx's product with the paper's network over it: what it lacks of ComplEx at equal time
  is what the time of its steps would have given the product.
- *min* are training minutes, *MB* the peak memory of the process after training. Epochs below one
  are marked: such a model did not see every fact.
- *quoted* is the paper's Table 1, hits@10 / mean rank: other people's figures after other budgets.
  Models that no library has keep only that. A dash: the table has none.

"""


def add(out: Path) -> None:
    """Keep the records of a comparison; of a model that failed, its problem."""
    for record in read_records(out):
        data = read_json(out / "comparison.json")["data"]["name"]
        write_json(RECORDS / data.casefold() / f"{record['model']}.json", record)


def page(records: Path = RECORDS) -> str:
    """docs/table1.md, from the records."""
    parts = [INTRO]
    for data in GRAPHS:
        held = read_records(records / data.casefold())
        if held or quoted(data):
            parts.append(_section(data, held))
    return "".join(parts).rstrip() + "\n"


def _section(data: str, records: tuple[dict[str, Any], ...]) -> str:
    """One graph: its table, its picture, what was tried."""
    text = f"## {data}\n\n{_table(data, records)}\n"
    if not records:
        return text
    shown = (
        f"![Hits@10 and MRR on {data}](images/{_picture(data).name})\n<!-- {_digest(records)} -->"
    )
    machines = sorted({one["environment"]["processor"] for one in records if "test" in one})
    return (
        f"{text}{_minutes(records)}, seed {records[0].get('seed', 0)}, on one core of "
        f"{' and '.join(machines)}. The rules are the baseline: rules of one fact alone.\n\n"
        f"{shown}\n\n{_tried(records)}\n"
    )


def _minutes(records: tuple[dict[str, Any], ...]) -> str:
    found = sorted({one["minutes"] for one in records if "test" in one})
    return " or ".join(f"{minutes:g}" for minutes in found) + " minutes a model"


def _table(data: str, records: tuple[dict[str, Any], ...]) -> str:
    """All rows of Table 1, then the models that it does not have, then the rules."""
    held = {LABELS[one["model"]]: one for one in records}
    paper, auxiliary = quoted(data), {row.label: row.auxiliary for row in TABLE_1}
    rows = []
    for label in [*auxiliary, *(label for label in held if label not in auxiliary)]:
        record = held.get(label, {})
        if label in paper or record:
            figure = as_quoted(paper[label]) if label in paper else "–"
            note = "quoted only" if not record else f"failed: {record.get('problem')}"
            cells = [label, auxiliary.get(label), *measured(record), figure]
            rows.append([*cells, None if "test" in record else note])
    columns: list[str | Column] = ["model", "besides facts", *MEASURED.values(), "quoted", ""]
    return Table("", columns, rows).markdown()


def _tried(records: tuple[dict[str, Any], ...]) -> str:
    """The recipe of each model, and what each tried value reached on validation."""
    rows = []
    for record in records:
        if "recipe" in record:
            recipe = record["recipe"]
            key = "learning_rate" if "rates" in recipe else "penalty"
            tried = ", ".join(f"{one[key]:g}: {_hits(one)}" for one in record["tried"])
            choice = f"{key.replace('_', ' ')} {recipe[key]:g}"
            rows.append([LABELS[record["model"]], recipe["source"], _size(recipe), choice, tried])
    columns = ["model", "recipe", "size", "chosen", "tried: validation hits@10"]
    return Table("", columns, rows).markdown()


def _hits(tried: dict[str, Any]) -> str:
    return "diverged" if tried["hits_at_10"] < 0 else f"{tried['hits_at_10']:.1%}"


def _size(recipe: dict[str, Any]) -> str:
    """Dimensions, batch, and wrong answers of a training."""
    sizes = recipe.get("sizes", recipe)
    wrong = f"{recipe['negatives']} negatives" if recipe["negatives"] else "all entities"
    return f"{sizes['embedding_dim']} dimensions, batch {recipe['batch_size']}, {wrong}"


def _picture(data: str) -> Path:
    return PICTURES / f"table1-{data.casefold()}.svg"


def _digest(records: tuple[dict[str, Any], ...]) -> str:
    """What a picture was drawn from."""
    drawn = [[one["model"], one.get("test", {}).get("micro")] for one in records]
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:16]


def draw(records: Path = RECORDS) -> None:
    """The picture of each graph that has records."""
    from ekgn import canvas

    for data in GRAPHS:
        held = read_records(records / data.casefold())
        if held:
            title = f"{data}, {_minutes(held)}"
            canvas.save(picture(title, data, held), _picture(data))
            drawn = _picture(data).read_text(encoding="utf-8") + f"<!-- {_digest(held)} -->\n"
            write(_picture(data), drawn)


def main() -> None:
    """Add a comparison, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["add", "page"])
    parser.add_argument("out", nargs="?", type=Path)
    given = parser.parse_args()
    if given.action == "add":
        if given.out is None:
            parser.error("add needs the folder of a comparison")
        add(given.out)
    draw()
    write(PAGE, page())


if __name__ == "__main__":
    main()
