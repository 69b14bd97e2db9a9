"""The commands of knowledge base completion, and the place where the others are mounted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn import __version__
from ekgn.cli.options import DataDir, Json, Top, settings_flags
from ekgn.errors import EkgnError
from ekgn.kbc.settings import KbcSettings

if TYPE_CHECKING:
    from ekgn.api import Prediction, Run
    from ekgn.kbc.graph import KnowledgeGraph
    from ekgn.kbc.ranking import Evaluation, Metrics

app = typer.Typer(
    name="ekgn",
    help="Complete knowledge graphs with a model that reasons in steps and shows them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunArgument = Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")]
Split = Annotated[str, typer.Option(help="Which triples: train, valid or test.")]
Rule = Annotated[
    str | None, typer.Option(help="Answer rule: argmax, mixture, last, sample, step:N.")
]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Complete knowledge graphs with a model that reasons in steps and shows them."""
    if version:
        print(f"ekgn {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
@settings_flags(KbcSettings)
def train(
    overrides: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Argument(help="A benchmark's name, a folder with train/valid/test, or one file."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Settings to start from: {', '.join(KbcSettings.PRESETS)}.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run (default: runs/NAME).")
    ] = None,
    names: Annotated[
        list[Path] | None, typer.Option(help="Files of id, label, description.")
    ] = None,
    data_dir: DataDir = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Train on DATA and keep the best weights by validation hits@10."""
    if (data is None) == (resume is None):
        raise EkgnError("Give either DATA to train on, or --resume RUN to go on with a run.")
    if resume and (overrides or preset or config or out):
        raise EkgnError("--resume goes on with the run's own settings: give no others with it.")
    settings = KbcSettings.build(preset, config, overrides)
    from ekgn import api
    from ekgn.cli import display
    from ekgn.kbc.graph import load_graph

    if resume:
        path, graph = api.find_run(resume), None
    else:
        folder = Path(data_dir) if data_dir else None
        graph = load_graph(data or "", data_dir=folder, names=names or (), seed=settings.seed)
        path = out or api.new_run_path(f"{graph.name}-{preset or KbcSettings.DEFAULT_PRESET}")
        display.messages.print(
            f"Training on {graph.name}: {len(graph.train):,} triples, {graph.num_entities:,} "
            f"entities, {graph.num_relations:,} relations. Run folder: {path}"
        )
    run = _train_with_progress(path, graph, settings)
    best = run.record["best"]
    if json:
        display.print_json({"run": str(path), **run.record})
        return
    display.console.print(
        f"Best validation hits@10 {display.percent(best['hits_at_10'])} at step {best['step']:,} "
        f"of {run.record['steps']:,}, {run.record['wall_seconds']:.0f} s. "
        f"Next: ekgn evaluate {path}"
    )


def _train_with_progress(path: Path, graph: KnowledgeGraph | None, settings: KbcSettings) -> Run:
    """Train on the graph, or go on with the run in `path` if there is none."""
    from ekgn import api
    from ekgn.cli import display

    try:
        with display.training_progress("queries", settings.batch_size) as listener:
            if graph is None:
                return api.resume(path, listener)
            return api.train(graph, settings, out=path, listener=listener)
    except KeyboardInterrupt:
        display.messages.print(f"Interrupted. Go on with: ekgn train --resume {path}")
        raise


@app.command()
def evaluate(
    run: RunArgument,
    split: Split = "test",
    rule: Rule = None,
    limit: Annotated[int, typer.Option(help="Rank only this many triples, drawn by seed.")] = 0,
    baseline: Annotated[
        bool, typer.Option(help="Also rank by length-1 rules alone, and by the network alone.")
    ] = True,
    json: Json = False,
) -> None:
    """Rank a split's triples, both sides, filtered, beside the rule baseline."""
    from ekgn import api
    from ekgn.cli import display

    loaded = api.load(run)
    with display.ranking_progress("ranking") as on_progress:
        evaluation = loaded.evaluate(split, rule=rule, limit=limit, on_progress=on_progress)
    rules = alone = None
    if baseline:
        with display.ranking_progress("rule baseline") as on_progress:
            rules = loaded.rule_baseline(split, limit, on_progress)
    if baseline and loaded.settings.rules_share:
        with display.ranking_progress("network alone") as on_progress:
            alone = loaded.network_alone(split, rule, limit, on_progress)
    if json:
        found = {"model": evaluation, "rule_baseline": rules, "network_alone": alone}
        display.print_json({name: each and each.as_dict() for name, each in found.items()})
        return
    used = rule or loaded.settings.answer_rule
    beside = {"length-1 rules alone": rules, "network alone": alone}
    print_evaluation(evaluation, beside, f"{loaded.graph.name} {split}, answer rule {used}")


def print_evaluation(
    evaluation: Evaluation, beside: Mapping[str, Evaluation | None], title: str
) -> None:
    """The metrics of a split as tables, beside those of other ways to answer."""
    from ekgn.cli import display

    rows = [("model", evaluation.micro)]
    rows += [(name, other.micro) for name, other in beside.items() if other]
    rows += [
        ("model, ties broken for it", evaluation.optimistic),
        ("model, ties broken against it", evaluation.pessimistic),
        *((f"model, {side} missing", metrics) for side, metrics in evaluation.sides.items()),
    ]
    columns = ["", "hits@10", "hits@3", "hits@1", "MRR", "mean rank", "AMRI"]
    display.table(title, columns, [_metrics_row(name, metrics) for name, metrics in rows])
    display.console.print()
    display.table(
        "By relation category (hits@10 / mean rank)",
        ["category", "triples", "head missing", "tail missing"],
        [
            [kind, f"{sides['tail'].count:,}", *(_pair(sides[side]) for side in ("head", "tail"))]
            for kind, sides in evaluation.categories.items()
        ],
    )
    macro = evaluation.macro
    display.console.print(
        f"\nMean over relations (macro): hits@10 {display.percent(macro['hits_at_10'])}, "
        f"MRR {macro['mrr']:.3f}. Entities never seen in training: "
        f"{evaluation.unseen['entities']:,} in {evaluation.unseen['triples']:,} triples (counted)."
    )


def _metrics_row(name: str, metrics: Metrics) -> list[str]:
    from ekgn.cli.display import percent

    return [
        name,
        *(percent(x) for x in (metrics.hits_at_10, metrics.hits_at_3, metrics.hits_at_1)),
        f"{metrics.mrr:.3f}",
        f"{metrics.mean_rank:,.1f}",
        f"{metrics.adjusted_mean_rank_index:.3f}",
    ]


def _pair(metrics: Metrics) -> str:
    return f"{100 * metrics.hits_at_10:.1f} / {metrics.mean_rank:,.0f}"


@app.command()
def predict(
    run: RunArgument,
    head: Annotated[str | None, typer.Option(help="The head: id or name.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation: id or name.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail: id or name.")] = None,
    top: Top = 10,
    hide_known: Annotated[
        bool, typer.Option("--hide-known", help="Leave known facts out.")
    ] = False,
    rule: Rule = None,
    json: Json = False,
) -> None:
    """The most probable tails, heads or relations: give two of the three parts."""
    from ekgn import api
    from ekgn.cli import display

    loaded = api.load(run)
    found = loaded.predict(head, relation, tail, top=top, hide_known=hide_known, rule=rule)
    if json:
        display.print_json([asdict(prediction) for prediction in found])
        return
    question = f"({head or '?'}, {relation or '?'}, {tail or '?'})"
    display.table(
        f"{question} on {loaded.graph.name}",
        ["", "answer", "id", "probability", "known"],
        [_prediction_row(prediction) for prediction in found],
    )


def _prediction_row(prediction: Prediction) -> list[str]:
    from ekgn.cli.display import percent

    return [
        str(prediction.rank),
        prediction.label,
        prediction.id if prediction.id != prediction.label else "",
        percent(prediction.probability),
        prediction.known or "new",
    ]


def _mount() -> None:
    """The commands that live in files of their own."""
    from ekgn.cli import about, inside, paths, rules, serve

    for part in (about, inside, rules, serve):
        part.register(app)
    app.add_typer(paths.app, name="paths")


_mount()
