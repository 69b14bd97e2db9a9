"""The commands around data: datasets, info, names, fetch, vectors; and the settings there are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import DataDir, Json
from ekgn.errors import EkgnError
from ekgn.kbc.settings import KbcSettings

if TYPE_CHECKING:
    from ekgn.kbc.graph import Vocabulary
    from ekgn.kbc.summary import Summary
    from ekgn.kbc.task import KbcTask


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (info, runs, names, vectors, fetch, datasets, settings):
        app.command()(command)


def info(
    what: Annotated[str, typer.Argument(help="A run, or data: a benchmark, folder or file.")],
    relations: Annotated[bool, typer.Option("--relations", help="List the relations.")] = False,
    entities: Annotated[bool, typer.Option("--entities", help="List the entities.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What a run or a data set holds; for data, what to know before training on it."""
    from ekgn import api
    from ekgn.cli import display
    from ekgn.kbc.summary import summarise_graph
    from ekgn.kbc.task import KbcTask
    from ekgn.run import find_run

    path = find_run(what)
    is_run = (path / "config.json").is_file()
    task = (
        api.task_of(path)
        if is_run
        else KbcTask.open(what, KbcSettings(), data_dir=Path(data_dir) if data_dir else None)
    )
    if relations or entities:
        if not isinstance(task, KbcTask):
            raise EkgnError(f"{what} is a run of task '{task.name}': it has no such names.")
        _print_names(task.graph.relations if relations else task.graph.entities, json)
        return
    summary = task.describe()
    if is_run:
        summary |= _run_summary(path)
    else:
        found = summarise_graph(task.graph)
        summary["summary"] = found.as_dict()
    if json:
        display.print_json(summary)
        return
    rows = [[key, str(value)] for key, value in summary.items() if not isinstance(value, dict)]
    display.table(f"{'Run' if is_run else 'Data'} {what}", ["", ""], rows)
    for key in ("best", "overrides", "settings"):
        if summary.get(key):
            display.console.print()
            display.table(key, ["", ""], [[k, str(v)] for k, v in summary[key].items()])
    if not is_run:
        _print_summary(found)
        display.console.print(f"\n{_plan(task)}", markup=False)


def vectors(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")],
    out: Annotated[Path, typer.Option(help="A .parquet, .npz, or (word2vec) .txt, .vec file.")],
    relations: Annotated[bool, typer.Option("--relations", help="Of relations.")] = False,
    json: Json = False,
) -> None:
    """Write the learned vectors of entities (or relations) to a file, for use elsewhere."""
    from ekgn.cli import display
    from ekgn.kbc.run import KbcRun

    found = KbcRun.load(run).embeddings("relations" if relations else "entities")
    found.save(out)
    rows, size = found.array.shape
    if json:
        display.print_json({"file": str(out), "rows": rows, "size": size})
        return
    display.console.print(f"{rows:,} vectors of {size:,} numbers written to {out}", markup=False)


def _plan(task: KbcTask) -> str:
    """What the default would do with a graph, and how long it would take."""
    from ekgn.kbc.choose import UNTRIED, by_counts, seconds_needed

    default = KbcSettings.build()
    chosen = default.model_copy(update={**by_counts(task.graph, default), "penalty": UNTRIED})
    seconds = seconds_needed(task.graph, chosen) or 0.0
    scored = f"{chosen.negatives:,} sampled entities" if chosen.negatives else "every entity"
    return (
        f"ekgn train would take vectors of {chosen.embedding_dim} numbers, {scored} in the "
        f"softmax, batches of {chosen.batch_size} queries and {chosen.epochs} epochs: about "
        f"{max(seconds / 60, 1):,.0f} min on this machine, after short trainings for the penalty."
    )


MOST_ROWS = 20


def _print_summary(found: Summary) -> None:
    """Relations, degrees, relations that repeat others, unseen and odd names."""
    from ekgn.cli import display

    rows = [
        [row.label, row.category]
        + [f"{count:,}" for count in (row.train, row.valid, row.test, row.heads, row.tails)]
        for row in found.relations[:MOST_ROWS]
    ]
    left = len(found.relations) - len(rows)
    display.console.print()
    columns = ["relation", "kind", "train", "valid", "test", "heads", "tails"]
    display.table(f"Relations{f' ({left} more with --json)' if left else ''}", columns, rows)
    degrees = found.degrees
    hubs = ", ".join(f"{name} ({count:,})" for name, count in found.most_connected[:3])
    display.console.print(
        f"\nFacts per entity in train: median {degrees['p50']:,.0f}, mean {degrees['mean']:,.1f}, "
        f"nine in ten at most {degrees['p90']:,.0f}; {degrees['with_one']:,} have one, "
        f"{degrees['with_none']:,} have none. Most: {hubs}."
    )
    for split, unseen in found.unseen.items():
        if unseen["triples"]:
            display.console.print(
                f"Never seen in train: {unseen['entities']:,} entities and {unseen['relations']:,} "
                f"relations, in {unseen['triples']:,} {split} facts."
            )
    _print_twins(found)
    if found.odd_names:
        display.console.print()
        display.table(
            "Names to look at",
            ["name", "count", "for example"],
            [
                [f"{odd.kind} {odd.problem}", f"{odd.count:,}", "; ".join(odd.examples)]
                for odd in found.odd_names
            ],
        )


