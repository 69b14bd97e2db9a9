"""Names found by what was typed so far: exact, at the start of a word, by initials, with typos.

Two indices, built once in a second or so for hundreds of thousands of names: the sorted texts from
each word's start to the name's end, with its initials (a prefix is then a range), and
for each letter triple the names that contain it (a typo still leaves most triples intact).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Match = Literal["exact", "prefix", "word", "similar"]
MATCHES: tuple[Match, ...] = get_args(Match)  # the best first

MAX_QUERY = 80  # letters of a query that are looked at
KEPT_LETTERS = 48  # letters of a name's suffix that are sorted by
MAX_WORDS = 8  # words of a name that a query can start at
LEAST_LIKENESS = 0.3  # of the letter triples of query and name, the share they have in common
CLOSE_READ = 60  # names of some likeness that are compared letter by letter
LEAST_RATIO = 0.7  # of the letters, in order, that a name and a query must share then
_SMALL_WORDS = {"of", "the", "and", "de", "la"}  # that short forms leave out
_BREAKS = re.compile(r"[\W_]+")
_LETTER_BITS, _NAME_BITS = 13, 24  # three letters and a name's position in one 63-bit number


def plain(text: str) -> str:
    """Lower case without accents, words parted by single spaces: "/São_Paulo" -> "sao paulo"."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text)
        text = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return _BREAKS.sub(" ", text.casefold()).strip()


@dataclass(frozen=True)
class Hit:
    """One name found, and how it matched."""

    index: int
    match: Match


class NameIndex:
    """An index over the names of things; among equal matches the heavier thing comes first.

    An alias is found as a name is, from its start. Of an identifier such as country:US the part
    behind the colon is a name, too, where nothing else has it.
    """

    def __init__(
        self,
        names: Sequence[str],
        ids: Sequence[str],
        weights: Ints,
        aliases: Sequence[Sequence[str]] = (),
    ) -> None:
        self._weights = weights
        self.names = [plain(name) for name in names]
        self._exact: dict[str, list[int]] = {}
        suffixes: list[tuple[str, int]] = []
        codes: dict[str, list[int]] = {}
        for index, (name, identifier) in enumerate(zip(self.names, ids, strict=True)):
            suffixes.extend([(suffix, index) for suffix in _suffixes(name)])
            spellings = {name, identifier.casefold()}
            if short := _initials(name):
                suffixes.append((short, index))
            if identifier.casefold() != name:
                spellings.add(plain(identifier))
                suffixes.append((plain(identifier)[:KEPT_LETTERS], index))
            for alias in map(plain, aliases[index] if aliases else ()):
                suffixes.append((alias[:KEPT_LETTERS], index))
                spellings.add(alias)
            for spelling in spellings:
                self._exact.setdefault(spelling, []).append(index)
            if ":" in identifier:
                codes.setdefault(plain(identifier.rpartition(":")[2]), []).append(index)
        self._exact = codes | self._exact
        suffixes.sort()
        self._suffixes = [suffix for suffix, _ in suffixes]
        self._suffix_of = np.array([index for _, index in suffixes], np.int64)
        self._triples = _Triples(self.names)

    def search(self, text: str, limit: int = 10) -> list[Hit]:
        """The best matches: exact, then the start of a name, of a word in it, then similar ones."""
        query = plain(text[:MAX_QUERY])
        found: dict[int, Match] = {}
        spellings = {query, text.strip().casefold()} - {""}
        exact = {index for spelling in spellings for index in self._exact.get(spelling, ())}
        for index in self._heaviest(np.array(sorted(exact), np.int64), limit):
            found[index] = "exact"
        if not query:
            for index in self._heaviest(np.arange(len(self.names)), limit):
                found.setdefault(index, "prefix")
        elif len(found) < limit:
            self._add_prefixes(query, limit, found)
        if query and len(found) < limit:
            for index in self._similar(query, limit):
                found.setdefault(index, "similar")
        return [Hit(index, match) for index, match in found.items()][:limit]

    def suggestions(self, text: str, limit: int = 5) -> list[int]:
        """What someone who typed an unknown name may have meant."""
        return [hit.index for hit in self.search(text, limit)] if plain(text) else []

    def _add_prefixes(self, query: str, limit: int, found: dict[int, Match]) -> None:
        start = bisect_left(self._suffixes, query[:KEPT_LETTERS])
        stop = bisect_left(self._suffixes, query[:KEPT_LETTERS] + "\U0010ffff")
        inside = np.unique(self._suffix_of[start:stop])
        # Names that begin with the query come before those where a later word does; a few times
        # the limit is enough of each to choose from.
        best = self._heaviest(inside, 20 * limit)
        first = [index for index in best if self.names[index].startswith(query)]
        if len(first) < limit:
            first += self._leading(start, stop, query, limit)
        for index in first[:limit]:
            found.setdefault(index, "prefix")
        for index in best[:limit]:
            found.setdefault(index, "word")

    def _leading(self, start: int, stop: int, query: str, limit: int) -> list[int]:
        """Names in a range of suffixes that begin with the query, when few of them are heavy."""
        inside = np.unique(self._suffix_of[start : min(stop, start + 5_000)])
        leading = [int(i) for i in inside if self.names[i].startswith(query)]
        return self._heaviest(np.array(leading, np.int64), limit)

    def _heaviest(self, indices: Ints, limit: int) -> list[int]:
        """The heaviest of some names, heaviest first, shorter names first among equals."""
        weights = self._weights[indices]
        if len(indices) > 4 * limit:
            kept = np.argpartition(-weights, 4 * limit)[: 4 * limit]
            indices, weights = indices[kept], weights[kept]
        lengths = np.array([len(self.names[index]) for index in indices.tolist()], np.int64)
        order = np.lexsort((indices, lengths, -weights))
        return [int(index) for index in indices[order][:limit]]

    def _similar(self, query: str, limit: int) -> list[int]:
        """Names that share many letter triples with the query, or most letters in order.

        In a short word one typo breaks most triples ("frnace"), so the likeliest names are read.
        """
        indices, likeness = self._triples.like(query)
        order = np.lexsort((indices, -self._weights[indices], -np.round(likeness, 2)))
        scores: dict[int, float] = {}
        for place in order[:CLOSE_READ].tolist():
            index = int(indices[place])
            start = self.names[index][: len(query) + 1]
            ratio = difflib.SequenceMatcher(None, query, start, autojunk=False).ratio()
            if ratio >= LEAST_RATIO or likeness[place] >= LEAST_LIKENESS:
                scores[index] = ratio + float(likeness[place])
        return sorted(scores, key=lambda index: -scores[index])[:limit]


