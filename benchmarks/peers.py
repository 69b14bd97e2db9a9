"""PyKEEN's models on FB15k-237 after equal wall time: `python benchmarks/peers.py --minutes 10`.

Each model trains in a process of its own, at about our dimensions, by the recipe below. It is then
ranked on validation by our ranker, and PyKEEN's evaluator is timed on some test triples. Records go
to results/peers; a model that has one is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import model_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingCallback
from pykeen.triples import CoreTriplesFactory

from ekgn.files import write_json
from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.ranking import Metrics, rank_split
from ekgn.records import environment
from speed import peak_memory

RECORDS = Path("results/peers")
# Rates, negatives and starts are the best of a few tried for two minutes or less on validation;
# those of the literature are for far longer trainings.
# Sampled negatives with self-adversarial weights, after Sun et al. 2019.
SELF_ADVERSARIAL: dict[str, Any] = {
    "loss": "nssa",
    "negatives": 16,
    "optimizer": "Adam",
    "batch_size": 1024,
}
RECIPES: dict[str, dict[str, Any]] = {
    "TransE": {
        **SELF_ADVERSARIAL,
        "model": {"embedding_dim": 100, "scoring_fct_norm": 1},
        "loss_kwargs": {"margin": 9.0, "adversarial_temperature": 1.0},
        "learning_rate": 0.005,
    },
    "RotatE": {
        **SELF_ADVERSARIAL,
        "model": {"embedding_dim": 100},
        "loss_kwargs": {"margin": 6.0, "adversarial_temperature": 1.0},
        "learning_rate": 0.01,
    },
    # All entities as candidates, inverse relations, Adagrad and a small start, after Lacroix et
    # al. 2018.
    "ComplEx": {
        "model": {
            "embedding_dim": 100,
            "entity_initializer": "xavier_uniform",
            "relation_initializer": "xavier_uniform",
            "regularizer": None,
        },
        "loss": "CrossEntropyLoss",
        "inverse": True,
        "optimizer": "Adagrad",
        "learning_rate": 0.1,
        "batch_size": 512,
    },
    # Dettmers et al. 2018, at 10 x 10 instead of 10 x 20 dimensions.
    "ConvE": {
        "model": {
            "embedding_dim": 100,
            "embedding_height": 10,
            "input_channels": 1,
            "output_channels": 32,
            "input_dropout": 0.2,
            "feature_map_dropout": 0.2,
            "output_dropout": 0.3,
        },
        "loss": "BCEAfterSigmoidLoss",
        "inverse": True,
        "optimizer": "Adam",
        "learning_rate": 0.003,
        "batch_size": 128,
        "label_smoothing": 0.1,
    },
}


class OutOfTimeError(Exception):
    """The minutes are over."""


class TimeLimit(TrainingCallback):  # type: ignore[misc]
    """Ends a training after some seconds, and counts its epochs."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.start = time.monotonic()
        self.batches = 0
        self.epoch_ends: list[tuple[float, int]] = []

    def post_batch(self, *_: Any, **__: Any) -> None:
        self.batches += 1
        if time.monotonic() - self.start > self.seconds:
            raise OutOfTimeError

    def post_epoch(self, *_: Any, **__: Any) -> None:
        self.epoch_ends.append((time.monotonic() - self.start, self.batches))


def train(name: str, graph: KnowledgeGraph, seconds: float) -> tuple[Any, TimeLimit]:
    """A PyKEEN model trained for some seconds."""
    recipe = RECIPES[name]
    factory = CoreTriplesFactory(
        torch.from_numpy(graph.train),
        graph.num_entities,
        graph.num_relations,
        create_inverse_triples=recipe.get("inverse", False),
    )
    model = model_resolver.make(
        name,
        recipe["model"],
        triples_factory=factory,
        loss=recipe["loss"],
        loss_kwargs=recipe.get("loss_kwargs"),
        random_seed=0,
    )
    settings: dict[str, Any] = {
        "model": model,
        "triples_factory": factory,
        "optimizer": recipe["optimizer"],
        "optimizer_kwargs": {"lr": recipe["learning_rate"]},
    }
    loop: Any
    if "negatives" in recipe:
        sampling = {"num_negs_per_pos": recipe["negatives"]}
        loop = SLCWATrainingLoop(**settings, negative_sampler_kwargs=sampling)
    else:
        loop = LCWATrainingLoop(**settings)
    limit = TimeLimit(seconds)
    extra = {key: recipe[key] for key in ("label_smoothing",) if key in recipe}
    with contextlib.suppress(OutOfTimeError):
        loop.train(
            factory,
            num_epochs=100_000,
            batch_size=recipe["batch_size"],
            callbacks=limit,
            use_tqdm=False,
            **extra,
        )
    return model.eval(), limit


def peer_scorer(model: Any, relations: int) -> Any:
    """A PyKEEN model as a function from our queries (inverse: r + R) to scores of all entities."""

    def scores(heads: Ints, rows: Ints) -> torch.Tensor:
        inverse = torch.from_numpy(rows >= relations)
        entity, relation = torch.from_numpy(heads), torch.from_numpy(rows % relations)
        out = torch.empty(len(heads), model.num_entities)
        with torch.no_grad():
            if (~inverse).any():
                pair = torch.stack([entity, relation], dim=1)[~inverse]
                out[~inverse] = model.predict_t(pair)
            if inverse.any():
                out[inverse] = model.predict_h(torch.stack([relation, entity], dim=1)[inverse])
        return out

    return scores


def measure(name: str, minutes: float, triples: int) -> dict[str, Any]:
    """One model's record."""
    graph = load_graph("fb15k-237")
    model, limit = train(name, graph, 60 * minutes)
    peak = peak_memory()
    ranks = rank_split(peer_scorer(model, graph.num_relations), graph, "valid")
    tensors = [torch.from_numpy(part) for part in (graph.train, graph.valid, graph.test)]
    start = time.monotonic()
    RankBasedEvaluator(filtered=True).evaluate(
        model,
        tensors[2][:triples],
        batch_size=256,
        additional_filter_triples=tensors[:2],
        use_tqdm=False,
    )
    ends = [0.0, *(seconds for seconds, _ in limit.epoch_ends)]
    return {
        "environment": environment(torch.device("cpu")),
        "pykeen": version("pykeen"),
        "label": name,
        "recipe": RECIPES[name],
        "minutes": minutes,
        "batches": limit.batches,
        "epochs": len(limit.epoch_ends),
        "seconds_per_epoch": float(np.median(np.diff(ends))) if len(ends) > 1 else None,
        "parameters": sum(p.numel() for p in model.parameters()),
        "valid": dataclasses.asdict(Metrics.over(ranks.realistic, ranks.candidates)),
        "pykeen_evaluation": {"triples": triples, "seconds": time.monotonic() - start},
        "peak_bytes_training": peak,
        "peak_bytes": peak_memory(),
    }


def main() -> None:
    """Measure the models that have no record yet, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--triples", type=int, default=4000, help="test triples for the evaluator")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (0: all cores)")
    parser.add_argument("--model", choices=sorted(RECIPES), help="only this one, in this process")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.model:
        record = measure(given.model, given.minutes, given.triples)
        write_json(RECORDS / f"{given.model.casefold()}.json", record)
        return
    for name in RECIPES:
        if not (RECORDS / f"{name.casefold()}.json").exists():
            print(f"{name}, {given.minutes:g} minutes ...", file=sys.stderr)
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--model", name], check=True)


if __name__ == "__main__":
    main()
