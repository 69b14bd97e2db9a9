"""The trainer: one visible loop that knows nothing of the task it trains.

Every random choice is a function of (seed, step), so the state of a run is its weights, its
optimizers and a few counters; going on from them gives bitwise what an uninterrupted run gives.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from ekgn import __version__
from ekgn.checkpoint import (
    FORMAT,
    RunFolder,
    State,
    check_shape,
    check_tensors,
    load_tensors,
    pack_optimizer,
    read_lines,
    save_tensors,
    unpack_optimizers,
)
from ekgn.config import Settings
from ekgn.errors import EkgnError
from ekgn.files import append_line, locked, replace_file, write_json
from ekgn.optimizers import Optimizers, rate_factor
from ekgn.records import environment
from ekgn.signals import StopSignals

log = logging.getLogger(__name__)


class Batches(Protocol):
    """The batches of an epoch, each reproducible from its place and phase alone."""

    def __len__(self) -> int: ...
    def __call__(self, epoch: int, index: int, done: float) -> Any: ...


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

    def new_model(self) -> Any: ...
    def update_bytes(self) -> int: ...  # of the largest tensors that an update needs
    def validate(self, model: Any) -> dict[str, float]: ...
    def save_data(self, folder: Path) -> None: ...
    def describe(self) -> dict[str, Any]: ...


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


def choose_device(name: str) -> torch.device:
    """The torch device for the setting `device`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise EkgnError(f"Device '{name}' cannot be used here: {reason}") from None
    return device


def outline(task: Any) -> torch.nn.Module:
    """The model of a task on the meta device: its sizes, which take no memory."""
    with torch.device("meta"):
        model: torch.nn.Module = task.new_model()
        return model


def check_memory(task: Task) -> None:
    """Refuse a training whose model, optimizer state and batches are larger than free memory."""
    states = {"sgd": 0, "adagrad": 1, "adam": 2}[task.settings.optimizer]
    model = sum(p.numel() * p.element_size() for p in outline(task).parameters())
    needed, free = (1 + states) * model + task.update_bytes(), free_memory()
    if needed > free:
        raise EkgnError(
            f"The training needs at least {needed / 2**30:,.1f} GB of memory, {free / 2**30:,.1f} "
            f"GB are free. Lower --embedding-dim, --num-slots, --batch-size or --max-steps."
        )


