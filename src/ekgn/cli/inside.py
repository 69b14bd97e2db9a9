"""The commands that look inside a run: explain, memory, analyze, report, sweep."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ekgn.cli.extend import WhatIfFlag, With, Without, parse_facts, print_what_if
from ekgn.cli.options import DataDir, Json, Readout
from ekgn.tables import percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ekgn.kbc.analysis import Analysis, StopProfile
    from ekgn.kbc.explain import Explanation, NearPair, Step, StepAnswer
    from ekgn.kbc.memory_map import MemoryMap, RelationUse
    from ekgn.kbc.run import KbcRun
    from ekgn.sweep import Sweep, Trial

RunArgument = Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")]
Plot = Annotated[Path | None, typer.Option(help="Also draw it: a .png, .svg or .pdf file.")]
WIDTH = 100


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (explain, memory, analyze, report, sweep):
        app.command()(command)


def explain(
    run: RunArgument,
    relation: Annotated[str, typer.Option(help="The relation: id or name.")],
    head: Annotated[str | None, typer.Option(help="The head, to ask for tails.")] = None,
    tail: Annotated[str | None, typer.Option(help="The tail, to ask for heads.")] = None,
    target: Annotated[
        str | None, typer.Option(help="An answer whose rank to follow: id or name.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many answers and memory vectors a step.")] = 3,
    nearest: Annotated[int, typer.Option(help="How many observed pairs a step.")] = 3,
    readout: Readout = None,
    what_if: WhatIfFlag = False,
    without: Without = None,
    added: With = None,
    json: Json = False,
) -> None:
    """Every lookup step of one question: attention, nearest facts, answers, and the reasons.

    With --what-if, --without or --with instead: what the answer would be without or with a fact.
    """
    from ekgn.cli import display
    from ekgn.kbc.run import KbcRun

    loaded = KbcRun.load(run)
    if what_if or without or added:
        facts = {"without": parse_facts(without), "added": parse_facts(added)}
        changed = loaded.what_if(head, relation, tail, target=target, top=max(top, 1), **facts)
        print_what_if(changed, json)
        return
    found = loaded.explain(
        head, relation, tail, target=target, top=top, nearest=nearest, readout=readout
    )
    if json:
        display.print_json(asdict(found))
        return
    _note_missing_names(loaded)
    _print_explanation(found)


def _note_missing_names(run: KbcRun) -> None:
    """Say that ids are shown because there are no names, where ids are no words."""
    from ekgn.cli import display

    entities = run.graph.entities
    if entities.labels == entities.ids and all(
        any(letter.isdigit() for letter in identifier) for identifier in entities.ids[:100]
    ):
        display.messages.print(
            f"{run.graph.name} was loaded without names, so ids are shown. "
            f"Names come with: ekgn train ... --names FILE"
        )


def _print_explanation(found: Explanation) -> None:
    from rich.table import Table
    from rich.text import Text

    from ekgn.cli import display
    from ekgn.kbc.words import DISTANCES, IN_SPLIT, RANKED

    display.console.print(Text(found.question, style="bold"), width=WIDTH)
    if found.target:
        about = f" ({found.target.description})" if found.target.description else ""
        known = "in no split" if found.target_known is None else IN_SPLIT[found.target_known]
        display.console.print(
            Text(f"Target: {found.target.label}{about}. The fact is {known}. {RANKED}"), width=WIDTH
        )
    display.console.print(Text(DISTANCES, style="dim"), width=WIDTH)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for step in found.steps:
        grid.add_row("", "")
        for label, content in _step_rows(found, step):
            grid.add_row(label, content)
    display.console.print(grid, width=WIDTH)
    display.console.print(Text("\nWhy", style="bold"))
    reasons = Table.grid(padding=(0, 1))
    for reason in found.reasons:
        reasons.add_row("•", Text(reason))
    display.console.print(reasons, width=WIDTH)


def _step_rows(found: Explanation, step: Step) -> list[tuple[str, RenderableType]]:
    from rich.text import Text

    here = step.number == found.answering_step
    rows: list[tuple[str, RenderableType]] = [
        (
            f"Step {step.number}",
            Text(
                f"stop probability {step.stop_probability:.3g}, takes "
                f"{percent(step.stop_weight)} {_bar(step.stop_weight)}"
                f"{' answers here' if here else ''}",
                style="bold" if here else "",
            ),
        )
    ]
    if step.attention:
        looks = "  ".join(
            f"{slot.slot} ({slot.theme}) {percent(slot.weight)}" for slot in step.attention
        )
        rows.append(("looks at", Text(looks)))
    else:
        rows.append(("looks at", Text("nothing more", style="dim")))
    rows += [("near" if not i else "", _pair(pair)) for i, pair in enumerate(step.nearest)]
    rows.append(("answers", _answers(found, step.answers)))
    if step.target_rank is not None:
        rows.append(("target", Text(f"rank {step.target_rank:g}")))
    return rows


def _bar(share: float, width: int = 12) -> str:
    return "█" * round(share * width) + "░" * (width - round(share * width))


def _pair(pair: NearPair) -> RenderableType:
    """An observed pair in one line; a mark when it has the answer."""
    from rich.text import Text

    text = Text(f"{pair.far:4.0%}  {pair.question}")
    if pair.holds_answer:
        text.append(f"  has {pair.answers[0].label}", style="green")
    text.truncate(WIDTH - 12, overflow="ellipsis")
    return text


def _answers(found: Explanation, answers: list[StepAnswer]) -> RenderableType:
    from rich.text import Text

    from ekgn.kbc.words import IN_SPLIT

    text = Text()
    for answer in answers:
        style = "bold green" if found.target and answer.id == found.target.id else ""
        text.append("   " if text else "")
        place = f"#{answer.rank} " if answer.rank > len(answers) else ""
        text.append(f"{place}{answer.label} {percent(answer.share)}", style=style)
        if answer.known:
            text.append(f" ({IN_SPLIT[answer.known]})", style="dim")
    return text


def memory(
    run: RunArgument,
    relation: Annotated[
        str | None, typer.Option(help="Show what this relation looks at (^ for the inverse).")
    ] = None,
    slot: Annotated[int | None, typer.Option(help="Show only this memory vector.")] = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """What each memory vector holds: share, theme and top relations, or what a relation reads."""
    from ekgn.cli import display
    from ekgn.errors import EkgnError
    from ekgn.kbc.memory_map import memory_map
    from ekgn.kbc.run import KbcRun

    loaded = KbcRun.load(run)
    slots = loaded.settings.num_slots
    if slot is not None and not 0 <= slot < slots:
        raise EkgnError(f"There is no memory vector {slot}: this run has 0 to {slots - 1}.")
    wanted = None if relation is None else loaded.relation_label(loaded.relation(relation))
    found = memory_map(loaded.graph, loaded.model, loaded.known["train"])
    if plot:
        from ekgn import canvas, figures

        canvas.save(figures.memory_heat_map(found), plot)
        display.messages.print(f"Heat map written to {plot}")
    if wanted is not None:
        use = found.relation(wanted)
        display.print_json(asdict(use)) if json else _print_relation_use(use)
    elif json:
        shown = [use for use in found.slots() if slot in (None, use.slot)]
        relations = [asdict(use) for use in found.relations()]
        display.print_json({"slots": [asdict(use) for use in shown], "relations": relations})
    else:
        _print_slots(found, slot)


def _print_slots(found: MemoryMap, only: int | None) -> None:
    from ekgn.cli import display
    from ekgn.kbc.words import short_relation

    rows = []
    for use in found.slots():
        if only not in (None, use.slot):
            continue
        listed = ", ".join(
            f"{short_relation(r.relation)} {100 * r.attention:.0f}"
            for r in use.relations
            if r.attention >= 0.005
        )
        rows.append([str(use.slot), percent(use.share), use.theme, listed])
    columns = [
        "vector",
        "share",
        "theme",
        "top relations and the average attention (%) they give it",
    ]
    display.table("What the memory holds, the most used vector first", columns, rows)
    unused = [str(use.slot) for use in found.slots() if use.unused]
    listed = f": {', '.join(unused)}" if unused else ""
    display.console.print(
        f"\n{len(unused)} of {len(found.peak_M)} vectors are never used "
        f"(no lookup gives them an even share){listed}."
    )


def _print_relation_use(use: RelationUse) -> None:
    from ekgn.cli import display
    from ekgn.kbc.words import short_relation

    display.console.print(
        f"What {short_relation(use.relation)} looks at: {use.queries:,} training queries, "
        f"{use.effective_slots:.1f} effective vectors.\n"
    )
    display.table(
        "",
        ["vector", "attention", "theme"],
        [[str(s.slot), percent(s.attention), s.theme] for s in use.slots],
    )


def analyze(
    run: RunArgument,
    split: Annotated[str, typer.Option(help="Which triples: train, valid or test.")] = "valid",
    readout: Readout = None,
    limit: Annotated[int, typer.Option(help="Use only this many triples, drawn by seed.")] = 0,
    relations: Annotated[int, typer.Option(help="How many relations to list.")] = 12,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """When it stops, what the steps change, how peaked the attention is, what no memory does."""
    from ekgn import canvas, figures
    from ekgn.cli import display
    from ekgn.kbc.analysis import analyze as analyze_split
    from ekgn.kbc.run import KbcRun

    loaded = KbcRun.load(run)
    with display.ranking_progress("analyzing") as on_progress:
        found = analyze_split(
            loaded.graph, loaded.model, split, readout=readout, limit=limit, on_progress=on_progress
        )
    if plot:
        canvas.save(canvas.side_by_side(figures.step_panels(found)), plot)
        display.messages.print(f"Plot written to {plot}")
    if json:
        display.print_json(found.as_dict())
        return
    _print_analysis(found, relations)


def _print_analysis(found: Analysis, relations: int) -> None:
    from ekgn.cli import display
    from ekgn.tables import metrics_table

    steps = [f"step {n + 1}" for n in range(found.max_steps)]
    display.console.print(
        f"{found.graph} {found.split}: {found.triples:,} triples, {found.queries:,} distinct "
        f"queries, readout {found.readout}.\n"
    )
    profiles = [found.stop, *found.by_category]
    display.table(
        "Where it stops: share of the queries whose step of most weight it is",
        ["queries", "count", *steps, "early", "mean step"],
        [_stop_row(profile) for profile in profiles],
    )
    display.console.print()
    ways = {_rule_words(name, found): metrics for name, metrics in found.metrics.items()}
    ways |= {
        f"{_rule_words(name, found).split(' (')[0]}, no memory": metrics
        for name, metrics in found.no_memory.items()
    }
    ways["the best step of each (no gate knows it)"] = found.oracle
    names = ["hits_at_10", "hits_at_1", "mrr", "mean_rank"]
    title = "What each way of answering reaches (always step N: no gate)"
    display.show(metrics_table(title, names, ways))
    if found.lookups:
        display.console.print()
        display.table(
            f"How peaked the attention is (of {found.num_slots} vectors)",
            ["lookup", "entropy (nats)", "effective vectors", "largest weight"],
            [
                [str(x.step), f"{x.entropy:.2f}", f"{x.effective_slots:.1f}", f"{x.largest:.2f}"]
                for x in found.lookups
            ],
        )
    _print_relations(found, relations)
    display.console.print("\n" + " ".join(found.in_words()), width=WIDTH)


def _print_relations(found: Analysis, count: int) -> None:
    from ekgn.cli import display
    from ekgn.kbc.words import short_relation

    display.console.print()
    display.table(
        f"By relation, the {min(count, len(found.by_relation))} most frequent",
        ["relation", "queries", "early", "mean step", "vectors", "hits@10 step 1", "answer"],
        [
            [
                short_relation(row.stop.name),
                f"{row.stop.queries:,}",
                percent(row.stop.early),
                f"{row.stop.expected_step:.2f}",
                "–" if row.effective_slots is None else f"{row.effective_slots:.1f}",
                percent(row.first_hits_at_10),
                percent(row.hits_at_10),
            ]
            for row in found.by_relation[:count]
        ],
    )


def _stop_row(profile: StopProfile) -> list[str]:
    shares = [percent(share) for share in profile.answering]
    count, early = f"{profile.queries:,}", percent(profile.early)
    return [profile.name, count, *shares, early, f"{profile.expected_step:.2f}"]


def _rule_words(name: str, found: Analysis) -> str:
    if name.startswith("step:"):
        return f"always step {name[5:]}"
    return f"{name} (this run's readout)" if name == found.readout else name


def report(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="The file (default: RUN/report.html).")] = None,
    split: Annotated[str, typer.Option(help="Where examples are from: valid or test.")] = "test",
    limit: Annotated[
        int, typer.Option(help="Analyze this many triples, drawn by seed (0: all).")
    ] = 2000,
) -> None:
    """One HTML file about a run: curves, metrics, steps, memory and explained examples."""
    from ekgn import api
    from ekgn.cli import display
    from ekgn.report import write_report

    loaded = api.load(run)
    file = out or loaded.path / "report.html"
    with display.ranking_progress("making the report") as on_progress:
        write_report(loaded, file, split=split, limit=limit, on_progress=on_progress)
    display.console.print(f"Report written to {file} ({file.stat().st_size / 2**20:.1f} MB)")


def sweep(
    data: Annotated[str, typer.Argument(help="A benchmark's name, a folder or a file.")],
    settings: Annotated[
        list[str],
        typer.Option("--set", help="NAME=VALUE,VALUE,... or NAME=LOW..HIGH; one value is fixed."),
    ],
    search: Annotated[str, typer.Option(help="grid, random, or tpe (model-based).")] = "grid",
    trials: Annotated[int, typer.Option(help="How many trials random and tpe run.")] = 0,
    jobs: Annotated[int, typer.Option(help="How many trials run side by side.")] = 1,
    budget: Annotated[float, typer.Option(help="Training minutes per trial (0: no limit).")] = 0,
    preset: Annotated[str | None, typer.Option(help="Settings to start from.")] = None,
    split: Annotated[
        str, typer.Option(help="Measure the run of the best validation on this split.")
    ] = "test",
    task: Annotated[str, typer.Option(help="The task that the data are of.")] = "kbc",
    out: Annotated[Path | None, typer.Option(help="Folder (default: runs/sweep-DATA).")] = None,
    plot: Plot = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train every combination of settings (or search among them); a killed sweep goes on."""
    import os

    from ekgn import canvas, figures
    from ekgn.cli import display
    from ekgn.run import RUNS
    from ekgn.sweep import Sweep, parse_axes, run_sweep, summary

    if data_dir:
        os.environ["EKGN_DATA"] = data_dir  # for the processes of the trials
    wanted = Sweep(data, parse_axes(settings, task), preset, search, budget, split, task)
    folder = out or RUNS / f"sweep-{Path(data).stem.casefold()}"
    found = run_sweep(wanted, folder, trials=trials, jobs=jobs, on_trial=_announce)
    picture = plot or folder / "sweep.png"
    if any(trial.state == "finished" for trial in found):
        canvas.save(figures.sweep_plot(wanted, found), picture)
    if json:
        display.print_json(summary(wanted, folder, found))
        return
    _print_sweep(wanted, found)
    display.console.print(f"\nRuns, sweep.json and the plot are in {folder}")


