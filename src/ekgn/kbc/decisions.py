"""What people decided about proposed facts: lines of a file beside the run, the last one counts.

A decision is a line of decisions.jsonl in the folder of the run (of the run that was trained, for
an extended one), appended under the folder's lock. Taking one back is a line, too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from ekgn.errors import EkgnError
from ekgn.files import append_line, locked, read_text
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.run import root_of

log = logging.getLogger(__name__)

FILE = "decisions.jsonl"
Verdict = Literal["accepted", "rejected", "undone"]
Key = tuple[str, str, str]
"""The ids of head, relation, tail."""


@dataclass(frozen=True)
class Decision:
    """One fact, what was decided, by whom and when; the confidence is that of the time."""

    head: str
    relation: str
    tail: str
    verdict: Verdict
    confidence: float | None = None
    who: str = ""
    when: str = ""

    @property
    def key(self) -> Key:
        """The fact."""
        return self.head, self.relation, self.tail


@dataclass(frozen=True)
class Tally:
    """How many were accepted, beside what their confidences promised."""

    accepted: int
    rejected: int
    precision: float | None  # accepted of all decided
    promised: float | None  # the mean confidence of those that have one


def tally(decisions: Iterable[Decision]) -> Tally:
    """The count of some decisions."""
    kept = list(decisions)
    accepted = sum(one.verdict == "accepted" for one in kept)
    sure = [one.confidence for one in kept if one.confidence is not None]
    return Tally(
        accepted=accepted,
        rejected=len(kept) - accepted,
        precision=accepted / len(kept) if kept else None,
        promised=sum(sure) / len(sure) if sure else None,
    )


class Decisions:
    """The decisions beside a run."""

    def __init__(self, run: Path) -> None:
        self._folder = root_of(run)
        self.path = self._folder / FILE
        self._kept: tuple[tuple[int, int], dict[Key, Decision]] = (0, 0), {}

    def all(self) -> dict[Key, Decision]:
        """What was last decided about each fact, those taken back left out, oldest first."""
        about = self.path.stat() if self.path.is_file() else None
        stamp = (about.st_size, about.st_mtime_ns) if about else (0, 0)
        if self._kept[0] != stamp:
            found: dict[Key, Decision] = {}
            for one in self._lines() if about else ():
                found.pop(one.key, None)
                if one.verdict != "undone":
                    found[one.key] = one
            self._kept = stamp, found
        return self._kept[1]

    def add(self, decision: Decision) -> Decision:
        """Append a decision, with the time, on disk when this returns."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        made = Decision(**{**asdict(decision), "when": now})
        with locked(self._folder):
            line = json.dumps(asdict(made), ensure_ascii=False, allow_nan=False)
            append_line(self.path, "\n" * self._is_cut_off() + line)
        return made

    def _is_cut_off(self) -> bool:
        """Whether a crash left a part of a line at the end."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read() != b"\n"

    def _lines(self) -> Iterable[Decision]:
        for number, line in enumerate(read_text(self.path).split("\n"), 1):
            if not line:
                continue
            try:
                yield _read(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                log.warning("%s, line %d holds no decision and is left out.", self.path, number)


def _read(fields: Any) -> Decision:
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    made = Decision(**fields)
    if made.verdict not in get_args(Verdict) or not all(isinstance(p, str) for p in made.key):
        raise ValueError("not a decision")
    return made


def table(decisions: Iterable[Decision], graph: KnowledgeGraph) -> pl.DataFrame:
    """Decisions with names, in columns that the writers of facts know and `extend` reads."""
    names = {
        part: dict(zip(known.ids, known.labels, strict=True))
        for part, known in (("entity", graph.entities), ("relation", graph.relations))
    }
    kind = {"head": "entity", "relation": "relation", "tail": "entity"}
    text = ("head", "relation", "tail", "head_name", "relation_name", "tail_name")
    schema: dict[str, Any] = dict.fromkeys(text, pl.String)
    schema |= {"verdict": pl.String, "confidence": pl.Float64, "who": pl.String, "when": pl.String}
    rows = []
    for one in decisions:
        fields = asdict(one)
        for part, group in kind.items():
            fields[f"{part}_name"] = names[group].get(fields[part], fields[part])
        rows.append(fields)
    return pl.DataFrame(rows, schema=schema)


def chosen(decisions: Iterable[Decision], verdict: str) -> list[Decision]:
    """The decisions of one verdict, or of all."""
    if verdict not in ("all", "accepted", "rejected"):
        raise EkgnError(f"verdict = {verdict}: expected accepted, rejected or all.")
    return [one for one in decisions if verdict in ("all", one.verdict)]
