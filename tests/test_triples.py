"""Files of triples and of names: what is read, what is skipped, and what each mistake says."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import lzma
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ekgn.errors import EkgnError
from ekgn.kbc import triples, unpack
from ekgn.kbc.columns import COLUMNS, header_order
from ekgn.kbc.triples import format_of, gather_names, read_names, read_triples

Rows = list[tuple[str, str, str]]
THREE: Rows = [("a", "r", "b"), ("b", "r", "c"), ("é ü", "s", "東京")]


def has(module: str) -> bool:
    try:
        return importlib.import_module(module) is not None
    except ImportError:
        return False


needs_zstd = pytest.mark.skipif(not has(unpack._ZSTD), reason=f"needs {unpack._ZSTD}")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path) -> Rows:
    frame = read_triples(path).frame
    assert frame.columns == list(COLUMNS)
    assert set(frame.dtypes) == {pl.String}
    return frame.rows()


def tsv(content: Rows) -> str:
    return "".join("\t".join(row) + "\n" for row in content)


def zstd(data: bytes) -> bytes:
    """A zstd frame that stores the data as it is (RFC 8878: one raw block)."""
    size = len(data)
    return (
        b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little") + (size << 3 | 1).to_bytes(3, "little")
    ) + data


def fails(path: Path, message: str) -> None:
    """Reading raises exactly this message, after the path."""
    with pytest.raises(EkgnError, match="^" + re.escape(f"{path}{message}") + "$"):
        read_triples(path)


def name(min_size: int = 1) -> st.SearchStrategy[str]:
    """An identifier: any text that is not blank and has no line end, tab or byte order mark."""
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\ufeff")
    return st.text(letters, min_size=min_size, max_size=8).filter(lambda text: text.strip() != "")


def table() -> st.SearchStrategy[Rows]:
    head = name().filter(lambda text: not text.startswith("# "))
    lists = st.lists(st.tuples(head, name(), name()), min_size=1, max_size=8)
    return lists.filter(lambda found: header_order(found[0]) is None)


@settings(deadline=None)
@given(table())
@example([("#", "0", "0")])
def test_tab_separated_round_trip(content: Rows) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert rows(write(Path(folder) / "x.tsv", tsv(content))) == content


@settings(deadline=None)
@given(table())
def test_csv_round_trip(content: Rows) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(content)
    with tempfile.TemporaryDirectory() as folder:
        assert rows(write(Path(folder) / "x.csv", text.getvalue())) == content


@settings(deadline=None)
@given(st.text('ab\t,#"\n\r ', max_size=40), st.sampled_from(["x.tsv", "x.csv"]))
def test_the_fast_route_accepts_nothing_that_the_careful_one_reads_otherwise(
    text: str, file: str
) -> None:
    path = Path(file)
    data = triples._plain_lines(path, text.encode())
    separator = triples._separator(path, data, width=3)
    fast = triples._fast_rows(triples._without_preamble(data), separator)
    if fast is not None:
        assert fast.rows() == triples._careful_rows(path, data, separator).rows()


def test_clean_files_take_the_fast_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(triples, "_careful_rows")
    clean = "# made by hand\n\n#\nhead\trelation\ttail\n" + tsv(THREE)
    assert rows(write(tmp_path / "x.txt", clean)) == THREE


@pytest.mark.parametrize(
    ("ending", "pack"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        pytest.param(".zst", zstd, marks=needs_zstd),
    ],
)
def test_compressed_text(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / f"x.tsv{ending}", pack(tsv(THREE).encode()))
    assert rows(path) == THREE
    assert format_of(path) == ".tsv"
    misnamed = write(tmp_path / "misnamed.txt", pack(tsv(THREE).encode()))
    assert rows(misnamed) == THREE


@needs_zstd
def test_zstd_as_others_write_it(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.zst"
    pl.DataFrame(THREE, schema=COLUMNS, orient="row").write_csv(path, compression="zstd")
    assert rows(path) == THREE


@pytest.mark.parametrize(
    "content",
    [
        tsv(THREE).replace("\n", "\r\n"),
        "\ufeff" + tsv(THREE),
        "\ufeffhead\trelation\ttail\r\n" + tsv(THREE).replace("\n", "\r\n").rstrip("\r\n") + "\r",
        tsv(THREE).rstrip("\n"),
        "\n  \n"
        + tsv(THREE[:1])
        + "\n# a comment\n#\n#nothing\n# a\tb\tc\n"
        + tsv(THREE[1:])
        + "\n",
        "Subject\tPredicate\tObject\n" + tsv(THREE),
        "#h\tr\tt\n" + tsv(THREE),
        "\n".join(",".join(row) for row in THREE),
    ],
)
def test_text_as_people_write_it(tmp_path: Path, content: str) -> None:
    assert rows(write(tmp_path / "x.txt", content)) == THREE
    assert rows(write(tmp_path / "no_extension", content)) == THREE


def test_a_hash_may_start_an_identifier(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "#metoo\tabout\tx\n# metoo\tabout\ty\n#metoo about z\n")
    assert rows(path) == [("#metoo", "about", "x")]
    path = write(tmp_path / "x.csv", '#metoo,about,"x, y"\n# places, people, things\n#a,b\n')
    assert rows(path) == [("#metoo", "about", "x, y")]


def test_quotes_are_literal_between_tabs_and_quote_in_csv(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "x.tsv", '"a"\tr\tb"\n')) == [('"a"', "r", 'b"')]
    quoted = 'a,r,"b ""c"", d"\ne,"r\ns",f\ng,r,h\n'
    expected = [("a", "r", 'b "c", d'), ("e", "r\ns", "f"), ("g", "r", "h")]
    assert rows(write(tmp_path / "x.csv", quoted)) == expected


def test_a_header_names_its_columns_in_any_order_beside_others(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "target,weight,type,source\nb,1,r,a\nc,,r,b\n")
    assert rows(path) == [("a", "r", "b"), ("b", "r", "c")]
    assert rows(write(tmp_path / "y.csv", "Tail,Head,Relation\nb,a,r\n")) == [("a", "r", "b")]
    assert header_order(["source", "antonym", "target"]) is None


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"tail": ["b"], "weight": [0.5], "relation": ["r"], "head": ["a"]}).write_parquet(
        path
    )
    assert rows(path) == [("a", "r", "b")]
    pl.DataFrame({"x": [1, 2], "y": ["r", "r"], "z": [2, 3]}).write_parquet(path)
    assert rows(path) == [("1", "r", "2"), ("2", "r", "3")]
    assert rows(path.rename(tmp_path / "no_extension")) == [("1", "r", "2"), ("2", "r", "3")]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            {"a": ["x"], "b": ["y"]},
            " has the columns a, b: expected head, relation, tail (or subject, predicate, object).",
        ),
        (
            {"head": ["a", "b"], "relation": ["r", None], "tail": ["b", "c"]},
            ", row 2: the relation is empty. Every field is needed.",
        ),
        (
            {"head": [[1]], "relation": ["r"], "tail": ["b"]},
            " has columns that are not text or numbers "
            "(head: List(Int64), relation: String, tail: String).",
        ),
    ],
)
def test_bad_parquet(tmp_path: Path, frame: dict[str, list[object]], message: str) -> None:
    pl.DataFrame(frame).write_parquet(tmp_path / "x.parquet")
    fails(tmp_path / "x.parquet", message)


def test_broken_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", "PAR1 and nothing more")
    with pytest.raises(EkgnError, match=re.escape(f"{path} is not a readable Parquet file: ")):
        read_triples(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a\tr\tb\na\tb\n",
            ", line 2: expected 3 columns (head, relation, tail) separated by tabs, "
            "found 2: 'a', 'b'",
        ),
        (
            b"# note\n\na\tr\tb\na\tr\tb\tc\n",
            ", line 4: expected 3 columns (head, relation, tail) separated by tabs, "
            "found 4: 'a', 'r', 'b', 'c'",
        ),
        (
            b"a r b\n",
            ", line 1: expected 3 columns (head, relation, tail) separated by tabs, "
            "found 1: 'a r b'",
        ),
        (
            b"a\tr\tb\n" + b"x" * 300,
            ", line 2: expected 3 columns (head, relation, tail) separated by tabs, "
            "found 1: '" + "x" * 99 + "...",
        ),
        (
            b"source\ttype\ttarget\tweight\na\tr\tb\t1\na\tr\tb\n",
            ", line 3: expected 4 columns (as in the header) separated by tabs, "
            "found 3: 'a', 'r', 'b'",
        ),
        (b"a\tr\tb\n\tr\tb\n", ", line 2: the head is empty. Every field is needed."),
        (b"a\t \tb\n", ", line 1: the relation is empty. Every field is needed."),
        (b"a\tr\t\r\n", ", line 1: the tail is empty. Every field is needed."),
        (b"\t\t\n", ", line 1: the head is empty. Every field is needed."),
        (
            b"a\tr\tb\n\na\tr\t\xe9t\xe9\n",
            ", line 3: not valid UTF-8 (byte 0xe9). Save it as UTF-8.",
        ),
        (
            "a\tr\tb\n".encode("utf-16"),
            ", line 1: this is UTF-16, not UTF-8. Save it as UTF-8.",
        ),
        (b"", " is empty."),
        (b" \n\n", " is empty."),
        (gzip.compress(b"", mtime=0), " is empty."),
        (b"# only\n# comments\n", " has no triples: expected lines of head, relation, tail."),
        (b"head\trelation\ttail\n", " has no triples: expected lines of head, relation, tail."),
        pytest.param(
            zstd(b"a\tr\tb\n\na\tr\t\xe9t\xe9\n"),
            ", line 3: not valid UTF-8 (byte 0xe9). Save it as UTF-8.",
            marks=needs_zstd,
        ),
    ],
)
def test_malformed_text_names_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    fails(write(tmp_path / "train.txt", content), message)


def test_malformed_csv(tmp_path: Path) -> None:
    expected = "expected 3 columns (head, relation, tail) separated by commas"
    path = write(tmp_path / "x.csv", 'a,r,"b\nc"\na,r\n')
    fails(path, f", line 3: {expected}, found 2: 'a', 'r'")
    path = write(tmp_path / "x.csv", 'a,r,b\na,r,"b\n')
    fails(path, ", line 2: broken quotes (unexpected end of data).")


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, pytest.param(zstd, marks=needs_zstd)]
)
def test_damaged_archives(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / "x.tsv.packed", pack(tsv(THREE * 50).encode())[:-20])
    with pytest.raises(EkgnError, match=re.escape(f"{path} is damaged and cannot be unpacked: ")):
        read_triples(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match=re.escape(f"No such file: {tmp_path / 'x.txt'}")):
        read_triples(tmp_path / "x.txt")
    fails(tmp_path, " is a directory: expected one file.")
    fails(
        write(tmp_path / "x.bin", b"\x7fELF\x00\x00"),
        " is not a file of triples: expected text, Parquet or RDF "
        "(.txt .tsv .csv .parquet .nt .ttl .n3 .nq .trig .rdf .owl .xml .jsonld .json .srj .srx).",
    )


TURTLE = """
@prefix e: <http://example.org/thing/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
e:Paris e:in e:France ; e:population 2100000 ; rdfs:label "Parigi"@it, "Paris"@en, "Lutetia"@la ;
    rdfs:comment "capital city" .
