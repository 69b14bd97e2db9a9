"""Faults against operations, and what must hold after each: `make torture`.

An operation runs in a process of its own, which is signalled at a random moment, or whose n-th
write, sync or rename fails. Then everything on disk must be whole, the next start must end with
what an undisturbed process gives, and no temporary file may be left.

In turn: signals at random moments of a training, a failure at each call of each operation, then
both at random until the time is over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ekgn.errors import EkgnError
from ekgn.files import write_json
from ekgn.records import environment

from .processes import (
    FAULTS,
    TRAIN,
    Ekgn,
    Ended,
    Fault,
    check_whole,
    ekgn,
    evaluated,
    extended,
    strays,
    trained,
    write_facts,
)

SIGNALS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"


@dataclass(frozen=True)
class Operation:
    """A command, what it starts from, and what is compared after it."""

    words: str
    outcome: Callable[[Path, Ended], Any]  # of a folder and a process that ended well in it
    start: str = "nothing"  # or: "half", a training cut off; "run", a finished one


def _training(folder: Path, ended: Ended) -> Any:
    return trained(folder / "run")


def _evaluation(folder: Path, ended: Ended) -> Any:
    return evaluated(folder / "run"), ended.output


def _output(folder: Path, ended: Ended) -> Any:
    return ended.output


def _completion(folder: Path, ended: Ended) -> Any:
    return (folder / "missing.tsv").read_text()


def _extension(folder: Path, ended: Ended) -> Any:
    return extended(folder / "run")


OPERATIONS = {
    "train": Operation(TRAIN, _training),
    "resume": Operation("train --resume run", _training, start="half"),
    "evaluate": Operation("evaluate run", _evaluation, start="run"),
    "complete": Operation("complete run --out missing.tsv --everything", _completion, start="run"),
    "extend": Operation("extend run more.tsv", _extension, start="run"),
    "cache": Operation("info mine.tsv --json", _output),
    "serve": Operation("serve run --port 0", _output, start="run"),
}


@dataclass
class Torture:
    """The material, the undisturbed outcomes, and the count of what was done."""

    place: Path
    chance: random.Random
    outcomes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    trials: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    late: int = 0  # signals that came when the process had done its work: not counted

    def prepare(self) -> None:
        """Run everything once, undisturbed."""
        for start in ("nothing", "half", "run"):
            write_facts(self.place / start)
        ekgn(self.place / "run", TRAIN)
        half = Ekgn(self.place / "half", TRAIN)
        half.wait_for(self.place / "half" / "run" / "training_state.safetensors")
        half.signal(signal.SIGTERM)
        half.end()
        for name, operation in OPERATIONS.items():
            folder = self._folder(operation)
            started = time.monotonic()
            ended = self.undisturbed(folder, operation)
            self.seconds[name] = time.monotonic() - started
            self.calls[name] = ended.calls
            self.outcomes[name] = operation.outcome(folder, ended)
            shutil.rmtree(folder)

    def undisturbed(self, folder: Path, operation: Operation) -> Ended:
        """The operation, gone on with or begun again, to its end."""
        words = operation.words
        if words.startswith("serve"):
            return _served(folder, words)
        if words == TRAIN and (folder / "run" / "config.json").exists():
            words = "train --resume run"
        return ekgn(folder, words)

    def signalled(self, part: str, name: str, kind: str) -> None:
        """Send a signal at a random moment of an operation."""
        folder = self._folder(OPERATIONS[name])
        moment = 0.7 * self.chance.random() * self.seconds[name]  # on a busy machine most are late
        process = Ekgn(folder, OPERATIONS[name].words)
        time.sleep(moment)
        process.signal(SIGNALS[kind])
        if name == "serve":
            process.signal(SIGNALS[kind])  # else it would wait for requests
        ended = process.end()
        if ended.code == 0 and name != "serve":
            self.late += 1
            shutil.rmtree(folder)
            return
        self._judge(part, name, kind, folder, ended, f"after {moment:.3f} s")

    def failed(self, part: str, name: str, kind: str, call: int) -> None:
        """Let a call of an operation fail."""
        folder = self._folder(OPERATIONS[name])
        ended = ekgn(folder, OPERATIONS[name].words, Fault(kind, call))
        self._judge(part, name, kind, folder, ended, f"at call {call}")

    def _folder(self, operation: Operation) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self.place))
        shutil.copytree(self.place / operation.start, folder, dirs_exist_ok=True)
        return folder

    def _judge(
        self, part: str, name: str, kind: str, folder: Path, ended: Ended, when: str
    ) -> None:
        self.trials[part, name, kind] += 1
        problem = self._problem(OPERATIONS[name], self.outcomes[name], folder, ended)
        if problem:
            self.problems.append(f"{name}, {kind} {when}: {problem}")
            print(self.problems[-1], flush=True)
        shutil.rmtree(folder)

    def _problem(
        self, operation: Operation, expected: Any, folder: Path, ended: Ended
    ) -> str | None:
        if ended.crashed:
            return f"exit code {ended.code}: {ended.errors[-400:]}"
        try:
            check_whole(folder / "run")
            again = self.undisturbed(folder, operation)
            if again.code:
                return f"the next start fails: {again.errors[-400:]}"
            if operation.outcome(folder, again) != expected:
                return "the outcome differs from that of an undisturbed process"
        except (EkgnError, TimeoutError) as error:
            return str(error)
        left = strays(folder)
        return f"left behind: {', '.join(left)}" if left else None


def _served(folder: Path, words: str) -> Ended:
    """Serve, ask one question, and stop; the output is the answer."""
    process = Ekgn(folder, words)
    address, deadline = None, time.monotonic() + 120
    while address is None and process.process.is_alive() and time.monotonic() < deadline:
        address = re.search(r"http://\S+", (folder / "stdout").read_text())
        time.sleep(0.01)
    answer = ""
    if address:
        question = "api/runs/run/predict?head=p3&relation=next"
        with urllib.request.urlopen(address[0] + question, timeout=60) as response:
            answer = json.dumps([found["id"] for found in json.load(response)["answers"]])
    process.signal(signal.SIGTERM)
    ended = process.end()
    ended.output = answer
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="make torture")
    parser.add_argument("--minutes", type=float, default=20.0, help="when to end at the latest")
    parser.add_argument("--signals", type=int, default=200, help="signals to a training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the record goes")
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        torture = Torture(Path(place), random.Random(given.seed))
        torture.prepare()
        planned = _plan(torture, given.signals)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: the record of what was done
            while time.monotonic() - started < 60 * given.minutes:
                (next(planned))()
    _write(torture, given.out, time.monotonic() - started, given.seed)
    return 1 if torture.problems else 0


def _plan(torture: Torture, signals: int) -> Any:
    """What to do, in order and without end."""
    chance = torture.chance
    while torture.trials.total() < signals:
        kind = chance.choice(list(SIGNALS))
        yield lambda kind=kind: torture.signalled("signals to a training", "train", kind)
    for name, calls in torture.calls.items():
        for call in range(1, calls + 1):
            for kind in FAULTS:
                yield lambda each=(name, kind, call): torture.failed("every call", *each)
    while True:
        name = chance.choice(list(OPERATIONS))
        kind = chance.choice([*SIGNALS, *(FAULTS if torture.calls[name] else ())])
        if kind in SIGNALS:
            yield lambda each=(name, kind): torture.signalled("random", *each)
        else:
            call = chance.randint(1, torture.calls[name])
            yield lambda each=(name, kind, call): torture.failed("random", *each)


def _write(torture: Torture, out: Path, seconds: float, seed: int) -> None:
    """The record, and one line of it."""
    trials: dict[str, dict[str, dict[str, int]]] = {}
    for (part, name, kind), count in sorted(torture.trials.items()):
        trials.setdefault(part, {}).setdefault(name, {})[kind] = count
    total = sum(torture.trials.values())
    record = {
        "trials": trials,
        "total": total,
        "problems": torture.problems,
        "late": torture.late,
        "calls": torture.calls,
        "seconds": round(seconds, 1),
        "seed": seed,
        "environment": environment(torch.device("cpu")),
    }
    write_json(out, record)
    if out == RECORD:
        PAGE.write_text(page(record), encoding="utf-8")
    print(f"{total} faults, {len(torture.problems)} problems, {seconds:.0f} s. Record: {out}")


def _about_late(record: dict[str, Any]) -> str:
    if "late" in record:
        return f"{record['late']} signals came when the process had ended, and are not counted."
    return "Signals that came when the process had ended are among them (11 of 25 in a sample)."


def page(record: dict[str, Any]) -> str:
    """docs/reliability.md with the figures of a record."""
    kinds = [*SIGNALS, *FAULTS]
    lines = [
        f"{record['total']} faults, {len(record['problems'])} after which something did not hold "
        f"(results/reliability.json). {_about_late(record)}",
        "",
        f"| | command | {' | '.join(kinds)} |",
        f"|---|---|{'--:|' * len(kinds)}",
    ]
    for part, names in record["trials"].items():
        for name, counts in names.items():
            cells = " | ".join(str(counts.get(kind, "")) for kind in kinds)
            lines.append(f"| {part} | {name} | {cells} |")
    start, end = "<!-- figures -->\n", "<!-- end -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(start)
    return before + start + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


if __name__ == "__main__":
    sys.exit(main())
