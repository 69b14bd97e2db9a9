"""The command line in real processes that can be signalled, and whose writes can be made to fail.

A process is forked from a server that has imported everything already, so that it starts in a
moment.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

from ekgn.checkpoint import RunFolder, load_tensors, read_lines
from ekgn.files import STRAYS
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.run import current

os.environ.setdefault("OMP_NUM_THREADS", "1")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.processes", "torch._dynamo", "ekgn.api", "ekgn.cli.app", "ekgn.web.server"]
)

SETTINGS = (
    "--embedding-dim 8 --num-slots 4 --max-steps 2 --batch-size 16 --negatives 10 --threads 1 "
    "--penalty 0.01 --held-out 0.1"
)
TRAIN = f"train mine.tsv --out run {SETTINGS} --epochs 6 --valid-every 2"
FAULTS = ("error", "full", "crash", "power")


class Fault(NamedTuple):
    """A failure at a process's n-th write, sync or rename.

    error: it fails, once. full: it fails, and so do all after it. crash: the process is killed.
    power: so is the machine, and what was not synced is lost.
    """

    kind: str = ""
    at: int = 0


@dataclass
class Disk:
    """Called ahead of each write, sync and rename: counts them, and fails the one it should."""

    fault: Fault
    calls: int = 0
    unsynced: dict[Path, int] = field(default_factory=dict)  # files, and how much is on disk
    renamed: list[tuple[Path, bytes | None]] = field(default_factory=list)  # and what was before

    def __call__(self, operation: str, path: Path) -> None:
        self.calls += 1
        if self.calls == self.fault.at or (
            self.calls > self.fault.at and self.fault.kind == "full"
        ):
            self._fail(path)
        if operation == "write":
            self.unsynced[path] = path.stat().st_size if path.exists() else 0
        elif operation == "rename":
            aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            if aside in self.unsynced:
                self.unsynced[path] = self.unsynced.pop(aside)
            self.renamed.append((path, path.read_bytes() if path.is_file() else None))
        else:
            self.unsynced.pop(path, None)
            self.renamed = [entry for entry in self.renamed if entry[0].parent != path]

    def _fail(self, path: Path) -> None:
        if self.fault.kind in ("error", "full"):
            number = errno.EIO if self.fault.kind == "error" else errno.ENOSPC
            raise OSError(number, os.strerror(number), str(path))
        if self.fault.kind == "power":
            for file, size in self.unsynced.items():
                if file.exists():
                    os.truncate(file, (size + file.stat().st_size) // 2)
            for file, content in reversed(self.renamed):
                if content is not None:
                    file.write_bytes(content)
                elif file.is_dir():
                    shutil.rmtree(file)
                else:
                    file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Ended:
    """How a process ended and what it said."""

    code: int
    output: str
    errors: str
    calls: int  # writes, syncs and renames it made, if it was not killed

    @property
    def crashed(self) -> bool:
        """Whether it ended in a way that no user should see."""
        return self.code not in (0, 2, 130, -signal.SIGKILL) or "Traceback" in self.errors


class Ekgn:
    """`ekgn WORDS` in a folder, as a process of its own."""

    def __init__(self, folder: Path, words: str, fault: Fault = Fault()) -> None:
        self.folder = folder
        for name in ("stdout", "stderr", "calls"):
            (folder / name).unlink(missing_ok=True)
        self.process: ForkServerProcess = CONTEXT.Process(
            target=_run, args=(folder, words.split(), fault)
        )
        self.process.start()
        self.wait_for(folder / "stdout")

    def wait_for(self, path: Path, seconds: float = 120) -> None:
        """Until a file is there or the process has ended."""
        deadline = time.monotonic() + seconds
        while not path.exists() and self.process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.002)

    def signal(self, number: int) -> None:
        """Send a signal, if it is not too late."""
        if self.process.is_alive() and self.process.pid:
            os.kill(self.process.pid, number)

    def end(self, seconds: float = 240) -> Ended:
        """Wait for its end; what does not end is killed and fails."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            raise TimeoutError(f"still running after {seconds} s in {self.folder}")
        read = {
            name: (self.folder / name).read_text() if (self.folder / name).exists() else ""
            for name in ("stdout", "stderr", "calls")
        }
        code = self.process.exitcode or 0
        self.process.close()
        return Ended(code, read["stdout"], read["stderr"], int(read["calls"] or 0))


