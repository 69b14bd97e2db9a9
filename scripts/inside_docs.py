"""Make docs/inside.md: the paper's Tables 2, 3 and 5, from a run made here.

    python scripts/inside_docs.py runs/fb15k    look inside a run: results/inside
    python scripts/inside_docs.py               only write the page from the records

A run of scripts/steps.py has its first answer from another one: name that by --first. The page is
written from the records alone; a test fails when it is not what they say.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ekgn import api, canvas, figures
from ekgn.files import write_json
from ekgn.kbc.analysis import analyze
from ekgn.kbc.explain import Explainer
from ekgn.kbc.words import short_relation
from ekgn.report.kbc import choose_examples
from ekgn.tables import Table

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "inside"
PAGE = ROOT / "docs" / "inside.md"
IMAGES = ROOT / "docs" / "images"


class Printed(NamedTuple):
    """A step as the paper prints it."""

    stop: str
    rank: int
    answers: str
    nearest: str = ""


_POSITION = "/sports/sports_team/roster./basketball/basketball_roster_position/position"
_SUNS = (
    "Phoenix Suns, basketball_roster_position/position<br>Minnesota Golden Gophers men's "
    "basketball, basketball_roster_position/position<br>Sacramento Kings, "
    "basketball_roster_position/position"
)
# The questions of the paper's Tables 2 and 5, all test facts of FB15k, with what it prints.
PAPER_QUESTIONS: dict[tuple[str, str, str], list[Printed]] = {
    ("/m/0jmbv", _POSITION, "/m/0ctt4z"): [
        Printed(
            "6.85e-6",
            5,
            "Swingman<br>Punt returner<br>Return specialist",
            "Milwaukee Bucks, basketball_roster_position/position<br>Milwaukee Bucks, "
            "sports_team_roster/position<br>Arizona Wildcats men's basketball, "
            "basketball_roster_position/position",
        ),
        Printed("0.012", 4, "Swingman<br>Sports commentator<br>Wide receiver", _SUNS),
        Printed(
            "0.987", 1, "**Forward-center**<br>Swingman<br>Cabinet of the United States", _SUNS
        ),
    ],
    ("/m/02ghq", "/people/person/profession", "/m/01d_h8"): [
        Printed("0.018", 9, "Author<br>TV. Director<br>Songwriter"),
        Printed("0.052", 7, "Actor<br>Singer<br>Songwriter"),
        Printed("0.095", 4, "Actor<br>Singer<br>Songwriter"),
        Printed("0.132", 4, "Actor<br>Singer<br>Songwriter"),
        Printed("0.702", 3, "Actor<br>Singer<br>**Film Producer**"),
    ],
    ("/m/0b2qtl", "/film/film/produced_by", "/m/03y3dk"): [
        Printed("0.001", 13, "Scott Rudin<br>Stephen Woolley<br>Hal B. Wallis"),
        Printed("5.8e-13", 7, "Billy Wilder<br>William Wyler<br>Elia Kazan"),
        Printed("0.997", 1, "**Carlo Ponti**<br>King Vidor<br>Hal B. Wallis"),
    ],
}
# The paper's Table 3: the theme it gives to each of six vectors, and their first relations.
PAPER_MEMORY = {
    "family": "lived-with/participant, breakup/participant, marriage/spouse, "
    "vacation-choice/vacationer",
    "person": "person/gender, person/nationality, military-service/military-person, "
    "government-position-held/office-holder",
    "film, award": "film-genre/films-in-this-genre, film/cinematography, cinematographer/film, "
    "award-honor/honored-for",
    "disease": "disease-cause/diseases, crime-victim/crime-type, "
    "notable-person-with-medical-condition/condition, cause-of-death/parent-cause-of-death",
    "sports": "sports-team-roster/team, basketball-roster-position/player, "
    "basketball-roster-position/player, baseball-player/position-s",
    "tv program": "tv-producer-term/program, tv-producer-term/producer-type, "
    "tv-guest-role/episodes-appeared-in, tv-program/languages",
}
KINDS = {
    "paper": "a question of the paper",
    "improved": "better over the steps",
    "early": "stopped early, and right",
    "wrong": "wrong, with reasons",
    "lost": "worse over the steps",
}


def collect_run(path: Path, split: str, limit: int, first: Path | None) -> None:
    """Look inside a run and write what was seen into the records."""
    run = api.load(path)
    if not run.record:
        raise SystemExit(f"{path} has no record yet: let its training finish first.")
    explainer = Explainer(run.graph, run.model, run.known)
    explained = [
        {"kind": "paper", "question": ids, **asdict(explainer.explain(*question, top=3))}
        for ids, question in paper_questions(run)
    ]
    seen = set[str]()
    for example in choose_examples(run, explainer, split, limit):
        if example.kind not in seen:
            seen.add(example.kind)
            explained.append({"kind": example.kind, **asdict(example.explanation)})
    for explanation in explained:
        for step in explanation["steps"]:
            del step["attention_all"]  # long, and not shown
    analysis = analyze(run.graph, run.model, split)
    evaluation = run.evaluate(split).as_dict()
    record = {key: value for key, value in run.record.items() if key not in ("curve", "data")}
    record |= {"data": run.graph.name, "split": split, "evaluation": evaluation}
    record.pop("evaluations", None)
    if first:
        shared = api.load(first).record
        record["first"] = {key: shared[key] for key in ("epochs", "wall_seconds", "environment")}
    write_json(RECORDS / "run.json", record)
    write_json(RECORDS / "explanations.json", explained)
    write_json(RECORDS / "analysis.json", analysis.as_dict())
    write_json(RECORDS / "memory.json", [asdict(use) for use in explainer.memory.slots()])
    canvas.save(figures.memory_heat_map(explainer.memory), IMAGES / "inside-memory.png")
    steps = canvas.side_by_side(figures.step_panels(analysis))
    canvas.save(steps, IMAGES / "inside-steps.png")


def paper_questions(run: Any) -> Iterator[tuple[tuple[str, str, str], tuple[int, int, int]]]:
    """The paper's questions that are test facts of this run's graph: in ids, and in numbers."""
    entities, relations = run.graph.entities.index_of, run.graph.relations.index_of
    facts = {tuple(fact) for fact in run.graph.test.tolist()}
    for head, relation, target in PAPER_QUESTIONS:
        if head in entities and relation in relations and target in entities:
            fact = entities[head], relations[relation], entities[target]
            if fact in facts:
                yield (head, relation, target), fact


def render() -> str:
    """The page, from the records."""
    run, analysis = _record("run.json"), _record("analysis.json")
    parts = [
        "# Inside a trained model",
        "<!-- Written by scripts/inside_docs.py from results/inside: change those, not this. -->",
        _introduction(run),
        "## Each step of a question",
        "The counterpart of the paper's Tables 2 and 5. A state is shown by the observed pairs "
        "[entity, relation] nearest to it (L2 distance over all pairs of the training facts; `^` "
        "marks an inverse relation); a pair in bold has the target among its known answers, an "
        "answer in bold is the target. Ranks are filtered, ties count half. *Stop* is v_t, "
        "*weight* is q_t. One question of each kind is shown, chosen by rule, not by hand "
        "(`ekgn report` shows a dozen).",
        *(_explanation(explanation) for explanation in _record("explanations.json")),
        "## What the memory holds",
        _memory(_record("memory.json")),
        "## What the steps buy",
        _analysis(analysis),
    ]
    return "\n\n".join(parts) + "\n"


def _record(name: str) -> Any:
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


def _introduction(run: dict[str, Any]) -> str:
    settings, micro = run["settings"], run["evaluation"]["micro"]
    shared = run.get("first")
    before = (
        f", over a first answer of {shared['epochs']:.0f} epochs in "
        f"{shared['wall_seconds'] / 60:,.0f} minutes that rests"
        if shared
        else ""
    )
    threads = run["environment"]["threads"]
    return (
        f"What the paper shows about the inside of its model, shown for a run of this project: "
        f"{run['data']}, {settings['num_slots']} memory vectors, up to {settings['max_steps']} "
        f"steps, {settings['embedding_dim']} numbers an entity; {run['epochs']:.0f} epochs in "
        f"{run['wall_seconds'] / 60:,.0f} minutes{before}, on {threads} thread"
        f"{'s' * (threads > 1)} of a busy machine ({run['environment']['processor']}). On its "
        f"{run['split']} split: hits@10 {micro['hits_at_10']:.1%}, MRR {micro['mrr']:.3f}, mean "
        f"rank {micro['mean_rank']:,.0f}, readout {settings['readout']}. The same for any run:\n\n"
        "```\n"
        "ekgn explain RUN --head H --relation R --target T\n"
        "ekgn memory RUN --plot memory.png\n"
        "ekgn analyze RUN --split test\n"
        "ekgn report RUN\n"
        "```\n\n"
        "Every number is read from the record that the forward pass returns. This page is written "
        "by `python scripts/inside_docs.py RUN` from the records in "
        "[results/inside](../results/inside)."
    )


def _explanation(found: dict[str, Any]) -> str:
    """One question as a table of its steps."""
    head, relation, target = found["head"]["label"], found["relation"], found["target"]["label"]
    question = (
        f"?, {relation[1:]}, {head}" if relation.startswith("^") else f"{head}, {relation}, ?"
    )
    rows = [
        [
            str(step["number"]) + (" ←" if step["number"] == found["answering_step"] else ""),
            _small(step["stop_probability"]),
            _small(step["stop_weight"]),
            f"{step['target_rank']:g}",
            "<br>".join(_pair(pair) for pair in step["nearest"]),
            "<br>".join(_answer(answer, found["target"]["id"]) for answer in step["answers"][:3]),
            _looks(step["attention"]),
        ]
        for step in found["steps"]
    ]
    columns = ["step", "stop", "weight", "rank", "nearest pairs", "top answers", "looks at"]
    reasons = "\n".join(f"- {_plain(reason)}" for reason in found["reasons"])
    asked = f"### ({_plain(question)})\n\nTarget: {_plain(target)}. *{KINDS[found['kind']]}*"
    printed = PAPER_QUESTIONS[tuple(found["question"])] if found["kind"] == "paper" else []
    return f"{asked}\n\n{_table(columns, rows)}\n\n{reasons}{_printed(printed)}"


def _printed(steps: Sequence[Printed]) -> str:
    """The steps of a question as the paper prints them."""
    if not steps:
        return ""
    rows = [
        [str(number), step.stop, str(step.rank), step.nearest or "not printed", step.answers]
        for number, step in enumerate(steps, 1)
    ]
    columns = ["step", "stop", "rank", "nearest pairs", "top answers"]
    return f"\n\nAs the paper prints it:\n\n{_table(columns, rows)}"


def _small(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def _pair(pair: dict[str, Any]) -> str:
    words = _plain(f"[{pair['head']['label']}, {short_relation(pair['relation'])}]")
    return f"**{words}**" if pair["holds_answer"] else words


def _answer(answer: dict[str, Any], target: str) -> str:
    words = f"{_plain(answer['label'])} {answer['share']:.1%}"
    known = f" ({answer['known']})" if answer["known"] == "train" else ""
    return (f"**{words}**" if answer["id"] == target else words) + known


def _looks(attention: list[dict[str, Any]]) -> str:
    shown = [
        f"{slot['slot']} ({slot['theme']}) {slot['weight']:.0%}"
        for slot in attention[:2]
        if slot["weight"] >= 0.01
    ]
    return "<br>".join(_plain(words) for words in shown) or "nothing more"


def _memory(slots: list[dict[str, Any]]) -> str:
    """Six vectors at random, as the paper has it, the six most used, and the paper's own."""
    used = [slot for slot in slots if not slot["unused"]]
    drawn = np.random.default_rng(0).permutation(len(slots))[:6]
    first_of_theme = {slot["theme"]: slot for slot in reversed(used)}
    most = sorted(first_of_theme.values(), key=lambda slot: -slot["share"])[:6]
    printed = [[f"**{theme}**", relations] for theme, relations in PAPER_MEMORY.items()]
    return (
        "The counterpart of the paper's Table 3: the relations that give a vector most attention "
        "on average, at most eight (those that give it less than 0.5% are left out). A theme is "
        "generated from the words that a vector's relations share; the number beside it is the "
        f"vector's share of all attention. {len(slots) - len(used)} of {len(slots)} vectors are "
        "never used (no lookup gives them an even share). All vectors are in "
        "[memory.json](../results/inside/memory.json).\n\n"
        "Six vectors drawn at random, as in the paper:\n\n"
        + _slots([slots[at] for at in sorted(drawn)])
        + "\n\nThe six most used of different themes:\n\n"
        + _slots(most)
        + "\n\nThe paper's six, by the theme its authors give each, with the first four of their "
        "eight relations:\n\n"
        + _table(["theme", "relations"], printed)
        + "\n\n![Average attention of every relation to every memory vector]"
        "(images/inside-memory.png)"
    )


