"""The commands that fill a graph: complete, score, predict, backtest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ekgn.cli.options import DataDir, Json, Readout, Top
from ekgn.kbc.words import IN_SPLIT, verb
from ekgn.tables import percent

if TYPE_CHECKING:
    import polars as pl

    from ekgn.kbc.completion import Check, Completion
    from ekgn.kbc.completion.given import Problem
    from ekgn.kbc.run import KbcRun, Prediction
    from ekgn.tables import Table

RunArgument = Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")]
Out = Annotated[Path, typer.Option(help="A .tsv, .csv, .parquet, .jsonl, .nt or .ttl file.")]
Precision = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Keep facts down to the confidence that gives this precision."),
]
Relations = Annotated[
    list[str] | None, typer.Option(help="Only this relation (several times: these).")
]
Entities = Annotated[
    list[str] | None, typer.Option(help="Only facts with this entity (several times: these).")
]
MinConfidence = Annotated[
    float, typer.Option(min=0, max=1, help="Only facts of this confidence or more.")
]
UnlistedTrue = Annotated[
    float, typer.Option(min=0, max=1, help="Share of candidates in no split assumed true.")
]
Negatives = Annotated[
    Path | None, typer.Option(help="A file of facts known to be false, to check against.")
]
Refit = Annotated[
    bool,
    typer.Option("--refit", help="Fit the confidence anew, with what was decided since."),
]
AskFrom = Annotated[
    float, typer.Option(min=0, max=1, help="Ask for what this share of an entity's kind has.")
]
LikeFrom = Annotated[
    float, typer.Option(min=0, max=1, help="Consider answers of whose kind this share were.")
]
SingleValued = Annotated[
    bool, typer.Option(help="Ask for a single-valued relation only where it has no value.")
]
Everything = Annotated[
    bool, typer.Option("--everything", help="Ask all, of all; consider every answer.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (predict, complete, score, backtest):
        app.command()(command)


def complete(
    run: RunArgument,
    out: Out,
    relation: Relations = None,
    entity: Entities = None,
    top: Annotated[int, typer.Option(min=0, help="How many facts (0: all).")] = 100_000,
    min_confidence: MinConfidence = 0.0,
    precision: Precision = None,
    unlisted_true: UnlistedTrue = 0.0,
    negatives: Negatives = None,
    refit: Refit = False,
    depth: Annotated[int, typer.Option(min=1, help="Places of each question looked at.")] = 20,
    ask_from: AskFrom = 0.5,
    like_from: LikeFrom = 0.1,
    single_valued: SingleValued = True,
    everything: Everything = False,
    explained: Annotated[int, typer.Option(min=0, help="How many facts get evidence.")] = 1000,
    json: Json = False,
) -> None:
    """Write the missing facts of a graph, the surest first. A killed completion goes on."""
    from ekgn.cli import display
    from ekgn.kbc.completion import Choice
    from ekgn.kbc.completion.writers import check_out
    from ekgn.kbc.run import KbcRun

    check_out(out)
    choice = Choice(depth, ask_from, like_from, single_valued, everything)
    loaded = KbcRun.load(run)
    _note_index(loaded)
    if refit or loaded.confidence is None:
        _fit(loaded)
    with display.ranking_progress("asking") as on_progress:
        found = loaded.complete(
            out,
            relations=relation or (),
            entities=entity or (),
            top=top,
            min_confidence=min_confidence,
            precision=precision,
            unlisted_true=unlisted_true,
            negatives=negatives,
            explained=explained,
            on_progress=on_progress,
            **asdict(choice),
        )
    if json:
        display.print_json({"out": str(out), **found.as_dict()})
    else:
        _show_completion(found, out, precision)


def _show_completion(found: Completion, out: Path, precision: float | None) -> None:
    from ekgn.cli import display
    from ekgn.kbc.completion.confidence import ASSUMPTION

    _show_facts(found.facts.head(20))
    if found.check:
        _show_check(found.check)
    if found.promise:
        display.console.print(
            f"Precision is at least {precision:g} from a confidence of {found.promise.level:.3f} "
            f"up (95% lower bound; {found.promise.expected:.3f} was measured; {ASSUMPTION})."
        )
    if found.negatives:
        display.console.print(_against_words(found.negatives))
    display.console.print(
        f"{len(found.facts):,} facts from {found.questions:,} questions written to {out}"
    )


def _note_index(loaded: KbcRun) -> None:
    """Say that answers come from an index, where they do."""
    from ekgn.cli import display
    from ekgn.kbc.index import IndexSearch

    if isinstance(loaded.search, IndexSearch):
        recall = f"{loaded.search.about.recall_at_10:.1%} of the first 10"
        text = f"Answers come from the run's index, which finds {recall}. Shares are estimates."
        display.messages.print(text)


def _fit(loaded: KbcRun) -> None:
    from ekgn.cli import display
    from ekgn.kbc.completion.confidence import TooFew

    try:
        with display.ranking_progress("fitting the confidence") as on_progress:
            loaded.fit_confidence(on_progress=on_progress)
    except TooFew as error:
        display.messages.print(str(error))


def _show_facts(facts: pl.DataFrame) -> None:
    from ekgn.cli import display
    from ekgn.tables import Column, Table

    columns: list[str | Column] = [
        *("head", "relation", "tail", Column("confidence", percent), Column("share", percent)),
        *("tail's place", "head's place", "held out"),
    ]
    shown = facts.select(
        *("head_name", "relation_name", "tail_name", "confidence", "tail_share"),
        *("tail_rank", "head_rank", "held_out"),
    )
    display.show(Table("The surest", columns, shown.rows()))


def _show_check(check: Check) -> None:
    from ekgn.cli import display

    error = check.calibration_error
    display.console.print(
        f"\nConfidence was checked on {check.candidates:,} candidates, {check.true:,} of them in "
        f"validation: calibration error {error['after']:.3f} (of the share {error['before']:.3f})."
    )


def _against_words(found: dict[str, float]) -> str:
    return (
        f"Of {found['facts']:,} facts known to be false {found['at_or_above_threshold']:,} are at "
        f"or above the threshold; their mean confidence is {found['mean_confidence']:.3f}."
    )


def score(
    run: RunArgument,
    facts: Annotated[Path, typer.Argument(help="A file of facts, by name or id.")],
    out: Annotated[
        Path | None, typer.Option(help="All columns, to a .tsv, .csv, .parquet or .jsonl file.")
    ] = None,
    json: Json = False,
) -> None:
    """Say of given facts how plausible they are, from both sides, and what training lacks."""
    from ekgn.cli import display
    from ekgn.kbc.completion.writers import check_out, write_table
    from ekgn.kbc.run import KbcRun

    if out:
        check_out(out)
    loaded = KbcRun.load(run)
    if loaded.confidence is None:
        _fit(loaded)
    found = loaded.score(facts)
    if out:
        write_table(found.facts, out)
    if json:
        problems = [asdict(problem) for problem in found.problems]
        values = {"out": str(out)} if out else {"scores": found.facts.to_dicts()}
        display.print_json({**values, "facts": len(found.facts), "problems": problems})
        return
    _say_problems(facts, found.problems)
    if not out:
        display.show(_scored(found.facts))
    plausible = int(found.facts["plausible"].sum())
    display.console.print(
        f"{len(found.facts):,} facts {f'written to {out}' if out else 'scored'}: "
        f"{plausible:,} plausible, {len(found.problems):,} lines not read."
    )


def _scored(facts: pl.DataFrame) -> Table:
    """What one wants to know first of each fact."""
    from ekgn.tables import Column, Table

    columns = {
        "line": Column("line"),
        "head_name": Column("head"),
        "relation_name": Column("relation"),
        "tail_name": Column("tail"),
        "confidence": Column("confidence", percent),
        "tail_rank": Column("tail's rank"),
        "head_rank": Column("head's rank"),
        "known": Column("known"),
    }
    return Table("Scores", list(columns.values()), facts.select(list(columns)).rows())


def _say_problems(file: Path, problems: list[Problem]) -> None:
    from ekgn.cli import display

    for problem in problems:
        display.messages.print(f"{file}, line {problem.line}: {problem.message}", soft_wrap=True)


def predict(
    run: RunArgument,
    head: Annotated[str | None, typer.Option(help="The head: id or name.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation: id or name.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail: id or name.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="A file of questions instead: head, relation, ? or ?, relation, tail."),
    ] = None,
    top: Top = 10,
    hide_known: Annotated[
        bool, typer.Option("--hide-known", help="Leave known facts out.")
    ] = False,
    readout: Readout = None,
    out: Annotated[
        Path | None, typer.Option(help="With --queries: a .tsv, .csv, .parquet or .jsonl file.")
    ] = None,
    json: Json = False,
) -> None:
    """The best tails, heads or relations: give two of the three parts, or a file of questions."""
    from ekgn.cli import display
    from ekgn.errors import EkgnError
    from ekgn.kbc.run import KbcRun

    if queries is not None and (head or relation or tail):
        raise EkgnError("Give one question (--head, --relation, --tail) or --queries, not both.")
    if out is not None and queries is None:
        raise EkgnError("--out is for --queries.")
    loaded = KbcRun.load(run)
    _note_index(loaded)
    if queries is not None:
        _predict_file(loaded, queries, out, json, top=top, hide_known=hide_known, readout=readout)
        return
    found = loaded.predict(head, relation, tail, top=top, hide_known=hide_known, readout=readout)
    if json:
        display.print_json([asdict(prediction) for prediction in found])
        return
    parts = (head, relation and verb(relation), tail)
    question = f"“{' '.join(part or '?' for part in parts)}”"
    sure = any(prediction.confidence is not None for prediction in found)
    display.table(
        f"{question} on {loaded.graph.name}",
        ["", "answer", "id", "share", *["confidence"] * sure, "known"],
        [_prediction_row(prediction, sure) for prediction in found],
    )


def _prediction_row(prediction: Prediction, sure: bool) -> list[str]:
    confidence = "" if prediction.confidence is None else percent(prediction.confidence)
    return [
        str(prediction.rank),
        prediction.label,
        prediction.id if prediction.id != prediction.label else "",
        percent(prediction.share),
        *[confidence] * sure,
        IN_SPLIT[prediction.known],
    ]


def _predict_file(
    loaded: KbcRun, queries: Path, out: Path | None, json: bool, **options: Any
) -> None:
    import polars as pl

    from ekgn.cli import display
    from ekgn.distributed import world
    from ekgn.kbc.completion.given import Problem
    from ekgn.kbc.completion.writers import check_out, write_table
    from ekgn.tables import Column, Table

    if out is not None:
        check_out(out, facts=False)
    rows, problems = [], []
    for (line, fields), found in loaded.predict_many(queries, **options):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        asked = dict(zip(("head", "relation", "tail"), fields, strict=True))
        rows += [{"line": line, **asked, **asdict(answer)} for answer in found]
    _say_problems(queries, problems)
    if out is not None:
        answers = pl.DataFrame(rows, schema_overrides={"confidence": pl.Float64})
        world().by_first(lambda: write_table(answers, out))
        display.console.print(f"{len(rows):,} answers written to {out}")
    elif json:
        display.print_json({"answers": rows, "problems": [asdict(each) for each in problems]})
    else:
        sure = any(row["confidence"] is not None for row in rows)
        keys = ["line", "head", "relation", "tail", "rank", "label", "share"]
        keys += [*["confidence"] * sure, "known"]
        cells = [[row[key] for key in keys] for row in rows]
        shares = ("share", "confidence")
        names = [Column(key, percent) if key in shares else key for key in keys]
        display.show(Table(f"Answers to {queries}", names, cells))


def backtest(
    data: Annotated[str, typer.Argument(help="A benchmark's name, a folder or a file.")],
    share: Annotated[float, typer.Option(help="How much of the facts is taken away.")] = 0.1,
    by: Annotated[str, typer.Option(help="What is taken: random, or newest entities.")] = "random",
    precision: Precision = 0.9,
    preset: Annotated[str | None, typer.Option(help="Settings to start from.")] = None,
    minutes: Annotated[float, typer.Option(help="A budget for the training; 0: none.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="The run's folder.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Take facts away, train, complete, and count what comes back at which precision."""
    from ekgn import backtest as test
    from ekgn.cli import display

    with display.ranking_progress("backtest") as on_progress:
        found = test.backtest(
            data,
            share=share,
            by=by,
            precision=precision,
            preset=preset,
            out=out,
            data_dir=data_dir,
            on_progress=on_progress,
            budget_minutes=minutes,
        )
    if json:
        display.print_json(found.as_dict())
        return
    display.show(found.table())
    display.console.print("\n" + found.in_words())
