"""Are explanations true: results/faithful/NAME.json.

    python scripts/faithful.py world [--answers 100] [--epochs 25] [--threads 1]

For test facts that a trained run answers right, the facts that an explanation names are taken out
of training, those of all answers at once, and a new training ranks the answers again. The drop in
MRR is compared for the what-if's facts, for as many random facts of the same two entities, and for
the answers of the nearest question. A retraining with nothing removed, by another seed, says how
much is chance.
"""

from __future__ import annotations

import dataclasses
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import ekgn
from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.ranking import Metrics, filter_answers, rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.what_if import WhatIf
from measuring import measure_graphs

TOP = 3  # facts that an explanation names

Fact = tuple[int, int, int]


def right_answers(run: KbcRun, count: int) -> list[Fact]:
    """Test facts whose tail the run ranks first, drawn by seed."""
    ranks = rank_split(run.scorer(), run.graph, "test")
    forward = ranks.relations < run.graph.num_relations
    right = np.flatnonzero(forward & (ranks.realistic == 1))
    order = np.random.default_rng(0).permutation(right)[:count]
    return [
        (int(ranks.heads[at]), int(ranks.relations[at]), int(ranks.targets[at])) for at in order
    ]


def touching(graph: KnowledgeGraph, asked: Fact) -> list[Fact]:
    """The training facts of a question's entity and of its answer."""
    head, _, tail = asked
    train = graph.train
    mine = np.isin(train[:, 0], (head, tail)) | np.isin(train[:, 2], (head, tail))
    return [(int(h), int(r), int(t)) for h, r, t in train[mine]]


def by_what_if(run: KbcRun, asked: Fact) -> list[Fact]:
    """The facts whose removal lowers the answer most, by refitted rows."""
    graph = run.graph
    words = graph.entities.ids, graph.relations.ids
    found: WhatIf = run.what_if(
        head=words[0][asked[0]],
        relation=words[1][asked[1]],
        target=words[0][asked[2]],
        top=TOP,
    )
    entity, relation = graph.entities.index_of, graph.relations.index_of
    named = [change.facts[0] for change in found.changes]
    return [(entity[head], relation[by], entity[tail]) for head, by, tail in named]


def by_nearest(run: KbcRun, asked: Fact) -> list[Fact]:
    """The facts of the nearest other question of training, those with the answer first."""
    head, relation, tail = asked
    query = torch.tensor([head]), torch.tensor([relation])
    with torch.no_grad():
        state = run.model.first_states(*query)
    rows, _ = run.explainer.nearest_pairs(state, TOP + 1)
    train, count, named = run.known["train"], run.graph.num_relations, []
    for row in rows[0].tolist():
        near, by = int(train.heads[row]), int(train.relations[row])
        answers = train.tails[train.offsets[row] : train.offsets[row + 1]].tolist()
        if (near, by) == (head, relation):
            continue
        answer = tail if tail in answers else answers[0]
        named.append((near, by, answer) if by < count else (answer, by - count, near))
    return named[:TOP]


def without(graph: KnowledgeGraph, facts: set[Fact]) -> KnowledgeGraph:
    """The graph less some training facts."""
    kept = [row for row in graph.train.tolist() if tuple(row) not in facts]
    return dataclasses.replace(graph, train=np.array(kept, np.int64))


def mrr(run: KbcRun, graph: KnowledgeGraph, answers: list[Fact]) -> float:
    """MRR of the answers, tail missing; filtered by the whole graph."""
    facts: Ints = np.array(answers, np.int64)
    asked = dataclasses.replace(run.graph, test=facts)
    ranks = rank_split(run.scorer(), asked, "test", known=filter_answers(graph, "test"))
    forward = ranks.relations < graph.num_relations
    return Metrics.over(ranks.realistic[forward], ranks.candidates[forward]).mrr


def record(name: str, count: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train, explain, remove, train again."""
    graph = load_graph(name)
    with TemporaryDirectory() as folder:
        base = ekgn.train(graph, settings, out=f"{folder}/base")
        same = {**base.settings.model_dump(), "seed": 1}
        answers = right_answers(base, count)
        named = {"what_if": [by_what_if(base, asked) for asked in answers]}
        named["nearest"] = [by_nearest(base, asked) for asked in answers]
        draw = np.random.default_rng(0)
        named["random"] = [
            [own[at] for at in draw.permutation(len(own))[: len(facts)]]
            for asked, facts in zip(answers, named["what_if"], strict=True)
            for own in [touching(graph, asked)]
        ]
        removed = {way: {fact for facts in each for fact in facts} for way, each in named.items()}
        result = {"trained": {"mrr": mrr(base, graph, answers)}}

        def again(way: str, facts: set[Fact]) -> float:
            run = ekgn.train(without(graph, facts), same, out=f"{folder}/{way}")
            return mrr(run, graph, answers)

        result["retrained"] = {"mrr": again("retrained", set())}
        for way, facts in removed.items():
            result[way] = {"removed": len(facts), "mrr": again(way, facts)}
            result[way]["drop"] = result["retrained"]["mrr"] - result[way]["mrr"]
            print(name, way, result[way], flush=True)
    return {
        "answers": len(answers),
        "facts_each": TOP,
        "settings": same,
        "result": result,
    }


if __name__ == "__main__":
    measure_graphs(__doc__, "answers", 100, "faithful", record)