def _announce(trial: Trial, done: int, total: int) -> None:
    from ekgn.cli import display
    from ekgn.tables import in_words

    result = trial.problem or f"validation {in_words(trial.valid)}"
    display.messages.print(f"{done} of {total}: {trial.name}: {result}")


def _print_sweep(wanted: Sweep, found: list[Trial]) -> None:
    from ekgn.cli import display
    from ekgn.sweep import varied, winner
    from ekgn.tables import Column, Table, in_words, metric

    names = [axis.name for axis in varied(wanted)]
    best = winner(found)
    measured = list(best.valid) if best else []
    table = Table(
        f"Sweep of {wanted.data}, on validation",
        [
            *(Column(name, str) for name in names),
            *map(metric, measured),
            *("epochs", "seconds", ""),
        ],
        [
            [
                *(trial.settings[name] for name in names),
                *(trial.valid.get(name) for name in measured),
                f"{trial.epochs:.1f}",
                f"{trial.seconds:,.0f}",
                "failed" if trial.state == "failed" else "best" if trial is best else "",
            ]
            for trial in found
        ],
    )
    display.show(table)
    if best:
        text = f"\nThe best, {best.name}, on {wanted.split}: {in_words(best.metrics)}."
        display.console.print(text, markup=False)
    for trial in found:
        if trial.problem:
            display.console.print(f"{trial.name}: {trial.problem}")
