"""Graphs: numbering, splits, names, saving, caching, and what is said about bad data."""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ekgn.errors import EkgnError
from ekgn.kbc import graph as graph_module
from ekgn.kbc import triples as triples_module
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary, hold_out, load_graph
from tests.conftest import count_comparisons

FILES = {
    "train.tsv": "b\tr\ta\na\tr\tc\nb\tr\ta\nc\ts\td\n",
    "valid.tsv": "e\tr\ta\na\tr\tc\n",
    "test.tsv": "a\tq\tb\ne\tr\tf\na\tr\tc\ne\tr\ta\n",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's own cache out of the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ekgn" / "graphs"


def fill(folder: Path, files: dict[str, str] = FILES) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def ring(size: int = 40) -> str:
    """A graph with two relations from which much can be held out."""
    near = [f"n{i}\tnext\tn{(i + 1) % size}\n" for i in range(size)]
    far = [f"n{i}\tfar\tn{(i + 5) % size}\n" for i in range(size)]
    return "".join(near + far)


def raises(message: str) -> pytest.RaisesExc[EkgnError]:
    return pytest.raises(EkgnError, match="^" + re.escape(message) + "$")


def named(graph: KnowledgeGraph, split: str) -> list[tuple[str, str, str]]:
    """The triples of a split by identifier."""
    entities, relations = graph.entities.ids, graph.relations.ids
    return [(entities[h], relations[r], entities[t]) for h, r, t in graph.split(split)]


def same(one: KnowledgeGraph, other: KnowledgeGraph) -> bool:
    return (
        (one.name, one.entities, one.relations, one.source)
        == (other.name, other.entities, other.relations, other.source)
    ) and all(
        np.array_equal(one.split(name), other.split(name))
        and one.split(name).dtype == other.split(name).dtype == np.int64
        for name in ("train", "valid", "test")
    )


def test_names_are_numbered_as_they_first_appear(tmp_path: Path) -> None:
    graph = load_graph(fill(tmp_path / "letters"))
    assert graph.name == "letters"
    assert graph.entities.ids == graph.entities.labels == ("b", "a", "c", "d", "e", "f")
    assert graph.relations.ids == ("r", "s", "q")
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 2], [2, 1, 3]]
    assert graph.valid.tolist() == [[4, 0, 1], [1, 0, 2]]
    assert (graph.num_entities, graph.num_relations) == (6, 3)
    assert {graph.split(name).dtype for name in ("train", "valid", "test")} == {np.dtype(np.int64)}


def test_what_the_source_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = fill(tmp_path / "letters")
    source = load_graph(folder).source
    assert [(file["name"], file["triples"]) for file in source["files"]] == [
        ("train.tsv", 4),
        ("valid.tsv", 2),
        ("test.tsv", 4),
    ]
    assert all(len(file["sha256"]) == 64 for file in source["files"])
    assert source["duplicates_dropped"] == {"train": 1, "valid": 0, "test": 0}
    assert source["overlaps"] == {"valid_in_train": 1, "test_in_train": 1, "test_in_valid": 2}
    assert source["unseen"] == {
        "valid": {"entities": 1, "relations": 0, "triples": 1},
        "test": {"entities": 2, "relations": 1, "triples": 3},
    }
    assert source["split"] is None
    assert json.loads(json.dumps(source)) == source
    said = "letters: dropped 1 duplicate triples from train"
    assert [r.levelname for r in caplog.records if r.getMessage() == said] == ["WARNING"]
    assert "letters: 2 test triples are in valid too" in caplog.messages
    caplog.clear()
    load_graph(folder)
    assert said in caplog.messages, "the cache must not hide it"


def triples_of(graph: KnowledgeGraph) -> list[tuple[str, str, str]]:
    return [triple for split in ("train", "valid", "test") for triple in named(graph, split)]


