"""Rules with one constant: r(x, c) <- r1(x, d), and r(x, c) <- r1(x, anything).

All of them are counted: for every [r, c], the facts of all x in r(x, c).
"""

from __future__ import annotations

import numpy as np

from ekgn.kbc.answers import Ints
from ekgn.kbc.rules.compiled import compiled
from ekgn.kbc.rules.facts import Facts, find_row, holds, inverse

NONE = -1


def reversed_rows(facts: Facts) -> Ints:
    """For each fact [row, tail], the row of the same fact seen from its tail."""
    rows: Ints = _reversed_rows(facts)
    return rows


@compiled
def _reversed_rows(facts):  # type: ignore[no-untyped-def]
    width = len(facts.domain) - 1
    rows = np.empty(len(facts.tails), np.int64)
    for row in range(len(facts.heads)):
        relation = inverse(facts.relations[row], width)
        for fact in range(facts.starts[row], facts.starts[row + 1]):
            rows[fact] = find_row(facts.rows_of, facts.relations, facts.tails[fact], relation)
    return rows


@compiled
def others(facts, row, constant):  # type: ignore[no-untyped-def]
    """How many tails a row has besides its own head and the constant."""
    head = facts.heads[row]
    count = facts.starts[row + 1] - facts.starts[row]
    count -= holds(facts.starts, facts.tails, row, head)
    if constant != head:
        count -= holds(facts.starts, facts.tails, row, constant)
    return count


@compiled
def _loops_only(facts, row):  # type: ignore[no-untyped-def]
    """Whether the only tail of a row is its own head."""
    first = facts.starts[row]
    return facts.starts[row + 1] - first == 1 and facts.tails[first] == facts.heads[row]


@compiled
def _any_predictions(facts, relation, constant, loops):  # type: ignore[no-untyped-def]
    """How many x other than the constant have a fact relation(x, z), z neither of the two."""
    width = len(facts.domain) - 1
    count = facts.domain[relation + 1] - facts.domain[relation] - loops[relation]
    own = find_row(facts.rows_of, facts.relations, constant, relation)
    count -= own != NONE and not _loops_only(facts, own)
    back = find_row(facts.rows_of, facts.relations, constant, inverse(relation, width))
    if back != NONE:
        for i in range(facts.starts[back], facts.starts[back + 1]):
            x = facts.tails[i]
            if (
                x != constant
                and others(facts, find_row(facts.rows_of, facts.relations, x, relation), constant)
                == 0
            ):
                count -= 1
    return count


@compiled
def _append(out, size, head, body, support, predictions):  # type: ignore[no-untyped-def]
    """Write a row, in an array twice as long where there is no room."""
    if size == len(out):
        longer = np.empty((2 * size, 4), np.int32)
        longer[:size] = out
        out = longer
    out[size, 0], out[size, 1], out[size, 2], out[size, 3] = head, body, support, predictions
    return out


@compiled
def count_constants(  # type: ignore[no-untyped-def]
    facts, reversed_row, low, high, min_support, min_confidence, prior
):
    """Rows of (head row, body, support, predictions): the rules of the head rows low to high.

    Head row [c, r inverse] has the x of r(x, c) as tails; so has body row [d, r1 inverse] those of
    r1(x, d). The body r1(x, anything) is written -1 - r1.
    """
    counts = np.zeros(len(facts.heads), np.int32)
    touched = np.empty(len(facts.heads), np.int64)
    any_counts = np.zeros(len(facts.domain), np.int32)
    loops = np.zeros(len(facts.domain), np.int64)
    for row in range(len(facts.heads)):
        loops[facts.relations[row]] += _loops_only(facts, row)
    out, size = np.empty((1024, 4), np.int32), 0
    for head in range(low, high):
        if facts.starts[head + 1] - facts.starts[head] < min_support:
            continue
        constant, found = facts.heads[head], 0
        for i in range(facts.starts[head], facts.starts[head + 1]):
            x = facts.tails[i]
            if x == constant:
                continue
            for row in range(facts.rows_of[x], facts.rows_of[x + 1]):
                any_counts[facts.relations[row]] += others(facts, row, constant) > 0
                for fact in range(facts.starts[row], facts.starts[row + 1]):
                    body = reversed_row[fact]
                    if body != head and facts.tails[fact] != x:
                        if counts[body] == 0:
                            touched[found] = body
                            found += 1
                        counts[body] += 1
        for i in range(found):
            body = touched[i]
            support, counts[body] = counts[body], 0
            if support < min_support:
                continue
            predictions = others(facts, body, constant)
            if support >= min_confidence * (predictions + prior):
                out = _append(out, size, head, body, support, predictions)
                size += 1
        for relation in range(len(any_counts)):
            support, any_counts[relation] = any_counts[relation], 0
            if support < min_support:
                continue
            predictions = _any_predictions(facts, relation, constant, loops)
            if support >= min_confidence * (predictions + prior):
                out = _append(out, size, head, -1 - relation, support, predictions)
                size += 1
    return out[:size].copy()
