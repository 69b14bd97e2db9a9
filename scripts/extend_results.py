"""How good are rows fitted without a training: results/extend/NAME.json.

    python scripts/extend_results.py world [--entities 60] [--epochs 25] [--threads 1]

Entities with many facts are taken out of a graph before it is trained. The run is then extended by
1, 3, 5 and 10 facts of each, and their other facts are ranked, both sides: by the fitted rows, by a
random row, by the mean of all rows, and by a training on all that the extended run knows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import ekgn
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.extend import fitted
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary, load_graph
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.ranking import Metrics, rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.task import KbcTask
from measuring import measure_graphs

GIVEN = (1, 3, 5, 10)
RANKED = 5  # facts of each removed entity that are never given


def reordered(graph: KnowledgeGraph, removed: Ints) -> KnowledgeGraph:
    """The graph with the removed entities last, all facts in train."""
    stays = np.setdiff1d(np.arange(graph.num_entities), removed)
    order = np.concatenate([stays, removed])
    place = np.argsort(order)
    words = graph.entities
    parts = (words.ids, words.labels, words.descriptions)
    entities = Vocabulary(*(tuple(part[old] for old in order) for part in parts))

    def moved(triples: Ints) -> Ints:
        return np.stack([place[triples[:, 0]], triples[:, 1], place[triples[:, 2]]], axis=1)

    splits: dict[str, Any] = {name: moved(graph.split(name)) for name in ("train", "valid", "test")}
    return dataclasses.replace(graph, entities=entities, **splits)


def chosen(graph: KnowledgeGraph, count: int, seed: int) -> Ints:
    """Entities with enough facts, drawn by seed; the most connected stay."""
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    enough = np.flatnonzero((degree >= 8) & (degree <= np.quantile(degree, 0.98)))
    count = min(count, len(enough))
    return np.sort(np.random.default_rng(seed).choice(enough, count, replace=False))


def old_facts(triples: Ints, first_new: int) -> Ints:
    """The facts without new entities."""
    return triples[(triples[:, [0, 2]] < first_new).all(axis=1)]


def without(graph: KnowledgeGraph, first_new: int) -> KnowledgeGraph:
    """The graph before the last entities came."""
    words = graph.entities
    parts = (words.ids, words.labels, words.descriptions)
    kept: dict[str, Any] = {
        name: old_facts(graph.split(name), first_new) for name in ("train", "valid", "test")
    }
    return dataclasses.replace(
        graph, entities=Vocabulary(*(part[:first_new] for part in parts)), **kept
    )


def shared_out(graph: KnowledgeGraph, first_new: int, seed: int) -> tuple[Ints, Ints]:
    """The facts between new and old entities in random order: (to give, to rank).

    Of each new entity RANKED facts, but never more than half, are ranked.
    """
    train = graph.train
    joins = (train[:, [0, 2]] >= first_new).sum(axis=1) == 1
    facts = np.random.default_rng(seed).permutation(train[joins])
    owner = np.where(facts[:, 0] >= first_new, facts[:, 0], facts[:, 2])
    rank_of = _place_among(owner)
    total = np.bincount(owner, minlength=graph.num_entities)[owner]
    ranked = rank_of < np.minimum(RANKED, total // 2)
    return facts[~ranked], facts[ranked]


def _place_among(owner: Ints) -> Ints:
    """How many of the same owner come before each."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], owner[order])
    place = np.empty_like(owner)
    place[order] = np.arange(len(owner)) - starts
    return place


def first_of_each(facts: Ints, first_new: int, count: int) -> Ints:
    """At most `count` facts of each new entity."""
    owner = np.where(facts[:, 0] >= first_new, facts[:, 0], facts[:, 2])
    return facts[_place_among(owner) < count]


def ranked(
    model: KbcModel, graph: KnowledgeGraph, facts: Ints, full: KnowledgeGraph
) -> dict[str, float]:
    """Filtered metrics of facts; all that the full graph knows is left out."""
    every = np.concatenate([full.train, full.valid, full.test])
    known = Answers(old_facts(every, graph.num_entities), graph.num_relations)
    found = rank_split(scorer(model), dataclasses.replace(graph, test=facts), "test", known=known)
    metrics = Metrics.over(found.realistic, found.candidates)
    return {"hits_at_10": metrics.hits_at_10, "mrr": metrics.mrr, "count": metrics.count}


def measure(
    base: KbcRun, full: KnowledgeGraph, count: int, train: Callable[[KnowledgeGraph], KbcModel]
) -> dict[str, Any]:
    """What rows of `count` facts reach, beside other rows and a training."""
    first_new = base.graph.num_entities
    give, rank = shared_out(full, first_new, seed=0)
    given = first_of_each(give, first_new, count)
    splits: dict[str, Any] = {"valid": base.graph.valid, "test": base.graph.test}
    grown = dataclasses.replace(full, train=np.concatenate([base.graph.train, given]), **splits)
    task = KbcTask(grown, base.settings)
    began = time.process_time()
    model, _ = fitted(base.model, base.graph, task, given)
    seconds = time.process_time() - began
    old = base.graph.test
    result: dict[str, Any] = {
        "facts": len(given),
        "cpu_seconds": seconds,
        "refit": ranked(model, grown, rank, full),
        "old_before": ranked(base.model, base.graph, old, full),
        "old_after": ranked(model, grown, old, full),
    }
    weight = model.entities.weight
    torch.manual_seed(0)
    rows = weight[:first_new]
    weight[first_new:] = rows.mean(0) + rows.std(0) * torch.randn_like(weight[first_new:])
    result["random"] = ranked(model, grown, rank, full)
    weight[first_new:] = rows.mean(0)
    result["mean"] = ranked(model, grown, rank, full)
    result["retrained"] = ranked(train(grown), grown, rank, full)
    return result


def record(name: str, entities: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Take entities out, train, and extend by more and more facts of each."""
    graph = load_graph(name)
    removed = chosen(graph, entities, seed=0)
    full = reordered(graph, removed)
    with TemporaryDirectory() as folder:
        base = ekgn.train(
            without(full, len(full.entities) - len(removed)), settings, out=f"{folder}/base"
        )
        # What was chosen for the graph is kept: the same settings for all trainings.
        same = base.settings.model_dump()

        def train(grown: KnowledgeGraph) -> KbcModel:
            number = len(list(Path(folder).iterdir()))
            model: KbcModel = ekgn.train(grown, same, out=f"{folder}/{number}").model
            return model

        rows = {}
        for count in GIVEN:
            rows[str(count)] = measure(base, full, count, train)
            print(name, count, rows[str(count)], flush=True)
    return {
        "removed": len(removed),
        "settings": same,
        "given": rows,
    }


if __name__ == "__main__":
    measure_graphs(__doc__, "entities", 60, "extend", record)
