"""What a run keeps on disk, how it is written, and what is checked when it is read.

config.json                 task, preset and effective settings
graph.safetensors           the data the run was trained on: triples, ids and names
vocabulary.json             what that graph is called, and its source checksums
model.safetensors           the best weights so far
training_state.safetensors  everything needed to go on: weights, optimizer state, counters
training_state.json         in its place, if several processes divide the tables (ekgn.state)
metrics.jsonl               one line per validation
record.json                 what was run, on what, for how long, and the results
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ekgn.config import Settings
from ekgn.errors import EkgnError
from ekgn.files import locked, read_json, read_text, replace_file, write_json

log = logging.getLogger(__name__)

FORMAT = 1
"""The newest format of a run folder that this version reads, and the one it writes."""

AnySettings = TypeVar("AnySettings", bound=Settings)

STATE_KEYS = {
    "SGD": {"momentum_buffer"},
    "Adam": {"step", "exp_avg", "exp_avg_sq"},
    "RowSgd": set(),
    "RowAdagrad": {"sum"},
}
"""What each optimizer keeps of a parameter."""

_METRICS = TypeAdapter(dict[str, float])


class Config(BaseModel):
    """What config.json must hold; more is allowed."""

    model_config = ConfigDict(strict=True, extra="allow")
    format: int = 1
    task: str
    settings: dict[str, Any]


class Record(BaseModel):
    """What record.json must hold; more is allowed."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    task: str
    data: dict[str, Any]
    settings: dict[str, Any]
    environment: dict[str, Any]
    parameters: int
    wall_seconds: float
    steps: int
    epochs: float
    best: dict[str, float]
    curve: list[dict[str, float]]
    evaluations: dict[str, dict[str, Any]]


class Weights(BaseModel):
    """What is noted with the weights."""

    model_config = ConfigDict(strict=True, extra="allow")
    step: int


class Counters(BaseModel):
    """What a training state must say of where the training stands."""

    model_config = ConfigDict(strict=True, extra="forbid")
    step: int = Field(ge=0)
    best_step: int = Field(ge=0)
    best_phase: int = Field(ge=-1)
    best: float
    stale: int = Field(ge=0)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    loss: float
    expected_reward: float
    metrics: dict[str, float]


class State(BaseModel):
    """What is noted with the tensors of a training state."""

    model_config = ConfigDict(strict=True, extra="forbid")
    progress: Counters
    optimizer: dict[str, None]


class RunFolder:
    """The files of one run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.model = path / "model.safetensors"
        self.state = path / "training_state.safetensors"
        self.index = path / "training_state.json"
        self.metrics = path / "metrics.jsonl"
        self.record = path / "record.json"

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """The run in a folder; an error that says what is missing if there is none."""
        run = cls(path)
        try:
            if run.config.is_file():
                return run
            others = sorted(str(config.parent) for config in path.parent.glob("*/config.json"))
        except OSError as error:
            raise EkgnError(f"Cannot read {run.config}: {error.strerror or error}.") from None
        hint = f" Runs beside it: {', '.join(others[:8])}." if others else ""
        raise EkgnError(
            f"No run in '{path}': expected a folder made by `ekgn train` (with config.json).{hint}"
        )

    def has_weights(self) -> bool:
        """Whether some weights were saved already."""
        return self.model.is_file()

    def read_config(self) -> dict[str, Any]:
        """The content of config.json, of this version's format."""
        config: dict[str, Any] = read_json(self.config)
        version = config.get("format", 1) if isinstance(config, dict) else 1
        if isinstance(version, int) and version > FORMAT:
            raise EkgnError(
                f"{self.config} is of format {version}, this ekgn reads {FORMAT}: the run was made "
                f"by a newer version. Update ekgn."
            )
        check_shape(Config, config, self.config)
        if "answer_rule" in config["settings"]:  # its name in runs made before
            config["settings"]["readout"] = config["settings"].pop("answer_rule")
        return config

    def read_settings(self, kind: type[AnySettings]) -> AnySettings:
        """The settings in config.json."""
        try:
            return kind.parse(self.read_config()["settings"])
        except EkgnError as error:
            named = str(self.config) in str(error)
            raise EkgnError(str(error) if named else f"{self.config}: {error}") from None

    def read_record(self) -> dict[str, Any]:
        """The content of record.json, empty while the training has not finished."""
        if not self.record.exists():
            return {}
        record: dict[str, Any] = read_json(self.record)
        check_shape(Record, record, self.record)
        return record

    def store(self, section: str, name: str, result: Mapping[str, Any]) -> dict[str, Any]:
        """Add a result to the record, if there is one, and return it.

        A run that cannot be written is no error: it is said, and the result is not stored.
        """
        if not self.record.exists():
            return {}
        try:
            with locked(self.path):
                record = self.read_record()
                record.setdefault(section, {})[name] = dict(result)
                write_json(self.record, record)
                return record
        except EkgnError as error:
            log.warning("The result is not stored in the run. %s", error)
            return self.read_record()


