"""Read one file of triples (or of names) into a table, or say which line is wrong and why.

Text is UTF-8 with three fields a line: head, relation, tail. Tab-separated text is taken
literally; in CSV a field may be "quoted". What is skipped:

- blank lines;
- comments: a line that starts with `#` followed by a space, or that starts with `#` and does not
  have the fields of a row. So `#metoo<tab>about<tab>x` is a triple, `# a<tab>b<tab>c` is not;
- a first row that names its columns (head/relation/tail, subject/predicate/object, h/r/t, ...),
  which may then come in any order and beside other columns.

Clean files are read by polars; anything unusual goes through a slower pass that reads a line at a
time, accepts exactly the same triples, and names the line of the first mistake.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import lzma
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from ekgn.errors import EkgnError

COLUMNS = ("head", "relation", "tail")
RDF_FORMATS = {
    ".nt": "nt",
    ".ttl": "ttl",
    ".nq": "nq",
    ".trig": "trig",
    ".rdf": "rdf",
    ".owl": "rdf",
}
COMPRESSIONS = (".gz", ".xz", ".zst")
TEXT_FORMATS = (".txt", ".tsv", ".csv")
FORMATS = (*TEXT_FORMATS, ".parquet", *RDF_FORMATS)

_TAIL_OF_HEAD = {
    "head": "tail",
    "h": "t",
    "subject": "object",
    "s": "o",
    "source": "target",
    "src": "dst",
    "from": "to",
}
_RELATION_WORDS = {
    *("relation", "rel", "r", "predicate", "pred", "p", "property"),
    *("edge", "type", "label", "interaction", "relationship", "relation_type", "edge_type"),
}
_ID_WORDS = ("id", "mid", "synset", "entity", "iri", "uri")
_LABEL_WORDS = ("label", "name", "lemma", "title")
_DESCRIPTION_WORDS = ("description", "gloss", "definition", "comment")
_SEPARATOR_NAMES = {"\t": "tabs", ",": "commas"}
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"

Names = dict[str, tuple[str, str]]
"""Label and description by identifier; the label is "" where only the description is known."""


@dataclass(frozen=True)
class TripleFile:
    """What one file says: its triples, the names it carries itself, and what was left out."""

    frame: pl.DataFrame
    names: Names = field(default_factory=dict)
    literals_skipped: int = 0


def read_triples(path: Path) -> TripleFile:
    """The triples of one file, in order, as text columns head, relation, tail."""
    data = read_bytes(path)
    kind = format_of(path)
    if kind == ".parquet" or (kind not in FORMATS and data.startswith(b"PAR1")):
        result = TripleFile(_parquet(path, data))
    elif kind in RDF_FORMATS:
        result = _rdf(path, data, kind)
    elif kind not in FORMATS and b"\0" in data[:4096]:
        raise EkgnError(
            f"{path} is not a file of triples: expected text, Parquet or RDF ({' '.join(FORMATS)})."
        )
    else:
        result = TripleFile(_text(path, data))
    if result.frame.is_empty():
        skipped = f" (only {result.literals_skipped:,} literals)" if result.literals_skipped else ""
        raise EkgnError(f"{path} has no triples{skipped}: expected lines of head, relation, tail.")
    return result


def format_of(path: Path) -> str:
    """The extension that names the format, without the one of the compression: ".txt"."""
    name = path.name.casefold()
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return Path(name).suffix


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked when it is gzip, xz or zstd (told by its first bytes)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise EkgnError(f"No such file: {path}") from None
    except IsADirectoryError:
        raise EkgnError(f"{path} is a directory: expected one file.") from None
    except OSError as error:
        raise EkgnError(f"Cannot read {path}: {error.strerror or error}") from None
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        elif data.startswith(b"\xfd7zXZ\x00"):
            data = lzma.decompress(data)
        elif data.startswith(b"\x28\xb5\x2f\xfd"):
            data = _unpack_zstd(path, data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise EkgnError(f"{path} is damaged and cannot be unpacked: {error}.") from None
    if not data.strip(b" \r\n"):
        raise EkgnError(f"{path} is empty.")
    return data


def _unpack_zstd(path: Path, data: bytes) -> bytes:
    """The text lines of a zstd file: polars reads them, Python 3.11 has no zstd of its own."""
    try:
        lines = pl.read_lines(data)["line"]
    except pl.exceptions.ComputeError:
        lossy = pl.read_csv(
            data,
            has_header=False,
            separator="\x01",
            quote_char=None,
            schema={"line": pl.String},
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
        )
        broken = lossy["line"].str.contains("\ufffd", literal=True).fill_null(False).arg_true()
        line = broken[0] + 1 if len(broken) else 1
        raise EkgnError(f"{path}, line {line}: not valid UTF-8. Save it as UTF-8.") from None
    return "\n".join(lines.to_list()).encode()


def _text(path: Path, data: bytes) -> pl.DataFrame:
    """Tab- or comma-separated triples: the fast route where it is safe, else the careful one."""
    data = _plain_lines(path, data)
    separator = _separator(path, data)
    fast = _fast_rows(_without_preamble(data), separator)
    return _careful_rows(path, data, separator) if fast is None else fast


def _plain_lines(path: Path, data: bytes) -> bytes:
    """The text without byte order mark and with line feeds only."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise EkgnError(f"{path}, line 1: this is UTF-16, not UTF-8. Save it as UTF-8.")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    return data


