"""Completed facts as people read them: ids and names, evidence in words, held-out splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ekgn.kbc.completion.work import held_out
from ekgn.kbc.rules import evidence
from ekgn.kbc.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun


def named(run: KbcRun, facts: pl.DataFrame) -> pl.DataFrame:
    """The ids and names of facts given by index, three columns each."""
    entities, relations = run.graph.entities, run.graph.relations
    parts = {"head": entities, "relation": relations, "tail": entities}
    ids = [_words(facts[part], names, "ids") for part, names in parts.items()]
    labels = [
        _words(facts[part], names, "labels").alias(f"{part}_name") for part, names in parts.items()
    ]
    return pl.DataFrame([*ids, *labels])


def _words(index: pl.Series, names: Vocabulary, what: str) -> pl.Series:
    words = pl.Series(getattr(names, what), dtype=pl.String)
    return words.gather(index).alias(index.name)


def shown(run: KbcRun, facts: pl.DataFrame, explained: int) -> pl.DataFrame:
    """The columns of a completion's output; the first facts have their evidence in words."""
    few = facts.head(explained)
    words = [reason(run, *fact) for fact in few.select("head", "relation", "tail").iter_rows()]
    said = pl.Series("evidence", [*words, *[None] * (len(facts) - len(few))], dtype=pl.String)
    numbers = facts.select(
        *("confidence", "tail_share", "tail_rank", "head_share", "head_rank"),
        pl.col("tail_step").alias("step"),
    )
    return pl.concat(
        [named(run, facts), numbers, pl.DataFrame([said, held_out(run, facts)])], how="horizontal"
    )


def reason(run: KbcRun, head: int, relation: int, tail: int) -> str | None:
    """The best rule that leads to a fact, or the nearest training fact with its tail."""
    if run.rules is not None:
        found = evidence(run.rules, head, relation, tail, top=1)
        if found:
            return f"{found[0].rule}. Here: {', '.join(found[0].path)}"
    others = run.known["train"].of(tail, relation + run.graph.num_relations)
    others = others[others != head]
    if not len(others):
        return None
    vectors = run.model.entities.weight.detach()[np.append(others, head)].cpu()
    like = int(others[int((vectors[:-1] - vectors[-1]).square().sum(dim=1).argmin())])
    names = run.graph.entities.labels
    relation_name = run.graph.relations.labels[relation]
    return f"{names[head]} is most like {names[like]}: {relation_name} {names[tail]}"
