"""All questions of a run asked in pieces; a killed completion goes on where it was.

The pieces are kept in a folder beside the output, named by what was asked. It is removed when the
output stands.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ekgn.distributed import world
from ekgn.errors import EkgnError
from ekgn.files import locked, read_json, replace_file, write_json
from ekgn.kbc.answers import Ints
from ekgn.kbc.completion.asking import Asker
from ekgn.kbc.completion.confidence import Confidence, TooFew, fit
from ekgn.kbc.completion.facts import candidates
from ekgn.kbc.completion.roles import Choice
from ekgn.kbc.decisions import Decisions

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

OnProgress = Callable[[int, int], None]

_PIECE = 2048  # questions
_FIT_QUESTIONS = 10_000  # that a confidence is fitted on, about
_KEY = ("head", "relation", "tail")
_ORDER = ("confidence", "log_odds")
_KEPT = (*_KEY, *_ORDER, "tail_share", "tail_rank", "head_share", "head_rank", "tail_step")


@dataclass(frozen=True)
class Wanted:
    """Which facts a completion is to find, by index; empty: all."""

    relations: tuple[int, ...] = ()
    entities: tuple[int, ...] = ()
    top: int = 0
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        if self.top < 0:
            raise EkgnError(f"top = {self.top}: expected how many facts, or 0 for all.")
        if not 0 <= self.min_confidence <= 1:
            raise EkgnError(f"min_confidence = {self.min_confidence}: expected 0 to 1.")


Piece = tuple[int, int, Ints]
"""A role, the number of the piece within it, and the entities asked."""


def pieces(asker: Asker, choice: Choice, wanted: Wanted) -> Iterator[Piece]:
    """Every question, relation by relation."""
    count = asker.graph.num_relations
    chosen = np.ones(asker.graph.num_entities, bool)
    if wanted.entities:
        chosen[:] = False
        chosen[list(wanted.entities)] = True
    for relation in wanted.relations or range(count):
        for role in (relation, relation + count):
            entities = np.flatnonzero(asker.roles.asked(role, choice) & chosen)
            for number, start in enumerate(range(0, len(entities), _PIECE)):
                yield role, number, entities[start : start + _PIECE]


def fit_confidence(
    run: KbcRun, choice: Choice, on_progress: OnProgress | None = None
) -> Confidence:
    """Fit a confidence on the candidates of some entities, drawn by seed, and keep it."""
    if not len(run.graph.valid):
        raise TooFew(f"{run.graph.name} has no validation facts: no confidence can be fitted.")
    asker, size = run.asker, run.graph.num_entities
    total = sum(len(entities) for _, _, entities in pieces(asker, choice, Wanted()))
    share = min(1.0, _FIT_QUESTIONS / max(1, total))
    drawn = np.random.default_rng(0).random(size) < share
    everyone = tuple(np.flatnonzero(drawn).tolist()) if share < 1 else ()
    parts = []
    for (_, _, entities), found in in_turn(
        pieces(asker, choice, Wanted(entities=everyone)),
        lambda piece: candidates(asker, piece[0], piece[2], choice),
    ):
        parts.append(found)
        if on_progress:
            on_progress(len(entities), int(share * total))
    facts = pl.concat(parts).unique(_KEY, keep="first", maintain_order=True)
    split = held_out(run, facts)
    true = _decided(run, facts, split == "valid")
    facts = facts.with_columns(true=true).filter(split != "test")
    made = fit(facts, run.checkpoint)
    world().by_first(lambda: made.save(run.path))
    run.store("confidence", "valid", made.check, choice=asdict(choice))
    return made


def _decided(run: KbcRun, facts: pl.DataFrame, true: pl.Series) -> pl.Series:
    """The labels of candidates; what people decided about counts by its verdict."""
    entities, relations = run.graph.entities.index_of, run.graph.relations.index_of
    verdicts = {
        (entities.get(head), relations.get(relation), entities.get(tail)): one.verdict == "accepted"
        for (head, relation, tail), one in Decisions(run.path).all().items()
    }
    found = [verdicts.get(key) for key in facts.select(_KEY).iter_rows()] if verdicts else []
    return pl.Series(found, dtype=pl.Boolean).fill_null(true) if found else true


def held_out(run: KbcRun, facts: pl.DataFrame) -> pl.Series:
    """Which held-out split has each fact: valid, test or none."""
    splits = [
        pl.DataFrame(dict(zip(_KEY, run.graph.split(name).T, strict=True))).with_columns(
            held_out=pl.lit(name)
        )
        for name in ("valid", "test")
    ]
    both = pl.concat(splits).unique(_KEY, keep="first", maintain_order=True)
    found = facts.select(_KEY).join(both, on=_KEY, how="left", maintain_order="left")
    return found["held_out"].fill_null("none")


class Work:
    """The folder of a completion under way: pieces of the same one are kept, others dropped."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._folder, plan = folder, json.loads(json.dumps(plan))
        kept = folder / "plan.json"
        if kept.exists() and read_json(kept) != plan:
            for piece in folder.glob("*.arrow"):
                piece.unlink()
        write_json(kept, plan)

    def read(self, piece: Piece) -> pl.DataFrame | None:
        """What was made of a piece before, if it was."""
        path = self._path(piece)
        return pl.read_ipc(path) if path.exists() else None

    def keep(self, piece: Piece, made: pl.DataFrame) -> None:
        """Keep what was made of a piece."""
        replace_file(self._path(piece), made.write_ipc)

    def _path(self, piece: Piece) -> Path:
        return self._folder / f"{piece[0]}-{piece[1]}.arrow"