def _separator(path: Path, data: bytes) -> str:
    """Tab, or comma for .csv; the other one where the first rows have only that."""
    usual, other = (",", "\t") if format_of(path) == ".csv" else ("\t", ",")
    lines = data[:20_000].split(b"\n")[:20]
    rows = [line for line in lines if not line.startswith(b"# ")]
    sample = b"\n".join(rows)
    return other if usual.encode() not in sample and other.encode() in sample else usual


def _without_preamble(data: bytes) -> bytes:
    """The text after its opening blank lines and `# ` comments, which files often start with."""
    start = 0
    while data.startswith((b"# ", b"#\n", b"\n"), start):
        start = data.find(b"\n", start) + 1 or len(data)
    return data[start:] if start else data


def _fast_rows(data: bytes, separator: str) -> pl.DataFrame | None:
    """The triples by polars, or None where a line needs a closer look."""
    if b"\r" in data or (separator == "," and b'"' in data):
        return None
    try:
        frame = pl.read_csv(
            data,
            separator=separator,
            has_header=False,
            quote_char=None,
            schema=dict.fromkeys(COLUMNS, pl.String),
        )
    except (pl.exceptions.PolarsError, OSError):
        return None
    order = header_order(frame.row(0)) if len(frame) else None
    rows = frame if order is None else frame.slice(1)
    odd = pl.any_horizontal(
        *(pl.col(name).is_null() | (pl.col(name).str.strip_chars() == "") for name in COLUMNS),
        pl.first().str.starts_with("#"),
    )
    if rows.select(odd.any()).item():
        return None
    if order is not None:
        rows.columns = order
    return rows.select(COLUMNS)


def _careful_rows(path: Path, data: bytes, separator: str) -> pl.DataFrame:
    """The triples one line at a time; the first malformed line raises."""
    text = decode(path, data)
    _, first = next(records(path, text, separator, partial(_is_row, width=3)), (0, []))
    order = header_order(first)
    width = len(order or COLUMNS)
    places = [(order or COLUMNS).index(name) for name in COLUMNS]
    columns: list[list[str]] = [[], [], []]
    rows = records(path, text, separator, partial(_is_row, width=width))
    for line, fields in itertools.islice(rows, int(order is not None), None):
        if len(fields) != width:
            raise EkgnError(_wrong_width(path, line, fields, width, separator))
        for name, place, column in zip(COLUMNS, places, columns, strict=True):
            value = fields[place]
            if not value or value.isspace():
                raise EkgnError(f"{path}, line {line}: the {name} is empty. Every field is needed.")
            column.append(value)
    schema = dict.fromkeys(COLUMNS, pl.String)
    return pl.DataFrame(dict(zip(COLUMNS, columns, strict=True)), schema=schema)


def _is_row(fields: Sequence[str], width: int) -> bool:
    return len(fields) == width and all(value.strip() for value in fields)


