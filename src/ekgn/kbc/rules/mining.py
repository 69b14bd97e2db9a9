"""The miner: rounds of one kind of rule each, from the cheap to the dear, from training facts only.

Round 1 counts all rules of one fact, round 2 all of two, round 3 all with a constant. Every later
round looks for rules of three facts around a part of each relation's facts, twice as many as the
round before, until all facts were used or the time is over. What was found is saved after every
round; the same seed and the same number of rounds give the same rules.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary
from ekgn.kbc.rules.bodies import count_bodies, measure_bodies
from ekgn.kbc.rules.constants import count_constants, reversed_rows
from ekgn.kbc.rules.facts import index_facts
from ekgn.kbc.rules.rulebook import NONE, PRIOR, Rulebook, RuleTable, as_int32

_log = logging.getLogger(__name__)
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_CHUNK = 1000  # bodies measured in one go
_LATE = 0.25  # of the time given: a round that would end later is not begun
_SLICES = 64  # of the rows whose constants are counted in one go


@dataclass(frozen=True)
class Mining:
    """What is looked for, and how hard."""

    max_length: int = 3  # facts of a closed rule
    constants: bool = True
    min_support: int = 2
    min_confidence: float = 0.01  # of closed rules
    min_constant_confidence: float = 1e-4  # of rules with a constant: the rarest order the rest
    max_constants: int = 8_000_000  # rules with a constant; more ask for more support
    first_facts: int = 50  # facts of a relation in the first round of three-fact rules
    candidates: int = 2_000  # bodies of three facts that a relation may propose in a round
    links: int = 50_000  # looked at between the two entities of a fact
    steps: int = 30_000  # taken to measure a body of three facts
    exact_steps: int = 1_000_000  # taken to measure a body of one or two
    places: int = 2**21  # of the hash table that counts the bodies of a relation
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.max_length <= 3:
            raise EkgnError(f"Rules of {self.max_length} facts: expected 1, 2 or 3.")


class Round(NamedTuple):
    """One round: closed rules of a length (0: rules with constants), around a part of the facts."""

    length: int
    first: int = 0
    last: int = 2**31 - 1


def rounds(graph: KnowledgeGraph, mining: Mining) -> Iterator[Round]:
    """All rounds, in order."""
    yield Round(1)
    if mining.max_length > 1:
        yield Round(2)
    if mining.constants:
        yield Round(0)
    if mining.max_length > 2:
        most = int(np.bincount(graph.train[:, 1], minlength=1).max())
        first, size = 0, mining.first_facts
        while first < most:
            yield Round(3, first, first + size)
            first, size = first + size, 2 * size


def mine(
    graph: KnowledgeGraph,
    mining: Mining | None = None,
    *,
    minutes: float = math.inf,
    threads: int = 0,
    path: Path | None = None,
    on_round: Callable[[Round, Rulebook], None] | None = None,
) -> Rulebook:
    """The rules of a graph's training facts, by as many rounds as fit into the time.

    With a path, they are kept there, and mining goes on from what it finds there. The time starts
    when the loops are compiled, which takes half a minute on a machine that has never mined.
    """
    if not minutes > 0:
        raise EkgnError(
            f"minutes = {minutes:g}: expected a time to mine for, more than 0. "
            f"To list the rules that a run has, leave --minutes out: ekgn rules RUN"
        )
    mining = mining or Mining()
    book = Rulebook.load(path, graph) if path and path.exists() else Rulebook.new(graph, mining)
    miner = _Miner(graph, book, threads or os.cpu_count() or 1)
    _compile()
    until, needed = time.monotonic() + 60 * minutes, 0.0
    for number, part in enumerate(rounds(graph, book.mining)):
        if number < book.rounds:
            continue
        late = time.monotonic() + needed - until
        if late >= min(needed, _LATE * 60 * minutes):
            break
        began = time.monotonic()
        found = miner.constants() if part.length == 0 else miner.closed(part)
        took = time.monotonic() - began
        needed = 2 * took if part.length == 3 else 0.0  # the next round has twice as many facts
        book = book.extended(found, took)
        miner.book = book
        if path:
            book.save(path)
        if on_round:
            on_round(part, book)
    return book


@cache
def _compile() -> None:
    """Compile the loops, over a few facts that reach all of them."""
    names = Vocabulary(*(("a", "b", "c", "d"),) * 3)
    ring = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 3], [3, 0, 0], [0, 1, 3]], np.int64)
    few = KnowledgeGraph("", names, names, ring, ring[:0], ring[:0], {})
    miner = _Miner(few, Rulebook.new(few, Mining(min_support=1, places=64)), 1)
    miner.constants()
    for length in (1, 2, 3):
        miner.closed(Round(length))


class _Miner:
    """The index of the facts, and what was found so far."""

    def __init__(self, graph: KnowledgeGraph, book: Rulebook, threads: int) -> None:
        self.graph, self.book, self._threads = graph, book, threads
        self.facts = index_facts(graph)
        self._base = 2 * graph.num_relations + 1

    def constants(self) -> RuleTable:
        """All rules with a constant."""
        facts, mining = self.facts, self.book.mining
        back = reversed_rows(facts)
        cuts = np.linspace(0, len(facts.heads), _SLICES + 1).astype(np.int64)

        def count(part: int) -> NDArray[np.int32]:
            limits = mining.min_support, mining.min_constant_confidence, PRIOR
            table: NDArray[np.int32] = count_constants(
                facts, back, cuts[part], cuts[part + 1], *limits
            )
            return table

        table = np.concatenate(self._map(count, range(_SLICES)))
        while len(table) > mining.max_constants:
            table = table[table[:, 2] > table[:, 2].min()]
        head, body, support, predictions = table.T
        whatever = body < 0  # -1 - r1 stands for r1(x, anything)
        row = np.where(whatever, 0, body)
        first = np.where(whatever, -1 - body, self._inverse(facts.relations[row]))
        none = np.full(len(head), NONE)
        return RuleTable(
            relation=as_int32(self._inverse(facts.relations[head])),
            constant=as_int32(facts.heads[head]),
            body=as_int32(np.stack([first, none, none], axis=1)),
            body_constant=as_int32(np.where(whatever, NONE, facts.heads[row])),
            support=as_int32(support),
            predictions=as_int32(predictions),
        )

    def closed(self, part: Round) -> RuleTable:
        """The closed rules of a round: candidates of every relation, then each body measured."""
        mining, width = self.book.mining, self.graph.num_relations
        proposed = self._map(lambda relation: self._candidates(relation, part), range(width))
        conclusions = np.repeat(np.arange(width), [len(keys) for keys in proposed])
        keys = np.concatenate(proposed)
        new = ~np.isin(keys * width + conclusions, self._known_keys() * width + self._known_heads())
        order = np.lexsort((conclusions[new], keys[new]))
        conclusions, keys = conclusions[new][order], keys[new][order]
        distinct, starts = np.unique(keys, return_index=True)
        bodies, spans = self._bodies(distinct), np.append(starts, len(keys))
        steps = mining.steps if part.length == 3 else mining.exact_steps

        def measure(low: int) -> tuple[Ints, Ints]:
            high = min(low + _CHUNK, len(bodies))
            here = conclusions[spans[low] : spans[high]]
            own = spans[low : high + 1] - spans[low]
            seed = _seed(mining.seed, part.first, low)
            counted: tuple[Ints, Ints] = measure_bodies(
                self.facts, bodies[low:high], own, here, steps, seed
            )
            return counted

        parts = self._map(measure, range(0, len(bodies), _CHUNK))
        none = np.full(len(keys), NONE)
        found = RuleTable(
            relation=as_int32(conclusions),
            constant=as_int32(none),
            body=as_int32(np.repeat(bodies, np.diff(spans), axis=0)),
            body_constant=as_int32(none),
            support=as_int32(np.concatenate([none[:0], *(support for support, _ in parts)])),
            predictions=as_int32(np.concatenate([none[:0], *(counted for _, counted in parts)])),
        )
        enough = found.support >= mining.min_support
        return found.take(enough & (found.confidence >= mining.min_confidence))

    def _candidates(self, relation: int, part: Round) -> Ints:
        """The bodies that join at least two of a relation's pairs, the most frequent of them."""
        mining, train = self.book.mining, self.graph.train
        pairs = train[train[:, 1] == relation][:, [0, 2]]
        order = np.random.default_rng([mining.seed, relation]).permutation(len(pairs))
        pairs = pairs[order[part.first : part.last]]
        table = (
            np.full(mining.places, NONE, np.int64),
            np.zeros(mining.places, np.int32),
            np.full(mining.places, NONE, np.int32),
        )
        seed = _seed(mining.seed, part.first, relation)
        if not count_bodies(self.facts, pairs, part.length, mining.links, seed, table):
            _log.info("Relation %d has too many bodies to count on all its facts.", relation)
        keys, counts, _ = table
        enough = counts >= mining.min_support
        if part.length == 1:  # r(x, y) <- r(x, y) says nothing
            enough &= keys != (relation + 1) * self._base**2
        keys, counts = keys[enough], counts[enough]
        if part.length < 3:
            return keys
        return keys[np.lexsort((keys, -counts))[: mining.candidates]]

    def _bodies(self, keys: Ints) -> Ints:
        """The relations of each body key; 0 stands for none."""
        base = self._base
        return np.stack([keys // base**2, keys // base % base, keys % base], axis=1) - 1

    def _known_keys(self) -> Ints:
        body = self.book.rules.body[self.book.rules.closed].astype(np.int64) + 1
        keys: Ints = (body[:, 0] * self._base + body[:, 1]) * self._base + body[:, 2]
        return keys

    def _known_heads(self) -> Ints:
        return self.book.rules.relation[self.book.rules.closed].astype(np.int64)

    def _inverse(self, relations: Ints) -> Ints:
        return (relations + self.graph.num_relations) % (2 * self.graph.num_relations)

    def _map(self, work: Callable[[_Job], _Result], jobs: Iterator[_Job] | range) -> list[_Result]:
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(work, jobs))


def _seed(*numbers: int) -> int:
    """One seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