def _initials(name: str) -> str:
    """A short form made of the first letters: "united kingdom of great britain" -> "ukgb"."""
    words = [word for word in name.split() if word not in _SMALL_WORDS]
    return "".join(word[0] for word in words) if 2 <= len(words) <= MAX_WORDS else ""


def _suffixes(name: str) -> list[str]:
    """The name from the start of each of its words: "new york" -> "new york", "york"."""
    found: list[str] = []
    start = 0
    while len(found) < MAX_WORDS:
        found.append(name[start : start + KEPT_LETTERS])
        start = name.find(" ", start) + 1
        if not start:
            break
    return found


class _Triples:
    """For each triple of letters, the names that contain it; names are padded with blanks."""

    def __init__(self, names: Sequence[str]) -> None:
        keys, owners = _triples_of([name[: 2 * MAX_QUERY] for name in names])
        self._counts = np.bincount(owners, minlength=len(names))
        self._owners = owners.astype(np.int32)
        self._keys, starts = np.unique(keys, return_index=True)
        self._starts = np.append(starts, len(keys))

    def like(self, query: str) -> tuple[Ints, NDArray[np.float64]]:
        """The names that share a triple with the query, and shared / all triples of both."""
        keys = _triples_of([query])[0]
        places = np.flatnonzero(np.isin(self._keys, keys))
        # A triple that a tenth of a large graph's names contain tells little and costs most.
        sizes = self._starts[places + 1] - self._starts[places]
        useful = places[sizes <= max(2_000, len(self._counts) // 10)]
        chosen = useful if len(useful) >= 2 else places
        if not len(chosen):
            return np.empty(0, np.int64), np.empty(0)
        spans = [self._owners[self._starts[p] : self._starts[p + 1]] for p in chosen]
        names, shared = np.unique(np.concatenate(spans), return_counts=True)
        likeness = shared / (len(keys) + self._counts[names] - shared)
        return names.astype(np.int64), likeness


def _triples_of(names: Sequence[str]) -> tuple[Ints, Ints]:
    """(triple as one number, position of its name), once per name that has it, sorted by triple.

    Letters that share their low bits are taken for the same: one sort of one number does it all.
    """
    text = "".join(f"  {name} \0" for name in names)
    letters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    owners = np.cumsum(letters == 0)[:-2]
    whole = (letters[:-2] != 0) & (letters[1:-1] != 0) & (letters[2:] != 0)
    letters &= (1 << _LETTER_BITS) - 1
    keys = (letters[:-2] << 2 * _LETTER_BITS) | (letters[1:-1] << _LETTER_BITS) | letters[2:]
    pairs = np.sort(keys[whole] << _NAME_BITS | owners[whole])
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    return pairs >> _NAME_BITS, pairs & ((1 << _NAME_BITS) - 1)
