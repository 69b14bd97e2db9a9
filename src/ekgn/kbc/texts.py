"""Millions of strings in two arrays, which may lie in a memory-mapped file.

Mapped arrays cost nothing until they are looked at, and processes share them. A string is found by
a search in the sorted order, which a saved graph keeps for its ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Texts(Sequence[str]):
    """Strings by index: string i is data[ends[i] : ends[i + 1]], in UTF-8."""

    def __init__(self, data: NDArray[np.uint8], ends: Ints, order: Ints | None = None) -> None:
        self.data, self.ends = data, ends
        self._view = data.data
        if order is not None:
            self.__dict__["order"] = order

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """The same strings in this form."""
        if isinstance(texts, Texts):
            return texts
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=ends[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    @classmethod
    def of_series(cls, texts: pl.Series) -> Texts:
        """The strings of a column."""
        ends = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(texts.str.len_bytes().to_numpy(), out=ends[1:])
        joined = texts.str.join("").item() if len(texts) else ""
        return cls(np.frombuffer(joined.encode(), np.uint8), ends)

    @classmethod
    def empty(cls, count: int) -> Texts:
        """So many empty strings."""
        return cls(np.empty(0, np.uint8), np.zeros(count + 1, np.int64))

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"string {index} of {len(self)}")
        return self._bytes(at).decode("utf-8", "surrogatepass")

    def _bytes(self, at: int) -> bytes:
        return bytes(self._view[self.ends[at] : self.ends[at + 1]])

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self.ends[1:].tolist():
            yield str(self._view[start:end], "utf-8", "surrogatepass")
            start = end

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            same_ends = np.array_equal(self.ends, other.ends)
            return same_ends and np.array_equal(self.data, other.data)
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and len(self.where(text)) > 0

    def __repr__(self) -> str:
        few = ", ".join(map(repr, self[:4]))
        return f"Texts({few}{', ...' if len(self) > 4 else ''})"

    @cached_property
    def order(self) -> Ints:
        """The indices of the strings, sorted by their bytes; equal ones stay in order."""
        try:
            series = pl.Series(list(self), dtype=pl.String)
        except UnicodeEncodeError:  # lone surrogates
            return np.array(sorted(range(len(self)), key=self._bytes), np.int64)
        row = pl.int_range(pl.len(), dtype=pl.Int64)
        frame = series.rename("text").to_frame().with_columns(row.alias("row"))
        order: Ints = frame.sort("text", "row")["row"].to_numpy()
        return order

    def where(self, text: str) -> Ints:
        """The indices of all strings that are equal to a text, in order."""
        wanted = text.encode("utf-8", "surrogatepass")
        low = self._first(wanted, strictly=False)
        return self.order[low : self._first(wanted, strictly=True)]

    def _first(self, wanted: bytes, strictly: bool) -> int:
        """How many strings are smaller than a text, or smaller or equal to it."""
        low, high, order = 0, len(self), self.order
        while low < high:
            middle = (low + high) // 2
            found = self._bytes(int(order[middle]))
            if found < wanted or (strictly and found == wanted):
                low = middle + 1
            else:
                high = middle
        return low


class Positions(Mapping[str, int]):
    """The index of each of some distinct strings."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def __getitem__(self, text: str) -> int:
        found = self._texts.where(text)
        if not len(found):
            raise KeyError(text)
        return int(found[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