def _wrong_width(path: Path, line: int, fields: list[str], width: int, separator: str) -> str:
    """The message for a line with too few or too many columns."""
    wanted = f"{width} columns ({'head, relation, tail' if width == 3 else 'as in the header'})"
    found = ", ".join(repr(value) for value in fields)
    found = found if len(found) <= 100 else found[:100] + "..."
    return (
        f"{path}, line {line}: expected {wanted} separated by {_SEPARATOR_NAMES[separator]}, "
        f"found {len(fields)}: {found}"
    )


def header_order(fields: Sequence[str | None]) -> list[str] | None:
    """What each column of a header row holds (head, relation, tail or ""), None if it is no header.

    >>> header_order(["Predicate", "Subject", "Object"])
    ['relation', 'head', 'tail']
    >>> header_order(["netherlands", "ngo", "uk"]) is None
    True
    """
    words = [(value or "").lstrip("#").strip().casefold().replace(" ", "_") for value in fields]
    for head, tail in _TAIL_OF_HEAD.items():
        relation = next((word for word in words if word in _RELATION_WORDS), None)
        if relation is not None and words.count(head) == 1 and words.count(tail) == 1:
            roles = {head: "head", tail: "tail", relation: "relation"}
            return [roles.pop(word, "") for word in words]
    return None


def decode(path: Path, data: bytes) -> str:
    """The text of UTF-8 bytes; bad bytes raise with their line."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise EkgnError(
            f"{path}, line {line}: not valid UTF-8 (byte 0x{byte:02x}). Save it as UTF-8."
        ) from None


def records(
    path: Path, text: str, separator: str, is_row: Callable[[Sequence[str]], bool]
) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every row that is neither blank nor a comment."""
    lines = iter(enumerate(text.split("\n"), 1))
    rest = (line + "\n" for _, line in lines)
    for number, line in lines:
        try:
            if not line.strip(" ") or (
                line.startswith("#") and _is_comment(line, separator, is_row)
            ):
                continue
            if separator == "\t" or '"' not in line:
                yield number, line.split(separator)
            else:
                # A quoted field may hold line ends: the reader takes what it needs from `rest`.
                yield number, next(csv.reader(itertools.chain([line + "\n"], rest), strict=True))
        except csv.Error as error:
            raise EkgnError(f"{path}, line {number}: broken quotes ({error}).") from None


def _is_comment(line: str, separator: str, is_row: Callable[[Sequence[str]], bool]) -> bool:
    """Whether a line that starts with # is not a row."""
    if line.startswith("# "):
        return True
    return not is_row(line.split("\t") if separator == "\t" else next(csv.reader([line])))


def _parquet(path: Path, data: bytes) -> pl.DataFrame:
    """Triples from a Parquet table: by column names, or in order if it has just three columns."""
    try:
        frame = pl.read_parquet(data)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise EkgnError(f"{path} is not a readable Parquet file: {reason}") from None
    order = header_order(frame.columns) or (list(COLUMNS) if frame.width == 3 else None)
    if order is None:
        raise EkgnError(
            f"{path} has the columns {', '.join(frame.columns)}: "
            "expected head, relation, tail (or subject, predicate, object)."
        )
    try:
        frame = frame.select(
            pl.col(frame.columns[order.index(name)]).cast(pl.String).alias(name) for name in COLUMNS
        )
    except pl.exceptions.PolarsError:
        kinds = ", ".join(f"{name}: {kind}" for name, kind in frame.schema.items())
        raise EkgnError(f"{path} has columns that are not text or numbers ({kinds}).") from None
    for name in COLUMNS:
        empty = (frame[name].is_null() | (frame[name].str.strip_chars() == "")).arg_true()
        if len(empty):
            raise EkgnError(
                f"{path}, row {empty[0] + 1}: the {name} is empty. Every field is needed."
            )
    return frame


