"""Make docs/inside.md: the paper's Tables 2, 3 and 5 and its Appendix A, from runs made here.

    python scripts/inside_docs.py runs/fb15k-237            look inside a run: results/inside
    python scripts/inside_docs.py --sweep runs/sweep-a ...  take in finished sweeps as well
    python scripts/inside_docs.py                           only write the page from the records

The page is written from the records alone; a test fails when it is not what they say.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ekgn.tables import Table

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "inside"
PAGE = ROOT / "docs" / "inside.md"
IMAGES = ROOT / "docs" / "images"

# The questions of the paper's Tables 2 and 5, asked where they are among the graph's test facts.
PAPER_QUESTIONS = [
    (
        "/m/0jmbv",
        "/sports/sports_team/roster./basketball/basketball_roster_position/position",
        "/m/0ctt4z",
    ),
    ("/m/02ghq", "/people/person/profession", "/m/01d_h8"),
    ("/m/0b2qtl", "/film/film/produced_by", "/m/03y3dk"),
]
# |E_KG|, T_max: hits@10 (%), mean rank on FB15k, from the paper's Appendix A.
PAPER_SWEEP = {
    (64, 1): (80.7, 55.7),
    (64, 2): (87.4, 49.2),
    (64, 5): (92.7, 38.0),
    (64, 8): (88.8, 32.9),
    (32, 5): (90.1, 38.7),
    (128, 5): (92.2, 36.1),
    (512, 5): (90.0, 35.3),
    (4096, 5): (88.7, 34.7),
}
KINDS = {
    "paper": "a question of the paper",
    "improved": "better over the steps",
    "early": "stopped early, and right",
    "wrong": "wrong, with reasons",
    "lost": "worse over the steps",
}


def collect_run(path: Path, split: str, limit: int) -> None:
    """Look inside a run and write what was seen into the records."""
    from ekgn import api, canvas, figures
    from ekgn.files import write_json
    from ekgn.kbc.analysis import analyze
    from ekgn.kbc.explain import Explainer
    from ekgn.report.kbc import choose_examples

    run = api.load(path)
    if not run.record:
        raise SystemExit(f"{path} has no record yet: let its training finish first.")
    explainer = Explainer(run.graph, run.model, run.known)
    explained = [
        {"kind": "paper", **asdict(explainer.explain(*question, top=3))}
        for question in paper_questions(run)
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
    write_json(RECORDS / "run.json", record)
    write_json(RECORDS / "explanations.json", explained)
    write_json(RECORDS / "analysis.json", analysis.as_dict())
    write_json(RECORDS / "memory.json", [asdict(use) for use in explainer.memory.slots()])
    canvas.save(figures.memory_heat_map(explainer.memory), IMAGES / "inside-memory.png")
    steps = canvas.side_by_side(figures.step_panels(analysis))
    canvas.save(steps, IMAGES / "inside-steps.png")


def paper_questions(run: Any) -> Iterator[tuple[int, int, int]]:
    """The paper's questions that are test facts of this run's graph."""
    entities, relations = run.graph.entities.index_of, run.graph.relations.index_of
    facts = {tuple(fact) for fact in run.graph.test.tolist()}
    for head, relation, target in PAPER_QUESTIONS:
        if head in entities and relation in relations and target in entities:
            fact = entities[head], relations[relation], entities[target]
            if fact in facts:
                yield fact


def collect_sweeps(folders: Sequence[Path]) -> None:
    """Take the finished sweeps of some folders into the records."""
    from ekgn.files import read_json, write_json

    write_json(RECORDS / "sweep.json", [read_json(folder / "sweep.json") for folder in folders])


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
    if (RECORDS / "sweep.json").exists():
        parts += ["## Memory size and steps", _sweeps(_record("sweep.json"))]
    return "\n\n".join(parts) + "\n"


def _record(name: str) -> Any:
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


def _introduction(run: dict[str, Any]) -> str:
    settings, micro = run["settings"], run["evaluation"]["micro"]
    minutes = run["wall_seconds"] / 60
    return (
        f"What the paper shows about the inside of its model, shown for a run of this project: "
        f"{run['data']}, {settings['num_slots']} memory vectors, up to {settings['max_steps']} "
        f"steps, vectors of {settings['embedding_dim']}, {run['epochs']:.0f} epochs in "
        f"{minutes:,.0f} minutes on {run['environment']['cores']} cores "
        f"({run['environment']['processor']}). On its {run['split']} split: hits@10 "
        f"{micro['hits_at_10']:.1%}, MRR {micro['mrr']:.3f}, mean rank {micro['mean_rank']:,.0f}, "
        f"readout {settings['readout']}. The same for any run:\n\n"
        "```\n"
        "ekgn explain RUN --head H --relation R --target T\n"
        "ekgn memory RUN --plot memory.png\n"
        "ekgn analyze RUN --split test\n"
        "ekgn report RUN\n"
        "ekgn sweep DATA --set num_slots=32,64,128 --set max_steps=1,2,5,8\n"
        "```\n\n"
        "Every number is read from the record that the forward pass returns. This page is written "
        "by `python scripts/inside_docs.py runs/NAME` from the records in "
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
    return f"{asked}\n\n{_table(columns, rows)}\n\n{reasons}"


def _small(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def _pair(pair: dict[str, Any]) -> str:
    from ekgn.kbc.memory_map import short_relation

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
    from ekgn.kbc.memory_map import short_relation

    used = [slot for slot in slots if not slot["unused"]]
    first_of_theme = {slot["theme"]: slot for slot in reversed(used)}
    shown = sorted(first_of_theme.values(), key=lambda slot: -slot["share"])[:6]
    rows = [
        [
            "<br>".join(
                _plain(f"{short_relation(r['relation'])} {r['attention']:.0%}")
                for r in slot["relations"]
                if r["attention"] >= 0.005
            )
            for slot in half
        ]
        + [""] * (3 - len(half))
        for half in (shown[:3], shown[3:])
    ]
    themes = [
        [
            f"**{_plain(slot['theme'])}** (vector {slot['slot']}, {slot['share']:.1%})"
            for slot in half
        ]
        + [""] * (3 - len(half))
        for half in (shown[:3], shown[3:])
    ]
    body = [line for pair in zip(themes, rows, strict=True) for line in pair if any(line)]
    return (
        "The counterpart of the paper's Table 3: the eight relations that give a vector most "
        "attention on average (those that give it less than 0.5% are left out), for the six most "
        "used vectors of different themes. A theme is generated from the words that a vector's "
        "relations share; the number beside it is the "
        f"vector's share of all attention. {len(slots) - len(used)} of {len(slots)} vectors are "
        "never used (no lookup gives them an even share). All vectors are in "
        "[memory.json](../results/inside/memory.json).\n\n"
        + _table(["", "", ""], body)
        + "\n\n![Average attention of every relation to every memory vector]"
        "(images/inside-memory.png)"
    )


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


def _sweeps(sweeps: list[dict[str, Any]]) -> str:
    """The counterpart of Appendix A, beside its numbers."""
    cells = {}
    for sweep in sweeps:
        for trial in sweep["trials"]:
            if trial["state"] == "finished":
                cells[trial["settings"]["num_slots"], trial["settings"]["max_steps"]] = trial
    rows = []
    for (slots, steps), trial in sorted(cells.items()):
        paper = PAPER_SWEEP.get((slots, steps))
        rows.append(
            [
                str(slots),
                str(steps),
                f"{100 * trial['valid']['hits_at_10']:.1f}",
                f"{trial['valid']['mrr']:.3f}",
                f"{trial['valid']['mean_rank']:,.1f}",
                f"{trial['epochs']:.1f}",
                *((f"{paper[0]}", f"{paper[1]}") if paper else ("", "")),
            ]
        )
    first = sweeps[0]["sweep"]
    budget = f"{first['budget']:g} training minutes" if first["budget"] else "the same epochs"
    commands = "\n".join(_command(sweep["sweep"], sweep["records"]) for sweep in sweeps)
    columns = ["vectors", "steps", "hits@10 (%)", "MRR", "mean rank", "epochs"]
    columns += ["paper, FB15k: hits@10", "paper, FB15k: mean rank"]
    return (
        f"The counterpart of the paper's Appendix A, on the validation split of "
        f"{first['data']}, with {budget} on one core for every cell. The paper's numbers stand "
        "beside ours for the trend: they are for FB15k, whose test facts mostly have their "
        "reverse in training.\n\n"
        f"{_table(columns, rows)}\n\nMade by an earlier version, whose settings are in the records "
        "of every cell in [sweep.json](../results/inside/sweep.json); nearest to it today is:\n\n"
        f"```\n{commands}\n```"
    )


def _command(sweep: dict[str, Any], records: dict[str, Any]) -> str:
    """The command that comes nearest today: settings that are no more are left out."""
    from ekgn.kbc.settings import KbcSettings

    wanted = {axis["name"]: ",".join(str(v) for v in axis["values"]) for axis in sweep["axes"]}
    today = KbcSettings.build(sweep["preset"])
    for record in [*records.values()][:1]:
        kept = {k: v for k, v in record["settings"].items() if k in KbcSettings.model_fields}
        wanted |= {
            name: str(value).lower()
            for name, value in KbcSettings.parse(kept)
            if value != getattr(today, name) and name not in {*wanted, "threads", "budget_minutes"}
        }
    sets = " ".join("--set " + shlex.quote(f"{name}={text}") for name, text in wanted.items())
    preset = f" --preset {sweep['preset']}" if sweep["preset"] else ""
    budget = f" --budget {sweep['budget']:g}" if sweep["budget"] else ""
    return f"ekgn sweep {shlex.quote(sweep['data'])} {sets}{preset}{budget}"


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
    parser.add_argument("--sweep", nargs="+", type=Path, default=[], help="finished sweeps")
    options = parser.parse_args()
    if options.run:
        collect_run(options.run, options.split, options.limit)
    if options.sweep:
        collect_sweeps(options.sweep)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
