"""What to know about a graph before training on it: relations, degrees, leaks, odd names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ekgn.kbc.graph import KnowledgeGraph, Triples, Vocabulary, unseen_names

SAME_FROM = 0.5
"""The share of a relation's facts from which another relation counts as its twin."""
_LONG_NAME = 200
_EXAMPLES = 3
_ODD_NAMES = {
    "holds control characters": re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"),
    "begins or ends with a space": re.compile(r"^\s|\s$"),
    "was decoded wrongly": re.compile("\ufffd|Ã[\x80-\xbf]|â€"),
    "stands for nothing": re.compile(r"(?i)^\W*(nan|null|none|nil|n/?a|unknown|undefined|)\W*$"),
    "is a number or a date": re.compile(r"^[+-]?\d+([.,:/T-]\d+)*(e[+-]?\d+)?Z?$"),
    f"is longer than {_LONG_NAME} letters": re.compile(rf"(?s)^.{{{_LONG_NAME + 1}}}"),
}


@dataclass(frozen=True)
class RelationSummary:
    """One relation: its facts, and how many entities stand at either end (in train)."""

    id: str
    label: str
    category: str
    train: int
    valid: int
    test: int
    heads: int
    tails: int


@dataclass(frozen=True)
class Twin:
    """A relation whose facts another one repeats, the same way round or reversed."""

    relation: str
    other: str
    kind: str  # "inverse", "symmetric" or "duplicate"
    share: float  # of the relation's training facts
    test_facts: int  # test facts of the relation that training tells through the other


