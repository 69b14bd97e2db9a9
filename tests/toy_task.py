"""A whole task in one file: to tell from the bits of a number whether it is odd."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ekgn.config import Settings, knob
from ekgn.distributed import ALONE, Group, Share
from ekgn.files import read_json, write_json
from ekgn.run import Run
from ekgn.tasks import Pieces

BITS = 4
ONE_LINE = {"toy": Pieces(settings="tests.toy_task:ToySettings", run="tests.toy_task:ToyRun")}


class ToySettings(Settings):
    """One setting of its own."""

    width: int = knob(8, "hidden cells", ge=1)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "quick": {"epochs": 6, "valid_every": 2, "batch_size": 8, "learning_rate": 0.3},
    }
    DEFAULT_PRESET: ClassVar[str] = "quick"


class Numbers(NamedTuple):
    """A batch."""

    bits_BN: Tensor
    odd_B: Tensor

    def to(self, device: torch.device) -> Numbers:
        return Numbers(self.bits_BN.to(device), self.odd_B.to(device))

    def part(self, group: Group) -> tuple[Numbers, Share]:
        here = group.part(len(self.odd_B))
        share = (here.stop - here.start) / len(self.odd_B)
        return Numbers(self.bits_BN[here], self.odd_B[here]), Share(share, share)


class ToyLoss(NamedTuple):
    """What the trainer reads of a loss."""

    total: Tensor
    expected_reward: Tensor


class ToyModel(nn.Module):
    """Two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(BITS, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, bits_BN: Tensor) -> Tensor:
        odd_B: Tensor = self.layers(bits_BN)[:, 0]
        return odd_B

    def loss(self, batch: Numbers, done: float = 1.0) -> ToyLoss:
        error = nn.functional.binary_cross_entropy_with_logits(self(batch.bits_BN), batch.odd_B)
        return ToyLoss(error, (-error).exp())

    def constrain(self, touched: Any) -> None:
        """Nothing is kept within limits."""

    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


@dataclass(frozen=True)
class ToyEvaluation:
    """How many are right."""

    split: str
    right: float

    def headline(self) -> dict[str, float]:
        return {"right": self.right}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class ToyTask:
    """Parity of the numbers below a limit."""

    name = "toy"
    settings_class = ToySettings
    selection = "right"
    unit = "numbers"

    def __init__(self, limit: int, settings: ToySettings) -> None:
        self.limit = limit
        self.settings = settings

    @classmethod
    def open(cls, data: str, settings: ToySettings, on_progress: object = None) -> ToyTask:
        return cls(int(data), settings)

    @classmethod
    def load(cls, folder: Path, settings: ToySettings) -> ToyTask:
        return cls(read_json(folder / "limit.json"), settings)

    def save_data(self, folder: Path) -> None:
        write_json(folder / "limit.json", self.limit)

    @property
    def batches(self) -> ToyTask:
        return self

    def __len__(self) -> int:
        return -(-self.limit // self.settings.batch_size)

    def __call__(self, epoch: int, index: int, done: float) -> Numbers:
        shuffled = torch.Generator().manual_seed(epoch)
        order = torch.randperm(self.limit, generator=shuffled)
        return numbers(order[index * self.settings.batch_size :][: self.settings.batch_size])

    def new_model(self, group: Group = ALONE) -> ToyModel:
        return ToyModel(self.settings.width)

    def update_bytes(self) -> int:
        return 4 * self.settings.batch_size * self.settings.width

    def validate(self, model: ToyModel) -> dict[str, float]:
        return {"right": share_right(model, self.limit)}

    def digest(self) -> str:
        return str(self.limit)

    def notes(self) -> list[str]:
        return []

    def describe(self) -> dict[str, Any]:
        return {"name": f"numbers-below-{self.limit}", "train": self.limit}


def numbers(values_B: Tensor) -> Numbers:
    bits = torch.stack([values_B >> place & 1 for place in range(BITS)], dim=1)
    return Numbers(bits.float(), (values_B % 2).float())


def share_right(model: ToyModel, limit: int) -> float:
    batch = numbers(torch.arange(limit))
    right_B = (model(batch.bits_BN) > 0) == (batch.odd_B > 0.5)
    return float(right_B.float().mean())


class ToyRun(Run):
    """A trained run."""

    task_class = ToyTask

    def evaluate(self, split: str = "test") -> ToyEvaluation:
        found = ToyEvaluation(split, share_right(self.model, self.task.limit))
        self.store("evaluations", self.evaluation_name(split), found)
        return found
