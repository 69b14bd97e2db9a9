"""Tables, bars and JSON for the terminal."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from ekgn.tables import Table, in_words

# What a terminal may obey instead of showing: control characters, marks that turn the direction of
# writing, line separators, and halves of characters, which cannot be written at all.
_UNSAFE = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Text for a terminal, with a sign in place of each character that it would obey.

    >>> visible("a\\x1b[2Jb")
    'a␛[2Jb'
    """
    return _UNSAFE.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    """Unicode's picture of a control character where there is one."""
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


class Terminal(Console):
    """A console to which text is only text: no markup, no emoji codes, nothing to obey."""

    def __init__(self, *, stderr: bool = False) -> None:
        is_first = os.environ.get("RANK", "0") == "0"  # of several processes
        options: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
        super().__init__(stderr=stderr, quiet=not is_first, **options)

    def render_str(self, text: str, **how: Any) -> Text:
        """A string as text."""
        return super().render_str(visible(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Anything to print; text that was made elsewhere is looked at here."""
        if isinstance(renderable, Text) and _UNSAFE.search(renderable.plain):
            renderable = renderable.copy()
            renderable.plain = visible(renderable.plain)
        return super().render(renderable, options)


console = Terminal()
messages = Terminal(stderr=True)


def print_json(value: Any) -> None:
    """JSON on stdout; a number that is none becomes null."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of texts."""
    show(Table(title, columns, rows))


def show(table: Table) -> None:
    """A table: words to the left, numbers to the right."""
    console.print(table.rich(visible))


@contextmanager
def training_progress(unit: str, per_step: int) -> Iterator[Callable[[Any, int, float], None]]:
    """A bar with epoch, rate, ETA and the latest validation; yields the trainer's listener."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[latest]}", markup=False),
        console=messages,
        transient=False,
    )
    job = bar.add_task("training", total=None, rate="", latest="")
    first: list[float] = []
    shown: list[Any] = [None, 0.0]

    def listen(progress: Any, total: int, share: float) -> None:
        now = time.monotonic()
        if not first:
            first.extend([now, progress.step - 1])
        new_metrics = progress.metrics.get("step") != shown[0]
        if now - shown[1] < 0.2 and not new_metrics and progress.step < total:
            return
        rate = (progress.step - first[1]) / max(now - first[0], 1e-6) * per_step
        shown[:] = [progress.metrics.get("step"), now]
        latest = _latest(progress)
        bar.update(job, completed=share, total=1.0, rate=f"{rate:,.0f} {unit}/s", latest=latest)
        if new_metrics and progress.metrics and not messages.is_terminal:
            messages.print(f"step {progress.step:,} of {total:,}, {latest}")

    with bar:
        yield listen


def _latest(progress: Any) -> str:
    measured = {name: value for name, value in progress.metrics.items() if name != "step"}
    return "  ".join([f"loss {progress.loss:.3f}", in_words(measured)])


@contextmanager
def ranking_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over ranked pairs; yields what the ranking calls with (done now, total)."""
    bar = Progress(
        TextColumn(what, markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(compact=True),
        console=messages,
        transient=True,
    )
    job = bar.add_task(what, total=None)
    with bar:
        yield lambda done, total: bar.update(job, advance=done, total=total)