def _print_twins(found: Summary) -> None:
    from ekgn.cli import display
    from ekgn.tables import percent

    shares = {name: percent(share) for name, share in found.given_away.items()}
    display.console.print(
        f"\nTold by training: {shares['by_inverse_or_duplicate_relations']} of the test facts, "
        f"through relations that repeat others. Of {shares['reversed_pair_in_train']} the reversed "
        f"pair is in train, of {shares['same_pair_in_train']} the pair itself, in some relation."
    )
    if found.twins:
        display.console.print()
        display.table(
            f"Relations that repeat others ({len(found.twins)}, at most {MOST_ROWS} shown)",
            ["relation", "", "other", "share of its facts", "test facts told"],
            [
                [
                    *(twin.relation, twin.kind, twin.other),
                    *(percent(twin.share), f"{twin.test_facts:,}"),
                ]
                for twin in found.twins[:MOST_ROWS]
            ],
        )


def _print_names(names: Vocabulary, json: bool) -> None:
    from ekgn.cli import display

    rows = list(zip(names.ids, names.labels, names.descriptions, strict=True))
    if json:
        keys = ("id", "label", "description")
        display.print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    for identifier, label, _ in rows:
        display.console.print(identifier if label == identifier else f"{identifier}  {label}")


def _run_summary(path: Path) -> dict[str, Any]:
    from ekgn.files import read_json

    record = path / "record.json"
    known = read_json(record) if record.exists() else {}
    config = read_json(path / "config.json")
    shown = ("parameters", "epochs", "ended_by", "wall_seconds", "best")
    return {
        "task": config["task"],
        "finished": bool(known),
        **{key: known[key] for key in shown if key in known},
        "preset": config.get("preset"),
        "overrides": config.get("overrides", {}),
        "settings": config["settings"],
    }


def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds them.")] = Path("runs"),
    json: Json = False,
) -> None:
    """The runs there are: task, data, preset with what was changed, best validation."""
    from ekgn import api
    from ekgn.cli import display
    from ekgn.tables import Table, in_words

    found = api.list_runs(folder)
    if json:
        display.print_json(found)
        return
    if not found:
        raise EkgnError(f"No runs in '{folder}'. Make one with: ekgn train world")
    columns = ["run", "task", "data", "recipe", "best validation", "epochs", "minutes"]
    rows = [
        [
            run["run"],
            run["task"],
            run["data"],
            ", ".join([run["preset"] or "", *(f"{k}={v}" for k, v in run["overrides"].items())]),
            in_words({k: v for k, v in run["best"].items() if k != "step"}),
            f"{run['epochs']:.0f}",
            f"{run['wall_seconds'] / 60:.1f}",
        ]
        if run["finished"]
        else [run["run"], run["task"], run["data"], run["preset"], "not finished", None, None]
        for run in found
    ]
    display.show(Table(f"Runs in {folder}", columns, rows))


def names(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")],
    file: Annotated[Path, typer.Argument(help="A file of id, label, description.")],
) -> None:
    """Give the entities and relations of a run readable names, after training."""
    from ekgn.cli import display
    from ekgn.kbc.graph import add_names
    from ekgn.run import find_run

    count = add_names(find_run(run), file)
    display.console.print(f"{count:,} names were added to {run}.")


def fetch(
    endpoint: Annotated[str, typer.Argument(help="The address of a SPARQL endpoint.")],
    query: Annotated[Path, typer.Argument(help="A file with a CONSTRUCT or SELECT query.")],
    out: Annotated[Path, typer.Argument(help="The file to write; its ending is the answer's.")],
) -> None:
    """Ask a SPARQL endpoint for triples and keep them as a file to train on."""
    from ekgn.cli import display
    from ekgn.kbc.sparql import fetch as fetch_triples
    from ekgn.kbc.triples import decode
    from ekgn.kbc.unpack import read_bytes

    path = fetch_triples(endpoint, decode(query, read_bytes(query)), out)
    display.console.print(f"Written to {path}. Next: ekgn info {path}")


def datasets(data_dir: DataDir = None, json: Json = False) -> None:
    """The benchmarks that can be named, and where they were found."""
    from ekgn.cli import display
    from ekgn.kbc.datasets import dataset_table

    rows = dataset_table(Path(data_dir) if data_dir else None)
    if json:
        display.print_json([{**asdict(row), "found": str(row.found or "")} for row in rows])
        return
    display.table(
        "Benchmarks",
        ["name", "triples", "entities", "relations", "here", "what it is"],
        [
            [
                row.name,
                f"{row.triples:,}",
                f"{row.entities:,}",
                f"{row.relations:,}",
                "yes" if row.found else "no",
                row.description,
            ]
            for row in rows
        ],
    )


def settings(
    preset: Annotated[str | None, typer.Option(help="Show the values of this preset.")] = None,
    config: Annotated[Path | None, typer.Option(help="Apply this TOML file first.")] = None,
    task: Annotated[str, typer.Option(help="Of which task: kbc or paths.")] = "kbc",
    json: Json = False,
) -> None:
    """Every setting with its meaning, the paper's value and the preset's."""
    from ekgn.cli import display
    from ekgn.tasks import pieces

    kind = pieces(task).get("settings")
    chosen = kind.build(preset, config)
    if json:
        display.print_json(chosen.model_dump(mode="json"))
        return
    rows = []
    for name, field in kind.model_fields.items():
        extra = field.json_schema_extra
        symbol = str(extra.get("symbol", "")) if isinstance(extra, dict) else ""
        value = str(getattr(chosen, name))
        changed = "" if getattr(chosen, name) == field.default else str(field.default)
        meaning = str(field.description) + (f" ({symbol})" if symbol else "")
        rows.append([name, value, changed, meaning])
    title = f"Settings of preset {preset or kind.DEFAULT_PRESET}"
    display.table(title, ["setting", "value", "paper", "meaning"], rows)
