"""The training seconds of a model: processor time, which a busy machine does not shorten.

Every model may choose one setting (a learning rate, a penalty) from three, each tried for a tenth
of the seconds and judged on the same validation facts; the rest is for the training proper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import Metrics, Scorer, rank_split

TRIAL = 0.1  # share of the budget that each value is tried for
RANKING_MEMORY = 2**29  # bytes: scorers by relation need many queries at once
TRIED_FACTS = 1_000  # validation facts that it is judged on


def valid_hits(scorer: Scorer, graph: KnowledgeGraph, seed: int) -> float:
    """Hits@10 on some validation facts."""
    ranks = rank_split(
        scorer, graph, "valid", limit=TRIED_FACTS, seed=seed, memory_budget=RANKING_MEMORY
    )
    return Metrics.over(ranks.realistic, ranks.candidates).hits_at_10


class Budget:
    """Seconds that a model may train for; only what happens while it is `running` counts.

    A model trains on one thread, so its processor time is what a clock shows on an idle machine.
    """

    def __init__(self, seconds: float, on_progress: Callable[[float], None] | None = None) -> None:
        self.seconds = seconds
        self._on_progress = on_progress
        self._spent = 0.0
        self._since: float | None = None

    @property
    def spent(self) -> float:
        """Training seconds so far."""
        now = 0.0 if self._since is None else time.process_time() - self._since
        return self._spent + now

    @property
    def left(self) -> float:
        """Training seconds that remain."""
        return max(self.seconds - self.spent, 0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of a block."""
        self._since = time.process_time()
        try:
            yield
        finally:
            self._spent, self._since = self.spent, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of a block within one that is counted."""
        self._spent, self._since = self.spent, None
        try:
            yield
        finally:
            self._since = time.process_time()

    def tell(self) -> None:
        """Say how much is spent."""
        if self._on_progress:
            self._on_progress(min(self.spent / self.seconds, 1.0))
