"""Every reader on good, odd, damaged and hostile files: the triples, or one clear message."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ekgn.errors import EkgnError
from ekgn.kbc import parquet, triples, unpack
from ekgn.kbc.columns import COLUMNS
from ekgn.kbc.graph import load_graph
from ekgn.kbc.triples import FORMATS, read_names, read_triples
from tests.test_triples import THREE, Rows, fails, needs_zstd, rows, table, tsv, write, zstd


def parquet_bytes(content: Rows) -> bytes:
    target = io.BytesIO()
    pl.DataFrame(content, schema=COLUMNS, orient="row").write_parquet(target)
    return target.getvalue()


@pytest.mark.parametrize(
    ("ending", "pack"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        pytest.param(".zst", zstd, marks=needs_zstd),
    ],
)
def test_compressed_parquet(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / f"x.parquet{ending}", pack(parquet_bytes(THREE)))
    assert rows(path) == THREE


def test_zstd_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, unpack._ZSTD, None)
    fails(
        write(tmp_path / "x.tsv.zst", zstd(tsv(THREE).encode())),
        " is zstd, which needs backports.zstd. Install it with: pip install backports.zstd",
    )


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_what_unpacks_to_too_much_is_refused_before_it_is_held(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.tsv.packed", pack(b"a\tr\tb\n" * 500_000))
    monkeypatch.setenv(unpack.MOST, "0.001")
    fails(
        path,
        " unpacks to more than 0.000999999 GB. If it is meant to, "
        "set EKGN_MAX_GB to the gigabytes it may take.",
    )
    monkeypatch.setenv(unpack.MOST, "1")
    assert len(rows(path)) == 500_000
    monkeypatch.setenv(unpack.MOST, "much")
    with pytest.raises(EkgnError, match=r"^EKGN_MAX_GB is 'much': expected a number of gigabytes"):
        read_triples(path)


@settings(max_examples=60)
@given(st.data())
def test_an_archive_cut_or_changed_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    text = tsv(THREE * 20).encode()
    packed = bytearray(data.draw(st.sampled_from([gzip.compress(text), lzma.compress(text)])))
    place = data.draw(st.integers(0, len(packed) - 1))
    if data.draw(st.booleans()):
        del packed[place:]
    else:
        packed[place] ^= data.draw(st.integers(1, 255))
    read_or_refused("x.tsv.packed", bytes(packed))


def read_or_refused(file: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / file, content)
        readers: list[Callable[[Path], object]] = [read_triples, read_names]
        for read in readers:
            try:
                read(path)
            except EkgnError as error:
                assert str(path) in str(error)


TEXTS = st.one_of(
    st.binary(max_size=80),
    st.text('ab\t,;|#"\n\r é', max_size=60).map(str.encode),
    st.text("<>:/ab._@{}[]\"'^ \n\\#?=", max_size=60).map(str.encode),
    st.sampled_from([b'{"head": {"vars": ["a"]}}', b'{"@id": 1}', b"<sparql/>", b"<rdf:RDF/>"]),
)


@settings(max_examples=300)
@given(TEXTS, st.sampled_from([name for name in FORMATS if name != ".parquet"]))
def test_any_bytes_in_any_form_are_read_or_refused(content: bytes, kind: str) -> None:
    read_or_refused(f"x{kind}", content)


@settings(max_examples=40)
@given(table(), st.sampled_from([";", "|"]))
def test_other_separators_round_trip(content: Rows, separator: str) -> None:
    quoted = [[f'"{value.replace(chr(34), chr(34) * 2)}"' for value in row] for row in content]
    text = "\n".join(separator.join(row) for row in quoted)
    with tempfile.TemporaryDirectory() as folder:
        path = write(
            Path(folder) / "x.csv", f"subject{separator}predicate{separator}object\n{text}"
        )
        assert rows(path) == content


def test_plain_semicolons_and_bars(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "x.csv", "Bonn, DE;in;Europe\na;r;b\n"))[0][0] == "Bonn, DE"
    assert rows(write(tmp_path / "x.txt", "a|r|b\nb|r|c\n")) == [("a", "r", "b"), ("b", "r", "c")]
    fails(
        write(tmp_path / "y.txt", "a|r|b\nb|r\n"),
        ", line 2: expected 3 columns (head, relation, tail) separated by bars, found 2: 'b', 'r'",
    )
    assert read_names(write(tmp_path / "n.csv", "id;label\n1;Rome\n")) == {"1": ("Rome", "")}


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triples, "_LONGEST_LINE", 1000)
    fails(
        write(tmp_path / "x.tsv", tsv(THREE * 100) + "x" * 1001),
        ", line 301: over 1,000 bytes long. Is this a file of triples, one a line?",
    )
    assert len(rows(write(tmp_path / "y.tsv", tsv([("a" * 400, "r", "b" * 400)] * 9)))) == 9


def ring(count: int = 30) -> str:
    return "".join(f"e{i},next,e{(i + 1) % count}\ne{i},near,e{i}\n" for i in range(count))


def test_an_unknown_header_is_no_fact_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "x.csv", "person,knows_how,other\n" + ring())
    assert len(rows(path)) == 60
    for _ in range(2):  # read, then from the cache
        caplog.clear()
        graph = load_graph(path, cache_dir=tmp_path)
        assert graph.num_relations == 2
        assert "the first line of train is taken for a header, not for a fact" in caplog.text
        assert "person, knows_how, other" in caplog.text
    assert len(rows(write(tmp_path / "y.csv", "e1,knows,e2\n" + ring()))) == 61
    assert len(rows(write(tmp_path / "z.csv", "p,knows,q\nb,r,c\n"))) == 2
    wide = write(tmp_path / "w.csv", "person,knows,other,weight\na,r,b,1\n")
    with pytest.raises(EkgnError, match=re.escape("A header names them: head, relation, tail.")):
        read_triples(wide)


def test_a_folder_of_triples_and_names(tmp_path: Path) -> None:
    write(tmp_path / "triples.csv", ring())
    write(tmp_path / "names.tsv", "e1\tFirst\n")
    graph = load_graph(tmp_path, cache_dir=tmp_path / "cache")
    assert graph.name == tmp_path.name and len(graph.test) == 3
    assert "First" in graph.entities.labels


A, B, R = "http://x/a", "http://x/b", "http://x/r"
FORMS = {
    "x.jsonld": json.dumps({"@id": A, R: {"@id": B}, "http://x/size": 3}),
    "x.json": json.dumps([{"@id": A, R: [{"@id": B}]}]),
    "x.n3": f"<{A}> <{R}> <{B}> .",
    "x.xml": (
        '<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/">'
        f'<r:Description r:about="{A}"><x:r r:resource="{B}"/></r:Description></r:RDF>'
    ),
    "x.srj": json.dumps(
        {
            "head": {"vars": ["o", "s", "p"]},
            "results": {
                "bindings": [
                    {
                        "s": {"type": "uri", "value": A},
                        "p": {"type": "uri", "value": R},
                        "o": {"type": "uri", "value": B},
                    },
                    {"s": {"type": "uri", "value": A}},
                ]
            },
        }
    ),
    "x.tsv": f"?subject\t?predicate\t?object\n<{A}>\t<{R}>\t<{B}>\n<{A}>\t<{R}>\t3\n",
    "x.srx": (
        '<?xml version="1.0"?><sparql xmlns="http://www.w3.org/2005/sparql-results#"><head>'
        '<variable name="a"/><variable name="b"/><variable name="c"/></head><results><result>'
        f'<binding name="a"><uri>{A}</uri></binding><binding name="b"><uri>{R}</uri></binding>'
        f'<binding name="c"><uri>{B}</uri></binding></result></results></sparql>'
    ),
}


@pytest.mark.parametrize("file", FORMS)
def test_the_many_forms_of_rdf(tmp_path: Path, file: str) -> None:
    pytest.importorskip("pyoxigraph")
    result = read_triples(write(tmp_path / file, FORMS[file]))
    assert result.frame.rows() == [(A, R, B)]
    assert result.names[A] == ("a", "")


def test_an_answer_goes_by_its_content_too(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    assert rows(write(tmp_path / "x.json", FORMS["x.srj"])) == [(A, R, B)]
    assert rows(write(tmp_path / "x.xml", FORMS["x.srx"])) == [(A, R, B)]
    fails(
        write(tmp_path / "y.srj", '{"head": {"vars": ["x"]}, "results": {"bindings": []}}'),
        " has the variables x: expected ?head ?relation ?tail (or ?s ?p ?o).",
    )
    fails(
        write(tmp_path / "z.srj", '{"head": {}, "boolean": true}'),
        " answers an ASK query: expected triples, from SELECT.",
    )
    fails(
        write(tmp_path / "x.jsonld", '{"@context": "http://x/c", "@id": "http://x/a"}'),
        ": its @context is on the web, and nothing is fetched. Put it into the file.",
    )


@pytest.mark.parametrize("flips", [2, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_parquet_is_refused_or_read(tmp_path: Path, flips: int) -> None:
    whole = parquet_bytes([(f"e{i}", f"r{i % 3}", f"e{i + 1}") for i in range(50)])
    draw = random.Random(5)
    for _ in range(flips):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        read_once(write(tmp_path / "x.parquet", bytes(content)))
    read_once(write(tmp_path / "x.parquet", whole[: len(whole) // 2]))


def read_once(path: Path) -> None:
    try:
        read_triples(path)
    except EkgnError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.abort()", "its reader died of SIGABRT."),
        ("raise SystemExit('no memory')", "its reader failed: no memory."),
    ],
)
def test_a_reader_that_dies_is_one_message(
    tmp_path: Path, code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_READER", ("-c", code))
    path = write(tmp_path / "x.parquet", parquet_bytes(THREE))
    fails(path, f" is not a readable Parquet file: {reason}")


def test_a_panic_of_polars_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise Panic("index out of bounds\nmore")

    monkeypatch.setattr(pl, "read_parquet", panic)
    problem = parquet._table(parquet_bytes(THREE))[1]
    assert problem == " is not a readable Parquet file: index out of bounds"
    monkeypatch.undo()
    monkeypatch.setenv(unpack.MOST, "0.00000001")
    assert " unpacks to more than " in parquet._table(parquet_bytes(THREE))[1]
