"""The trainer: one visible loop that knows nothing of the task it trains.

Every random choice is a function of (seed, step), so the state of a run is its weights, its
optimizers and a few counters; going on from them gives bitwise what an uninterrupted run gives.

Several processes (ekgn.distributed) share each batch and add up their gradients. What decides how
the training goes on, as the clock and a wish to stop, is agreed on with them.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ekgn import __version__
from ekgn.checkpoint import (
    FORMAT,
    RunFolder,
    check_tensors,
    pack_optimizer,
    read_lines,
    save_tensors,
    unpack_optimizers,
)
from ekgn.config import Settings
from ekgn.distributed import ALONE, Group, Share, is_restart, launch, world
from ekgn.errors import EkgnError
from ekgn.files import append_line, locked, replace_file, write_json
from ekgn.machine import check_group, check_memory, choose_device, outline, without_denormals
from ekgn.network.layers import divide_dropout
from ekgn.optimizers import Optimizers, rate_factor
from ekgn.records import environment
from ekgn.signals import StopSignals
from ekgn.state import has_state, read_state, save_state, share_state

log = logging.getLogger(__name__)


class Batch(Protocol):
    """What an update learns from."""

    def to(self, device: torch.device) -> Batch: ...
    def part(self, group: Group) -> tuple[Batch, Share]: ...  # that of one process


class Batches(Protocol):
    """The batches of an epoch, each reproducible from its place and phase alone."""

    def __len__(self) -> int: ...
    def __call__(self, epoch: int, index: int, done: float) -> Batch: ...


class Task(Protocol):
    """What the trainer needs of a task.

    Its models are torch modules with loss(batch, share of the training done) -> Loss,
    constrain(touched: Touched) -> None and num_parameters() -> int.
    """

    name: str
    settings: Any
    unit: str  # what a batch holds, in words

    @property
    def selection(self) -> str: ...  # the validation metric to maximise
    @property
    def batches(self) -> Batches: ...

    def new_model(self, group: Group = ALONE) -> Any: ...  # its tables may be divided
    def update_bytes(self) -> int: ...  # of the largest tensors that an update needs
    def validate(self, model: Any) -> dict[str, float]: ...
    def save_data(self, folder: Path) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def notes(self) -> list[str]: ...  # what a user is told before the training
    def digest(self) -> str: ...  # of the data: processes that train together have the same


@dataclass
class Progress:
    """Where a training stands: the counters a checkpoint keeps, and the latest numbers."""

    step: int = 0  # updates done
    best_step: int = 0
    best_phase: int = -1
    best: float = -math.inf
    stale: int = 0  # validations since the best one
    seconds: float = 0.0  # training and validation, over all sittings
    loss: float = math.nan  # running averages
    expected_reward: float = math.nan
    metrics: dict[str, float] = field(default_factory=dict)


Listener = Callable[[Progress, int, float], None]
"""Called after every update: the progress, how many updates in all, the share of work done."""


@dataclass(frozen=True)
class Work:
    """The phases of a training: the first update of each and what one of its updates costs."""

    firsts: list[int]
    costs: list[float]
    total: int  # updates

    def share(self, step: int) -> float:
        """How much of the work is done after so many updates."""
        return self._until(step) / self._until(self.total)

    def _until(self, step: int) -> float:
        ends = [*self.firsts[1:], self.total]
        phases = zip(self.firsts, ends, self.costs, strict=True)
        return sum(cost * max(min(step, end) - first, 0) for first, end, cost in phases)


class Trainer:
    """A training of one task in one run folder."""

    def __init__(
        self,
        task: Task,
        run: RunFolder,
        listener: Listener | None = None,
        preset: str | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.task = task
        self.run = run
        threads = task.settings.threads or torch.get_num_threads()
        torch.set_num_threads(threads)
        # Sums depend on the threads they are split over: a resumed run takes as many.
        self.settings: Settings = task.settings.model_copy(update={"threads": threads})
        # What was asked for, for the record: the settings as changes of a preset.
        changes = task.settings.changes_of(preset) if overrides is None else dict(overrides)
        self.asked = {"preset": preset, "overrides": changes}
        self.listener = listener
        self.group = world()
        self.device = choose_device(self.settings.device)
        check_memory(task, self.group)
        check_group(task, self.group)
        torch.manual_seed(self.settings.seed)
        self.model = task.new_model(self.group).to(self.device)
        self.optimizers = Optimizers(self.model, self.settings, self.group)
        self.progress = Progress()
        self._started = time.monotonic()
        self._stop = False  # agreed on by all processes
        self.per_epoch = len(task.batches)
        self.total_steps = self.settings.epochs * self.per_epoch
        self._board: Any = None

    def fit(self, resume: bool = False) -> Progress:
        """Train to the end, the budget, or Ctrl-C; the best weights are in the run folder.

        Ctrl-C, SIGTERM and a KeyboardInterrupt of the listener take effect between two updates or
        after a validation: the state is saved, and KeyboardInterrupt raised.
        """
        with ExitStack() as stack, StopSignals() as signals:
            self.group.by_first(lambda: stack.enter_context(locked(self.run.path)))
            if self.group.by_first(lambda: resume or self._is_restarted()):
                self._resume()
            else:
                self.group.by_first(self._begin)
            self.group.by_first(lambda: self._open_board(stack))
            with without_denormals():
                self._train(signals)
            if self._is_stopped(signals):
                self.save()
                if not self.group.by_first(self.run.has_weights):
                    self._save_weights()
                raise KeyboardInterrupt
            if self.progress.metrics.get("step") != self.progress.step:
                self._validate()
                self.save()
            self.group.by_first(self._write_record)
        return self.progress

    def _open_board(self, stack: ExitStack) -> None:
        if self.settings.tensorboard:
            self._board = _summary_writer(self.run.path)
            stack.callback(self._board.close)

    def _train(self, signals: StopSignals) -> None:
        """Update, validate and save until it is over, or until a signal wants it to stop."""
        work = self._work()
        self._started = time.monotonic() - self.progress.seconds
        saved = self.progress.seconds
        while not self._is_over() and not self._is_stopped(signals):
            self.update(signals)
            is_due = self._validation_is_due()
            if is_due:
                self._validate()
            if is_due or self.progress.seconds - saved >= 60 * self.settings.checkpoint_minutes:
                self.save()
                saved = self.group.by_first(self._clock)
            if self.listener:
                try:
                    share = max(work.share(self.progress.step), self._spent())
                    self.listener(self.progress, self.total_steps, share)
                except KeyboardInterrupt:
                    signals.wanted = True

    def _clock(self) -> float:
        """Seconds of training and validation, over all sittings."""
        return time.monotonic() - self._started

    def _is_stopped(self, signals: StopSignals) -> bool:
        """Whether a signal ends it: at once, or when all processes know, by the next update."""
        return signals.wanted if self.group.size == 1 else self._stop

    def _is_over(self) -> bool:
        out_of_patience = 0 < self.settings.patience <= self.progress.stale
        return self._done() >= 1 or out_of_patience

    def _done(self) -> float:
        """The share of the training that is over: of its updates, or of its budget if that is more.

        So a budget shortens every phase, and the fall of the rate, to fit it.
        """
        by_updates: float = self.progress.step / self.total_steps
        return max(by_updates, self._spent())

    def _spent(self) -> float:
        """The share of the budget that is spent; 0 without one."""
        budget = 60 * self.settings.budget_minutes
        return min(self.progress.seconds / budget, 1.0) if budget else 0.0

    def update(self, signals: StopSignals | None = None) -> None:
        """One update. Dropout and the like draw from a stream that only the step decides.

        Summed over the processes: the loss, the wish to stop, and the clock of the first one.
        """
        progress = self.progress
        loss, share = self._loss(progress.step, self._done())
        (share.of_loss * loss.total).backward()
        value, reward, stop, seconds = self.optimizers.add_up(
            [
                share.of_loss * loss.total.item(),
                share.of_reward * loss.expected_reward.item(),
                float(signals is not None and signals.wanted),
                self._clock() if self.group.is_first else 0.0,
            ]
        )
        if not math.isfinite(value):
            raise self.group.error(
                f"The loss is {value} at step {progress.step}: the training diverged. "
                f"Try a lower --learning-rate or set --clip-norm."
            )
        progress.loss = _smooth(progress.loss, value)
        progress.expected_reward = _smooth(progress.expected_reward, reward)
        self.model.constrain(self.optimizers.step(self._rate_factor()))
        progress.step += 1
        progress.seconds, self._stop = seconds, stop > 0

    def _loss(self, step: int, done: float) -> tuple[Any, Share]:
        """The loss of this process's part of a batch, and how much of the batch that is."""
        batch = self.task.batches(*divmod(step, self.per_epoch), done)
        part, share = batch.part(self.group)
        divide_dropout(self.model, share)
        # Who cannot take its rows of the mask of all draws another one than the other processes.
        self._seed(0 if share.rows_of_all else self.group.rank)
        return self.model.loss(part.to(self.device), done), share

    def _phase(self) -> int:
        """The phase that the last update was of."""
        return sum(self._done() > share for share in self.settings.phases()[1:])

    def _work(self) -> Work:
        """What the updates of each phase cost, by the time of a forward pass at its start."""
        shares = [share for share in self.settings.phases() if share < 1]
        firsts = [math.ceil(share * self.total_steps) for share in shares]
        if len(shares) == 1:
            return Work(firsts, [1.0], self.total_steps)
        self.model.eval()  # as it is, weights and running averages
        with torch.no_grad():
            costs = [_seconds(partial(self._loss, 0, share)) for share in shares]
        self.model.train()
        return Work(firsts, costs, self.total_steps)

    def _seed(self, rank: int = 0) -> None:
        """Start the stream of random numbers that belongs to this step, and to a process."""
        seed = (self.settings.seed << 32) + (self.progress.step ^ rank << 24)
        if self.device.type == "cpu":  # what the other line does first, in a hundredth of its time
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def _rate_factor(self) -> float:
        """In each phase 1, then falling linearly to 0 from `decay_from` of the phase on."""
        done = self._done()
        bounds = [*self.settings.phases(), 1.0]
        start = max(share for share in bounds[:-1] if share <= done)
        end = min((share for share in bounds if share > done), default=1.0)
        within = (done - start) / (end - start) if end > start else 1.0
        return rate_factor(within, self.settings.decay_from)

    def _validation_is_due(self) -> bool:
        return self.progress.step % (self.settings.valid_every * self.per_epoch) == 0

    def _validate(self) -> None:
        """Measure, log, and keep the weights if they are the best so far."""
        progress = self.progress
        self._seed()
        self.model.eval()
        with torch.no_grad():
            measured = self.task.validate(self.model)
        self.model.train()
        metrics, seconds = self.group.by_first(lambda: (measured, self._clock()))
        value = metrics[self.task.selection]
        progress.metrics = {"step": progress.step, **metrics}
        # The best weights are of the last phase: earlier ones have parts that are not trained yet.
        phase = self._phase()
        if phase > progress.best_phase or value > progress.best:
            progress.best, progress.best_phase = value, phase
            progress.best_step, progress.stale = progress.step, 0
            self._save_weights()
        else:
            progress.stale += 1
        line = {
            "epoch": progress.step / self.per_epoch,
            "seconds": round(progress.seconds, 2),
            "loss": progress.loss,
            "expected_reward": progress.expected_reward,
            "learning_rate": self.settings.learning_rate * self._rate_factor(),
            **progress.metrics,
        }
        self.group.by_first(lambda: self._log(line))
        progress.seconds = seconds

    def _log(self, line: dict[str, float]) -> None:
        append_line(self.run.metrics, json.dumps(line))
        if self._board:
            for name, number in line.items():
                self._board.add_scalar(name, number, line["step"])

    def _is_restarted(self) -> bool:
        """Whether the launcher started this training again, after one that it began itself."""
        if not is_restart() or not self.run.config.exists():
            return False
        return bool(self.run.read_config().get("launch") == launch())

    def _begin(self) -> None:
        """Lay out the run folder, which must not hold a run already."""
        if self.run.config.exists():
            raise EkgnError(
                f"{self.run.path} already holds a run. Go on with it (--resume), give another "
                f"folder (--out), or delete it."
            )
        self.task.save_data(self.run.path)
        self._write_metrics([])
        self._write_config()  # last: with it the folder is a run

    def _resume(self) -> None:
        """Load the training state, if there is one yet, and forget log lines it does not know."""
        if self.group.by_first(lambda: has_state(self.run)):
            self._load_state()
        self.group.by_first(self._forget_lines)

    def _forget_lines(self) -> None:
        lines = read_lines(self.run.metrics)
        self._write_metrics([line for line in lines if line["step"] <= self.progress.step])

    def _load_state(self) -> None:
        held: dict[str, Tensor] = {}
        extra = self.group.by_first(lambda: self._read_state(held))
        tensors = share_state(held, self._divided(), self.group)
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k[:6] == "model."}
        self.model.load_state_dict(weights)
        packed = {k: v for k, v in tensors.items() if k[:6] != "model."} | extra["optimizer"]
        unpack_optimizers(self.optimizers.parts, packed, self.run.state)
        self.progress = Progress(**extra["progress"])
        self.group.by_first(self._write_config)  # the epochs and the like may be others now

    def _read_state(self, held: dict[str, Tensor]) -> Any:
        """Put the tensors of the whole state, whose weights must fit, into `held`."""
        tensors, extra = read_state(self.run)
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k[:6] == "model."}
        check_tensors(self.run.state, weights, outline(self.task).state_dict())
        held.update(tensors)
        return extra

    def _divided(self) -> dict[str, int]:
        """The tensors of the state that processes divide by rows, and how many rows each has."""
        name_of = {module: name for name, module in self.model.named_modules()}
        divided = {}
        for place, table in enumerate(self.optimizers.tables):
            if table.shards.size > 1:
                divided[f"model.{name_of[table]}.weight"] = len(table)
                for key in self.optimizers.parts["tables"].state[table.weight]:
                    divided[f"tables.{place}.{key}"] = len(table)
        return divided

    def _write_metrics(self, lines: list[dict[str, float]]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        replace_file(self.run.metrics, lambda aside: aside.write_text(text, encoding="utf-8"))

    def _write_config(self) -> None:
        started = launch()
        write_json(self.run.config, self._config() | ({"launch": started} if started else {}))

    def _config(self) -> dict[str, Any]:
        """What is trained: the task, the preset, what was changed of it, all settings."""
        return {
            "format": FORMAT,
            "ekgn": __version__,
            "task": self.task.name,
            **self.asked,
            "settings": self.settings.model_dump(mode="json"),
        }

    def _save_weights(self) -> None:
        """The weights, joined by the first process if they are divided."""
        divided = self._divided()
        weights = {
            name: self.group.join(value, divided[f"model.{name}"])
            if f"model.{name}" in divided
            else value
            for name, value in self.model.state_dict().items()
        }
        noted = {"step": self.progress.step}
        self.group.by_first(lambda: save_tensors(self.run.model, weights, noted))

    def save(self) -> None:
        """Write a checkpoint: everything needed to go on."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        plain: dict[str, Any] = {}
        for name, part in self.optimizers.parts.items():
            packed, rest = pack_optimizer(name, part)
            tensors |= packed
            plain |= rest
        extra = {"progress": asdict(self.progress), "optimizer": plain}
        save_state(self.run, tensors, extra, self._divided(), self.group)

    def _write_record(self) -> None:
        """The record of the training; evaluations of it are added by whoever makes them."""
        held = self.run.read_record()
        write_json(
            self.run.record,
            {
                **held,
                **self._config(),
                "data": self.task.describe(),
                "environment": environment(self.device),
                "processes": self.group.size,
                "parameters": self.model.num_parameters(),
                "wall_seconds": round(self.progress.seconds, 2),
                "steps": self.progress.step,
                "epochs": self.progress.step / self.per_epoch,
                "ended_by": self._ended_by(),
                "best": {self.task.selection: self.progress.best, "step": self.progress.best_step},
                "curve": read_lines(self.run.metrics),
                "evaluations": {
                    name: found
                    for name, found in held.get("evaluations", {}).items()
                    if found["checkpoint"]["step"] == self.progress.best_step
                },
            },
        )

    def _ended_by(self) -> str:
        """Which of the settings epochs, patience and budget_minutes ended the training."""
        if self.progress.step >= self.total_steps:
            return "epochs"
        out_of_patience = 0 < self.settings.patience <= self.progress.stale
        return "patience" if out_of_patience else "budget_minutes"


def _smooth(average: float, value: float) -> float:
    """A running average over about 50 steps, started by its first value."""
    return value if math.isnan(average) else 0.98 * average + 0.02 * value


def _seconds(loss: Callable[[], Any]) -> float:
    """The time of a forward pass, its batch included, when called for the second time."""
    for _ in range(2):
        start = time.monotonic()
        loss()[0].total.item()
    return time.monotonic() - start


def _summary_writer(folder: Path) -> Any:
    """A TensorBoard writer in the run folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise EkgnError(
            "TensorBoard is not installed. Install it with: pip install 'ekgn[tensorboard]'"
        ) from None
    return SummaryWriter(folder / "tensorboard")
