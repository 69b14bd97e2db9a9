"""Names are found by prefix, word and typo, without reading all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ekgn.kbc.graph import load_graph
from ekgn.web.search import CLOSE_READ, NameIndex, plain
from tests.conftest import count_comparisons

NAMES = [
    "Milwaukee",
    "Milwaukee Bucks",
    "New York",
    "New York City",
    "São Paulo",
    "York",
    "France",
    "The United States of America",
    "/people/person/place_of_birth",
    "",
]
ALIASES = [
    ["Brew City"] if name == "Milwaukee" else ["Hexagon", "YRK"] if name == "France" else ()
    for name in NAMES
]
IDS = [f"/m/{n}" for n in range(len(NAMES))]
WEIGHTS = np.array([5, 50, 9, 8, 3, 2, 7, 99, 1, 0])


@pytest.fixture(scope="module")
def index() -> NameIndex:
    return NameIndex(NAMES, IDS, WEIGHTS, ALIASES)


@pytest.fixture(scope="module")
def world() -> NameIndex:
    graph = load_graph("world")
    names = graph.entities
    weights = np.bincount(graph.train[:, [0, 2]].ravel(), minlength=graph.num_entities)
    return NameIndex(names.labels, names.ids, weights, names.aliases)


def found(index: NameIndex, text: str) -> list[tuple[str, str]]:
    return [(NAMES[hit.index], hit.match) for hit in index.search(text)]


@pytest.mark.parametrize(
    ("typed", "name", "match"),
    [
        ("Milwaukee", "Milwaukee", "exact"),
        ("mil", "Milwaukee Bucks", "prefix"),
        ("bucks", "Milwaukee Bucks", "word"),
        ("milwokee", "Milwaukee", "similar"),
        ("frnace", "France", "similar"),
        ("New Yrok", "New York", "similar"),
        ("sao paulo", "São Paulo", "exact"),
        ("SÃO PA", "São Paulo", "prefix"),
        ("place of bir", "/people/person/place_of_birth", "word"),
        ("/m/3", "New York City", "exact"),
        ("united states", "The United States of America", "word"),
        ("USA", "The United States of America", "word"),
        ("nyc", "New York City", "word"),
        ("yrk", "France", "exact"),
        ("brew", "Milwaukee", "word"),
    ],
)
def test_what_was_meant_comes_first(index: NameIndex, typed: str, name: str, match: str) -> None:
    assert found(index, typed)[0] == (name, match)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *[(short, "United States") for short in ("US", "us", "USA", "America")],
        *[(short, "United Kingdom") for short in ("UK", "GB", "Great Britain")],
        *[("NZ", "New Zealand"), ("UAE", "United Arab Emirates"), ("monaco", "Monaco")],
        *[("PRC", "China"), ("ROK", "South Korea")],
    ],
)
def test_well_known_short_forms_of_the_bundled_graph(
    world: NameIndex, typed: str, meant: str
) -> None:
    first, *others = world.search(typed, 5)
    assert (world.names[first.index], first.match) == (meant.casefold(), "exact")
    assert all(other.match != "exact" for other in others)


def test_names_that_start_so_come_before_words_that_do(index: NameIndex) -> None:
    assert [name for name, _ in found(index, "york")][:3] == ["York", "New York", "New York City"]


def test_nothing_typed_shows_the_heaviest(index: NameIndex) -> None:
    assert [name for name, _ in found(index, "")][:2] == [
        "The United States of America",
        "Milwaukee Bucks",
    ]


def test_nonsense_finds_nothing(index: NameIndex) -> None:
    assert found(index, "zzqqxx") == []
    assert index.suggestions("   ") == []


def test_words_are_folded() -> None:
    assert plain("/São_Paulo--(city)") == "sao paulo city"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=12), st.text(max_size=90))
def test_every_name_is_found_by_itself(names: list[str], other: str) -> None:
    index = NameIndex(names, [f"id{n}" for n in range(len(names))], np.ones(len(names), np.int64))
    for place, name in enumerate(names):
        if plain(name):
            hits = index.search(name, limit=len(names))
            assert (place, "exact") in [(hit.index, hit.match) for hit in hits]
    assert len(index.search(other, limit=3)) <= 3


def test_of_the_names_of_fb15k_few_are_read_letter_by_letter(
    benchmarks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (benchmarks / "names" / "fb_mid2name.tsv").read_text(encoding="utf-8").splitlines()[1:]
    ids, labels = zip(*(row.split("\t")[:2] for row in rows), strict=True)
    index = NameIndex(labels, ids, np.arange(len(ids)))
    assert labels[index.search("Milwokee")[0].index] == "Milwaukee"
    for typed in ("a", "the", "Milwaukee", "Stven Spielberg", "university of", "zzz", ""):
        compared = count_comparisons(monkeypatch)
        index.search(typed)
        assert len(compared) <= CLOSE_READ, typed
