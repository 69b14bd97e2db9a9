"""Names by index, and the one that is meant by what somebody typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc import datasets
from ekgn.kbc.columns import Names

_SHARED = -1
_ALSO = re.compile(r"(?:^|; )also: (.+)$")  # further names, at the end of a description


@dataclass(frozen=True)
class Vocabulary:
    """Names by index: the identifier in the files, a readable label, a description or ""."""

    ids: tuple[str, ...]
    labels: tuple[str, ...]
    descriptions: tuple[str, ...]

    @classmethod
    def plain(cls, ids: Iterable[str]) -> Vocabulary:
        """Identifiers that are their own labels."""
        kept = tuple(ids)
        return cls(kept, kept, ("",) * len(kept))

    def with_names(self, names: Names) -> Vocabulary:
        """The same identifiers, with the labels and descriptions given for some of them."""
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
    def index_of(self) -> dict[str, int]:
        """The index of each identifier."""
        return {identifier: index for index, identifier in enumerate(self.ids)}

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
    def _also(self) -> dict[str, int]:
        """The index of each further name without regard to case, or _SHARED."""
        owners: dict[str, set[int]] = {}
        for index, names in enumerate(self.aliases):
            for name in names:
                owners.setdefault(name.casefold(), set()).add(index)
        return {name: min(of) if len(of) == 1 else _SHARED for name, of in owners.items()}

    @cached_property
    def _labelled(self) -> dict[str, int]:
        """The index of each label, or _SHARED."""
        return _index_names(self.labels)

    @cached_property
    def _folded(self) -> dict[str, int]:
        """The index of each label and identifier without regard to case, or _SHARED."""
        identifiers = _index_names(identifier.casefold() for identifier in self.ids)
        labels = _index_names(label.casefold() for label in self.labels)
        for name, index in identifiers.items():
            labels[name] = index if labels.get(name, index) == index else _SHARED
        return labels

    def find(self, text: str, kind: str, graph_name: str) -> int:
        """The index of an identifier, label or alias (any case); a miss suggests near names."""
        if text in self.index_of:
            return self.index_of[text]
        index = self._labelled.get(text)
        if index is None:
            index = self._folded.get(text.casefold(), self._also.get(text.casefold()))
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
        index = self._folded[folded]
        if index == _SHARED:
            index = self._sharing(folded)[0]
            return f"'{self.labels[index]}' (several)"
        label, identifier = self.labels[index], self.ids[index]
        return f"'{label}'" if label == identifier else f"'{label}' ({identifier})"

    def _sharing(self, text: str) -> list[int]:
        """The indices that carry the text as label, else those that do whatever the case."""
        exact = [index for index, label in enumerate(self.labels) if label == text]
        folded = text.casefold()
        return exact or [
            index
            for index, names in enumerate(zip(self.labels, self.ids, strict=True))
            if folded in (name.casefold() for name in (*names, *self.aliases[index]))
        ]

    def _listing(self, text: str, limit: int = 10) -> str:
        """The identifiers that carry a label, with what they stand for."""
        indices = self._sharing(text)
        shown = [
            f"{self.ids[index]} ({self.descriptions[index] or self.labels[index]})"
            for index in indices[:limit]
        ]
        return "; ".join(shown + [f"and {len(indices) - limit} more"] * (len(indices) > limit))

    @cached_property
    def _folded_names(self) -> pl.Series:
        return pl.Series("name", list(self._folded), dtype=pl.String)


def _index_names(names: Iterable[str]) -> dict[str, int]:
    """The position of each name, or _SHARED where it occurs more than once."""
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        positions[name] = _SHARED if name in positions else position
    return positions


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
