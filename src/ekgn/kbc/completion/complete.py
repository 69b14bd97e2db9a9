"""Complete a graph: ask, order by confidence, keep what is sure enough, write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ekgn.distributed import world
from ekgn.errors import EkgnError
from ekgn.kbc.completion.confidence import ASSUMPTION, Check, Confidence, Promise, TooFew
from ekgn.kbc.completion.given import rows_of, score
from ekgn.kbc.completion.roles import Choice
from ekgn.kbc.completion.shown import shown
from ekgn.kbc.completion.work import Wanted, ask_all, plan_of, working_folder
from ekgn.kbc.completion.writers import check_out, write_table

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

EXPLAINED = 1000  # facts with evidence in words


@dataclass(frozen=True)
class Completion:
    """Missing facts, the surest first, and what is known about their confidence."""

    facts: pl.DataFrame
    questions: int
    threshold: float
    promise: Promise | None  # where a precision was asked for
    check: Check | None  # none: there is no validation to fit a confidence on
    negatives: dict[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """All but the facts, as plain values for JSON."""
        return {
            "facts": len(self.facts),
            "questions": self.questions,
            "threshold": self.threshold,
            "expected_precision": self.promise.expected if self.promise else None,
            "calibration_error": self.check.calibration_error if self.check else None,
            "assumption": ASSUMPTION if self.check else None,
            "negatives": self.negatives,
        }


def complete(
    run: KbcRun,
    out: str | Path | None,
    relations: Iterable[int],
    entities: Iterable[int],
    *,
    top: int = 0,
    min_confidence: float = 0.0,
    precision: float | None = None,
    unlisted_true: float = 0.0,
    negatives: str | Path | Iterable[Any] | None = None,
    explained: int = EXPLAINED,
    on_progress: Callable[[int, int], None] | None = None,
    **choice: Any,
) -> Completion:
    """The missing facts of a run's graph; see KbcRun.complete."""
    file = Path(out) if out is not None else None
    if file:
        check_out(file)
    chosen = Choice(**choice)
    confidence = _confidence(run, chosen)
    promise = None
    if precision is not None or min_confidence:
        promise = _promise(confidence, precision, unlisted_true)
    threshold = max(min_confidence, promise.level if promise else 0.0)
    wanted = Wanted(tuple(relations), tuple(entities), top, threshold)
    against = _against(run, confidence, threshold, negatives) if negatives is not None else None
    if file:
        with working_folder(file, plan_of(run, chosen, wanted, confidence)) as work:
            facts, asked = ask_all(run, chosen, wanted, confidence, work, on_progress)
            table = shown(run, facts, explained)
            world().by_first(lambda: write_table(table, file))
    else:
        facts, asked = ask_all(run, chosen, wanted, confidence, None, on_progress)
        table = shown(run, facts, explained)
    check = confidence.check if confidence else None
    return Completion(table, asked, threshold, promise, check, against)


def _confidence(run: KbcRun, choice: Choice) -> Confidence | None:
    """The confidence that the run keeps, or one fitted now; none without validation."""
    if run.confidence or not len(run.graph.valid):
        return run.confidence
    try:
        return run.fit_confidence(choice)
    except TooFew:
        return None


def _promise(
    confidence: Confidence | None, precision: float | None, unlisted_true: float
) -> Promise | None:
    """What a precision asks of the confidence; raises where there is none to choose by."""
    if confidence is None:
        raise EkgnError(
            "There is no confidence to choose by: validation has too few facts among the "
            "candidates. Choose by place instead: --top."
        )
    return None if precision is None else confidence.check.promise(precision, unlisted_true)


def _against(
    run: KbcRun, confidence: Confidence | None, threshold: float, negatives: Any
) -> dict[str, float]:
    """What the confidence says of facts that are known to be false."""
    facts, problems = score(run, rows_of(negatives), confidence)
    sure = facts["confidence"].drop_nulls()
    return {
        "facts": len(facts),
        "not_read": len(problems),
        "mean_confidence": sum(sure) / max(1, len(sure)),
        "at_or_above_threshold": int((sure >= threshold).sum()) if threshold else 0,
        "plausible": int(facts["plausible"].sum()),
    }
