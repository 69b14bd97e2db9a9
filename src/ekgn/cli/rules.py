"""The command that mines, lists and searches the rules of a run's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import Json
from ekgn.errors import EkgnError

if TYPE_CHECKING:
    from ekgn.kbc.graph import KnowledgeGraph
    from ekgn.kbc.rules import Round, Rulebook
    from ekgn.kbc.run import KbcRun

MINUTES = 4.0  # of a first mining


def register(app: typer.Typer) -> None:
    """Add `rules` to the commands."""
    app.command()(rules)


def rules(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")],
    relation: Annotated[str | None, typer.Option(help="Only rules of this relation.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Mine (go on mining) for so long.")] = None,
    top: Annotated[int, typer.Option(help="How many rules to list.", min=1)] = 20,
    threads: Annotated[int, typer.Option(help="Threads (0: all cores).", min=0)] = 0,
    evaluate: Annotated[
        str | None, typer.Option(help="Rank this split by the rules alone: valid or test.")
    ] = None,
    json: Json = False,
) -> None:
    """Rules of up to three facts: mined from training if there are none yet, the surest listed.

    A first mining takes 4 minutes at most; with --minutes it goes on where it stopped.
    """
    from ekgn.cli import display
    from ekgn.kbc.graph import KnowledgeGraph
    from ekgn.kbc.rules import FILE, Rulebook, mine
    from ekgn.kbc.run import KbcRun
    from ekgn.run import find_run
    from ekgn.tables import in_words

    path = find_run(run)
    graph = KnowledgeGraph.load(path)
    index = graph.relations.find(relation, "relation", graph.name) if relation else None
    kept = path / FILE
    if minutes is None and kept.exists():
        book = Rulebook.load(kept, graph)
    else:
        budget = MINUTES if minutes is None else minutes
        book = mine(graph, minutes=budget, threads=threads, path=kept, on_round=_say)
        if len(book):
            display.messages.print(_timed(KbcRun.load(run)))
    found: dict[str, Any] = {"rounds": book.rounds, "seconds": book.seconds, "count": len(book)}
    if evaluate:
        found["evaluation"] = _evaluate(graph, book, evaluate, threads)
    found["rules"] = _listed(graph, book, index, top)
    if json:
        display.print_json(found)
        return
    about = f", {graph.relations.labels[index]}" if index is not None else ""
    display.console.print(f"{len(book):,} rules of {graph.name}: {_kinds(book)}.\n")
    display.table(
        f"The surest{about}",
        ["confidence", "holds", "rule"],
        [
            [
                f"{one['confidence']:.3f}",
                f"{one['support']:,} of {one['predictions']:,}",
                one["rule"],
            ]
            for one in found["rules"]
        ],
    )
    if evaluate:
        micro = found["evaluation"]["micro"]
        shown = {name: micro[name] for name in ("mrr", "hits_at_10", "mean_rank")}
        display.console.print(f"Rules alone on {evaluate}: {in_words(shown)}")


def mine_for(run: KbcRun) -> None:
    """Mine rules for a run that has none yet, and say so."""
    from ekgn.cli import display

    if run.rulebook is None:
        display.messages.print(f"{run.path} has no rules yet: mining, {MINUTES:g} minutes at most.")
        run.mine(MINUTES, on_round=_say)


def _kinds(book: Rulebook) -> str:
    """How many rules there are of each kind."""
    from ekgn.kbc.words import kind_of_rule

    closed, length = book.rules.closed, book.rules.length
    counts = {kind_of_rule(n): int((closed & (length == n)).sum()) for n in (1, 2, 3)}
    counts[kind_of_rule(1, closed=False)] = int((~closed).sum())
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)


def _say(part: Round, book: Rulebook) -> None:
    from ekgn.cli import display
    from ekgn.kbc.words import kind_of_rule

    kind = kind_of_rule(part.length or 1, closed=part.length > 0)
    display.messages.print(f"{book.seconds:.0f} s: {len(book):,} rules (last: {kind})")


def _evaluate(graph: KnowledgeGraph, book: Rulebook, split: str, threads: int) -> dict[str, Any]:
    from ekgn.cli import display
    from ekgn.kbc.ranking import rank_split, summarise
    from ekgn.kbc.rules import Rules

    if split not in ("valid", "test"):
        raise EkgnError(f"--evaluate {split}: expected valid or test.")
    scorer = Rules(graph, book.rules, threads=threads)
    with display.ranking_progress("ranking") as on_progress:
        ranks = rank_split(scorer.scores, graph, split, on_progress=on_progress)
    return summarise(ranks, graph, split).as_dict()


def _timed(run: KbcRun) -> str:
    """How long the evidence of an answer takes, kept in the record."""
    took = run.time_evidence()
    return (
        f"The rules of an answer take {took['median']:.1f} ms, median of {took['questions']} "
        f"questions (in the record)."
    )


def _listed(
    graph: KnowledgeGraph, book: Rulebook, relation: int | None, top: int
) -> list[dict[str, Any]]:
    from ekgn.kbc.words import kind_of_rule, rule_in_words

    table = book.rules
    listed = []
    for row in table.search(graph.num_relations, relation, top).tolist():
        support, predictions = int(table.support[row]), int(table.predictions[row])
        listed.append(
            {
                "rule": rule_in_words(graph, table, row),
                "kind": kind_of_rule(int(table.length[row]), bool(table.closed[row])),
                "confidence": float(table.confidence[row]),
                "support": support,
                "predictions": predictions,
                "relation": graph.relations.ids[int(table.relation[row]) % graph.num_relations],
            }
        )
    return listed
