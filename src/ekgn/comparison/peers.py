"""Other models, by PyKEEN: a recipe for each, and its training within a budget.

A recipe is a model's own: the loss, negatives and optimizer that its paper, or the strongest later
account of it, trains it with. Sizes are for minutes, not days. The learning rate is chosen from
three by short trainings, on validation; every training lets it fall linearly to 0.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import torch

from ekgn.comparison.budget import TRIAL, Budget, valid_hits
from ekgn.comparison.scoring import scorer
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph

log = logging.getLogger(__name__)

UPDATES = 10  # of an epoch at least: batches of small graphs are smaller


@dataclass(frozen=True)
class Recipe:
    """How a model is trained."""

    model: str  # PyKEEN's name of it
    source: str  # where the recipe is from, in words
    rates: tuple[float, ...]  # the learning rates that are tried
    sizes: dict[str, Any]  # and other options of the model
    loss: str
    loss_options: dict[str, Any] = field(default_factory=dict)
    negatives: int = 0  # drawn for each fact; 0: every entity is a candidate
    sampler: str = "basic"  # which end of a fact is replaced: either, or as Bernoulli's by relation
    inverse: bool = False  # facts are also told in reverse, by a relation of their own
    optimizer: str = "Adam"
    batch_size: int = 1024
    smoothing: float = 0.0  # of labels


_ADVERSARIAL = {"adversarial_temperature": 1.0}
_SUN = "self-adversarial negatives, L1, after Sun et al. 2019"
RECIPES = {
    "transe": Recipe(
        "TransE",
        _SUN,
        (0.001, 0.003, 0.01),
        {"embedding_dim": 100, "scoring_fct_norm": 1},
        "nssa",
        {"margin": 9.0, **_ADVERSARIAL},
        negatives=16,
    ),
    "transh": Recipe(
        "TransH",
        "margin loss and Bernoulli's negatives, after Wang et al. 2014; Adam for SGD",
        (0.001, 0.003, 0.01),
        {"embedding_dim": 100, "scoring_fct_norm": 2},
        "MarginRankingLoss",
        {"margin": 0.25},
        negatives=4,
        sampler="bernoulli",
    ),
    "transr": Recipe(
        "TransR",
        "margin loss and Bernoulli's negatives, after Lin et al. 2015; Adam for SGD",
        (0.001, 0.003, 0.01),
        {"embedding_dim": 50, "relation_dim": 50},
        "MarginRankingLoss",
        {"margin": 1.0},
        negatives=4,
        sampler="bernoulli",
    ),
    "transd": Recipe(
        "TransD",
        "margin loss and Bernoulli's negatives, after Ji et al. 2015; Adam for AdaDelta",
        (0.001, 0.003, 0.01),
        {"embedding_dim": 50, "relation_dim": 50},
        "MarginRankingLoss",
        {"margin": 1.0},
        negatives=4,
        sampler="bernoulli",
    ),
    "ntn": Recipe(
        "NTN",
        "margin loss, 4 slices, after Socher et al. 2013; Adam for L-BFGS",
        (0.0003, 0.001, 0.003),
        {"embedding_dim": 50, "num_slices": 4, "entity_initializer": "xavier_uniform"},
        "MarginRankingLoss",
        {"margin": 1.0},
        negatives=4,
    ),
    "kg2e": Recipe(
        "KG2E",
        "expected likelihood or KL of Gaussians, margin loss, after He et al. 2015; Adam for SGD",
        (0.001, 0.003, 0.01),
        {"embedding_dim": 50, "c_min": 0.05, "c_max": 5.0},
        "MarginRankingLoss",
        {"margin": 1.0},
        negatives=4,
        sampler="bernoulli",
    ),
    "hole": Recipe(
        "HolE",
        "margin loss, Adagrad, after Nickel et al. 2016",
        (0.03, 0.1, 0.3),
        {"embedding_dim": 150},
        "MarginRankingLoss",
        {"margin": 0.2},
        negatives=4,
        optimizer="Adagrad",
    ),
    "conve": Recipe(
        "ConvE",
        "every entity, binary cross-entropy, inverse relations, after Dettmers et al. 2018",
        (0.001, 0.003, 0.01),
        {
            "embedding_dim": 100,
            "embedding_height": 10,
            "input_channels": 1,
            "input_dropout": 0.2,
            "feature_map_dropout": 0.2,
            "output_dropout": 0.3,
        },
        "BCEAfterSigmoidLoss",
        inverse=True,
        batch_size=256,
        smoothing=0.1,
    ),
    "proje": Recipe(
        "ProjE",
        "listwise softmax, both ends asked for, after Shi and Weninger 2017; every entity",
        (0.001, 0.003, 0.01),
        {"embedding_dim": 100},
        "CrossEntropyLoss",
        inverse=True,
        batch_size=512,
    ),
    "rotate": Recipe(
        "RotatE",
        _SUN,
        (0.001, 0.003, 0.01),
        {"embedding_dim": 100},
        "nssa",
        {"margin": 9.0, **_ADVERSARIAL},
        negatives=16,
    ),
}
"""The recipe of each model, by the name it is asked for with."""


class _OutOfTimeError(Exception):
    """The training's part of the budget is over."""