def check_shape(kind: type[BaseModel], value: Any, path: Path) -> None:
    """Raise if a JSON value is not what the file should hold."""
    try:
        kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "content"
        raise _damaged(path, f"{where}: {first['msg']}") from None


def save_tensors(path: Path, tensors: Mapping[str, Tensor | None], extra: Any = None) -> None:
    """Tensors, and one JSON value, in a single file, so that they can never disagree."""
    held = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    plain = {name: tensor.detach().contiguous() for name, tensor in held.items()}
    metadata = {"json": json.dumps(extra)}
    replace_file(path, lambda aside: save_file(plain, aside, metadata))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """What save_tensors wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads((file.metadata() or {}).get("json", "null"))
    except FileNotFoundError:
        raise EkgnError(f"{path} is missing: the run has no checkpoint yet.") from None
    except OSError as error:
        raise EkgnError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def load_weights(path: Path, outline: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights in a file, which must fit a model of this outline, and what is noted with them.

    An outline (a model on the meta device) takes no memory, whatever sizes a changed config asks
    for.
    """
    tensors, extra = load_tensors(path)
    check_shape(Weights, extra, path)
    check_tensors(path, tensors, outline.state_dict())
    return tensors, extra


def check_tensors(path: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise unless the tensors of a file have the names, types and shapes expected, all finite."""
    for name in expected.keys() ^ found.keys():
        raise _damaged(path, f"{name} is {'missing' if name in expected else 'unknown'}")
    for name, tensor in found.items():
        check_tensor(path, name, tensor, expected[name])


def check_tensor(path: Path, name: str, found: Tensor, expected: Tensor) -> None:
    """Raise unless a tensor is finite, and of the type and shape of another."""
    for have, want in ((found.dtype, expected.dtype), (found.shape, expected.shape)):
        if have != want:
            raise _damaged(path, f"{name} is {_words(have)}, expected {_words(want)}")
    if not found.isfinite().all():
        raise _damaged(path, f"{name} holds numbers that are not finite")


def _words(about: torch.dtype | torch.Size) -> str:
    return str(list(about) if isinstance(about, torch.Size) else about)


def _damaged(path: Path, problem: object) -> EkgnError:
    return EkgnError(f"{path} is damaged ({problem}). Restore it or train again.")


def read_lines(path: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl; a last one that was cut off is left out, and that is said."""
    *whole, rest = read_text(path).split("\n")
    if rest:
        log.warning("%s: the last line was cut off and is dropped.", path)
    return [_metrics(path, number, line) for number, line in enumerate(whole, start=1)]


def _metrics(path: Path, number: int, line: str) -> dict[str, float]:
    try:
        metrics = _METRICS.validate_python(json.loads(line), strict=True)
        metrics["step"] = int(metrics["step"])
        return metrics
    except (ValueError, KeyError, OverflowError, RecursionError):
        raise _damaged(path, f"line {number}, {line[:40]!r}, holds no metrics") from None


def pack_optimizer(
    prefix: str, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as named tensors and JSON values."""
    tensors, plain = {}, {}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            name = f"{prefix}.{index}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                plain[name] = value
    return tensors, plain


def unpack_optimizers(
    optimizers: Mapping[str, torch.optim.Optimizer], packed: Mapping[str, Any], path: Path
) -> None:
    """The reverse of pack_optimizer for all; raises if the state is not one of these."""
    states: dict[str, dict[int, dict[str, Any]]] = {prefix: {} for prefix in optimizers}
    for name, value in packed.items():
        prefix, _, rest = name.partition(".")
        number, _, key = rest.partition(".")
        tables = _parameters(optimizers[prefix]) if prefix in optimizers else []
        if not number.isdecimal() or int(number) >= len(tables):
            raise _damaged(path, f"{name} is unknown")
        if isinstance(value, Tensor):
            like = torch.zeros(()) if key == "step" else tables[int(number)]
            check_tensor(path, name, value, like)
        states[prefix].setdefault(int(number), {})[key] = value
    for prefix, optimizer in optimizers.items():
        keys = STATE_KEYS[type(optimizer).__name__]
        for index, entries in states[prefix].items():
            for key in entries.keys() ^ keys:
                problem = "missing" if key in keys else "unknown"
                raise _damaged(path, f"{prefix}.{index}.{key} is {problem}")
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": states[prefix], "param_groups": groups})


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
