"""Bodies of closed rules: which ones join the pairs of a relation, and what each one predicts.

A body is up to three relations, r1(x, a), r2(a, b), r3(b, y), unused places -1. The entities of
a longer path are all different, so a path never runs through the fact it argues for.
"""

from __future__ import annotations

import numpy as np

from ekgn.kbc.rules.compiled import compiled
from ekgn.kbc.rules.facts import find_link, find_row, holds, inverse

NONE = -1


@compiled
def next_random(state):  # type: ignore[no-untyped-def]
    """The next of a sequence of well mixed 63-bit numbers, after splitmix64: (state, number)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1))


@compiled
def _tally(keys, counts, last, key, pair):  # type: ignore[no-untyped-def]
    """Count a body once for a pair, in an open hash table; 1 where it took a new place."""
    mask = len(keys) - 1
    place = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while keys[place] != key:
        if keys[place] == NONE:
            keys[place], counts[place], last[place] = key, 1, pair
            return 1
        place = (place + 1) & mask
    if last[place] != pair:
        counts[place] += 1
        last[place] = pair
    return 0


@compiled
def _tally_paths(facts, one, two, three, table, pair, flipped):  # type: ignore[no-untyped-def]
    """Tally every choice of relations along up to three links (NONE: no such link).

    `flipped` says that the links were walked from y to x. Returns the new places taken.
    """
    keys, counts, last = table
    width = len(facts.domain) - 1
    base, new = width + 1, 0
    for i in range(facts.link_starts[one], facts.link_starts[one + 1]):
        first = facts.link_relations[i]
        if two == NONE:
            new += _tally(keys, counts, last, (first + 1) * base * base, pair)
            continue
        for j in range(facts.link_starts[two], facts.link_starts[two + 1]):
            second = facts.link_relations[j]
            if three == NONE:
                key = ((first + 1) * base + second + 1) * base
                new += _tally(keys, counts, last, key, pair)
                continue
            for k in range(facts.link_starts[three], facts.link_starts[three + 1]):
                third = facts.link_relations[k]
                if flipped:
                    key = (inverse(third, width) + 1) * base + inverse(second, width) + 1
                    key = key * base + inverse(first, width) + 1
                else:
                    key = ((first + 1) * base + second + 1) * base + third + 1
                new += _tally(keys, counts, last, key, pair)
    return new


@compiled
def _reach(facts, entity):  # type: ignore[no-untyped-def]
    """How many links lead on from the neighbours of an entity."""
    total = 0
    for link in range(facts.links_of[entity], facts.links_of[entity + 1]):
        near = facts.neighbours[link]
        total += facts.links_of[near + 1] - facts.links_of[near]
    return total


@compiled
def count_bodies(facts, pairs, length, limit, seed, table):  # type: ignore[no-untyped-def]
    """For every body of a length, in how many of the pairs (x, y) it leads from x to y.

    A pair with more than `limit` links to look at (length 3) is looked at in a random part. The
    table (keys, counts, last) takes no further pairs once it is three quarters full.
    """
    marked = np.full(len(facts.links_of), NONE)
    state, room = np.uint64(seed), len(table[0]) * 3 // 4
    for pair in range(len(pairs)):
        x, y = pairs[pair]
        if (x == y and length > 1) or room < 0:
            continue
        if length == 1:
            room -= _tally_paths(
                facts,
                find_link(facts.links_of, facts.neighbours, x, y),
                NONE,
                NONE,
                table,
                pair,
                False,
            )
            continue
        reach, flipped = 0, False
        if length == 3:
            reach = _reach(facts, x)
            backwards = _reach(facts, y)
            flipped = backwards < reach
            if flipped:
                x, y, reach = y, x, backwards
        for link in range(facts.links_of[y], facts.links_of[y + 1]):
            marked[facts.neighbours[link]] = link
        low, high = facts.links_of[x], facts.links_of[x + 1]
        seen, one = 0, low
        while one < high and seen <= limit:
            link = one
            if reach > limit:
                state, number = next_random(state)
                link = low + number % (high - low)
            else:
                one += 1
            a = facts.neighbours[link]
            seen += 1
            if a in (x, y):
                continue
            if length == 2:
                if marked[a] != NONE:
                    back = find_link(facts.links_of, facts.neighbours, a, y)
                    room -= _tally_paths(facts, link, back, NONE, table, pair, False)
                continue
            seen += facts.links_of[a + 1] - facts.links_of[a]
            for two in range(facts.links_of[a], facts.links_of[a + 1]):
                b = facts.neighbours[two]
                if marked[b] != NONE and b != x and b != y and b != a:
                    three = find_link(facts.links_of, facts.neighbours, b, y)
                    room -= _tally_paths(facts, link, two, three, table, pair, flipped)
        for link in range(facts.links_of[y], facts.links_of[y + 1]):
            marked[facts.neighbours[link]] = NONE
    return room >= 0


@compiled
def ends_of(walk, x, body, limit, stamp, token, ends):  # type: ignore[no-untyped-def]
    """The distinct y that a body leads to from x, written to `ends`: (how many, steps taken).

    At most `limit` steps are taken. `stamp` is the caller's, `token` differs at every call.
    """
    rows_of, relations, starts, tails = walk
    found, steps = 0, 0
    first = find_row(rows_of, relations, x, body[0])
    if first == NONE:
        return found, 1
    for i in range(starts[first], starts[first + 1]):
        a = tails[i]
        steps += 1
        if body[1] == NONE:
            stamp[a] = token
            ends[found] = a
            found += 1
            continue
        second = find_row(rows_of, relations, a, body[1])
        if second == NONE or a == x:
            continue
        for j in range(starts[second], starts[second + 1]):
            b = tails[j]
            steps += 1
            if b in (x, a):
                continue
            if body[2] == NONE:
                if stamp[b] != token:
                    stamp[b] = token
                    ends[found] = b
                    found += 1
                continue
            third = find_row(rows_of, relations, b, body[2])
            if third == NONE:
                continue
            for k in range(starts[third], starts[third + 1]):
                y = tails[k]
                if stamp[y] != token and y != x and y != a and y != b:
                    stamp[y] = token
                    ends[found] = y
                    found += 1
            steps += starts[third + 1] - starts[third]
            if steps >= limit:
                return found, steps
    return found, steps


@compiled
def measure_bodies(facts, bodies, spans, conclusions, limit, seed):  # type: ignore[no-untyped-def]
    """Support and predictions of rules; body i is tested with conclusions[spans[i]:spans[i + 1]].

    Predictions are the distinct pairs (x, y) that the body joins, support those of them that the
    conclusion holds for. A body with more than `limit` steps is measured on a sample of its x.
    """
    rows_of, links_of, neighbours = facts.rows_of, facts.links_of, facts.neighbours
    link_starts, link_relations = facts.link_starts, facts.link_relations
    heads, by_relation = facts.heads, facts.by_relation
    support = np.zeros(len(conclusions), np.int64)
    predictions = np.zeros(len(conclusions), np.int64)
    stamp = np.full(len(rows_of), NONE)
    ends = np.empty(len(rows_of), np.int64)
    place_of = np.full(len(facts.domain), NONE)
    walk = rows_of, facts.relations, facts.starts, facts.tails
    token, state = 0, np.uint64(seed)
    for i in range(len(bodies)):
        for place in range(spans[i], spans[i + 1]):
            place_of[conclusions[place]] = place
        low, high = facts.domain[bodies[i, 0]], facts.domain[bodies[i, 0] + 1]
        size, spent, joined, loops = high - low, 0, 0, 0
        turned = inverse(bodies[i, 0], len(facts.domain) - 1)
        state, start = next_random(state)
        state, stride = next_random(state)
        start, stride = start % size, stride % size
        while _common(stride, size) != 1:
            stride += 1
        for draw in range(size):
            x = heads[by_relation[low + (start + draw * stride) % size]]
            token += 1
            count, steps = ends_of(walk, x, bodies[i], limit // 4, stamp, token, ends)
            joined += count
            spent += steps
            for at in range(count):
                loops += ends[at] == x
                link = find_link(links_of, neighbours, x, ends[at])
                if link == NONE:
                    continue
                for r in range(link_starts[link], link_starts[link + 1]):
                    place = place_of[link_relations[r]]
                    # r(x, x) is its own inverse: the fact itself.
                    if place != NONE and (ends[at] != x or conclusions[place] != turned):
                        support[place] += 1
            if spent >= limit:
                break
        for place in range(spans[i], spans[i + 1]):
            place_of[conclusions[place]] = NONE
            predictions[place] = joined - (loops if conclusions[place] == turned else 0)
    return support, predictions


@compiled
def _common(a, b):  # type: ignore[no-untyped-def]
    """The greatest common divisor."""
    while b:
        a, b = b, a % b
    return a


@compiled
def path_between(rows_of, relations, starts, tails, x, y, body):  # type: ignore[no-untyped-def]
    """The first path of a body from x to y: its one or two entities in between (NONE: unused)."""
    stops = np.full(2, NONE)
    if body[1] == NONE:
        return stops
    first = find_row(rows_of, relations, x, body[0])
    for i in range(starts[first], starts[first + 1]):
        a = tails[i]
        second = find_row(rows_of, relations, a, body[1])
        if second == NONE or a in (x, y):
            continue
        if body[2] == NONE:
            if holds(starts, tails, second, y):
                stops[0] = a
                return stops
            continue
        for j in range(starts[second], starts[second + 1]):
            b = tails[j]
            third = find_row(rows_of, relations, b, body[2])
            if third != NONE and b not in (x, y, a) and holds(starts, tails, third, y):
                stops[0], stops[1] = a, b
                return stops
    return stops