def _rdf(path: Path, data: bytes, kind: str) -> TripleFile:
    """Triples between IRIs (and blank nodes); literals give labels or are counted and skipped."""
    try:
        import pyoxigraph
    except ImportError:
        raise EkgnError(
            f"{path} is RDF, which needs pyoxigraph. Install it with: pip install 'ekgn[rdf]'"
        ) from None
    triples = list[tuple[str, str, str]]()
    words: dict[str, Names] = {_RDFS + "label": {}, _RDFS + "comment": {}}
    skipped = 0
    rdf_format = pyoxigraph.RdfFormat.from_extension(RDF_FORMATS[kind])
    try:
        for quad in pyoxigraph.parse(data, format=rdf_format, base_iri="file:///"):
            head, relation, value = _node(quad.subject), quad.predicate.value, quad.object
            if isinstance(value, pyoxigraph.NamedNode | pyoxigraph.BlankNode):
                triples.append((head, relation, _node(value)))
            elif isinstance(value, pyoxigraph.Literal) and relation in words:
                _keep(words[relation], head, value.value, value.language or "")
            else:
                skipped += 1
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise EkgnError(f"{path}{where}: {error.msg}") from None
    frame = pl.DataFrame(triples, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")
    return TripleFile(frame, _rdf_names(frame, *words.values()), skipped)


def _node(node: object) -> str:
    """The IRI, or the label of a blank node with its usual prefix."""
    text = str(node)
    return text[1:-1] if text.startswith("<") else text


def _keep(words: Names, head: str, text: str, language: str) -> None:
    """Keep the first text for a node, but prefer one in English or without a language."""
    plain = language == "" or language.startswith("en")
    if head not in words or (plain and words[head][1] == "other"):
        words[head] = (text, "plain" if plain else "other")


def _rdf_names(frame: pl.DataFrame, labels: Names, descriptions: Names) -> Names:
    """A label for every IRI: its rdfs:label, else its last path segment."""
    nodes = pl.concat([frame[name].rename("node") for name in COLUMNS]).unique()
    names: Names = {}
    for node in nodes:
        segment = node.rstrip("/#").replace("#", "/").rpartition("/")[2]
        label = labels[node][0] if node in labels else unquote(segment)
        names[node] = (label or node, descriptions[node][0] if node in descriptions else "")
    return names


def read_names(path: Path) -> Names:
    """Label and description by identifier, from a table with two columns or more.

    A header may name the columns (id or mid or synset; label or name or lemma; description or
    gloss); without one they are id, label, description. A lemma with part of speech and sense
    becomes the WordNet label `dog.n.1`.
    """
    data = _plain_lines(path, read_bytes(path))
    separator = _separator(path, data)
    rows = records(path, decode(path, data), separator, lambda fields: len(fields) > 1)
    names: Names = {}
    columns: dict[str, int] | None = None
    for line, fields in rows:
        if columns is None:
            columns = _names_columns(fields)
            if columns is not None:
                continue
            columns = {"id": 0, "label": 1, "description": 2}
        if len(fields) < 2:
            raise EkgnError(
                f"{path}, line {line}: expected an id and a label separated by "
                f"{_SEPARATOR_NAMES[separator]}, found 1 column: {fields[0][:100]!r}"
            )
        row = {name: fields[at].strip() for name, at in columns.items() if at < len(fields)}
        if not row.get("id"):
            raise EkgnError(f"{path}, line {line}: the id is empty. Every name needs its id.")
        label = row.get("label", "")
        if label and row.get("pos") and row.get("sense"):
            label = f"{label}.{row['pos']}.{row['sense']}"
        names[row["id"]] = (label, row.get("description", ""))
    return names


def gather_names(
    files: Iterable[TripleFile], paths: Iterable[Path], known: Container[str]
) -> tuple[Names, dict[Path, int]]:
    """All names, later files winning over earlier ones, and how many known ids each path named."""
    names: Names = {}
    used: dict[Path, int] = {}
    for file in files:
        names |= file.names
    for path in paths:
        read = {name: words for name, words in read_names(path).items() if name in known}
        for name, (label, description) in read.items():
            before = names.get(name, ("", ""))
            names[name] = (label or before[0], description or before[1])
        used[path] = len(read)
    return names, used


def _names_columns(fields: Sequence[str]) -> dict[str, int] | None:
    """Where the known columns of a names file are, None if this row is no header."""
    words = [value.lstrip("#").strip().casefold() for value in fields]
    wanted = {"id": _ID_WORDS, "label": _LABEL_WORDS, "description": _DESCRIPTION_WORDS}
    columns = {
        name: next(words.index(word) for word in known if word in words)
        for name, known in wanted.items()
        if any(word in words for word in known)
    }
    if "id" not in columns or "label" not in columns:
        return None
    if "lemma" in words and "pos" in words and "sense" in words:
        columns |= {"pos": words.index("pos"), "sense": words.index("sense")}
    return columns