def test_one_file_is_split_with_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "ring.tsv"
    path.write_text(ring() + "n0\tnext\tn1\n")
    graph = load_graph(path, valid_share=0.1, test_share=0.2)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (56, 8, 16)
    assert sorted(triples_of(graph)) == sorted({tuple(x.split("\t")) for x in ring().splitlines()})
    assert graph.source["duplicates_dropped"] == {"train": 1}
    assert graph.source["split"] == {
        "seed": 0,
        "shares": {"valid": 0.1, "test": 0.2},
        "held_out": {"valid": 8, "test": 16},
    }
    assert not any(graph.source["unseen"]["test"].values())
    again = load_graph(path, valid_share=0.1, test_share=0.2, cache_dir=tmp_path / "other")
    assert same(graph, again)
    other = load_graph(path, valid_share=0.1, test_share=0.2, seed=1)
    assert named(other, "test") != named(graph, "test")
    lines = [tuple(line.split("\t")) for line in ring().splitlines()]
    places = [lines.index(triple) for triple in named(graph, "train")]
    assert places == sorted(places), "train keeps the order of the file"


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)),
        min_size=1,
        max_size=60,
        unique=True,
    ),
    st.floats(0, 0.5),
    st.floats(0, 0.49),
    st.integers(0, 5),
)
def test_holding_out_leaves_every_name_in_train(
    facts: list[tuple[int, int, int]], valid: float, test: float, seed: int
) -> None:
    triples: NDArray[np.int64] = np.array(facts, np.int64)
    try:
        splits = hold_out(triples, {"valid": valid, "test": test}, seed, Path("x"))
    except EkgnError as error:
        assert "too small to split" in str(error)
        return
    assert sorted(map(tuple, np.concatenate(list(splits.values())).tolist())) == sorted(facts)
    train = splits["train"]
    assert {*train[:, [0, 2]].ravel()} == {*triples[:, [0, 2]].ravel()}
    assert {*train[:, 1]} == {*triples[:, 1]}
    assert (len(splits["valid"]) > 0, len(splits["test"]) > 0) == (valid > 0, test > 0)


def test_missing_splits_are_held_out_from_train(tmp_path: Path) -> None:
    folder = fill(tmp_path / "ring", {"train.txt": ring(), "test.txt": "n0\tfar\tn1\n"})
    graph = load_graph(folder)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (76, 4, 1)
    assert graph.source["split"] == {
        "seed": 0,
        "shares": {"valid": 0.05},
        "held_out": {"valid": 4},
    }


def test_a_file_too_small_to_split(tmp_path: Path) -> None:
    path = tmp_path / "small.tsv"
    path.write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    with pytest.raises(EkgnError) as error:
        load_graph(path)
    free = re.search(r"its 3 triples ([01]) can be", str(error.value))
    assert free is not None
    assert str(error.value) == (
        f"{path} is too small to split: of its 3 triples {free[1]} can be held out if every entity "
        "and relation is to stay in train. "
        "Give more triples, or a directory with train, valid and test files."
    )


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"valid_share": 0.5, "test_share": 0.5}, "0.5 for valid and 0.5 for test with seed 0"),
        ({"valid_share": -0.1}, "-0.1 for valid and 0.05 for test with seed 0"),
        ({"seed": -1}, "0.05 for valid and 0.05 for test with seed -1"),
    ],
)
def test_impossible_shares(tmp_path: Path, options: dict[str, float], given: str) -> None:
    path = tmp_path / "ring.tsv"
    path.write_text(ring())
    with raises(
        f"Cannot hold out {given}: neither may be negative, "
        "and the shares together must be below 1."
    ):
        load_graph(path, **options)  # type: ignore[arg-type]


def test_names_of_entities_and_relations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = fill(tmp_path / "letters", {**FILES, "names.tsv": "a\tAlpha\tfirst\nr\tis near\n"})
    mine, useless = tmp_path / "mine.tsv", tmp_path / "useless.tsv"
    mine.write_text("a\tAleph\n")
    useless.write_text("zz\tnothing\n")
    graph = load_graph(folder, names=[mine, useless])
    index = graph.entities.index_of["a"]
    assert (graph.entities.labels[index], graph.entities.descriptions[index]) == ("Aleph", "first")
    assert graph.relations.labels == ("is near", "s", "q")
    assert [(file["name"], file["used"]) for file in graph.source["names"]] == [
        ("names.tsv", 2),
        ("mine.tsv", 1),
        ("useless.tsv", 0),
    ]
    assert "letters: useless.tsv names none of its ids" in caplog.messages
    with raises(f"Cannot read {tmp_path / 'gone.tsv'}: No such file or directory"):
        load_graph(folder, names=[tmp_path / "gone.tsv"])


