"""Names by index, and the one that is meant by what somebody typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
from numpy.typing import NDArray

from ekgn.errors import EkgnError
from ekgn.kbc import datasets
from ekgn.kbc.columns import Names
from ekgn.kbc.texts import Positions, Texts

_SHARED = -1
_ALSO = re.compile(r"(?:^|; )also: (.+)$")  # further names, at the end of a description


@dataclass(frozen=True)
class Vocabulary:
    """Names by index: the identifier in the files, a readable label, a description or "".

    Any sequences of strings may be given; they are kept as Texts.
    """

    ids: Sequence[str]
    labels: Sequence[str]
    descriptions: Sequence[str]

    def __post_init__(self) -> None:
        for part in ("ids", "labels", "descriptions"):
            object.__setattr__(self, part, Texts.of(getattr(self, part)))

    @classmethod
    def plain(cls, ids: Iterable[str]) -> Vocabulary:
        """Identifiers that are their own labels."""
        kept = Texts.of(ids)
        return cls(kept, kept, Texts.empty(len(kept)))

    @classmethod
    def of_arrays(cls, kind: str, arrays: Mapping[str, NDArray[Any]]) -> Vocabulary:
        """What `arrays` gave."""
        order = arrays[f"{kind}.order"]
        parts = [
            Texts(arrays[f"{kind}.{part}"], arrays[f"{kind}.{part}.ends"], at)
            for part, at in (("ids", order), ("labels", None), ("descriptions", None))
            if f"{kind}.{part}" in arrays
        ]
        return cls(*parts) if len(parts) == 3 else cls(parts[0], *parts)

    def arrays(self, kind: str) -> dict[str, NDArray[Any]]:
        """What a file keeps of it; labels that are the identifiers are kept once."""
        ids = Texts.of(self.ids)
        kept = {"ids": ids, "labels": Texts.of(self.labels)}
        if kept["labels"] == ids:
            del kept["labels"]
        found: dict[str, NDArray[Any]] = {f"{kind}.order": ids.order}
        for part, texts in {**kept, "descriptions": Texts.of(self.descriptions)}.items():
            found |= {f"{kind}.{part}": texts.data, f"{kind}.{part}.ends": texts.ends}
        return found

    def with_names(self, names: Names) -> Vocabulary:
        """The same identifiers, with the labels and descriptions given for some of them."""
        if not names:
            return self
        old = zip(self.ids, self.labels, self.descriptions, strict=True)
        words = [(names.get(key, ("", "")), label, about) for key, label, about in old]
        return Vocabulary(
            self.ids,
            tuple(new[0] or label for new, label, _ in words),
            tuple(new[1] or about for new, _, about in words),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """The index of each identifier."""
        return Positions(Texts.of(self.ids))

    def called(self, label: str) -> list[int]:
        """The indices that have a label."""
        return [int(index) for index in Texts.of(self.labels).where(label)]

    @cached_property
    def _folded(self) -> tuple[Texts, Texts]:
        """Labels and identifiers without regard to case."""
        labels = Texts.of(label.casefold() for label in self.labels)
        if self.labels is self.ids:
            return labels, labels
        return labels, Texts.of(identifier.casefold() for identifier in self.ids)

    @cached_property
    def aliases(self) -> tuple[tuple[str, ...], ...]:
        """The further names of each: what its description lists after "also:".

        >>> Vocabulary(("US",), ("United States",), ("a country; also: USA, America",)).aliases
        (('USA', 'America'),)
        """
        listed = (_ALSO.search(about) for about in self.descriptions)
        return tuple(
            tuple(name for part in found[1].split(",") if (name := part.strip())) if found else ()
            for found in listed
        )

    @cached_property
    def _also(self) -> dict[str, list[int]]:
        """The indices that have a further name, without regard to case."""
        owners: dict[str, list[int]] = {}
        for index, names in enumerate(self.aliases):
            for name in {name.casefold() for name in names}:
                owners.setdefault(name, []).append(index)
        return owners

    def _index(self, text: str) -> int | None:
        """The index of the one thing that is called so; _SHARED, or None."""
        found = self._all_called(text)
        return (found[0] if len(found) == 1 else _SHARED) if found else None

    def _all_called(self, text: str) -> list[int]:
        """The indices that have the text as label; else in any case; else as a further name."""
        return self.called(text) or self._in_any_case(text) or self._also.get(text.casefold(), [])

    def _in_any_case(self, text: str) -> list[int]:
        folded = text.casefold()
        return sorted({int(index) for names in self._folded for index in names.where(folded)})

    def find(self, text: str, kind: str, graph_name: str) -> int:
        """The index of an identifier, label or alias (any case); a miss suggests near names."""
        if text in self.index_of:
            return self.index_of[text]
        index = self._index(text)
        many = "entities" if kind == "entity" else f"{kind}s"
        if index == _SHARED:
            raise EkgnError(
                f"Several {many} of {graph_name} are called '{text}': {self._listing(text)}. "
                "Give the id of the one you mean."
            )
        if index is not None:
            return index
        names = nearest_names(text.casefold(), self._folded_names, limit=3)
        near = list(dict.fromkeys(self._mention(name) for name in names))
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        key = graph_name.casefold()
        data = key if key in datasets.BENCHMARKS or key == datasets.BUNDLED else "DATA"
        raise EkgnError(
            f"Unknown {kind} '{text}': {graph_name} has {len(self):,}.{hint} "
            f"List them with: ekgn info {data} --{many}"
        )

    def _mention(self, folded: str) -> str:
        """A name as it is written, with its identifier where that is something else."""
        first, *others = self._in_any_case(folded)
        label, identifier = self.labels[first], self.ids[first]
        if others:
            return f"'{label}' (several)"
        return f"'{label}'" if label == identifier else f"'{label}' ({identifier})"

    def _listing(self, text: str, limit: int = 10) -> str:
        """The identifiers that carry a label, with what they stand for."""
        indices = self._all_called(text)
        shown = [
            f"{self.ids[index]} ({self.descriptions[index] or self.labels[index]})"
            for index in indices[:limit]
        ]
        return "; ".join(shown + [f"and {len(indices) - limit} more"] * (len(indices) > limit))

    @cached_property
    def _folded_names(self) -> pl.Series:
        parts = [pl.Series("name", list(names), dtype=pl.String) for names in self._folded]
        return pl.concat(parts).unique(maintain_order=True)


def nearest_names(text: str, names: pl.Series, limit: int) -> list[str]:
    """The names most like the text: shared letter pairs choose a few, difflib ranks them."""
    text = text.strip()[:60]
    if not text:
        return []
    pairs = {text[at : at + 2] for at in range(len(text) - 1)} or {text}
    shared = pl.sum_horizontal(pl.col("name").str.contains(pair, literal=True) for pair in pairs)
    likeness = shared / (len(pairs) + pl.col("name").str.len_chars())
    inside = pl.col("name").str.contains(text, literal=True)
    frame = names.rename("name").to_frame()
    alike = pl.col("name").str.len_chars().is_between(len(text) // 3, 3 * len(text))
    few = frame.filter(alike | inside).top_k(200, by=likeness + inside)["name"]
    scores = {}
    for name in few:
        ratio = difflib.SequenceMatcher(None, text, name).ratio()
        if ratio >= 0.6 or (text in name and len(text) > 2):
            scores[name] = ratio + 0.5 * (text in name)
    good_enough = max(scores.values(), default=0.0) - 0.15
    near = [name for name in scores if scores[name] >= good_enough]
    return sorted(near, key=lambda name: (-scores[name], name))[:limit]
