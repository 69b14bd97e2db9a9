"""How questions, facts, relations, rules and paths are put in words: one place for all of them.

The command line, reports, JSON and web page take their sentences from here. In data a relation
that is asked backwards has the mark ^ before its name; no sentence shows that mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ekgn.kbc.graph import KnowledgeGraph
    from ekgn.kbc.rules import RuleTable

ONE_FACT_ALONE = "rules of one fact alone"
WITH_RULES = "model with rules"
IN_SPLIT = {
    "train": "in training",
    "valid": "in validation, not in training",
    "test": "in test, not in training",
    None: "new",
}
"""Where a fact is known from; a new one is in no split."""
DISTANCES = (
    "Near: questions of training by how near they are, as a share of the distance of two typical "
    "questions (0%: the same place; 100%: no nearer than any other)."
)
RANKED = "Other known answers are left out of its ranks."
NO_RULES = (
    "No rules were mined for this run, so none is shown that leads to the answer. "
    "Mine them with: ekgn rules RUN"
)


def relation_name(graph: KnowledgeGraph, relation: int) -> str:
    """A relation as data name it; inverses are marked with a leading ^."""
    inverse, index = divmod(relation, graph.num_relations)
    return "^" * inverse + graph.relations.labels[index]


def short_relation(name: str) -> str:
    """A path-like relation by its last two parts, as the paper prints them.

    >>> short_relation("/sports/team/roster./basketball/roster_position/player")
    'roster_position/player'
    >>> short_relation("^borders")
    'borders, backwards'
    """
    plain = name.removeprefix("^")
    parts = [part for part in plain.split("/") if part]
    if plain.startswith("/") and len(parts) > 2:
        plain = "/".join(parts[-2:])
    return plain + ", backwards" * name.startswith("^")


def verb(name: str) -> str:
    """A relation inside a sentence: of a path the last part, without underscores.

    >>> verb("^/film/film/directed_by"), verb("has capital")
    ('directed by', 'has capital')
    """
    plain = name.removeprefix("^")
    last = plain.rsplit("/", 1)[-1] if plain.startswith("/") else plain
    return last.replace("_", " ").strip() or plain


def question_in_words(head: str, relation: str) -> str:
    """The question [head, relation, ?]; asked backwards, the one for the head.

    >>> question_in_words("France", "borders"), question_in_words("France", "^borders")
    ('“France borders ?”', '“? borders France”')
    """
    if relation.startswith("^"):
        return f"“? {verb(relation)} {head}”"
    return f"“{head} {verb(relation)} ?”"


def fact_in_words(graph: KnowledgeGraph, fact: Sequence[int]) -> str:
    """A fact by index, in names."""
    head, relation, tail = fact
    names = graph.entities.labels
    return f"{names[head]} {verb(graph.relations.labels[relation])} {names[tail]}"


def rule_in_words(graph: KnowledgeGraph, table: RuleTable, rule: int) -> str:
    """One rule: X is in region Y if X is in country A and A is in region Y."""

    def said(head: str, relation: int, tail: str) -> str:
        inverse, index = divmod(relation, graph.num_relations)
        ends = (tail, head) if inverse else (head, tail)
        return f"{ends[0]} {verb(graph.relations.labels[index])} {ends[1]}"

    relation, steps = int(table.relation[rule]), [int(r) for r in table.body[rule] if r >= 0]
    names = graph.entities.labels
    if table.closed[rule]:
        stops = ["X", *"AB"[: len(steps) - 1], "Y"]
        body = [said(*part) for part in zip(stops, steps, stops[1:], strict=False)]
        return f"{said('X', relation, 'Y')} if {listing(body, len(body))}"
    end, constant = int(table.body_constant[rule]), names[int(table.constant[rule])]
    given = said("X", steps[0], names[end] if end >= 0 else "anything")
    return f"{said('X', relation, constant)} if {given}"


def kind_of_rule(length: int, closed: bool = True) -> str:
    """What rules of so many facts are called.

    >>> kind_of_rule(1), kind_of_rule(3), kind_of_rule(1, closed=False)
    ('of one fact', 'of three facts', 'with a constant')
    """
    if not closed:
        return "with a constant"
    return ("of one fact", "of two facts", "of three facts")[length - 1]


def listing(names: Sequence[str], total: int, last: str = "and") -> str:
    """A, B and C; with how many more there are beyond those given."""
    if total > len(names):
        return f"{', '.join(names)} and {total - len(names):,} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
