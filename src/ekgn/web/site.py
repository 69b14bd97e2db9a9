"""Everything that is served: the runs by name, the model's queue, the thread for long work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ekgn.api import load
from ekgn.kbc.run import Predictions
from ekgn.run import find_run, root_of
from ekgn.tasks import pieces
from ekgn.web.batching import Batcher, Busy
from ekgn.web.curation import Curation
from ekgn.web.monitoring import Monitor
from ekgn.web.problems import Problem
from ekgn.web.results import Results
from ekgn.web.schema import ResultsReply, Thing
from ekgn.web.served import ServedRun
from ekgn.web.served_kbc import Asked, ServedKbc

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_LONG_JOBS = 32  # explanations and the like that may wait for their turn


class Site:
    """The runs, and the two threads that work for them.

    Predictions of all requests go through one queue in batches. What takes longer (explanations,
    the memory map, neighbourhoods) has a thread of its own, so that it never holds them up.
    """

    def __init__(self, runs: Sequence[str | Path]) -> None:
        self.monitor = Monitor()
        self.runs: dict[str, ServedRun] = {}
        for given in runs:
            path = find_run(given)
            name = self._free_name(root_of(path).resolve().name)
            self.runs[name] = load_served(name, path)
        self._batchers: dict[str, Batcher[tuple[bool, str], Asked, Predictions]] = {}
        self._curations: dict[str, Curation] = {}
        self._results: dict[tuple[str, str], Results] = {}
        self._long = ThreadPoolExecutor(max_workers=1, thread_name_prefix="long")
        self._long_jobs = 0
        self._is_closed = False

    def start(self) -> None:
        """Start the queues, and make in the background what first visitors would wait for."""
        for name, served in self.runs.items():
            if isinstance(served, ServedKbc):
                self._batchers[name] = Batcher(
                    served.answer, most=served.batch_size, on_batch=self.monitor.batch
                )
            self._long.submit(self._prepare, served)

    def close(self) -> None:
        """Finish what was begun and end the threads."""
        self._is_closed = True
        for batcher in self._batchers.values():
            batcher.close()
        self._long.shutdown(wait=True, cancel_futures=True)

    def run(self, name: str) -> ServedRun:
        """A run by the name it is served under."""
        if name not in self.runs:
            names = [Thing(id=known, label=known) for known in self.runs]
            message = f"No run is served as '{name[:80]}'."
            raise Problem(404, "unknown_run", message, names)
        return self.runs[name]

    def curation(self, served: ServedKbc) -> Curation:
        """The queue of a run; its work is done by `long`."""
        return self._curations.setdefault(served.name, Curation(served))

    async def results(self, served: ServedKbc, split: str) -> ResultsReply:
        """How a run does on a split, ranked piece by piece so that others have their turn."""
        key = served.name, split
        if key not in self._results:
            self._results[key] = Results(served, split)
        found = self._results[key]
        while not found.is_done:
            await self.long(found.advance)
        return await self.long(found.reply)

    async def predict(
        self, served: ServedKbc, hide_known: bool, readout: str, asked: Sequence[Asked]
    ) -> list[Predictions]:
        """Answers through the model's queue."""
        try:
            return await self._batchers[served.name].ask((hide_known, readout), asked)
        except Busy:
            raise _busy() from None

    async def long(self, work: Callable[..., T], *given: Any) -> T:
        """The result of some longer work, done in its turn."""
        if self._long_jobs >= MOST_LONG_JOBS:
            raise _busy()
        self._long_jobs += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._long, work, *given)
        finally:
            self._long_jobs -= 1

    def _prepare(self, served: ServedRun, pieces: Iterator[object] | None = None) -> None:
        """Prepare a run, then go on piece by piece: what is asked meanwhile comes in between."""
        try:
            if pieces is None:
                served.prepare()
                pieces = served.pieces()
            if next(pieces, None) is not None and not self._is_closed:
                self._long.submit(self._prepare, served, pieces)
        except Exception:
            log.exception("Could not prepare the run %s", served.name)

    def _free_name(self, base: str) -> str:
        names = (f"{base}-{n}" if n > 1 else base for n in range(1, 10_000))
        return next(name for name in names if name not in self.runs)


def load_served(name: str, path: Path) -> ServedRun:
    """The run in a folder, ready to be asked in the ways of its task."""
    run = load(path)
    served: ServedRun = pieces(run.task.name).get("served")(name, run)
    return served


def _busy() -> Problem:
    return Problem(503, "busy", "Too many requests are waiting. Try again in a moment.")