def train(graph: KnowledgeGraph, name: str, budget: Budget, seed: int) -> dict[str, Any]:
    """Train a model within the budget: what it scores with, and what is to be recorded of it."""
    _need_pykeen()
    recipe = RECIPES[name]
    tried = [_try(graph, name, rate, budget, seed) for rate in recipe.rates]
    best = max(tried, key=lambda one: one["hits_at_10"])
    if best["hits_at_10"] < 0:
        rates = ", ".join(f"{rate:g}" for rate in recipe.rates)
        raise EkgnError(f"{recipe.model} failed with learning rates {rates}: {best['problem']}")
    rate = best["learning_rate"]
    model, epochs = train_for(graph, recipe, rate, budget, budget.left, seed)
    return {
        "scorer": scorer(model, name, graph),
        "library": f"PyKEEN {version('pykeen')}",
        "recipe": {**asdict(recipe), "learning_rate": rate, "falls_to": 0.0},
        "tried": tried,
        "epochs": epochs,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _need_pykeen() -> None:
    try:
        import pykeen  # noqa: F401
    except ImportError:
        raise EkgnError(
            "This model needs PyKEEN. Install it with: pip install 'ekgn[peers]'"
        ) from None


def _try(
    graph: KnowledgeGraph, name: str, rate: float, budget: Budget, seed: int
) -> dict[str, Any]:
    """A short training by one learning rate, and what it reaches on validation."""
    recipe = RECIPES[name]
    try:
        model, epochs = train_for(graph, recipe, rate, budget, TRIAL * budget.seconds, seed)
        hits = valid_hits(scorer(model, name, graph), graph, seed)
    except (EkgnError, RuntimeError) as error:  # most often, it diverged
        log.info("%s, learning rate %g: %s", recipe.model, rate, error)
        return {"learning_rate": rate, "hits_at_10": -1.0, "problem": str(error).splitlines()[0]}
    log.info("%s, learning rate %g: validation hits@10 %.3f", recipe.model, rate, hits)
    return {"learning_rate": rate, "hits_at_10": hits, "epochs": epochs}


def train_for(
    graph: KnowledgeGraph, recipe: Recipe, rate: float, budget: Budget, seconds: float, seed: int
) -> tuple[Any, float]:
    """A model trained for some seconds, and the epochs that it saw."""
    from pykeen.models import model_resolver
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory(
        torch.from_numpy(graph.train),
        graph.num_entities,
        graph.num_relations,
        create_inverse_triples=recipe.inverse,
    )
    model = model_resolver.make(
        recipe.model,
        recipe.sizes,
        triples_factory=factory,
        loss=recipe.loss,
        loss_kwargs=recipe.loss_options,
        random_seed=seed,
    )
    loop = _loop(recipe, model, factory, rate)
    instances = _instances(graph, recipe)
    batch_size = min(recipe.batch_size, max(2, instances // UPDATES))
    clock = _clock(budget, seconds, rate)
    extra = {"label_smoothing": recipe.smoothing} if recipe.smoothing else {}
    with budget.running(), contextlib.suppress(_OutOfTimeError):
        loop.train(
            factory,
            num_epochs=1_000_000,
            batch_size=batch_size,
            callbacks=clock,
            use_tqdm=False,
            pin_memory=False,
            **extra,
        )
    return model.eval(), clock.batches * batch_size / instances


def _loop(recipe: Recipe, model: Any, factory: Any, rate: float) -> Any:
    """PyKEEN's training loop, over drawn negatives or over every entity."""
    from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop

    options: dict[str, Any] = {
        "model": model,
        "triples_factory": factory,
        "optimizer": recipe.optimizer,
        "optimizer_kwargs": {"lr": rate},
    }
    if not recipe.negatives:
        return LCWATrainingLoop(**options)
    return SLCWATrainingLoop(
        **options,
        negative_sampler=recipe.sampler,
        negative_sampler_kwargs={"num_negs_per_pos": recipe.negatives},
    )


def _clock(budget: Budget, seconds: float, rate: float) -> Any:
    """PyKEEN's callback that lets the rate fall to 0 over some seconds, and then ends."""
    from pykeen.training import TrainingCallback

    class Clock(TrainingCallback):  # type: ignore[misc]
        batches = 0
        start = budget.spent

        def post_batch(self, *_: Any, **__: Any) -> None:
            self.batches += 1
            budget.tell()
            done = (budget.spent - self.start) / seconds if seconds else 1.0
            if done >= 1:
                raise _OutOfTimeError
            for group in self.optimizer.param_groups:
                group["lr"] = rate * (1 - done)

    return Clock()


def _instances(graph: KnowledgeGraph, recipe: Recipe) -> int:
    """Facts of an epoch, or the distinct questions where every entity is a candidate."""
    train = torch.from_numpy(graph.train)
    sides = [train[:, :2], train[:, 1:]] if recipe.inverse else [train[:, :2]]
    return sum(len(side if recipe.negatives else torch.unique(side, dim=0)) for side in sides)