def test_rdf_graph(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyoxigraph")
    lines = [
        f"<http://x/{h}> <http://x/p#{r}> <http://x/{t}> .\n"
        for h, r, t in (line.split("\t") for line in ring().splitlines())
    ]
    path = tmp_path / "ring.nt"
    path.write_text("".join(lines) + '<http://x/n1> <http://x/age> "7" .\n')
    graph = load_graph(path)
    assert graph.entities.labels[graph.entities.index_of["http://x/n7"]] == "n7"
    assert {*graph.relations.labels} == {"next", "far"}
    assert graph.source["literals_skipped"] == 1
    assert "ring: skipped 1 literals" in caplog.messages


def test_unknown_split(tmp_path: Path) -> None:
    graph = load_graph(fill(tmp_path / "letters"))
    assert graph.split("valid") is graph.valid
    with raises("Unknown split 'tets': expected train, valid, test. Did you mean 'test'?"):
        graph.split("tets")


WORDS = Vocabulary(
    ids=("/m/1", "/m/2", "/m/3", "/m/4", "Rome"),
    labels=("Springfield", "Springfield", "Barack Obama", "rome", "ROME"),
    descriptions=("city in Illinois", "", "president; also: POTUS, Bo", "", ""),
)


def test_finding_by_id_label_and_case() -> None:
    assert len(WORDS) == 5
    assert WORDS.find("/m/2", "entity", "x") == 1
    assert WORDS.find("/M/2", "entity", "x") == 1
    assert WORDS.find("Barack Obama", "entity", "x") == 2
    assert WORDS.find("barack OBAMA", "entity", "x") == 2
    assert WORDS.find("potus", "entity", "x") == 2, "an alias"
    assert WORDS.find("Rome", "entity", "x") == 4, "an id wins over a label"
    assert WORDS.find("rome", "entity", "x") == 3, "the exact label wins over another case"


def test_a_shared_label_asks_for_the_id() -> None:
    message = (
        "Several entities of FB15k are called '{}': /m/1 (city in Illinois); /m/2 (Springfield). "
        "Give the id of the one you mean."
    )
    for text in ("Springfield", "SPRINGFIELD"):
        with raises(message.format(text)):
            WORDS.find(text, "entity", "FB15k")
    many = Vocabulary(tuple(f"i{n}" for n in range(12)), ("x",) * 12, ("d",) * 12)
    with pytest.raises(EkgnError, match=re.escape("; i9 (d); and 2 more. Give the id")):
        many.find("x", "entity", "y")


def test_a_miss_suggests_the_nearest_names() -> None:
    relations = ("_hypernym", "_hyponym", "_also_see", "_verb_group")
    wordnet = Vocabulary(relations, relations, ("",) * 4)
    with raises(
        "Unknown relation '_hypernim': WN18 has 4. Did you mean '_hypernym'? "
        "List them with: ekgn info wn18 --relations"
    ):
        wordnet.find("_hypernim", "relation", "WN18")
    with raises(
        "Unknown entity 'Obama': mine has 5. Did you mean 'Barack Obama' (/m/3)? "
        "List them with: ekgn info DATA --entities"
    ):
        WORDS.find("Obama", "entity", "mine")
    with raises(
        "Unknown entity 'springfeild': World has 5. Did you mean 'Springfield' (several)? "
        "List them with: ekgn info world --entities"
    ):
        WORDS.find("springfeild", "entity", "World")
    for text in ("", "  ", "qqq", "+*[("):
        with raises(
            f"Unknown entity '{text}': mine has 5. List them with: ekgn info DATA --entities"
        ):
            WORDS.find(text, "entity", "mine")


def test_a_miss_among_many_names_reads_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40_000
    labels = tuple(f"place {n * 7919 % count} of region {n % 97}" for n in range(count))
    many = Vocabulary(tuple(f"/m/{n}" for n in range(count)), labels, ("",) * count)
    compared = count_comparisons(monkeypatch)
    with pytest.raises(EkgnError, match="Did you mean 'place 123 of region"):
        many.find("plaec 123 of region", "entity", "x")
    assert 0 < len(compared) <= 200


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        min_size=1,
        max_size=6,
        unique=True,
    )
)
def test_saved_graphs_come_back_the_same(ids: list[str]) -> None:
    words = Vocabulary(tuple(ids), tuple(reversed(ids)), tuple(x + " !" for x in ids))
    rows = np.array([[0, 0, len(ids) - 1]], np.int64)
    graph = KnowledgeGraph("x", words, words, rows, rows[:0], np.repeat(rows, 3, 0), {"a": [1]})
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "new")
        assert same(KnowledgeGraph.load(Path(folder) / "new"), graph)
        graph.save(Path(folder) / "again")
        for file in (Path(folder) / "again").iterdir():
            assert file.read_bytes() == (Path(folder) / "new" / file.name).read_bytes()
        files = sorted(path.name for path in (Path(folder) / "new").iterdir())
        assert files == ["graph.safetensors", "vocabulary.json"]


