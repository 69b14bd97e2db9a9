"""Confidence: the probability that a proposed fact is true.

A logistic regression of what the run says of a fact, made monotone by isotonic regression where
there is enough to fit. It is fitted on completion's own candidates: those that validation holds
are true, those that test holds are left out, and all others count as false. One half of them fits,
the other half checks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special, stats

from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json
from ekgn.kbc.completion.facts import FEATURES
from ekgn.tables import Column, Table, percent

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FILE = "confidence.json"  # where a run keeps it
FEWEST = 20  # true candidates, to fit anything
ENOUGH = 200  # true candidates, to fit an isotonic regression
SURE = 0.95  # of the bound on precision
_BINS = 10
_POINTS = 200  # of the curve that a threshold is read from
ASSUMPTION = (
    "facts that are in no split count as false, and as many are missing as validation holds"
)


class TooFew(EkgnError):
    """Validation has too few facts among the candidates to fit a confidence."""


@dataclass(frozen=True)
class Promise:
    """From which confidence on a precision is promised, and the precision to expect there.

    What is promised is a lower bound, so more is to be expected.
    """

    level: float
    expected: float


@dataclass(frozen=True)
class Check:
    """How a confidence did on candidates that it was not fitted on."""

    candidates: int
    true: int
    fitted_on: dict[str, int]
    calibration_error: dict[str, float]  # before (the tail's share) and after
    calibration_error_first: dict[str, float]  # of facts with the first place on either side
    reliability: list[dict[str, float]]  # by tenths of confidence
    curve: list[tuple[float, int, int]]  # threshold, candidates and true ones at or above it

    def headline(self) -> dict[str, float]:
        """The error before and after."""
        return {f"calibration_error_{when}": e for when, e in self.calibration_error.items()}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "assumption": ASSUMPTION}

    def promise(self, precision: float, unlisted_true: float = 0.0) -> Promise:
        """The lowest confidence at which precision is at least so high, by its lower bound.

        `unlisted_true` is the share of the candidates in no split that are assumed true.
        """

        def counted(share: float) -> float:
            return share + unlisted_true * (1 - share)

        bounds = [
            (counted(lower_bound(true, count)), level, counted(true / count))
            for level, count, true in self.curve
        ]
        good = [(level, share) for bound, level, share in bounds if bound >= precision]
        if good:
            return Promise(*min(good))
        best, level, _ = max(bounds, default=(0.0, 1.0, 0.0))
        raise EkgnError(
            f"No confidence is known to give a precision of {precision:g}: the best lower bound "
            f"is {best:.2f}, from {level:.2f} up ({ASSUMPTION}). "
            f"Ask for less precision, or give --min-confidence."
        )

    def table(self) -> Table:
        """The reliability diagram as a table."""
        tenth, mean, right = (
            Column(name, percent) for name in ("confidence from", "mean confidence", "true")
        )
        keys = ("from", "candidates", "confidence", "true")
        rows = [[row[key] for key in keys] for row in self.reliability]
        return Table("Reliability", [tenth, "candidates", mean, right], rows)


@dataclass(frozen=True)
class Confidence:
    """A fitted confidence, and its check."""

    features: tuple[str, ...]
    mean: list[float]
    scale: list[float]
    coefficients: list[float]
    intercept: float
    knots: list[list[float]]  # of the isotonic regression: log odds, probabilities; or none
    limits: list[float]  # what the number of facts it was fitted on allows to say
    check: Check
    checkpoint: dict[str, Any]

    @cached_property
    def _weights(self) -> tuple[Floats, float]:
        weights = np.array(self.coefficients) / np.array(self.scale)
        return weights, self.intercept - float(weights @ np.array(self.mean))

    def log_odds(self, facts: pl.DataFrame | Floats) -> Floats:
        """By the logistic regression alone, which orders facts without ties."""
        weights, intercept = self._weights
        told = facts if isinstance(facts, np.ndarray) else facts.select(self.features).to_numpy()
        found: Floats = told @ weights + intercept
        return found

    def of(self, facts: pl.DataFrame | Floats) -> Floats:
        """P(true) of each fact, given by its features."""
        odds = self.log_odds(facts)
        least, most = self.limits
        sure: Floats = special.expit(odds)
        if self.knots:
            sure = np.interp(odds, self.knots[0], self.knots[1])
        return np.clip(sure, least, most)

    def save(self, folder: Path) -> None:
        """Keep it with the run."""
        write_json(folder / FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Confidence | None:
        """What a run keeps, if it does; one that was fitted on other features is not read."""
        path = folder / FILE
        if not path.exists():
            return None
        kept = read_json(path)
        try:
            kept["features"] = tuple(kept["features"])
            found = cls(**{**kept, "check": Check(**kept["check"])})
        except (TypeError, KeyError):
            raise EkgnError(f"{path} is damaged. Remove it: it is fitted again.") from None
        return found if found.features == FEATURES else None


def fit(facts: pl.DataFrame, checkpoint: dict[str, Any], seed: int = 0) -> Confidence:
    """Fit one half of labelled candidates (column `true`), and check on the other."""
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression

    facts = facts.sort("head", "relation", "tail")
    half = np.random.default_rng(seed).random(len(facts)) < 0.5
    x, true = facts.select(FEATURES).to_numpy()[half], facts["true"].to_numpy()[half]
    if true.sum() < FEWEST or facts["true"].sum() - true.sum() < FEWEST:
        raise TooFew(
            f"A confidence cannot be fitted: {int(facts['true'].sum())} facts of validation are "
            f"among the candidates, and {2 * FEWEST} are needed. Train with a larger validation."
        )
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale < 1e-9] = 1.0
    logistic = LogisticRegression(max_iter=1000).fit((x - mean) / scale, true)
    knots: list[list[float]] = []
    if true.sum() >= ENOUGH:
        isotonic = IsotonicRegression(out_of_bounds="clip")
        isotonic.fit(logistic.decision_function((x - mean) / scale), true)
        knots = [isotonic.X_thresholds_.tolist(), isotonic.y_thresholds_.tolist()]
    made = Confidence(
        features=FEATURES,
        mean=mean.tolist(),
        scale=scale.tolist(),
        coefficients=logistic.coef_[0].tolist(),
        intercept=float(logistic.intercept_[0]),
        knots=knots,
        limits=[1 / (len(true) + 2), 1 - 1 / (int(true.sum()) + 2)],
        check=Check(0, 0, {}, {}, {}, [], []),
        checkpoint=checkpoint,
    )
    fitted_on = {"candidates": len(true), "true": int(true.sum())}
    return Confidence(**{**vars(made), "check": _check(made, facts.filter(~half), fitted_on)})


def _check(made: Confidence, facts: pl.DataFrame, fitted_on: dict[str, int]) -> Check:
    sure, true = made.of(facts), facts["true"].to_numpy()
    share = facts["tail_share"].to_numpy()
    first = (facts["tail_rank"] == 1).to_numpy() | (facts["head_rank"] == 1).to_numpy()
    return Check(
        candidates=len(facts),
        true=int(true.sum()),
        fitted_on=fitted_on,
        calibration_error={
            "before": calibration_error(share, true),
            "after": calibration_error(sure, true),
        },
        calibration_error_first={
            "before": calibration_error(share[first], true[first]),
            "after": calibration_error(sure[first], true[first]),
        },
        reliability=reliability(sure, true),
        curve=_curve(sure, true),
    )


def reliability(sure: Floats, true: Bools) -> list[dict[str, float]]:
    """By tenths of confidence: how many, their mean confidence, the share that is true."""
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    return [
        {
            "from": tenth / _BINS,
            "candidates": int(here.sum()),
            "confidence": float(sure[here].mean()),
            "true": float(true[here].mean()),
        }
        for tenth in range(_BINS)
        if (here := bins == tenth).any()
    ]


def calibration_error(sure: Floats, true: Bools) -> float:
    """The expected calibration error: the mean distance of confidence and truth, by tenths."""
    rows = reliability(sure, true)
    gaps = sum(row["candidates"] * abs(row["confidence"] - row["true"]) for row in rows)
    return gaps / max(1, len(sure))


def lower_bound(true: int, count: int, sure: float = SURE) -> float:
    """The one-sided lower bound of a share by Clopper and Pearson."""
    return float(stats.beta.ppf(1 - sure, true, count - true + 1)) if true else 0.0


def _curve(sure: Floats, true: Bools) -> list[tuple[float, int, int]]:
    """How many candidates, and true ones, are at or above some confidences; the highest first."""
    order = np.argsort(-sure, kind="stable")
    level, hits = sure[order], np.cumsum(true[order])
    last = np.append(np.flatnonzero(np.diff(level)), len(level) - 1)
    if len(last) > _POINTS:
        wanted = np.geomspace(1, len(level), _POINTS)
        last = last[np.unique(np.minimum(np.searchsorted(last, wanted), len(last) - 1))]
    return [(float(level[at]), int(at) + 1, int(hits[at])) for at in last]
