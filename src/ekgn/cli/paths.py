"""The commands of shortest path synthesis, mounted as `ekgn paths`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import Json, Readout
from ekgn.errors import EkgnError
from ekgn.tables import percent
from ekgn.tasks import TASKS

if TYPE_CHECKING:
    from ekgn.paths.evaluate import Count, Evaluation
    from ekgn.paths.run import Decoding, PathsRun

app = typer.Typer(
    help="Write shortest paths in a hidden graph: the second task, over the same network.",
    no_args_is_help=True,
)

DATA = Path(TASKS["paths"].data)
DataFolder = Annotated[Path, typer.Argument(help="A folder made by `ekgn paths make`.")]
RunArgument = Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")]
Split = Annotated[str, typer.Option(help="Which paths: train, valid or test.")]
BeamWidth = Annotated[int | None, typer.Option(help="Paths kept while decoding (1: greedy).")]
EmitKind = Annotated[str | None, typer.Option(help="any, seen_nodes or seen_edges.")]


@app.command()
def make(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = DATA,
    nodes: Annotated[int, typer.Option(help="Points on the sphere.")] = 500,
    k: Annotated[int, typer.Option(help="Nearest neighbours each has an edge to.")] = 50,
    train: Annotated[int, typer.Option(help="Training paths.")] = 20_000,
    valid: Annotated[int, typer.Option(help="Validation paths.")] = 10_000,
    test: Annotated[int, typer.Option(help="Test paths.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of points and pairs.")] = 0,
    json: Json = False,
) -> None:
    """Draw a graph and its paths, write them, and check the files as written."""
    from ekgn import canvas
    from ekgn.cli import display
    from ekgn.paths.drawing import sphere_picture
    from ekgn.paths.graphs import FILE, PathsData
    from ekgn.paths.graphs import make as make_paths
    from ekgn.paths.graphs import verify as verify_paths

    if (out / FILE).exists():
        raise EkgnError(f"{out} already holds paths. Give another folder (--out) or delete it.")
    with display.ranking_progress("drawing paths") as on_progress:
        data = make_paths(nodes, k, (train, valid, test), seed, on_progress)
    data.save(out)
    canvas.save(sphere_picture(data.graph, data.train[:200]), out / "sphere.png")
    with display.ranking_progress("checking them") as on_progress:
        found = verify_paths(PathsData.load(out), on_progress)
    _print_data(found, out, json)


@app.command()
def verify(data: DataFolder = DATA, json: Json = False) -> None:
    """Prove the rules on written files: optimal, not nested, disjoint splits."""
    from ekgn.cli import display
    from ekgn.paths.graphs import PathsData
    from ekgn.paths.graphs import verify as verify_paths

    with display.ranking_progress("checking") as on_progress:
        found = verify_paths(PathsData.load(data), on_progress)
    _print_data(found, data, json)


def _print_data(found: dict[str, Any], folder: Path, json: bool) -> None:
    from ekgn.cli import display

    if json:
        display.print_json({"folder": str(folder), **found})
        return
    display.console.print(
        f"{found['name']} in {folder}: {found['train']:,} / {found['valid']:,} / {found['test']:,} "
        f"paths. Checked: every path is optimal with a node in between, none contains another, "
        f"the splits are disjoint.\nThe training paths show {found['seen_edges']:,} of the "
        f"{found['edges']:,} edges."
    )
    display.table(
        "Paths by hops",
        ["hops", "paths"],
        [[str(hops), f"{count:,}"] for hops, count in found["hops"].items()],
    )


@app.command()
def evaluate(
    run: RunArgument,
    split: Split = "test",
    readout: Readout = None,
    beam: BeamWidth = None,
    emit: EmitKind = None,
    forced: Annotated[bool, typer.Option(help="Also answer from every step in turn.")] = True,
    json: Json = False,
) -> None:
    """Count correct and valid paths: all, by hops, by stopping step, by forced step."""
    from ekgn.cli import display
    from ekgn.paths.run import PathsRun

    loaded = PathsRun.load(run)
    how = loaded.decoding(readout, beam, emit)
    result = _evaluated(loaded, split, how)
    by_step = {
        step: _evaluated(loaded, split, loaded.decoding(f"step:{step}", beam, emit)).all
        for step in range(1, loaded.steps + 1)
        if forced and loaded.steps > 1
    }
    if json:
        from dataclasses import asdict

        forced_counts = {step: asdict(count) for step, count in by_step.items()}
        display.print_json({**result.as_dict(), **asdict(how), "forced": forced_counts})
        return
    title = f"{run}, {split}, {how}"
    print_evaluation(result, by_step, title)


def _evaluated(run: PathsRun, split: str, how: Decoding) -> Evaluation:
    from ekgn.cli import display

    with display.ranking_progress(f"answering ({how})") as on_progress:
        return run.evaluate(split, how, on_progress)


def print_evaluation(result: Evaluation, forced: dict[int, Count], title: str) -> None:
    """The counts as a table."""
    from ekgn.cli import display

    rows = [count_row("all", result.all)]
    rows += [count_row(f"{hops} hops", count) for hops, count in result.by_hops.items()]
    if len(result.by_step) > 1 or forced:
        rows += [count_row(f"stopped at {step}", count) for step, count in result.by_step.items()]
    rows += [count_row(f"forced to step {step}", count) for step, count in forced.items()]
    display.table(title, ["", "paths", "correct", "share", "valid", "share"], rows)


def count_row(name: str, count: Count) -> list[str]:
    """A row of the table: numbers and shares."""
    total = max(count.total, 1)
    return [
        name,
        f"{count.total:,}",
        f"{count.correct:,}",
        percent(count.correct / total),
        f"{count.valid:,}",
        percent(count.valid / total),
    ]


@app.command()
def baselines(
    data: DataFolder = DATA,
    split: Split = "test",
    out: Annotated[Path | None, typer.Option(help="Also write the record to this file.")] = None,
    json: Json = False,
) -> None:
    """Dynamic programming on the edges seen in training, whose weights are not known.

    The other baseline is trained: ekgn paths train --system seq2seq
    """
    from ekgn.cli import display
    from ekgn.files import write_json
    from ekgn.paths.baselines import baseline_record, dynamic_programming
    from ekgn.paths.evaluate import evaluate as count
    from ekgn.paths.graphs import PathsData

    paths = PathsData.load(data)
    with display.ranking_progress("dynamic programming") as on_progress:
        result = count(
            dynamic_programming(paths), paths.graph, paths.split(split), split, on_progress
        )
    record = baseline_record(paths, result)
    if out:
        write_json(out, record)
    if json:
        display.print_json(record)
        return
    print_evaluation(result, {}, f"Dynamic programming, {data}, {split}")


@app.command()
def explain(
    run: RunArgument,
    start: Annotated[int, typer.Argument(help="The start node.")],
    end: Annotated[int, typer.Argument(help="The end node.")],
    readout: Readout = None,
    beam: BeamWidth = None,
    emit: EmitKind = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: a .png, .svg or .pdf file.")] = None,
    json: Json = False,
) -> None:
    """One query step by step: stop probability, predicted path, its cost."""
    from ekgn import canvas
    from ekgn.cli import display
    from ekgn.paths.drawing import explanation_picture, verdict
    from ekgn.paths.run import PathsRun

    loaded = PathsRun.load(run)
    explanation = loaded.explain(start, end, loaded.decoding(readout, beam, emit))
    if plot:
        canvas.save(explanation_picture(explanation, loaded.data.graph), plot)
    if json:
        display.print_json(explanation.as_dict())
        return
    shortest = explanation.shortest
    display.console.print(f"{start} ⇝ {end}. Shortest: {shortest}, cost {shortest.cost:.3f}.")
    display.table(
        "",
        ["step", "stop", "weight", "cost", "path"],
        [
            [
                f"{step.step}{'*' * (step.step == explanation.answered_at)}",
                f"{step.stop_probability:.3f}",
                f"{step.stop_weight:.3f}",
                verdict(step),
                str(step.route),
            ]
            for step in explanation.steps
        ],
    )
    display.console.print(f"* answered from step {explanation.answered_at}.")