def test_graphs_that_cannot_be_loaded(tmp_path: Path) -> None:
    graph = load_graph(fill(tmp_path / "letters"))
    with raises(f"No graph in {tmp_path}: vocabulary.json is missing."):
        KnowledgeGraph.load(tmp_path)
    saved = tmp_path / "saved"
    graph.save(saved)
    (saved / "graph.safetensors").unlink()
    with raises(f"No graph in {saved}: graph.safetensors is missing."):
        KnowledgeGraph.load(saved)
    (saved / "graph.safetensors").write_bytes(b"nonsense")
    with pytest.raises(EkgnError, match=re.escape(f"The graph in {saved} cannot be read: ")):
        KnowledgeGraph.load(saved)
    graph.save(saved)
    words = (saved / "vocabulary.json").read_text()
    (saved / "vocabulary.json").write_text(words.replace('"letters"', '"numbers"'))
    with raises(
        f"The graph in {saved} was changed or only half written: "
        "vocabulary.json and graph.safetensors do not belong together."
    ):
        KnowledgeGraph.load(saved)


def test_a_graph_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_graph(fill(tmp_path / "letters")).save(tmp_path / "saved")
    monkeypatch.setattr(graph_module, "_FORMAT", 3)
    with raises(f"The graph in {tmp_path / 'saved'} was written by another version of ekgn."):
        KnowledgeGraph.load(tmp_path / "saved")


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    graph = load_graph(fill(tmp_path / "letters"))
    (tmp_path / "file").write_text("")
    with pytest.raises(EkgnError, match=re.escape(f"Could not write {tmp_path / 'file'}")):
        graph.save(tmp_path / "file")


def test_the_second_load_comes_from_the_cache(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(tmp_path / "letters")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    graph = load_graph(folder)
    assert len(list(own_cache.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.delattr(graph_module, "read_triples")
        assert same(load_graph(folder), graph)
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "test.tsv").write_text("a\tr\tb\n")
    assert len(load_graph(folder).test) == 1, "changed files are read again"
    names = tmp_path / "names.tsv"
    names.write_text("a\tAlpha\n")
    assert "Alpha" in load_graph(folder, names=[names]).entities.labels
    assert len(list(own_cache.iterdir())) == 3


@pytest.mark.parametrize("file", ["graph.safetensors", "vocabulary.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_cache_is_rebuilt(
    tmp_path: Path, own_cache: Path, file: str, damage: str
) -> None:
    folder = fill(tmp_path / "letters")
    graph = load_graph(folder)
    (entry,) = own_cache.iterdir()
    data = (entry / file).read_bytes()
    if damage == "gone":
        (entry / file).unlink()
    else:
        cut, flipped = data[: len(data) // 2], data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        (entry / file).write_bytes(cut if damage == "cut" else flipped)
    assert same(load_graph(folder), graph)
    assert (entry / file).read_bytes() == data


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    assert len(load_graph(fill(tmp_path / "letters"), cache_dir=blocked).train) == 3
    assert any(message.startswith("letters was not cached: ") for message in caplog.messages)


def test_the_cache_forgets_the_oldest(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_module, "_CACHED_GRAPHS", 2)
    path = tmp_path / "ring.tsv"
    path.write_text(ring())
    for seed in range(3):
        load_graph(path, seed=seed)
        newest = max(own_cache.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
        os.utime(newest, (seed, seed))
    assert len(list(own_cache.iterdir())) == 2


def test_fb15k_is_read_by_the_fast_route_and_then_from_the_cache(
    benchmarks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(triples_module, "_careful_rows")
    graph = load_graph("fb15k", data_dir=benchmarks, cache_dir=tmp_path)
    monkeypatch.delattr(graph_module, "read_triples")
    assert same(load_graph("fb15k", data_dir=benchmarks, cache_dir=tmp_path), graph)


@pytest.mark.slow
def test_a_million_triples(benchmarks: Path, tmp_path: Path) -> None:
    folder = benchmarks / "scale" / "geonames"
    if not folder.is_dir():
        pytest.skip("the GeoNames graph is not in EKGN_DATA")
    options = {"names": [folder / "names.tsv"], "cache_dir": tmp_path}
    graph = load_graph(folder / "triples.tsv", **options)  # type: ignore[arg-type]
    assert (graph.num_entities, graph.num_relations) == (239_844, 10)
    assert len(triples_of(graph)) == 945_463
    assert len({*graph.train[:, [0, 2]].ravel().tolist()}) == 239_844
    assert same(load_graph(folder / "triples.tsv", **options), graph)  # type: ignore[arg-type]