def ekgn(folder: Path, words: str, fault: Fault = Fault()) -> Ended:
    """Run `ekgn WORDS` in a folder to its end."""
    return Ekgn(folder, words, fault).end()


def _run(folder: Path, words: list[str], fault: Fault) -> None:
    """In the new process: the command line, its output in files, its writes watched."""
    from ekgn import files
    from ekgn.cli import main

    os.chdir(folder)
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}
    for early in (signal.SIGINT, signal.SIGTERM):  # until the command line takes them
        signal.signal(early, lambda *_: os._exit(130))
    files.before = disk = Disk(fault)
    sys.argv = ["ekgn", *words]
    for name, number in (("stderr", 2), ("stdout", 1)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o666), number)
    try:
        main()
    finally:
        for late in (signal.SIGINT, signal.SIGTERM):  # too late to be heard
            signal.signal(late, signal.SIG_IGN)
        Path("calls").write_text(str(disk.calls))
        sys.stdout.flush()


def write_facts(folder: Path) -> None:
    """mine.tsv: thirty in a ring, each fact also there reversed."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = [f"p{i}\tnext\tp{(i + 1) % 30}\np{(i + 1) % 30}\tprevious\tp{i}" for i in range(30)]
    (folder / "mine.tsv").write_text("\n".join(facts) + "\n")
    (folder / "more.tsv").write_text("q\tnext\tp3\np5\tprevious\tq\np7\tnext\tp9\n")


def trained(folder: Path) -> dict[str, Any]:
    """What a finished training left, without the times: equal for equal trainings."""
    run = RunFolder(folder)
    state: dict[str, Any] = {}
    for path in (run.model, run.state):
        tensors, extra = load_tensors(path)
        state |= {f"{path.name} {name}": value.numpy().tobytes() for name, value in tensors.items()}
        counters = extra.get("progress", extra)
        state[path.name] = {key: value for key, value in counters.items() if key != "seconds"}
    lines = [{**line, "seconds": 0} for line in read_lines(run.metrics)]
    record = run.read_record()
    return {**state, "metrics": lines, "best": record["best"], "steps": record["steps"]}


def extended(folder: Path) -> dict[str, bytes]:
    """The graph and the weights of a run as it is now."""
    present = current(folder)
    tensors, _ = load_tensors(RunFolder(present).model)
    weights = {name: value.numpy().tobytes() for name, value in tensors.items()}
    return {**weights, "train": KnowledgeGraph.load(present).train.tobytes()}


def check_whole(folder: Path) -> None:
    """Raise unless every file of the run in a folder, if there is one, is whole."""
    run = RunFolder(folder)
    if run.config.exists() and current(folder) != folder:
        check_whole(current(folder))
    if run.config.exists():
        run.read_config()
        run.read_record()
        read_lines(run.metrics)
        KnowledgeGraph.load(folder)
        for path in (run.model, run.state):
            if path.exists():
                load_tensors(path)


def strays(folder: Path) -> list[str]:
    """Temporary files anywhere below a folder."""
    return [str(path.relative_to(folder)) for pattern in STRAYS for path in folder.rglob(pattern)]


def evaluated(folder: Path) -> str:
    """The results in a run's record, without when and where they were made."""
    record = RunFolder(folder).read_record()
    found = {key: record.get(key, {}) for key in ("evaluations", "rule_baseline")}
    for results in found.values():
        for result in results.values():
            result.pop("environment")
    return json.dumps(found, sort_keys=True)
