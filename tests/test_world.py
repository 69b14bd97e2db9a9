"""The bundled graph: small, clean, and every held-out fact can be inferred from training facts."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pytest

Triple = tuple[str, str, str]
WORLD = Path(__file__).resolve().parents[1] / "src" / "ekgn" / "data" / "world"
KINDS = {"city", "continent", "country", "currency", "language", "region"}

# relation: kind of its head, kind of its tail
RELATIONS = {
    "borders": ("country", "country"),
    "city_currency": ("city", "currency"),
    "city_in_continent": ("city", "continent"),
    "city_in_region": ("city", "region"),
    "city_language": ("city", "language"),
    "has_capital": ("country", "city"),
    "in_continent": ("country", "continent"),
    "in_region": ("country", "region"),
    "located_in_country": ("city", "country"),
    "official_language": ("country", "language"),
    "part_of_continent": ("region", "continent"),
    "uses_currency": ("country", "currency"),
}

# The walks that infer a held-out fact, as in SOURCE.md; "~" walks a relation backwards.
PATTERNS = {
    "borders": ["~borders"],
    "in_continent": ["in_region part_of_continent"],
    "city_in_region": ["located_in_country in_region"],
    "city_in_continent": [
        "located_in_country in_continent",
        "city_in_region part_of_continent",
        "located_in_country in_region part_of_continent",
    ],
    "city_currency": ["located_in_country uses_currency"],
    "city_language": ["located_in_country official_language"],
    "uses_currency": ["has_capital city_currency"],
    "official_language": ["has_capital city_language"],
}


def read_rows(name: str) -> list[list[str]]:
    """The rows of one file; it must be UTF-8 with LF line ends and end with one."""
    data = (WORLD / name).read_bytes()
    assert b"\r" not in data
    assert data.endswith(b"\n")
    return [line.split("\t") for line in data.decode("utf-8").split("\n")[:-1]]


def read_facts(split: str) -> list[Triple]:
    """The facts of one split."""
    facts = []
    for row in read_rows(f"{split}.tsv"):
        head, relation, tail = row
        facts.append((head, relation, tail))
    return facts


TRAIN, VALID, TEST = (read_facts(split) for split in ("train", "valid", "test"))
HELD_OUT = VALID + TEST
FACTS = set(TRAIN + HELD_OUT)
NAMES = {id_: (label, description) for id_, label, description in read_rows("names.tsv")}
ENTITIES = {entity for head, _, tail in FACTS for entity in (head, tail)}


class Steps:
    """Where one step along a relation, or backwards along it, leads."""

    def __init__(self, facts: list[Triple]) -> None:
        self.reached: dict[tuple[str, str], set[str]] = defaultdict(set)
        for head, relation, tail in facts:
            self.reached[head, relation].add(tail)
            self.reached[tail, "~" + relation].add(head)

    def ends(self, start: str, pattern: str) -> set[str]:
        """Every entity that a walk along the pattern can reach."""
        ends = {start}
        for step in pattern.split():
            ends = {node for end in ends for node in self.reached.get((end, step), ())}
        return ends

    def hops(self, fact: Triple) -> int:
        """Length of the shortest stated walk that infers the fact; 0 if there is none."""
        head, relation, tail = fact
        lengths = [
            len(pattern.split())
            for pattern in PATTERNS.get(relation, [])
            if tail in self.ends(head, pattern)
        ]
        return min(lengths, default=0)


IN_TRAIN = Steps(TRAIN)


def test_size_is_that_of_a_small_readable_graph() -> None:
    assert 6_000 <= len(FACTS) <= 8_000
    assert {relation for _, relation, _ in FACTS} == set(RELATIONS)
    assert Counter(entity.split(":")[0] for entity in ENTITIES).keys() == KINDS
    assert sum(path.stat().st_size for path in WORLD.iterdir()) < 500_000


def test_splits_are_sorted_disjoint_and_without_duplicates() -> None:
    for facts in (TRAIN, VALID, TEST):
        assert facts == sorted(set(facts))
    assert len(TRAIN) + len(VALID) + len(TEST) == len(FACTS)


def test_shares_of_the_splits() -> None:
    assert 0.85 <= len(TRAIN) / len(FACTS) <= 0.90
    assert 0.045 <= len(VALID) / len(FACTS) <= 0.06
    assert 0.05 <= len(TEST) / len(FACTS) <= 0.075


def test_every_relation_joins_the_kinds_it_should() -> None:
    for head, relation, tail in FACTS:
        assert (head.split(":")[0], tail.split(":")[0]) == RELATIONS[relation]
        assert head != tail


def test_every_entity_and_relation_is_in_train() -> None:
    assert {entity for head, _, tail in TRAIN for entity in (head, tail)} == ENTITIES
    assert {relation for _, relation, _ in TRAIN} == set(RELATIONS)


@pytest.mark.parametrize("relation", PATTERNS)
def test_patterns_have_no_exception(relation: str) -> None:
    steps = Steps(sorted(FACTS))
    heads = {h for h, r, _ in FACTS if r == relation}
    for pattern in PATTERNS[relation]:
        for head in heads:
            inferred = {(head, relation, tail) for tail in steps.ends(head, pattern)}
            assert inferred
            assert inferred <= FACTS


def test_every_held_out_fact_is_inferable_from_train() -> None:
    assert [fact for fact in HELD_OUT if IN_TRAIN.hops(fact) == 0] == []


@pytest.mark.parametrize("facts", [VALID, TEST], ids=["valid", "test"])
def test_most_held_out_facts_need_several_hops(facts: list[Triple]) -> None:
    hops = Counter(IN_TRAIN.hops(fact) for fact in facts)
    assert 0.15 <= hops[1] / len(facts) <= 0.25
    assert hops[3] / len(facts) >= 0.05


def test_only_borders_can_be_answered_from_the_same_pair() -> None:
    pairs = {frozenset((head, tail)) for head, _, tail in TRAIN}
    leaking = [fact for fact in HELD_OUT if frozenset((fact[0], fact[2])) in pairs]
    assert {relation for _, relation, _ in leaking} == {"borders"}


def test_train_has_many_examples_of_each_inference() -> None:
    for relation in PATTERNS:
        facts = [fact for fact in TRAIN if fact[1] == relation and IN_TRAIN.hops(fact)]
        assert len(facts) >= 150, relation


def test_borders_hold_in_both_directions() -> None:
    borders = {(head, tail) for head, relation, tail in FACTS if relation == "borders"}
    assert borders == {(tail, head) for head, tail in borders}


def test_every_country_has_one_capital_region_continent_and_some_money_and_language() -> None:
    steps = Steps(sorted(FACTS))
    for country in (entity for entity in ENTITIES if entity.startswith("country:")):
        for relation in ("has_capital", "in_region", "in_continent"):
            assert len(steps.ends(country, relation)) == 1, (country, relation)
        for relation in ("official_language", "uses_currency"):
            assert steps.ends(country, relation), (country, relation)
        assert steps.ends(country, "has_capital located_in_country") == {country}


def test_names_cover_exactly_what_is_used() -> None:
    assert set(NAMES) == ENTITIES | set(RELATIONS)
    assert len(read_rows("names.tsv")) == len(NAMES)
    labels = Counter(label.casefold() for label, _ in NAMES.values())
    assert [label for label, uses in labels.items() if uses > 1] == []


def test_ids_and_names_are_clean() -> None:
    for id_, texts in NAMES.items():
        assert id_.isascii()
        assert texts[0]
        for text in (id_, *texts):
            assert " ".join(text.split()) == text
            assert text == unicodedata.normalize("NFC", text)
            assert text.isprintable()
            assert not set(text) & set('<>{}[]&\\|"“”’‘')


@pytest.mark.parametrize(
    "fact",
    [
        ("city:Paris", "located_in_country", "country:FR"),
        ("city:Paris", "city_in_continent", "continent:Europe"),
        ("country:JP", "has_capital", "city:Tokyo"),
        ("country:BR", "borders", "country:PE"),
        ("country:CH", "official_language", "language:it"),
        ("country:KE", "in_region", "region:Eastern Africa"),
        ("region:Southern Asia", "part_of_continent", "continent:Asia"),
        ("country:MX", "uses_currency", "currency:MXN"),
    ],
)
def test_well_known_facts_are_in(fact: Triple) -> None:
    assert fact in FACTS


def test_well_known_names() -> None:
    known = {
        "city:Sao Paulo": "São Paulo",
        "country:FR": "France",
        "currency:EUR": "Euro",
        "language:fr": "French",
        "region:Western Europe": "Western Europe",
    }
    assert {id_: NAMES[id_][0] for id_ in known} == known


def test_source_names_licences_and_true_counts() -> None:
    text = (WORLD / "SOURCE.md").read_text(encoding="utf-8")
    for words in ("GeoNames", "CC BY 4.0", "Unicode License V3", "MIT"):
        assert words in text
    assert f"{len(FACTS):,} facts, {len(ENTITIES):,} entities, {len(RELATIONS)} relations" in text
    assert f"| all | {len(TRAIN)} | {len(VALID)} | {len(TEST)} |" in text
    for relation, patterns in PATTERNS.items():
        for pattern in patterns:
            assert f"| `{relation}` | `{pattern}` |" in text
