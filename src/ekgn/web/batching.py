"""Requests that arrive together go through the model together."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


_LONGEST = 0.02  # seconds that a batch waits for others


class Busy(Exception):
    """More is waiting than should: the request is refused now rather than late."""


@dataclass(frozen=True)
class _Job(Generic[Key, Item, Result]):
    key: Key
    items: Sequence[Item]
    future: asyncio.Future[list[Result]]
    loop: asyncio.AbstractEventLoop


class Batcher(Generic[Key, Item, Result]):
    """A queue that one thread drains: all that waits, up to `most` items, is one batch.

    While a batch is in the model the next one gathers. After a batch of several the thread waits
    a share of the time that it took, `linger`, for the others to ask again, so that batches grow
    with the load; a lone request waits for nobody. Items of different keys are never mixed.
    """

    def __init__(
        self,
        work: Callable[[Key, Sequence[Item]], list[Result]],
        *,
        most: int = 64,
        most_waiting: int = 2_048,
        linger: float = 0.3,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._work = work
        self._most = most
        self._most_waiting = most_waiting
        self._linger = linger
        self._on_batch = on_batch
        self._jobs: queue.SimpleQueue[_Job[Key, Item, Result] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="model", daemon=True)
        self._thread.start()

    async def ask(self, key: Key, items: Sequence[Item]) -> list[Result]:
        """The results of some items, in their order; raises Busy when too many are waiting."""
        with self._lock:
            if self._waiting + len(items) > self._most_waiting:
                raise Busy
            self._waiting += len(items)
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[list[Result]]] = []
        for start in range(0, len(items), self._most):
            futures.append(loop.create_future())
            self._jobs.put(_Job(key, items[start : start + self._most], futures[-1], loop))
        return [result for part in await asyncio.gather(*futures) for result in part]

    def close(self) -> None:
        """Finish what is waiting, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _drain(self) -> None:
        until = 0.0  # others are waited for
        while (first := self._jobs.get()) is not None:
            time.sleep(max(0.0, until - time.perf_counter()))
            started = time.perf_counter()
            jobs, size = [first], len(first.items)
            try:
                while size < self._most and (job := self._jobs.get_nowait()) is not None:
                    jobs.append(job)
                    size += len(job.items)
                if size < self._most:
                    self._jobs.put(None)  # the sign to end was taken from the queue: put it back
            except queue.Empty:
                pass
            by_key: dict[Key, list[_Job[Key, Item, Result]]] = {}
            for job in jobs:
                by_key.setdefault(job.key, []).append(job)
            for key, same in by_key.items():
                self._run(key, same)
            ended = time.perf_counter()
            until = ended + min(self._linger * (ended - started), _LONGEST) if size > 1 else 0.0

    def _run(self, key: Key, jobs: list[_Job[Key, Item, Result]]) -> None:
        wanted = [job for job in jobs if not job.future.cancelled()]
        items = [item for job in wanted for item in job.items]
        results: list[Result] = []
        error: Exception | None = None
        try:
            if items:
                results = self._work(key, items)
                self._on_batch(len(items))
        except Exception as caught:
            error = caught
        with self._lock:
            self._waiting -= sum(len(job.items) for job in jobs)
        start = 0
        for job in wanted:
            part = results[start : start + len(job.items)]
            start += len(job.items)
            job.loop.call_soon_threadsafe(_settle, job.future, part, error)


def _settle(
    future: asyncio.Future[list[Result]], results: list[Result], error: Exception | None
) -> None:
    """Hand the outcome to whoever still waits for it."""
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(results)
