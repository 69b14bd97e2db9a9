"""Write a made graph: N entities, M distinct triples, power-law degrees, drawn by seed.

    python benchmarks/made.py OUT.tsv --entities 5000000 --triples 20000000

Entities are of kinds. A relation leads from one kind to one other, and there to popular entities
most often: a structure that a model can learn, with the degrees of a real graph.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]
SKEW = 3.0  # of degrees: the share of the popular entities
KINDS = 100  # at most


def made_triples(entities: int, relations: int, triples: int, seed: int = 0) -> Ints:
    """Distinct rows of head, relation, tail; every entity is in one of them."""
    if triples < 2 * entities:
        raise SystemExit(
            f"{triples:,} triples for {entities:,} entities: give 2 for each at least."
        )
    rng = np.random.default_rng(seed)
    kinds = max(2, min(KINDS, relations // 2, entities // 100))
    leads_to = rng.integers(kinds, size=relations)
    count = triples + triples // 8  # some are drawn twice
    popular = (entities * rng.random(count - entities) ** SKEW).astype(np.int64)
    heads = np.concatenate([np.arange(entities), popular])
    kind = heads % kinds
    of_kind = (relations - 1 - kind) // kinds + 1
    relation = kind + kinds * (of_kind * rng.random(count) ** 2).astype(np.int64)
    tails = (entities // kinds * rng.random(count) ** SKEW).astype(np.int64) * kinds
    tails += leads_to[relation]
    keys = (heads * relations + relation) * entities + tails
    _, first = np.unique(keys, return_index=True)
    chosen = np.sort(first)[:triples]  # those of every entity come first
    if len(chosen) < triples:
        raise SystemExit(f"Only {len(chosen):,} distinct triples: give more entities or relations.")
    rng.shuffle(chosen)
    return np.stack([heads[chosen], relation[chosen], tails[chosen]], axis=1)


def write_graph(triples: Ints, path: Path) -> None:
    """As tab-separated text, with ids like those of large graphs."""
    frame = pl.DataFrame(triples, schema=["head", "relation", "tail"])
    for name, letter in (("head", "Q"), ("relation", "P"), ("tail", "Q")):
        frame = frame.with_columns((letter + pl.col(name).cast(pl.String)).alias(name))
    frame.write_csv(path, separator="\t", include_header=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--entities", type=int, default=5_000_000)
    parser.add_argument("--relations", type=int, default=500)
    parser.add_argument("--triples", type=int, default=20_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_graph(made_triples(args.entities, args.relations, args.triples, args.seed), args.out)


if __name__ == "__main__":
    main()