def _slots(slots: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"**{_plain(slot['theme'])}** (vector {slot['slot']}, {slot['share']:.1%})",
            ", ".join(
                _plain(f"{short_relation(each['relation'])} {each['attention']:.0%}")
                for each in slot["relations"]
                if each["attention"] >= 0.005
            )
            or "–",
        ]
        for slot in slots
    ]
    return _table(["theme", "relations"], rows)


def _analysis(found: dict[str, Any]) -> str:
    steps = [f"step {n + 1}" for n in range(found["max_steps"])]
    stops = [
        [
            profile["name"],
            f"{profile['queries']:,}",
            *(f"{share:.1%}" for share in profile["answering"]),
            f"{profile['expected_step']:.2f}",
        ]
        for profile in (found["stop"], *found["by_category"])
    ]
    ways = [
        *((_way(name), metrics) for name, metrics in found["metrics"].items()),
        *((f"{_way(name)}, no memory", metrics) for name, metrics in found["no_memory"].items()),
    ]
    results = [
        [
            name,
            f"{m['hits_at_10']:.1%}",
            f"{m['hits_at_1']:.1%}",
            f"{m['mrr']:.3f}",
            f"{m['mean_rank']:,.1f}",
        ]
        for name, m in ways
    ]
    changes = found["changes"]
    peaked = ", ".join(f"{lookup['effective_slots']:.1f}" for lookup in found["lookups"])
    return (
        f"The questions that reviewers of the paper's first version asked, over the "
        f"{found['triples']:,} {found['split']} triples ({found['queries']:,} distinct questions). "
        f"{found['stop']['early']:.1%} of the questions stop before step {found['max_steps']}; the "
        f"top answer changes over the steps for {changes['any_step']:.1%}, and from the first step "
        f"to the answer for {changes['first_to_answer']:.1%}. From the first step to the answer "
        f"the true answer's rank gets better in {changes['improved']:.1%} of the cases and worse "
        f"in {changes['worsened']:.1%}. The lookups spread over about {peaked} of "
        f"{found['num_slots']} vectors (exp of the mean entropy).\n\n"
        "Share of the questions that answer at each step:\n\n"
        + _table(["questions", "count", *steps, "mean step"], stops)
        + "\n\nWhat each way of answering reaches. *Always step N* runs N steps without the gate; "
        "*no memory* gives every question the same attention, the mean of all:\n\n"
        + _table(["", "hits@10", "hits@1", "MRR", "mean rank"], results)
        + "\n\n![Metrics by step, and where it stops](images/inside-steps.png)"
    )


def _way(name: str) -> str:
    return f"always step {name[5:]}" if name.startswith("step:") else name


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return Table("", columns, rows).markdown().rstrip()


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    for letter in "\\`*_<>":
        text = text.replace(letter, "\\" + letter)
    return text


def main() -> None:
    """Collect what is asked for, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("run", nargs="?", type=Path, help="a run to look inside")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=5000, help="triples to choose examples from")
    parser.add_argument("--first", type=Path, help="the run whose first answer this one has")
    options = parser.parse_args()
    if options.run:
        collect_run(options.run, options.split, options.limit, options.first)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
