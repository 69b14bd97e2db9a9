"""Benchmarks by name: where they are looked for, how they are fetched and verified."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ekgn.errors import EkgnError
from ekgn.kbc import datasets
from ekgn.kbc.datasets import BENCHMARKS, Benchmark, dataset_table, find_data
from ekgn.kbc.graph import load_graph
from ekgn.kbc.triples import FORMATS

CONTENT = {
    "train.txt": b"a\tr\tb\nb\tr\tc\nc\ts\ta\n",
    "valid.txt": b"a\ts\tb\n",
    "test.txt": b"b\ts\tc\n",
}
TOY = Benchmark(
    name="Toy",
    folder="toy_files",
    description="three letters",
    triples=(3, 1, 1),
    entities=3,
    relations=2,
    sha256=tuple(hashlib.sha256(data).hexdigest() for data in CONTENT.values()),  # type: ignore[arg-type]
    mirrors=(),
    names="toy.tsv",
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's own folders out of the tests."""
    monkeypatch.delenv("EKGN_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(BENCHMARKS, "toy", TOY)
    return tmp_path / "own" / "ekgn"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a web server on loopback, and the folder it serves."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}", folder
        web.shutdown()
        thread.join()


def fill(folder: Path, content: dict[str, bytes] = CONTENT) -> Path:
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def raises(message: str) -> pytest.RaisesExc[EkgnError]:
    return pytest.raises(EkgnError, match="^" + re.escape(message) + "$")


def test_the_registry_holds_the_published_checksums(benchmarks: Path) -> None:
    sums = {}
    for line in (benchmarks / "SHA256SUMS").read_text().splitlines():
        digest, file = line.split()
        sums[file] = digest
    for benchmark in BENCHMARKS.values():
        if benchmark is not TOY:
            for file, digest in zip(benchmark.files, benchmark.sha256, strict=True):
                assert sums.pop(f"{benchmark.folder}/{file}") == digest
    assert not sums


@pytest.mark.parametrize("name", [key for key in BENCHMARKS if key != "toy"])
def test_every_benchmark_loads_as_published(name: str, benchmarks: Path, tmp_path: Path) -> None:
    graph = load_graph(name, data_dir=benchmarks, cache_dir=tmp_path)
    known = BENCHMARKS[name]
    assert graph.name == known.name
    assert (graph.num_entities, graph.num_relations) == (known.entities, known.relations)
    dropped = graph.source["duplicates_dropped"]
    assert dropped == {"train": int(name.startswith("countries")), "valid": 0, "test": 0}
    lines = [len(graph.split(split)) + dropped[split] for split in datasets.SPLITS]
    assert tuple(lines) == known.triples
    assert not any(graph.source["overlaps"].values())


@pytest.mark.parametrize(
    ("name", "valid", "test"), [("fb15k-237", (8, 9), (29, 28)), ("wn18rr", (198, 210), (209, 210))]
)
def test_unseen_entities_of_benchmarks(
    name: str, valid: tuple[int, int], test: tuple[int, int], benchmarks: Path, tmp_path: Path
) -> None:
    unseen = load_graph(name, data_dir=benchmarks, cache_dir=tmp_path).source["unseen"]
    assert (unseen["valid"]["entities"], unseen["valid"]["triples"]) == valid
    assert (unseen["test"]["entities"], unseen["test"]["triples"]) == test


def test_benchmark_names_are_readable(benchmarks: Path, tmp_path: Path) -> None:
    wordnet = load_graph("wn18rr", data_dir=benchmarks, cache_dir=tmp_path)
    if not wordnet.source["names"]:
        pytest.skip("the names files are not in EKGN_DATA")
    assert len(set(wordnet.entities.labels)) == wordnet.num_entities
    assert wordnet.entities.labels[wordnet.entities.index_of["00001930"]] == "physical entity.n.1"
    assert wordnet.relations.labels == wordnet.relations.ids
    freebase = load_graph("fb15k-237", data_dir=benchmarks, cache_dir=tmp_path)
    assert (
        freebase.entities.find("barack obama", "entity", freebase.name)
        == (freebase.entities.index_of["/m/02mjmr"])
    )


def test_a_benchmark_is_found_by_name_whatever_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    given, env = tmp_path / "given", tmp_path / "env"
    for place in (own_folders, env, given):
        fill(place / "toy_files")
        monkeypatch.setenv("EKGN_DATA", str(env))
    assert find_data("TOY", given).files["train"] == given / "toy_files" / "train.txt"
    assert find_data("toy").files["train"] == env / "toy_files" / "train.txt"
    monkeypatch.delenv("EKGN_DATA")
    assert find_data("Toy").files["train"] == own_folders / "toy_files" / "train.txt"
    assert find_data("Toy").benchmark is TOY
    monkeypatch.setitem(BENCHMARKS, "toy-2", TOY)
    assert find_data("toy_2").benchmark is TOY


def test_folder_and_names_file_of_a_benchmark(tmp_path: Path) -> None:
    fill(tmp_path / "data" / "toy")
    names = tmp_path / "data" / "names" / "toy.tsv"
    assert find_data("toy", tmp_path / "data").names == ()
    names.parent.mkdir()
    names.write_text("a\tAlpha\n")
    assert find_data("toy", tmp_path / "data").names == (names,)
    assert load_graph("toy", data_dir=tmp_path / "data").entities.labels == ("Alpha", "b", "c")


def test_a_path_is_not_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "toy")
    monkeypatch.chdir(tmp_path)
    assert find_data(Path("toy")).benchmark is None
    assert find_data("./toy").benchmark is None
    assert find_data("./toy").name == "toy"


