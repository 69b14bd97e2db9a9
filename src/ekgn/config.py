"""Every setting, once: its name, type, default (the paper's), symbol and meaning.

Presets, TOML files, command-line flags, the stored config and the documentation all derive from the
classes here. The defaults are the paper; the presets say what a run changes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ekgn.errors import EkgnError, did_you_mean

MOST = 1_000_000
"""The largest value of a number that has no narrower limit of its own."""


def knob(default: Any, meaning: str, symbol: str = "", **limits: Any) -> Any:
    """A setting's field: default, what it does, its symbol in the paper, its limits."""
    if type(default) in (int, float):
        limits = {
            **({} if limits.keys() & {"ge", "gt"} else {"ge": -MOST}),
            **({} if limits.keys() & {"le", "lt"} else {"le": MOST}),
            **limits,
        }
    return Field(default, description=meaning, json_schema_extra={"symbol": symbol}, **limits)


class Settings(BaseModel):
    """What every task shares: the network and the trainer."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}}
    DEFAULT_PRESET: ClassVar[str] = "paper"

    # The network.
    max_steps: int = knob(5, "most lookup steps before an answer is due", "T_max", ge=1, le=64)
    num_slots: int = knob(64, "vectors in the embedded knowledge graph", "|E_KG|", ge=1)
    sharpness: float = knob(10.0, "scale of the cosine in the attention softmax", "λ", gt=0)
    controller: Literal["gru", "mlp"] = knob(
        "gru",
        "what makes the next state: a GRU of what was read; or, as a control, a residual MLP of "
        "like size, without memory and gate",
    )

    # The objective.
    objective: Literal["log", "expected"] = knob(
        "expected", "loss: the printed -J, or -log J, whose gradient the first version has", "J"
    )
    step_loss: float = knob(
        0.0, "weight of the mean of -log p over all steps (deep supervision)", ge=0
    )

    # The trainer.
    optimizer: Literal["sgd", "adam", "adagrad"] = knob("sgd", "how parameters are updated")
    learning_rate: float = knob(0.01, "step size at the start", gt=0)
    decay_from: float = knob(
        1.0, "share of a phase after which the rate falls linearly to 0 (1: never)", ge=0, le=1
    )
    clip_norm: float = knob(0.0, "largest gradient norm (0: no limit)", ge=0)
    batch_size: int = knob(64, "instances in a mini-batch", ge=1)
    epochs: int = knob(100, "passes over the training data", ge=1)
    valid_every: int = knob(5, "epochs between validations", ge=1)
    patience: int = knob(0, "validations without gain before stopping early (0: never)", ge=0)
    checkpoint_minutes: float = knob(5.0, "minutes between training-state checkpoints", ge=0)
    budget_minutes: float = knob(
        0.0, "training minutes to fit the phases and the fall of the rate into (0: no limit)", ge=0
    )
    seed: int = knob(0, "seed of every random choice", ge=0, le=2**32 - 1)
    threads: int = knob(0, "CPU threads (0: all cores)", ge=0, le=1024)
    device: str = knob("auto", "torch device: auto, cpu, cuda, cuda:1, mps")
    tensorboard: bool = knob(False, "also write TensorBoard logs into the run")
    readout: str = knob(
        "argmax", "which step answers: argmax, mixture, last, sample, or step:N", "o_j"
    )

    @model_validator(mode="after")
    def _readout_is_known(self) -> Self:
        parse_readout(self.readout, self.max_steps)
        return self

    @property
    def dense_rate(self) -> float:
        """The step size at the start of what is no table."""
        return self.learning_rate

    @property
    def reads_memory(self) -> bool:
        """Whether any lookup reads the memory."""
        return self.max_steps > 1 and self.controller == "gru"

    def phases(self) -> list[float]:
        """The shares of the training at which its phases begin."""
        return [0.0]

    def changes_of(self, preset: str | None) -> dict[str, Any]:
        """The settings that are not as the preset (without one: the default) has them."""
        start = type(self).build(preset) if preset else type(self)()
        before = start.model_dump(mode="json")
        own = self.model_dump(mode="json")
        return {name: value for name, value in own.items() if value != before[name]}

    @classmethod
    def build(
        cls,
        preset: str | None = None,
        file: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Self:
        """Settings from a preset, then a TOML file, then explicit values; later ones win."""
        in_file = read_toml(file) if file else {}
        name = preset or str(in_file.pop("preset", "")) or cls.DEFAULT_PRESET
        in_file.pop("preset", None)
        if name not in cls.PRESETS:
            raise EkgnError(
                f"Unknown preset '{name}'. {did_you_mean(name, cls.PRESETS)} "
                f"Presets: {', '.join(cls.PRESETS)}."
            )
        return cls.parse({**cls.PRESETS[name], **in_file, **(overrides or {})})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validated settings; an unknown key or a bad value is one clear error."""
        for key in values:
            if key not in cls.model_fields:
                hint = did_you_mean(key, cls.model_fields)
                raise EkgnError(
                    f"Unknown setting '{key}'. {hint} List them with: ekgn settings".replace(
                        "  ", " "
                    )
                )
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = [
                f"{'.'.join(map(str, e['loc'])) or 'settings'} = {e['input']!r}: {e['msg']}"
                if e["loc"]
                else e["msg"]
                for e in error.errors()
            ]
            raise EkgnError("Bad setting: " + "; ".join(problems)) from None


def parse_readout(readout: str, max_steps: int) -> tuple[str, int]:
    """("argmax" | "mixture" | "last" | "sample", 0) or ("step", N) for "step:N"."""
    name, _, number = readout.partition(":")
    if name in ("argmax", "mixture", "last", "sample") and not number:
        return name, 0
    if name == "step" and number in map(str, range(1, max_steps + 1)):
        return name, int(number)
    raise EkgnError(
        f"Unknown readout '{readout}': expected argmax, mixture, last, sample, or step:N "
        f"with N from 1 to {max_steps}."
    )


def read_toml(file: Path) -> dict[str, Any]:
    """The flat table of a TOML settings file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EkgnError(f"No settings file {file}. Give the path of a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise EkgnError(f"{file} is not valid TOML: {error}.") from None
