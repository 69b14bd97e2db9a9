"""The report of a run of knowledge base completion: curves, metrics, steps, memory, examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ekgn import canvas, figures
from ekgn.errors import EkgnError
from ekgn.kbc.analysis import Analysis, Replay, analyze, drawn_graph
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.completion.confidence import ASSUMPTION
from ekgn.kbc.explain import Explainer, Explanation, NearPair, Step
from ekgn.kbc.memory_map import MemoryMap
from ekgn.kbc.ranking import (
    HEADLINE,
    Evaluation,
    Floats,
    category_table,
    filter_answers,
    rank_split,
)
from ekgn.kbc.run import KbcRun
from ekgn.kbc.what_if import WhatIf, WhatIfs
from ekgn.kbc.words import DISTANCES, IN_SPLIT, ONE_FACT_ALONE, RANKED, WITH_RULES, short_relation
from ekgn.report.page import OnProgress, Report, Section, curves, panels, settings, wide
from ekgn.tables import METRICS, Column, Table, breakable, metrics_table

KINDS = {
    "improved": "better over the steps",
    "early": "stopped early, and right",
    "wrong": "wrong, with reasons",
    "lost": "worse over the steps",
}
PER_KIND = {"improved": 4, "early": 3, "wrong": 3, "lost": 2}


@dataclass(frozen=True)
class Example:
    """An explained test question, and why it was chosen."""

    kind: str
    explanation: Explanation
    what_if: WhatIf | None  # None in the paper's form, whose rows cannot be fitted again


def report(run: KbcRun, split: str, limit: int, on_progress: OnProgress | None) -> Report:
    """The report of a run, its steps analyzed over `limit` triples of a split (0: all)."""
    graph, own = run.graph, run.settings
    if not len(graph.split(split)):
        raise EkgnError(
            f"{graph.name} has no {split} triples: there is nothing to report on. "
            f"Choose another --split."
        )
    explainer = run.explainer
    measured = _measured(run, split)
    analysis = analyze(graph, run.model, split, limit=limit, on_progress=on_progress)
    examples = choose_examples(run, explainer, split, limit)
    memory = explainer.memory if own.reads_memory else None
    return Report(
        f"{graph.name}: what the model learned",
        f"{graph.num_entities:,} entities, {graph.num_relations:,} relations, "
        f"{len(graph.train):,} training facts. {own.num_slots} memory vectors, up to "
        f"{own.max_steps} steps, vectors of {own.embedding_dim}. "
        f"Numbers are on the {split} split, readout {own.readout}.",
        _cards(measured, analysis),
        [
            Section("curves", "Training", curves(run)),
            Section("metrics", "Metrics", _metrics(measured)),
            *_confidence(run),
            Section("steps", "Steps", _steps(analysis)),
            Section("memory", "Memory", _memory(memory)),
            Section("examples", "Examples", _examples(examples)),
            Section("settings", "Settings", settings(run)),
        ],
        "Every step shown is read from the record of the forward pass; ranks are filtered, ties "
        "count half.",
    )


MODEL, RULES = "model", ONE_FACT_ALONE
Measured = dict[str, dict[str, Any]]
"""The metrics of the run, and of what stands beside it."""


def _measured(run: KbcRun, split: str) -> Measured:
    """Recorded metrics, or made now."""

    def found(section: str, name: str, measure: Callable[[str], Evaluation]) -> dict[str, Any]:
        recorded: dict[str, Any] | None = run.record.get(section, {}).get(name)
        return recorded or measure(split).as_dict()

    by_readout = f"{split}/{run.settings.readout}"
    mixed = run.record.get("with_rules", {}).get(split)
    return {
        MODEL: found("evaluations", by_readout, run.evaluate),
        **({WITH_RULES: mixed} if mixed else {}),
        RULES: found("rule_baseline", split, run.rule_baseline),
    }


def choose_examples(run: KbcRun, explainer: Explainer, split: str, limit: int) -> list[Example]:
    """A dozen telling questions of a split: few of a relation, some of each kind."""
    graph, model = run.graph, run.model
    drawn, known = drawn_graph(graph, split, limit, run.settings.seed), filter_answers(graph, split)
    replayed = Replay(model, Answers(drawn.split(split), graph.num_relations))
    ranks = [
        rank_split(replayed.scorer(readout), drawn, split, known=known)
        for readout in ("step:1", run.settings.readout)
    ]
    first, last = (found.realistic for found in ranks)
    heads, relations, targets = ranks[0].heads, ranks[0].relations, ranks[0].targets
    steps_Q = replayed.stop_weights_TQ.argmax(axis=0) + 1
    step_P = steps_Q[replayed.queries.rows(heads, relations)]
    chosen: list[Example] = []
    taken: set[int] = set()
    whats = WhatIfs(graph, model)
    known_P = np.diff(known.offsets)[known.rows(heads, relations)]
    for kind, order in _candidates(first, last, step_P, known_P, run.settings.max_steps):
        for pair in _spread(order, relations, heads, PER_KIND[kind], taken):
            query = int(heads[pair]), int(relations[pair]), int(targets[pair])
            changed = whats.most_telling(*query, top=3) if run.settings.has_product else None
            chosen.append(Example(kind, explainer.explain(*query, top=3), changed))
    return chosen


def _candidates(
    first: Floats, last: Floats, step_P: Ints, known_P: Ints, max_steps: int
) -> Iterator[tuple[str, Ints]]:
    """For each kind, the pairs that show it, the clearest first.

    A question with many known answers shows little: they fill the places before the target.
    """
    gain, crowd = np.log(first) - np.log(last), np.log(known_P) / 3
    conditions = {
        "improved": ((last <= 3) & (first > last), crowd - gain),
        "early": ((last == 1) & (step_P < max_steps), crowd - step_P),
        "wrong": (last > 10, crowd + np.log(last)),
        "lost": ((first <= 3) & (last > first), crowd + gain),
    }
    for kind, (mask, order) in conditions.items():
        found = np.flatnonzero(mask)
        yield kind, found[np.argsort(order[found], kind="stable")]


def _spread(order: Ints, relations: Ints, heads: Ints, count: int, taken: set[int]) -> list[int]:
    """The first pairs in order that repeat neither a relation nor a head, if there are enough."""
    chosen: list[int] = []
    seen: set[tuple[str, int]] = set()
    for strict in (True, False):
        for pair in order.tolist():
            marks = {("relation", int(relations[pair])), ("head", int(heads[pair]))}
            if len(chosen) == count:
                break
            if pair not in taken and not (strict and marks & seen):
                chosen.append(pair)
                taken.add(pair)
                seen |= marks
    return chosen


def _confidence(run: KbcRun) -> list[Section]:
    """How far confidences hold, where one is fitted."""
    if run.confidence is None:
        return []
    check = run.confidence.check
    error = check.calibration_error
    words = (
        f"<p>Of {check.candidates:,} candidates that the confidence was not fitted on. Calibration "
        f"error {error['after']:.3f}, of the share {error['before']:.3f}. "
        f"The assumption: {ASSUMPTION}.</p>"
    )
    return [Section("confidence", "Confidence", words + wide(check.table()))]


def _cards(measured: Measured, analysis: Analysis) -> list[tuple[str, str]]:
    micro, rules = measured[MODEL]["micro"], measured[RULES]["micro"]
    return [
        *(
            (metric.write(micro[name]), f"{metric.name} (rules alone {metric.write(rules[name])})")
            for name in ("hits_at_10", "mrr", "mean_rank")
            for metric in [METRICS[name]]
        ),
        (f"{analysis.stop.early:.0%}", "of the queries stop early"),
        (f"{analysis.changes.any_step:.0%}", "change their top answer over the steps"),
    ]


def _metrics(measured: Measured) -> str:
    evaluation = measured[MODEL]
    rows = {name: found["micro"] for name, found in measured.items()}
    rows |= {f"model, {side} missing": value for side, value in evaluation["sides"].items()}
    by_category = category_table(evaluation["categories"])
    return wide(metrics_table("", HEADLINE, rows)) + wide(by_category)


def _steps(analysis: Analysis) -> str:
    steps = [f"step {n + 1}" for n in range(analysis.max_steps)]
    rows = [
        [
            profile.name,
            f"{profile.queries:,}",
            *(f"{share:.0%}" for share in profile.answering),
            f"{profile.expected_step:.2f}",
        ]
        for profile in (analysis.stop, *analysis.by_category)
    ]
    peaked = ", ".join(f"{lookup.effective_slots:.1f}" for lookup in analysis.lookups)
    if peaked:
        peaked = f" Its lookups spread over about {peaked} of {analysis.num_slots} vectors."
    return (
        f"<p>{escape(' '.join(analysis.in_words()))}{peaked} "
        f'<span class="soft">Over {analysis.triples:,} triples, {analysis.queries:,} distinct '
        f"queries.</span></p>"
        f"{panels(figures.step_panels(analysis))}"
        f"<p>Share of the queries that answer at each step:</p>"
        + wide(Table("", ["queries", "count", *steps, "mean step"], rows))
    )


def _memory(memory: MemoryMap | None) -> str:
    if memory is None:
        return "<p>This run answers at its first step: it has no lookups.</p>"
    slots = memory.slots()
    unused = sum(use.unused for use in slots)
    rows = [
        [
            str(use.slot),
            f"{use.share:.1%}",
            use.theme,
            ", ".join(
                f"{short_relation(r.relation)} {r.attention:.0%}"
                for r in use.relations
                if r.attention >= 0.005
            ),
        ]
        for use in slots
    ]
    told = "top relations, with the average attention they give it"
    columns: list[str | Column] = ["vector", "share"]
    columns += [Column(name, wraps=True) for name in ("theme", told)]
    heat = canvas.as_svg(figures.memory_heat_map(memory))
    more = ""
    if len(rows) > 12:
        more = (
            f"<details><summary>The other {len(rows) - 12} vectors</summary>"
            f'<div class="inner">{wide(Table("", columns, rows[12:]))}</div></details>'
        )
    return (
        f"<p>What each memory vector is looked up for: the average attention of each relation's "
        f"training queries. {unused} of {len(slots)} vectors are never used. Backwards: "
        f'asked for the head.</p><figure class="map">{heat}</figure>'
        f'<div class="slots">{wide(Table("", columns, rows[:12]))}{more}</div>'
    )


def _examples(examples: Sequence[Example]) -> str:
    if not examples:
        return "<p>No question of the split shows any of the kinds looked for.</p>"
    return f"<p>{DISTANCES}</p>" + "".join(
        _example(example, first=not i) for i, example in enumerate(examples)
    )


def _example(example: Example, first: bool) -> str:
    found = example.explanation
    rank = f"rank {found.target_rank:g}" if found.target_rank is not None else ""
    about = f" <small>{escape(found.target.description)}</small>" if found.target else ""
    steps = "".join(_step(found, step) for step in found.steps)
    reasons = "".join(f"<li>{breakable(reason)}</li>" for reason in found.reasons)
    return (
        f"<details{' open' if first else ''}><summary><h3>{breakable(found.question)}</h3> "
        f'<span class="tag {example.kind}">{KINDS[example.kind]}</span></summary>'
        f'<div class="inner"><p>True answer: '
        f"<b>{escape(found.target.label if found.target else '')}</b>{about}, {rank}. {RANKED}</p>"
        f"{steps}<ul>{reasons}</ul>{_what_if(example.what_if)}</div></details>"
    )


def _what_if(found: WhatIf | None) -> str:
    """The facts whose removal lowers the true answer most."""
    if found is None or not found.changes:
        return ""
    lines = "".join(f"<li>{breakable(line)}</li>" for line in found.in_words())
    return (
        f"<p>What if a fact were not there? The share of <b>{escape(found.answer)}</b>:</p>"
        f'<ul>{lines}</ul><p class="soft">{escape(found.note)}</p>'
    )


def _step(found: Explanation, step: Step) -> str:
    here = " answers" if step.number == found.answering_step else ""
    rank = "" if step.target_rank is None else f"<div>rank {step.target_rank:g}</div>"
    looks = "<br>".join(
        f"{slot.slot} ({escape(slot.theme)}) {slot.weight:.0%}" for slot in step.attention
    )
    near = "<br>".join(_near(pair) for pair in step.nearest)
    answers = "<br>".join(
        f"<span{_hit(found.target is not None and answer.id == found.target.id)}>"
        f"{f'#{answer.rank} ' if answer.rank > len(step.answers) else ''}"
        f"{escape(answer.label)} {answer.share:.1%}</span>"
        + (f" <small>{IN_SPLIT[answer.known]}</small>" if answer.known else "")
        for answer in step.answers
    )
    return (
        f'<div class="step{here}"><div><h4>Step {step.number}{", answers" if here else ""}</h4>'
        f'<div class="bar"><i style="width:{100 * step.stop_weight:.1f}%"></i></div>'
        f"<small>stop {step.stop_probability:.2g}, weight {step.stop_weight:.1%}</small>{rank}"
        f"</div><div><h5>says</h5>{answers}</div><div><h5>near</h5>{near}</div>"
        f"<div><h5>looks at</h5>{looks or '<small>nothing more</small>'}</div></div>"
    )


def _near(pair: NearPair) -> str:
    words = breakable(pair.question)
    mark = " <small>has the answer</small>" if pair.holds_answer else ""
    return f"<span{_hit(pair.holds_answer)}>{words}</span> {pair.far:.0%}{mark}"


def _hit(is_hit: bool) -> str:
    return ' class="hit"' if is_hit else ""
