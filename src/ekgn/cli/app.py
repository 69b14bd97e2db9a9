"""The commands of knowledge base completion, and the place where the others are mounted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn import __version__
from ekgn.cli.options import Json, Readout

if TYPE_CHECKING:
    from ekgn.kbc.ranking import Evaluation
    from ekgn.kbc.run import KbcRun
    from ekgn.run import Run

app = typer.Typer(
    name="ekgn",
    help="Complete knowledge graphs with a model that reasons in steps and shows them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunArgument = Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")]
Split = Annotated[str, typer.Option(help="Which triples: train, valid or test.")]


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
def evaluate(
    run: RunArgument,
    split: Split = "test",
    readout: Readout = None,
    limit: Annotated[int, typer.Option(help="Rank only this many triples, drawn by seed.")] = 0,
    candidates: Annotated[
        int,
        typer.Option(help="Rank among this many entities, drawn by seed (0: all).", min=0),
    ] = 0,
    baseline: Annotated[bool, typer.Option(help="Also rank by rules of one fact alone.")] = True,
    with_rules: Annotated[
        bool,
        typer.Option(
            "--with-rules", help="Also rank with mined rules as a voice beside the network."
        ),
    ] = False,
    by_relation: Annotated[
        bool, typer.Option("--by-relation", help="Also show the metrics of each relation.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure a run on a split: for facts, filtered ranks of both sides beside the rules'."""
    from ekgn import api
    from ekgn.cli import display
    from ekgn.errors import EkgnError
    from ekgn.kbc.run import KbcRun
    from ekgn.tables import metrics_table

    loaded: Run = api.load(run)
    if isinstance(loaded, KbcRun):
        if candidates and with_rules:
            raise EkgnError(
                "--with-rules ranks among all entities: leave out --candidates, or --with-rules."
            )
        asked = {"readout": readout, "limit": limit, "candidates": candidates}
        beside = baseline and not candidates, with_rules
        _evaluate_kbc(loaded, split, asked, *beside, by_relation, json)
        return
    if readout or limit or candidates or by_relation or with_rules:
        raise EkgnError(
            f"--readout, --limit, --candidates, --with-rules and --by-relation are for runs of "
            f"task 'kbc': {run} is one of task '{loaded.task.name}'. "
            f"See: ekgn {loaded.task.name} --help"
        )
    found = loaded.evaluate(split)
    if json:
        display.print_json(found.as_dict())
        return
    values = found.headline()
    table = metrics_table(f"{loaded.path} {split}", list(values), {"model": values})
    display.show(table)


def _evaluate_kbc(
    loaded: KbcRun,
    split: str,
    asked: dict[str, Any],
    baseline: bool,
    with_rules: bool,
    by_relation: bool,
    json: bool,
) -> None:
    """Rules, which rank among all entities, stand beside exact ranks only."""
    from ekgn.cli import display
    from ekgn.cli.rules import mine_for
    from ekgn.kbc.words import ONE_FACT_ALONE, WITH_RULES

    with display.ranking_progress("ranking") as on_progress:
        evaluation = loaded.evaluate(split, on_progress=on_progress, **asked)
    rules = None
    if baseline:
        with display.ranking_progress("rule baseline") as on_progress:
            rules = loaded.rule_baseline(split, asked["limit"], on_progress)
    mixed = None
    if with_rules:
        mine_for(loaded)
        with display.ranking_progress("with rules") as on_progress:
            mixed = loaded.with_rules(split, asked["limit"], on_progress, readout=asked["readout"])
    if json:
        found = {"model": evaluation, "rule_baseline": rules}
        found |= {"with_rules": mixed} if mixed else {}
        values: dict[str, Any] = {name: each and each.as_dict() for name, each in found.items()}
        if by_relation and evaluation.relations:
            values["relations"] = evaluation.relations.as_dict()["rows"]
        display.print_json(values)
        return
    used = asked["readout"] or loaded.settings.readout
    beside = {WITH_RULES: mixed, ONE_FACT_ALONE: rules}
    among = f", ranks of {evaluation.sampled:,} sampled" if evaluation.sampled else ""
    title = f"{loaded.graph.name} {split}, readout {used}{among}"
    print_evaluation(evaluation, beside, title)
    if mixed:
        display.console.print(loaded.rule_weights(asked["readout"]).in_words())
    if by_relation and evaluation.relations:
        display.console.print()
        display.show(evaluation.relations)


def print_evaluation(
    evaluation: Evaluation, beside: Mapping[str, Evaluation | None], title: str
) -> None:
    """The metrics of a split as tables, beside those of other ways to answer."""
    from ekgn.cli import display
    from ekgn.kbc.ranking import HEADLINE, category_table
    from ekgn.tables import in_words, metrics_table, sampled_name

    rows = {"model": evaluation.micro}
    rows |= {name: other.micro for name, other in beside.items() if other}
    rows["model, ties broken for it"] = evaluation.optimistic
    rows["model, ties broken against it"] = evaluation.pessimistic
    rows |= {f"model, {side} missing": metrics for side, metrics in evaluation.sides.items()}
    display.show(metrics_table(title, [*HEADLINE, "adjusted_mean_rank_index"], rows))
    display.console.print()
    display.show(category_table(asdict(replace(evaluation, relations=None))["categories"]))
    macro = {sampled_name(name, evaluation.sampled): x for name, x in evaluation.macro.items()}
    display.console.print(
        f"\nMean over relations (macro): {in_words(macro)}. "
        f"Entities never seen in training: {evaluation.unseen['entities']:,} in "
        f"{evaluation.unseen['triples']:,} triples (counted)."
    )


def _mount() -> None:
    """The commands that live in files of their own."""
    from ekgn.cli import about, compare, complete, extend, index, inside, rules, serve, train

    for part in (train, about, complete, inside, compare, rules, extend, index, serve):
        part.register(app)


_mount()