e:France e:has [ e:in e:Europe%20%28west%29 ] .
"""


def test_rdf_keeps_links_and_labels_and_counts_literals(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    result = read_triples(write(tmp_path / "x.ttl", TURTLE))
    thing = "http://example.org/thing/"
    assert result.frame.row(0) == (thing + "Paris", thing + "in", thing + "France")
    assert result.frame.height == 3
    assert sum(head.startswith("_:") for head in result.frame["head"]) == 1
    assert result.literals_skipped == 1
    assert result.names[thing + "Paris"] == ("Paris", "capital city")
    assert result.names[thing + "France"] == ("France", "")
    assert result.names[thing + "Europe%20%28west%29"][0] == "Europe (west)"


@needs_zstd
def test_compressed_n_triples(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    content = b"<http://x/a#A> <http://x/r> <http://x/b/> .\n"
    result = read_triples(write(tmp_path / "x.nt.zst", zstd(content)))
    assert result.frame.rows() == [("http://x/a#A", "http://x/r", "http://x/b/")]
    assert [result.names[node][0] for node in result.frame.row(0)] == ["A", "r", "b"]


def test_bad_rdf(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    path = write(tmp_path / "x.nt", "<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> oops\n")
    with pytest.raises(EkgnError, match=re.escape(f"{path}, line 2: ")):
        read_triples(path)
    fails(
        write(tmp_path / "y.nt", '<http://x/a> <http://x/r> "1" .\n'),
        " has no triples (only 1 literals): expected lines of head, relation, tail.",
    )


def test_rdf_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    fails(
        write(tmp_path / "x.nt", "<http://x/a> <http://x/r> <http://x/b> .\n"),
        " is RDF, which needs pyoxigraph. Install it with: pip install 'ekgn[rdf]'",
    )


def test_names_without_header(tmp_path: Path) -> None:
    path = write(
        tmp_path / "names.tsv", "# ours\n/m/1\tRome\tcity, Italy\tmore\n\n/m/2\tPo\n/m/3\t\n"
    )
    assert read_names(path) == {
        "/m/1": ("Rome", "city, Italy"),
        "/m/2": ("Po", ""),
        "/m/3": ("", ""),
    }


def test_names_with_header(tmp_path: Path) -> None:
    freebase = "mid\tlabel\tdescription\twikidata_id\n/m/1\tRome\tcity\tQ220\n"
    assert read_names(write(tmp_path / "a.tsv", freebase)) == {"/m/1": ("Rome", "city")}
    wordnet = "synset\tlemma\tpos\tsense\tgloss\n02084071\tdog\tn\t1\ta member of Canis\n"
    expected = {"02084071": ("dog.n.1", "a member of Canis")}
    assert read_names(write(tmp_path / "b.tsv", wordnet)) == expected
    swapped = 'Name,ID\n"Rome, Italy",1\n'
    assert read_names(write(tmp_path / "c.csv", swapped)) == {"1": ("Rome, Italy", "")}
    also = (
        "id\tlabel\tdescription\taliases\n1\tUnited States\tcountry\tUSA | America\n2\tRome\t\t\n"
    )
    expected = {"1": ("United States", "country; also: USA, America"), "2": ("Rome", "")}
    assert read_names(write(tmp_path / "d.tsv", also)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a\tRome\nb\n",
            ", line 2: expected an id and a label separated by tabs, found 1 column: 'b'",
        ),
        ("\tRome\n", ", line 1: the id is empty. Every name needs its id."),
        ("", " is empty."),
    ],
)
def test_malformed_names(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "names.tsv", content)
    with pytest.raises(EkgnError, match="^" + re.escape(f"{path}{message}") + "$"):
        read_names(path)


def test_later_names_win_and_only_known_ids_count(tmp_path: Path) -> None:
    first = write(tmp_path / "1.tsv", "a\tA\tfirst\nb\tB\nz\tZ\n")
    second = write(tmp_path / "2.tsv", "a\tAlpha\nb\t\tletter\n")
    names, used = gather_names([], [first, second], [{"a", "b"}])
    assert names == {"a": ("Alpha", "first"), "b": ("B", "letter")}
    assert used == {first: 2, second: 2}