def test_unknown_data(tmp_path: Path) -> None:
    names = ", ".join(["world", *BENCHMARKS])
    with raises(
        f"No data 'fb15k-273': expected a file, a directory, or one of {names}. "
        "Did you mean 'fb15k-237' or 'fb15k'?"
    ):
        find_data("fb15k-273")
    missing = tmp_path / "zzz.tsv"
    with raises(f"No data '{missing}': expected a file, a directory, or one of {names}."):
        find_data(missing)


def test_directory_files(tmp_path: Path) -> None:
    folder = fill(
        tmp_path / "My Graph",
        {"Train.tsv.gz": b"x", "dev.csv": b"x", "test.parquet": b"x", "names.tsv": b"x"}
        | {"train.pkl": b"x", "entities.dict": b"x", "README.md": b"x"},
    )
    found = find_data(folder)
    assert found.name == "My Graph"
    assert {split: path.name for split, path in found.files.items()} == {
        "train": "Train.tsv.gz",
        "valid": "dev.csv",
        "test": "test.parquet",
    }
    assert [path.name for path in found.names] == ["names.tsv"]


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    empty = fill(tmp_path / "empty", {})
    start = f"expected train.txt or triples.txt (also {' '.join(FORMATS[1:])}, "
    with raises(f"{empty} has no train file: {start}with or without .gz .xz .zst), found nothing."):
        find_data(empty)
    other = fill(tmp_path / "other", {"test.txt": b"x", "train.pkl": b"x"})
    with raises(
        f"{other} has no train file: {start}with or without .gz .xz .zst), "
        "found test.txt, train.pkl."
    ):
        find_data(other)
    twice = fill(tmp_path / "twice", {"train.txt": b"x", "dev.txt": b"x", "valid.txt": b"x"})
    with raises(f"{twice} has several valid files (dev.txt, valid.txt): keep one of them."):
        find_data(twice)


def test_the_name_of_a_single_file(tmp_path: Path) -> None:
    folder = fill(tmp_path / "geo", {"places.tsv.gz": b"x", "triples.tsv": b"x"})
    assert find_data(folder / "places.tsv.gz").name == "places"
    assert find_data(folder / "triples.tsv").name == "geo"


