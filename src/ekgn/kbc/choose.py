"""Choose the settings that the default leaves open.

Sizes follow from the counts of the graph, by the rules written here. The penalty is tried: short
trainings, judged on validation. Where a whole training takes seconds, a trial is one, judged by
MRR. A short trial has the run's own size and a sampled softmax, and is judged by hits@10 and mean
rank, as MRR favours what starts fast. The learning rate follows from the penalty.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import torch

from ekgn.distributed import world
from ekgn.kbc.answers import Answers
from ekgn.kbc.batches import Batches
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.ranking import Metrics, filter_answers, rank_split
from ekgn.kbc.sampled import measured, rank_sampled
from ekgn.kbc.settings import STEPS, KbcSettings
from ekgn.machine import without_denormals
from ekgn.optimizers import Optimizers, rate_factor
from ekgn.tables import METRICS

log = logging.getLogger(__name__)

EXACT_OPERATIONS = 4e13  # of an epoch: beyond it the softmax is sampled
SIZES, SIZED_OPERATIONS = (800, 400), 2e13  # the largest size with such an exact epoch,
PLAIN, SMALL, NUMBERS = 256, 128, 6.5e8  # else the first, or the other if a table has more numbers
SAMPLED = 2_000
# The values that leave a setting open.
OPEN = {
    "batch_size": 0,
    "embedding_dim": 0,
    "held_out": -1.0,
    "learning_rate": 0.0,
    "negatives": -1,
    "penalty": -1.0,
    "steps_from": -1.0,
}
SPARED, SPARED_OF = 0.05, 40_000  # share of the facts held out for the steps, of at least so many,
LONG = 10  # in trainings of so many epochs, which have the time to give them back
EARLY, LATE = 0.8, 0.95  # where the steps begin; late if a large graph's training is short
PENALTIES = (0.003, 0.01, 0.05, 0.1)
UNTRIED = 0.05  # the penalty where nothing is held out to try it on
SMALL_SIZE, TRIED_FACTS = 128, 2_000
OWN_OPERATIONS = 1e11  # of a trial: up to here it is as large and long as the training will be,
SMALL_OPERATIONS = 1e12  # with small vectors up to here as long; else it is short:
SHORT_EPOCHS, SHORT_UPDATES, MOST_UPDATES = 2, 1_000, 20_000  # at least, at least, at most
RANK_SHARE = 0.1  # of the mean rank's logarithm, beside hits@10
STRONG, RATE, STRONG_RATE = 0.02, 0.1, 0.3  # the rate under penalties from STRONG on
EFFICIENCY = 0.75  # of the product rate, in a whole training
OnProgress = Callable[[int, int], None]
"""Called with how many updates were done now, and how many there are in all."""


@dataclass(frozen=True)
class Tried:
    """A penalty, and what a training with it reached on validation."""

    penalty: float
    learning_rate: float
    hits_at_10: float
    mrr: float
    mean_rank: float

    @property
    def early(self) -> float:
        """What judges a short trial: both, as MRR favours what starts fast."""
        return self.hits_at_10 - RANK_SHARE * math.log(self.mean_rank)


def choose(
    graph: KnowledgeGraph, settings: KbcSettings, on_progress: OnProgress | None = None
) -> tuple[KbcSettings, dict[str, Any]]:
    """The settings with nothing left open, and what was chosen and why, for the record."""
    left = left_open(settings)
    if not left or not len(graph.train):
        return settings, {}
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    found = by_counts(graph, settings)
    why: dict[str, Any] = {name: value for name, value in found.items() if name in left}
    chosen = settings.model_copy(update=why)
    if "penalty" in left:
        tried, by = try_penalties(graph, chosen, on_progress)
        best = max(tried, key=attrgetter(by)).penalty if tried else UNTRIED
        why |= {"penalty": best, "tried": [asdict(one) for one in tried], "by": by}
    if "learning_rate" in left:
        why["learning_rate"] = rate_under(why.get("penalty", chosen.penalty))
    found = {name: why[name] for name in left}
    # Other processors round otherwise: what the first of several processes chose is for all.
    return world().by_first(lambda: (settings.model_copy(update=found), why))


def left_open(settings: KbcSettings) -> set[str]:
    """The settings that are still to be chosen for a graph."""
    return {name for name, value in OPEN.items() if getattr(settings, name) == value}


def rate_under(penalty: float) -> float:
    """The learning rate that a penalty bears."""
    return STRONG_RATE if penalty >= STRONG else RATE


def by_counts(graph: KnowledgeGraph, settings: KbcSettings) -> dict[str, float]:
    """Batches of about 1/300 of the queries; large vectors and every entity where time allows.

    Facts are held out for the steps where so many are left that the steps do not learn them by
    heart, and where the training is long. A short one of a large graph is nearly all the product's.
    """
    queries = len(Answers(graph.train, graph.num_relations))
    operations = 6.0 * queries * graph.num_entities  # of an epoch, for each number of a vector
    found: dict[str, float] = {
        "batch_size": min(400, max(32, queries // 300)),
        "embedding_dim": next(
            (size for size in SIZES if size * operations <= SIZED_OPERATIONS),
            PLAIN if PLAIN * graph.num_entities <= NUMBERS else SMALL,
        ),
    }
    size = settings.embedding_dim or found["embedding_dim"]
    found["negatives"] = 0 if size * operations <= EXACT_OPERATIONS else SAMPLED
    found |= {"held_out": 0.0, "steps_from": EARLY}
    if len(graph.train) < SPARED_OF:
        return found
    open_ones = {name: v for name, v in found.items() if getattr(settings, name) == OPEN[name]}
    if epochs_within(graph, settings.model_copy(update=open_ones)) >= LONG:
        return {**found, "held_out": SPARED}
    return {**found, "steps_from": LATE}


def epochs_within(graph: KnowledgeGraph, settings: KbcSettings) -> float:
    """About how many epochs a training comes to within its budget."""
    if not settings.budget_minutes:
        return settings.epochs
    seconds = seconds_needed(graph, settings) or 0.0
    return settings.epochs * min(1.0, 60 * settings.budget_minutes / max(seconds, 1e-9))


def seconds_needed(graph: KnowledgeGraph, settings: KbcSettings) -> float | None:
    """About how long a training of chosen settings takes here, by its products and their rate.

    None in the paper's form, whose time is not in its products.
    """
    if not settings.has_product:
        return None
    queries = len(Answers(graph.train, graph.num_relations))
    products = queries * (settings.negatives or graph.num_entities) * settings.embedding_dim
    bounds = [*settings.phases(), 1.0]
    lengths = [end - start for start, end in itertools.pairwise(bounds)]
    # Forward, and backward to outputs and vectors: 2 each. The steps' vectors rest.
    costs = [4.0 * settings.max_steps if phase == STEPS else 6.0 for phase in range(len(lengths))]
    of_epoch = products * sum(cost * length for cost, length in zip(costs, lengths, strict=True))
    return settings.epochs * of_epoch / (EFFICIENCY * _product_rate(settings))


def _product_rate(settings: KbcSettings) -> float:
    """Operations a second of a product like those of training, by a quick trial."""
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    rows = torch.randn(settings.batch_size, settings.embedding_dim)
    vectors = torch.randn(2048, settings.embedding_dim)
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(rows, vectors.T)
        spent.append(time.perf_counter() - start)
    return 2 * rows.numel() * len(vectors) / min(spent)


def try_penalties(
    graph: KnowledgeGraph, settings: KbcSettings, on_progress: OnProgress | None = None
) -> tuple[list[Tried], str]:
    """A training of the first answer with each penalty, and the metric that decides.

    None where nothing is held out.
    """
    if not len(graph.valid):
        return [], "none"
    changes, by = _trial(graph, settings)
    tried = []
    for penalty in PENALTIES:
        rate = settings.learning_rate or rate_under(penalty)
        changes |= {"penalty": penalty, "learning_rate": rate}
        one = _try(graph, settings.model_copy(update=changes), on_progress)
        log.info(
            "penalty %g: validation hits@10 %.1f%%, mean rank %.0f, MRR %.3f",
            penalty,
            100 * one.hits_at_10,
            one.mean_rank,
            one.mrr,
        )
        tried.append(one)
    return tried, by


def _trial(graph: KnowledgeGraph, settings: KbcSettings) -> tuple[dict[str, Any], str]:
    """How a trial differs from the training, and the metric that judges it."""
    changes: dict[str, Any] = {"max_steps": 1}
    queries = len(Answers(graph.train, graph.num_relations))
    # As in by_counts, of all epochs.
    operations = 6.0 * settings.epochs * queries * (settings.negatives or graph.num_entities)
    if operations * settings.embedding_dim <= OWN_OPERATIONS:
        return changes, "mrr"
    small = min(SMALL_SIZE, settings.embedding_dim)
    if operations * small <= SMALL_OPERATIONS:
        return {**changes, "embedding_dim": small}, "mrr"
    epochs = max(SHORT_EPOCHS, math.ceil(SHORT_UPDATES * settings.batch_size / queries))
    negatives = settings.negatives or min(SAMPLED, graph.num_entities)
    return {**changes, "epochs": epochs, "decay_from": 1.0, "negatives": negatives}, "early"


def _try(graph: KnowledgeGraph, settings: KbcSettings, on_progress: OnProgress | None) -> Tried:
    torch.manual_seed(settings.seed)
    model = KbcModel(graph.num_entities, graph.num_relations, settings)
    optimizers = Optimizers(model, settings)
    batches = Batches(Answers(graph.train, graph.num_relations), graph.num_entities, settings)
    total = min(settings.epochs * len(batches), MOST_UPDATES)
    with without_denormals():
        for step in range(total):
            loss = model.loss(batches(*divmod(step, len(batches))), 0.0)
            optimizers.update(loss.total, rate_factor(step / total, settings.decay_from))
            if on_progress:
                on_progress(1, len(PENALTIES) * total)
    known, sampled = filter_answers(graph, "valid"), measured(graph, settings).candidates
    drawn: Any = {"known": known, "limit": TRIED_FACTS, "seed": settings.seed}
    if sampled:
        ranks = rank_sampled(model.eval(), graph, "valid", sampled, **drawn)
    else:
        ranks = rank_split(scorer(model.eval()), graph, "valid", **drawn)
    found = Metrics.over(ranks.realistic, ranks.candidates)
    return Tried(
        settings.penalty, settings.learning_rate, found.hits_at_10, found.mrr, found.mean_rank
    )


def in_words(chosen: dict[str, Any]) -> str:
    """What was chosen, and what the penalties that were tried reached on validation."""
    values = ", ".join(
        f"{name} {value if value else 'every entity' if name == 'negatives' else value}"
        for name, value in chosen.items()
        if name not in ("tried", "by")
    )
    tried = chosen.get("tried")
    if not tried:
        return values + "."
    if chosen["by"] == "mrr":
        judged, shown = "MRR", [METRICS["mrr"].write(one["mrr"]) for one in tried]
    else:
        judged = "hits@10 and mean rank"
        names = ("hits_at_10", "mean_rank")
        shown = [" and ".join(METRICS[name].write(one[name]) for name in names) for one in tried]
    reached = ", ".join(f"{one['penalty']:g} {it}" for one, it in zip(tried, shown, strict=True))
    return f"{values} ({judged} of trials by penalty: {reached})."
