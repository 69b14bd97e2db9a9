"""The models that ekgn trains itself, through the front door: the default, and its first answers.

A product with T_max = 1 is the model it is named after.
"""

from __future__ import annotations

import math
import shutil
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import ekgn
from ekgn import api
from ekgn.checkpoint import RunFolder
from ekgn.comparison.budget import TRIAL, Budget, valid_hits
from ekgn.kbc.choose import OPEN, SMALL_SIZE, UNTRIED, by_counts, rate_under
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.trainer import Progress, Trainer

CHANGES: dict[str, dict[str, Any]] = {
    "ekgn": {},
    "complex": {"first_answer": "complex", "max_steps": 1},
    "distmult": {"first_answer": "distmult", "max_steps": 1},
    "rescal": {"first_answer": "rescal", "max_steps": 1, "embedding_dim": 128},
}
"""What each model changes of the default. RESCAL has a matrix for each relation: smaller ones."""

_PRODUCT = "every entity, N3 chosen on validation, Adagrad, after Lacroix et al. 2018; T_max = 1"
SOURCES = {"ekgn": "the default, preset auto"} | dict.fromkeys(list(CHANGES)[1:], _PRODUCT)

PRESET = "auto"
TRIED = (0.003, 0.05, 0.1)  # penalties: as many values as a peer has rates
MOST_EPOCHS = 100  # on a small graph more only learn it by heart
TIMED = 0.02  # share of the budget in which updates are timed
CAREFUL = 0.97  # of the time that is left is planned for


class _Task(KbcTask):
    """The task, whose validation the budget does not count."""

    budget: Budget

    def validate(self, model: KbcModel) -> dict[str, float]:
        with self.budget.paused():
            return super().validate(model)


def train(
    graph: KnowledgeGraph, name: str, budget: Budget, seed: int, folder: Path
) -> dict[str, Any]:
    """Train a model within the budget: what it scores with, and what is to be recorded of it."""
    shutil.rmtree(folder, ignore_errors=True)  # what a killed comparison left
    with budget.running():  # also while the penalty is chosen
        trainer = _plan(graph, name, budget, seed, folder)
        trainer.fit()
    run = api.load(folder)
    return {
        "scorer": run.scorer(),
        "library": f"ekgn {ekgn.__version__}",
        "recipe": {"source": SOURCES[name], **run.config["settings"]},
        "tried": run.task.choices.get("tried", []),
        "epochs": run.record["epochs"],
        "parameters": run.record["parameters"],
    }


def _plan(graph: KnowledgeGraph, name: str, budget: Budget, seed: int, folder: Path) -> Trainer:
    """A training of as many updates as the budget has time for."""
    options: dict[str, Any] = {"penalty": UNTRIED, "seed": seed, "threads": 1, "device": "cpu"}
    first = api.prepare(graph, out=folder, preset=PRESET, **CHANGES[name], **options)
    tried = [_try(graph, first.task.settings, penalty, budget) for penalty in TRIED]
    penalty = max(tried, key=lambda one: one["hits_at_10"])["penalty"]
    updates = min(_updates_within(first, budget), MOST_EPOCHS * first.per_epoch)
    epochs = math.ceil(updates / first.per_epoch)
    rate = rate_under(penalty)
    chosen = {"penalty": penalty, "learning_rate": rate, "epochs": epochs, "valid_every": epochs}
    settings = first.task.settings.model_copy(update=chosen)
    by_time = by_counts(graph, settings)  # whether the training is long is known now
    update = {name: by_time[name] for name in ("held_out", "steps_from")}
    settings = settings.model_copy(update=update)
    sizes = {name: getattr(settings, name) for name in OPEN}
    task = _Task(graph, settings, {**sizes, "penalty": penalty, "tried": tried})
    task.budget = budget
    trainer = Trainer(task, RunFolder(folder), None, PRESET)
    trainer.total_steps = updates

    def listen(progress: Progress, total: int, share: float) -> None:
        budget.tell()
        if not budget.left:
            trainer.total_steps = progress.step

    trainer.listener = listen
    return trainer


def _try(
    graph: KnowledgeGraph, settings: KbcSettings, penalty: float, budget: Budget
) -> dict[str, float]:
    """A short training of small vectors with one penalty, and what it reaches on validation."""
    small = min(SMALL_SIZE, settings.embedding_dim)
    rate = rate_under(penalty)
    changes = {"penalty": penalty, "learning_rate": rate, "embedding_dim": small, "max_steps": 1}
    task = KbcTask(graph, settings.model_copy(update=changes))
    trainer = Trainer(task, RunFolder(Path("unused")))
    end = budget.spent + TRIAL * budget.seconds
    while budget.spent < end:
        trainer.update()
        budget.tell()
    with budget.paused():
        hits = valid_hits(scorer(trainer.model.eval()), graph, settings.seed)
    return {
        "penalty": penalty,
        "learning_rate": rate,
        "hits_at_10": hits,
        "epochs": trainer.progress.step / trainer.per_epoch,
    }


def _updates_within(trainer: Trainer, budget: Budget) -> int:
    """How many updates of a training fit into what is left of the budget."""
    starts = trainer.settings.phases()
    seconds = 0.0  # of an update, on average
    for start, end in pairwise([*starts, 1.0]):
        if end > start:
            timed = TIMED * budget.seconds / len(starts)
            seconds += (end - start) * _seconds_per_update(trainer, start, timed)
    return max(1, int(CAREFUL * budget.left / seconds))


def _seconds_per_update(trainer: Trainer, share: float, seconds: float) -> float:
    """The median processor time of an update after a share of a training."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        trainer.progress.step = math.ceil(share * trainer.total_steps)
        start = time.process_time()
        trainer.update()
        times.append(time.process_time() - start)
    return median(times)