@dataclass(frozen=True)
class OddNames:
    """A reason to look at some names, how many there are, and a few of them."""

    kind: str  # "entity" or "relation"
    problem: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """What to know about a graph before training on it."""

    sizes: dict[str, int]
    relations: tuple[RelationSummary, ...]  # most training facts first
    degrees: dict[str, float]  # training facts per entity
    most_connected: tuple[tuple[str, int], ...]
    twins: tuple[Twin, ...]  # most test facts first
    given_away: dict[str, float]  # shares of the test facts that training tells
    unseen: dict[str, dict[str, int]]
    odd_names: tuple[OddNames, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON-able values."""
        return asdict(self)


def summarise_graph(graph: KnowledgeGraph) -> Summary:
    """Read a graph as somebody does who is about to train on it."""
    degree = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    twins, given_away = _leaks(graph)
    top = np.argsort(-degree, kind="stable")[:5]
    return Summary(
        sizes={
            "entities": graph.num_entities,
            "relations": graph.num_relations,
            **{split: len(graph.split(split)) for split in ("train", "valid", "test")},
        },
        relations=_relations(graph),
        degrees={
            "mean": float(degree.mean()),
            **{f"p{q}": float(np.percentile(degree, q)) for q in (10, 50, 90)},
            "max": int(degree.max()),
            "with_none": int((degree == 0).sum()),
            "with_one": int((degree == 1).sum()),
        },
        most_connected=tuple((graph.entities.labels[at], int(degree[at])) for at in top),
        twins=twins,
        given_away=given_away,
        unseen={name: unseen_names(graph.train, graph.split(name)) for name in ("valid", "test")},
        odd_names=(
            *_odd_names("entity", graph.entities),
            *_odd_names("relation", graph.relations),
        ),
    )


def _ends(graph: KnowledgeGraph, column: int) -> NDArray[np.int64]:
    """How many distinct heads (column 0) or tails (2) each relation has in train."""
    ends = np.unique(graph.train[:, 1] * graph.num_entities + graph.train[:, column])
    return np.bincount(ends // graph.num_entities, minlength=graph.num_relations)


def relation_categories(graph: KnowledgeGraph) -> list[str]:
    """1-1, 1-M, M-1 or M-M by the mean tails per head and heads per tail in train (over 1.5: M)."""
    facts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    heads, tails = _ends(graph, 0), _ends(graph, 2)
    many_heads, many_tails = facts >= 1.5 * tails, facts >= 1.5 * heads
    return [
        f"{'M' if many_heads[r] else '1'}-{'M' if many_tails[r] else '1'}" if facts[r] else "unseen"
        for r in range(graph.num_relations)
    ]


def _relations(graph: KnowledgeGraph) -> tuple[RelationSummary, ...]:
    counts = {
        split: np.bincount(graph.split(split)[:, 1], minlength=graph.num_relations).tolist()
        for split in ("train", "valid", "test")
    }
    heads, tails = _ends(graph, 0).tolist(), _ends(graph, 2).tolist()
    categories = relation_categories(graph)
    order = sorted(range(graph.num_relations), key=lambda r: -counts["train"][r])
    names = graph.relations
    return tuple(
        RelationSummary(
            id=names.ids[r],
            label=names.labels[r],
            category=categories[r],
            **{split: count[r] for split, count in counts.items()},
            heads=heads[r],
            tails=tails[r],
        )
        for r in order
    )


def _leaks(graph: KnowledgeGraph) -> tuple[tuple[Twin, ...], dict[str, float]]:
    """Relations that repeat others, and the share of test facts that training so tells."""
    train, test = (_pairs(rows, graph.num_entities) for rows in (graph.train, graph.test))
    facts = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    twins: list[Twin] = []
    told: dict[str, NDArray[np.int64]] = {}
    beside: dict[str, NDArray[np.int64]] = {}
    for kind, key in (("inverse", "reversed"), ("duplicate", "pair")):
        other = train.select(pl.col(key).alias("pair"), pl.col("relation").alias("other"))
        shared = train.join(other, on="pair").group_by("relation", "other").len()
        if kind == "duplicate":
            shared = shared.filter(pl.col("relation") != pl.col("other"))
        share = pl.col("len") / pl.lit(pl.Series(facts)).gather(pl.col("relation"))
        shared = shared.with_columns(share.alias("share")).filter(pl.col("share") >= SAME_FROM)
        found = test.join(other, on="pair")
        beside[kind] = found["row"].unique().to_numpy()
        found = found.join(shared, on=["relation", "other"], how="semi")
        told[kind] = found["row"].unique().to_numpy()
        counted = shared.join(
            found.group_by("relation", "other").agg(pl.col("row").n_unique().alias("test")),
            on=["relation", "other"],
            how="left",
        )
        twins += [
            Twin(
                graph.relations.labels[relation],
                graph.relations.labels[same],
                "symmetric" if relation == same else kind,
                float(part),
                int(tests or 0),
            )
            for relation, same, _, part, tests in counted.iter_rows()
        ]
    total = max(1, len(graph.test))
    either = np.union1d(told["inverse"], told["duplicate"])
    given_away = {
        "by_inverse_or_duplicate_relations": len(either) / total,
        "reversed_pair_in_train": len(beside["inverse"]) / total,
        "same_pair_in_train": len(beside["duplicate"]) / total,
    }
    twins.sort(key=lambda twin: (-twin.test_facts, -twin.share, twin.relation, twin.other))
    return tuple(twins), given_away


def _pairs(rows: Triples, num_entities: int) -> pl.DataFrame:
    """Relation, pair of entities, and the pair reversed, each pair as one number."""
    head, tail = rows[:, 0], rows[:, 2]
    return pl.DataFrame(
        {
            "row": np.arange(len(rows)),
            "relation": rows[:, 1],
            "pair": head * num_entities + tail,
            "reversed": tail * num_entities + head,
        }
    )


def _odd_names(kind: str, names: Vocabulary) -> Iterator[OddNames]:
    """What looks wrong about the names of one kind."""
    shown = [
        label if label == identifier else f"{label} ({identifier})"
        for label, identifier in zip(names.labels, names.ids, strict=True)
    ]
    for problem, pattern in _ODD_NAMES.items():
        found = [at for at, label in enumerate(names.labels) if pattern.search(label)]
        if found:
            yield _odd(kind, problem, found, shown)
    folded = [" ".join(label.casefold().split()) for label in names.labels]
    times = dict(pl.Series("name", folded, dtype=pl.String).value_counts().iter_rows())
    found = [at for at, name in enumerate(folded) if times[name] > 1]
    if found:
        found.sort(key=lambda at: (-times[folded[at]], folded[at]))
        yield _odd(kind, "is shared by several ids, but for case and spaces", found, shown)


def _odd(kind: str, problem: str, found: list[int], shown: list[str]) -> OddNames:
    examples = tuple(shown[at][:_LONG_NAME] for at in found[:_EXAMPLES])
    return OddNames(kind, problem, len(found), examples)
