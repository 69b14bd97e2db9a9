"""Counters and times in the text format that Prometheus reads."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """How often a value was at most each bound, how often at all, and the sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        place = next((i for i, bound in enumerate(self._bounds) if value <= bound), -1)
        self._counts[place] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """The histogram as lines of text."""
        total, comma = 0, "," if labels else ""
        for bound, count in zip([*self._bounds, "+Inf"], self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self._sum:.6f}"
        yield f"{name}_count{braces} {total}"


class Monitor:
    """What the server did so far."""

    def __init__(self) -> None:
        self._started = time.time()
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(SIZES)
        self.in_flight = 0

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request, by route and never by address: addresses have no end."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).add(seconds)

    def batch(self, size: int) -> None:
        """Count one batch that went through the model."""
        with self._lock:
            self._batches.add(size)

    def text(self) -> str:
        """Everything, in the exposition format."""
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("ekgn_requests_total", "counter", "Requests answered.")
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"ekgn_requests_total{{{labels}}} {count}"
        yield from _head("ekgn_request_seconds", "histogram", "Time to answer.")
        for route, times in sorted(self._seconds.items()):
            yield from times.lines("ekgn_request_seconds", f'route="{route}"')
        yield from _head("ekgn_batch_queries", "histogram", "Queries per pass through the model.")
        yield from self._batches.lines("ekgn_batch_queries")
        yield from _head("ekgn_requests_in_flight", "gauge", "Requests begun and not answered.")
        yield f"ekgn_requests_in_flight {self.in_flight}"
        yield from _head("process_resident_memory_bytes", "gauge", "Memory of the process.")
        yield f"process_resident_memory_bytes {resident_bytes()}"
        yield from _head("process_start_time_seconds", "gauge", "When the server started.")
        yield f"process_start_time_seconds {self._started:.2f}"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def resident_bytes() -> int:
    """The memory this process holds, 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