@contextlib.contextmanager
def working_folder(out: Path, plan: dict[str, Any]) -> Iterator[Work | None]:
    """The folder of pieces beside an output, for one process; removed when the output stands.

    Of several processes that share the work, the first one has it.
    """
    folder = out.with_name(f".{out.name}.parts")
    with contextlib.ExitStack() as stack:
        group, opened = world(), []

        def open_folder() -> None:
            stack.enter_context(locked(folder))
            opened.append(Work(folder, plan))

        group.by_first(open_folder)
        yield opened[0] if opened else None
    if group.is_first:
        shutil.rmtree(folder, ignore_errors=True)


def in_turn(
    every: Iterator[Piece], make: Callable[[Piece], pl.DataFrame], work: Work | None = None
) -> Iterator[tuple[Piece, pl.DataFrame]]:
    """Each piece with its result, made now or read from the work's folder.

    Several processes make a piece each at a time; the first one stores the results.
    """
    group = world()
    while shared := list(itertools.islice(every, group.size)):
        kept = group.by_first(partial(_kept, work, shared))
        is_open = group.rank < len(shared) and kept[group.rank] is None
        made = group.every(make(shared[group.rank]) if is_open else None)
        for piece, before, now in zip(shared, kept, made, strict=False):
            if work and now is not None:
                work.keep(piece, now)
            found = now if before is None else before
            assert found is not None
            yield piece, found


def _kept(work: Work | None, shared: list[Piece]) -> list[pl.DataFrame | None]:
    return [work.read(piece) if work else None for piece in shared]


def ask_all(
    run: KbcRun,
    choice: Choice,
    wanted: Wanted,
    confidence: Confidence | None,
    work: Work | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[pl.DataFrame, int]:
    """The best facts that the questions wanted propose, and how many questions there were."""
    asker = run.asker
    asked = sum(len(entities) for _, _, entities in pieces(asker, choice, wanted))
    best = _sure(candidates(asker, 0, np.empty(0, np.int64), choice), confidence)

    def make(piece: Piece) -> pl.DataFrame:
        found = candidates(asker, piece[0], piece[2], choice)
        return _best(_sure(found, confidence), wanted)

    for (_, _, entities), found in in_turn(pieces(asker, choice, wanted), make, work):
        best = _best(pl.concat([best, found]), wanted)
        if on_progress:
            on_progress(len(entities), asked)
    return best, asked


def plan_of(
    run: KbcRun, choice: Choice, wanted: Wanted, confidence: Confidence | None
) -> dict[str, Any]:
    """What two completions must share for one to go on with the pieces of the other."""
    about = run.folder.model.stat()  # changes when the weights do
    fitted = json.dumps(asdict(confidence), sort_keys=True) if confidence else ""
    return {
        "choice": asdict(choice),
        "wanted": asdict(wanted),
        "weights": [about.st_size, about.st_mtime_ns],
        "search": type(run.search).__name__,
        "rules": run.rules is not None and len(run.rules.table.confidence),
        "confidence": hashlib.sha256(fitted.encode()).hexdigest(),
    }


def _sure(facts: pl.DataFrame, confidence: Confidence | None) -> pl.DataFrame:
    """Facts with their confidence; without one they are ordered by the mean of both log shares."""
    if confidence is None:
        mean = (pl.col("tail_log_share") + pl.col("head_log_share")) / 2
        return facts.select(
            pl.lit(None, pl.Float64).alias("confidence"), mean.alias("log_odds"), pl.all()
        ).select(_KEPT)
    return facts.with_columns(
        confidence=confidence.of(facts), log_odds=confidence.log_odds(facts)
    ).select(_KEPT)


def _best(facts: pl.DataFrame, wanted: Wanted) -> pl.DataFrame:
    """Each fact once, the surest first, as many as wanted."""
    if wanted.min_confidence:
        facts = facts.filter(pl.col("confidence") >= wanted.min_confidence)
    falling = [True, True, False, False, False]
    facts = facts.sort([*_ORDER, *_KEY], descending=falling, maintain_order=True)
    facts = facts.unique(_KEY, keep="first", maintain_order=True)
    return facts.head(wanted.top) if wanted.top else facts
