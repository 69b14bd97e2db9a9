"""What every trained run has, whatever its task: folder, settings, data, weights, record.

Each task has its own kind of run beside it (ekgn.kbc.run, ekgn.paths.run), and ekgn.tasks says
which task has which. A task class is what the trainer needs (ekgn.trainer.Task), and besides

    settings_class                    its settings, a subclass of ekgn.config.Settings
    open(data, settings, **options)   the task over data as a user gives it; on_progress is one
    load(folder, settings)            the task over the data that a run keeps
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from ekgn.canvas import NOT_MEASURED, curve_panels, side_by_side
from ekgn.checkpoint import RunFolder, load_weights, read_lines
from ekgn.distributed import world
from ekgn.errors import EkgnError
from ekgn.files import read_json
from ekgn.machine import choose_device, outline
from ekgn.records import environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = Path("runs")
EXTENDED, POINTER = "extended", "extended.json"
"""Where a run that was extended (`ekgn extend`) keeps its extensions, and which one it is now."""


class Evaluation(Protocol):
    """What was measured on a split."""

    def headline(self) -> dict[str, float]:
        """The few numbers that sum it up, by name."""

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON-able values."""


class Run(ABC):
    """A trained run: what it was trained on, its best weights, and its record."""

    task_class: ClassVar[Any]
    settings: Any
    model: Any

    def __init__(self, path: str | Path, device: str | None = None) -> None:
        self.path = current(Path(path))
        self.folder = RunFolder.existing(self.path)
        self.config = self.folder.read_config()
        if self.config["task"] != self.task_class.name:
            raise EkgnError(
                f"{path} is a run of task '{self.config['task']}', and this needs one of "
                f"'{self.task_class.name}'. Its own commands: ekgn {self.config['task']} --help"
            )
        self.settings = self.folder.read_settings(self.task_class.settings_class)
        self.task = self.task_class.load(self.path, self.settings)
        self.device = choose_device(device or self.settings.device)
        self.model = outline(self.task)
        weights, self.checkpoint = load_weights(self.folder.model, self.model)
        # As they are mapped from the file: nothing is drawn or copied, and processes share them.
        self.model.load_state_dict(weights, assign=True)
        self.model.to(self.device).eval()

    @classmethod
    def load(cls, run: str | Path, device: str | None = None) -> Self:
        """A run of this kind by folder, or by its name under runs/; ekgn.load opens any kind."""
        return cls(find_run(run), device)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The record of the training, empty while it has not finished."""
        return self.folder.read_record()

    @property
    def curve(self) -> list[dict[str, Any]]:
        """One line per validation, also of a training that still goes on."""
        return read_lines(self.folder.metrics) if self.folder.metrics.is_file() else []

    def plot(self) -> Figure:
        """Loss and validation metrics over the epochs; a notebook shows it."""
        if not self.curve:
            raise EkgnError(f"{self.path} has no validation yet: there is nothing to plot.")
        return side_by_side(curve_panels(self.curve))

    @abstractmethod
    def evaluate(self, split: str = "test") -> Evaluation:
        """Measure a split, and store what was found in the record."""

    def store(self, section: str, name: str, found: Evaluation, **about: Any) -> None:
        """Add a result to the record; a training that has not finished has none yet.

        Of several processes that measured it, the first one writes.
        """
        result = {
            **found.as_dict(),
            "headline": found.headline(),
            **about,
            "checkpoint": self.checkpoint,
            "environment": environment(self.device),
        }
        self.record = world().by_first(lambda: self.folder.store(section, name, result))

    def evaluation_name(self, split: str) -> str:
        """What the record calls an evaluation of a split by the run's own settings."""
        return split

    def measured(self, split: str) -> dict[str, float]:
        """The metrics of a split by the run's own settings: recorded ones, or made now."""
        kept = self.record.get("evaluations", {}).get(self.evaluation_name(split), {})
        found: dict[str, float] = kept.get("headline") or self.evaluate(split).headline()
        return found

    def headline(self) -> tuple[dict[str, float], str]:
        """The test metrics and "test" if it was evaluated, else the best validation's, "valid"."""
        tested = self.record.get("evaluations", {}).get(self.evaluation_name("test"), {})
        if "headline" in tested:
            return tested["headline"], "test"
        best = max(self.curve, key=lambda line: line[self.task.selection], default=None)
        if best is None:
            return {}, ""
        return {name: value for name, value in best.items() if name not in NOT_MEASURED}, "valid"


def find_run(run: str | Path) -> Path:
    """The folder of a run given by path, or by its name under runs/; of the latest extension."""
    path = Path(run)
    return current(path if path.exists() or not (RUNS / path).exists() else RUNS / path)


def current(path: Path) -> Path:
    """The folder that a run is now: its latest extension, if it was extended."""
    pointer = path / POINTER
    if not pointer.is_file():
        return path
    kept = read_json(pointer)
    number = kept.get("current") if isinstance(kept, dict) else None
    if not isinstance(number, int) or number < 0:
        raise EkgnError(f"{pointer} is damaged. Delete it to have the run as it was trained.")
    return path / EXTENDED / str(number) if number else path


def root_of(path: Path) -> Path:
    """The run that a folder is an extension of, or the folder itself."""
    is_extension = path.parent.name == EXTENDED and (path.parent.parent / POINTER).is_file()
    return path.parent.parent if is_extension else path


def new_run_path(name: str) -> Path:
    """A folder under runs/ that does not exist yet."""
    base = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "run"
    numbered = (RUNS / (f"{base}-{n}" if n > 1 else base) for n in range(1, 10_000))
    return next(path for path in numbered if not path.exists())
