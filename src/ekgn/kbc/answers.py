"""Which answers are known for a query: triples in both directions, indexed by [head, relation]."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ekgn.errors import EkgnError

Ints = NDArray[np.int64]


def with_inverses(triples: Ints, num_relations: int) -> Ints:
    """Each (h, r, t), then each (t, r + R, h): relation r + R is the inverse of r."""
    heads, relations, tails = triples.T
    return np.concatenate([triples, np.stack([tails, relations + num_relations, heads], axis=1)])


def spans(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The indices of spans, one after the other: (which span, index) of each."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) + (starts - np.cumsum(counts) + counts)[which]


class Answers:
    """The distinct queries of some triples, in both directions, each with its sorted answers.

    Query i is [heads[i], relations[i]]; its answers are tails[offsets[i]:offsets[i + 1]].
    """

    def __init__(self, triples: Ints, num_relations: int) -> None:
        both = with_inverses(triples, num_relations)
        self._width = 2 * num_relations
        # One sort of a single integer per triple: ten times faster than a sort of rows.
        span = int(both[:, 2].max(initial=0)) + 1
        if (int(both[:, 0].max(initial=0)) + 1) * self._width * span >= 2**63:
            raise EkgnError(
                f"{span:,} entities and {num_relations:,} relations are too many: twice the "
                "relations times the squared entities must be below 2^63."
            )
        keys = self._key(both[:, 0], both[:, 1]) * span + both[:, 2]
        del both
        keys.sort()
        keys = keys[np.diff(keys, prepend=-1) > 0]
        queries, self.tails = np.divmod(keys, span)
        del keys
        starts = np.flatnonzero(np.diff(queries, prepend=-1) > 0)
        self._keys = queries[starts]
        self.offsets = np.append(starts, len(queries))

    @cached_property
    def heads(self) -> Ints:
        """The head of every query."""
        return self._keys // self._width

    @cached_property
    def relations(self) -> Ints:
        """The relation of every query."""
        return self._keys % self._width

    def questions(self, rows: Ints) -> tuple[Ints, Ints]:
        """Heads and relations of some queries; those of all need not be in memory."""
        heads, relations = np.divmod(self._keys[rows], self._width)
        return heads, relations

    def __len__(self) -> int:
        return len(self._keys)

    def _key(self, heads: Ints, relations: Ints) -> Ints:
        return heads * self._width + relations

    def rows(self, heads: Ints, relations: Ints) -> Ints:
        """The index of each query here, or -1 where it has no known answer."""
        keys = self._key(heads, relations)
        if not len(self):
            return np.full(len(keys), -1)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.where(self._keys[found] == keys, found, -1)

    def gather(self, rows: Ints) -> tuple[Ints, Ints]:
        """All answers of the given rows: (position of the row, answer), row by row; -1 has none."""
        known = rows >= 0
        safe = np.where(known, rows, 0)
        if not len(self):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        starts = self.offsets[safe]
        position, index = spans(starts, np.where(known, self.offsets[safe + 1] - starts, 0))
        return position, self.tails[index]

    def of(self, head: int, relation: int) -> Ints:
        """The known answers of one query."""
        return self.gather(self.rows(np.array([head]), np.array([relation])))[1]