def free_memory() -> int:
    """Bytes of main memory that can still be used."""
    try:
        text = Path("/proc/meminfo").read_text()
        return 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
        self.device = choose_device(self.settings.device)
        check_memory(task)
        torch.manual_seed(self.settings.seed)
        self.model = task.new_model().to(self.device)
        self.optimizers = Optimizers(self.model, self.settings)
        self.progress = Progress()
        self.per_epoch = len(task.batches)
        self.total_steps = self.settings.epochs * self.per_epoch
        self._board: Any = None

    def fit(self, resume: bool = False) -> Progress:
        """Train to the end, the budget, or Ctrl-C; the best weights are in the run folder.

        Ctrl-C, SIGTERM and a KeyboardInterrupt of the listener take effect between two updates or
        after a validation: the state is saved, and KeyboardInterrupt raised.
        """
        with locked(self.run.path), StopSignals() as signals:
            self._resume() if resume else self._begin()
            if self.settings.tensorboard:
                self._board = _summary_writer(self.run.path)
            torch.set_flush_denormal(True)  # a sure softmax makes them: products with them crawl
            try:
                self._train(signals)
            finally:
                torch.set_flush_denormal(False)
            if signals.wanted:
                self._save_state()
                if not self.run.has_weights():
                    self._save_weights()
                raise KeyboardInterrupt
            if self.progress.metrics.get("step") != self.progress.step:
                self._validate()
                self._save_state()
            self._write_record()
            if self._board:
                self._board.close()
        return self.progress

    def _train(self, signals: StopSignals) -> None:
        """Update, validate and save until it is over, or until a signal wants it to stop."""
        work = self._work()
        started, before = time.monotonic(), self.progress.seconds
        saved = started
        while not self._is_over() and not signals.wanted:
            self.update()
            now = time.monotonic()
            self.progress.seconds = before + now - started
            if self._validation_is_due():
                self._validate()
                self.progress.seconds = before + time.monotonic() - started
                self._save_state()
                saved = time.monotonic()
            elif now - saved >= 60 * self.settings.checkpoint_minutes:
                self._save_state()
                saved = time.monotonic()
            if self.listener:
                try:
                    share = max(work.share(self.progress.step), self._spent())
                    self.listener(self.progress, self.total_steps, share)
                except KeyboardInterrupt:
                    signals.wanted = True

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

    def update(self) -> None:
        """One update. Dropout and the like draw from a stream that only the step decides."""
        progress = self.progress
        self._seed()
        loss = self._loss(progress.step, self._done())
        value, reward = loss.total.item(), loss.expected_reward.item()
        if not math.isfinite(value):
            raise EkgnError(
                f"The loss is {value} at step {progress.step}: the training diverged. "
                f"Try a lower --learning-rate or set --clip-norm."
            )
        progress.loss = _smooth(progress.loss, value)
        progress.expected_reward = _smooth(progress.expected_reward, reward)
        self.model.constrain(self.optimizers.update(loss.total, self._rate_factor()))
        progress.step += 1

    def _loss(self, step: int, done: float) -> Any:
        """The loss of the batch of an update."""
        batch = self.task.batches(*divmod(step, self.per_epoch), done)
        return self.model.loss(batch.to(self.device), done)

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

    def _seed(self) -> None:
        """Start the stream of random numbers that belongs to this step."""
        seed = (self.settings.seed << 32) + self.progress.step
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
            metrics = self.task.validate(self.model)
        self.model.train()
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
        append_line(self.run.metrics, json.dumps(line))
        if self._board:
            for name, number in line.items():
                self._board.add_scalar(name, number, progress.step)

    def _begin(self) -> None:
        """Lay out the run folder, which must not hold a run already."""
        if self.run.config.exists():
            raise EkgnError(
                f"{self.run.path} already holds a run. Go on with it (--resume), give another "
                f"folder (--out), or delete it."
            )
        self.task.save_data(self.run.path)
        self._write_metrics([])
        write_json(self.run.config, self._config())  # last: with it the folder is a run

    def _resume(self) -> None:
        """Load the training state, if there is one yet, and forget log lines it does not know."""
        if self.run.state.exists():
            self._load_state()
        lines = read_lines(self.run.metrics)
        self._write_metrics([line for line in lines if line["step"] <= self.progress.step])

    def _load_state(self) -> None:
        path = self.run.state
        tensors, extra = load_tensors(path)
        check_shape(State, extra, path)
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k[:6] == "model."}
        check_tensors(path, weights, self.model.state_dict())
        self.model.load_state_dict(weights)
        packed = {k: v for k, v in tensors.items() if k[:6] != "model."} | extra["optimizer"]
        unpack_optimizers(self.optimizers.parts, packed, path)
        self.progress = Progress(**extra["progress"])
        write_json(self.run.config, self._config())  # the epochs and the like may be others now

    def _write_metrics(self, lines: list[dict[str, float]]) -> None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        replace_file(self.run.metrics, lambda aside: aside.write_text(text, encoding="utf-8"))

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
        save_tensors(self.run.model, self.model.state_dict(), {"step": self.progress.step})

    def _save_state(self) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        plain: dict[str, Any] = {}
        for name, part in self.optimizers.parts.items():
            packed, rest = pack_optimizer(name, part)
            tensors |= packed
            plain |= rest
        extra = {"progress": asdict(self.progress), "optimizer": plain}
        save_tensors(self.run.state, tensors, extra)

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
        loss().total.item()
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