def test_download_goes_to_the_users_own_folder(
    server: tuple[str, Path], own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, web = server
    fill(web / "wrong", {**CONTENT, "test.txt": b"b\ts\ta\n"})
    fill(web / "windows", {name: data.replace(b"\n", b"\r\n") for name, data in CONTENT.items()})
    mirrors = tuple(f"{address}/{name}" for name in ("nowhere", "wrong", "windows"))
    monkeypatch.setitem(BENCHMARKS, "toy", replace(TOY, mirrors=mirrors))
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    graph = load_graph("toy", data_dir=data_dir)
    assert len(graph.train) == 3
    assert not list(data_dir.iterdir())
    assert [path.name for path in own_folders.iterdir()] == ["toy_files"]
    for name, data in CONTENT.items():
        assert (own_folders / "toy_files" / name).read_bytes() == data


def test_failed_download(
    server: tuple[str, Path], own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, web = server
    fill(web / "wrong", {**CONTENT, "train.txt": b"b\ts\ta\n"})
    digest = hashlib.sha256(b"b\ts\ta\n").hexdigest()[:12]
    mirrors = (f"{address}/nowhere", f"{address}/wrong")
    monkeypatch.setitem(BENCHMARKS, "toy", replace(TOY, mirrors=mirrors))
    with raises(
        "Toy is not here and could not be downloaded.\n"
        "Looked for train.txt, valid.txt, test.txt in: "
        f"{tmp_path / 'data' / 'toy_files'}, {own_folders / 'toy_files'}.\n"
        f"Tried: {mirrors[0]}: HTTP Error 404: File not found; "
        f"{mirrors[1]}: train.txt is not the published file (sha256 {digest}...).\n"
        "If you have the files in DIR/toy_files, set EKGN_DATA=DIR or use --data-dir DIR."
    ):
        find_data("toy", tmp_path / "data")
    assert not list(own_folders.iterdir())


def test_changed_files_are_refused(tmp_path: Path) -> None:
    changed = b"b\ts\ta\n"
    folder = fill(tmp_path / "data" / "toy_files", {**CONTENT, "valid.txt": changed})
    found, expected = hashlib.sha256(changed).hexdigest()[:12], TOY.sha256[1][:12]
    with raises(
        f"{folder / 'valid.txt'} is not the published Toy file: its sha256 is {found}..., expected "
        f"{expected}.... Fetch it again, or use the files as they are by giving their directory "
        f"as DATA: {folder}"
    ):
        load_graph("toy", data_dir=tmp_path / "data")
    assert len(load_graph(str(folder)).valid) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"triples": (3, 1, 2)}, "(3, 1, 1) train / valid / test triples, expected (3, 1, 2)"),
        ({"entities": 4}, "3 entities, expected 4"),
        ({"relations": 1}, "2 relations, expected 1"),
    ],
)
def test_wrong_counts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, int], message: str
) -> None:
    fill(tmp_path / "data" / "toy_files")
    monkeypatch.setitem(BENCHMARKS, "toy", replace(TOY, **wrong))  # type: ignore[arg-type]
    with raises(f"Toy has {message}."):
        load_graph("toy", data_dir=tmp_path / "data")


def test_the_table_says_what_is_here(tmp_path: Path) -> None:
    folder = fill(tmp_path / "data" / "toy_files")
    rows = {row.name: row for row in dataset_table(tmp_path / "data")}
    assert rows["toy"].found == str(folder)
    assert (rows["toy"].triples, rows["toy"].entities, rows["toy"].relations) == (5, 3, 2)
    assert rows["fb15k"].found is None
    assert rows["fb15k"].triples == 592_213
    assert {"wn18", "wn18rr", "fb15k-237", "kinship", "umls", "nations", "countries-s3"} < {*rows}


def test_the_bundled_graph_needs_no_data_directory(tmp_path: Path) -> None:
    graph = load_graph("World")
    row = dataset_table()[0]
    assert (row.name, row.entities, row.relations) == (
        "world",
        graph.num_entities,
        graph.num_relations,
    )
    assert row.triples == len(graph.train) + len(graph.valid) + len(graph.test)
    assert not any(graph.source["duplicates_dropped"].values())
    assert not any(graph.source["overlaps"].values())
    assert not any(graph.source["unseen"]["test"].values())
    assert graph.entities.find("France", "entity", graph.name) >= 0


def test_a_missing_bundled_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "BUNDLED", "atlantis")
    with raises("The bundled graph 'atlantis' is missing: install ekgn again."):
        find_data("atlantis")
    assert "atlantis" not in [row.name for row in dataset_table()]
