"""Read one file of triples (or of names) into a table, or say which line is wrong and why.

Text is UTF-8 with three fields a line: head, relation, tail. Tab-separated text is taken
literally; between commas, semicolons or bars a field may be "quoted". What is skipped:

- blank lines;
- comments: a line that starts with `#` followed by a space, or that starts with `#` and does not
  have the fields of a row. So `#metoo<tab>about<tab>x` is a triple, `# a<tab>b<tab>c` is not;
- a first row that names its columns (head/relation/tail, subject/predicate/object, h/r/t, ...),
  which may then come in any order and beside other columns, or that can only be a header.

Clean files are read by polars; anything unusual goes through a slower pass that reads a line at a
time, accepts exactly the same triples, and names the line of the first mistake.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc.columns import COLUMNS, Names, TripleFile, header_order
from ekgn.kbc.parquet import read_parquet
from ekgn.kbc.rdf import RDF_FORMATS, RESULT_FORMATS, answer_format, read_answer, read_rdf
from ekgn.kbc.unpack import COMPRESSIONS, read_bytes

TEXT_FORMATS = (".txt", ".tsv", ".csv")
FORMATS = (*TEXT_FORMATS, ".parquet", *RDF_FORMATS, *RESULT_FORMATS)

_ID_WORDS = ("id", "mid", "synset", "entity", "iri", "uri")
_LABEL_WORDS = ("label", "name", "lemma", "title")
_DESCRIPTION_WORDS = ("description", "gloss", "definition", "comment")
_ALIAS_WORDS = ("aliases", "alias", "also", "altlabel")
_SEPARATOR_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_LONGEST_LINE = 2**20
_HEADER_ROWS = 10  # below which a first row is not suspected


def read_triples(path: Path) -> TripleFile:
    """The triples of one file, in order, as text columns head, relation, tail."""
    data = read_bytes(path)
    kind = format_of(path)
    if kind == ".parquet" or (kind not in FORMATS and data.startswith(b"PAR1")):
        result = TripleFile(read_parquet(path, data))
    elif form := answer_format(data, kind):
        result = read_answer(path, data, form)
    elif kind in RDF_FORMATS:
        result = read_rdf(path, data, kind)
    elif kind not in FORMATS and b"\0" in data[:4096]:
        raise EkgnError(
            f"{path} is not a file of triples: expected text, Parquet or RDF ({' '.join(FORMATS)})."
        )
    else:
        result = _without_header(_text(path, data))
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


def _text(path: Path, data: bytes) -> pl.DataFrame:
    """Triples separated in any way: by the fast route where it is safe, else the careful one."""
    data = _plain_lines(path, data)
    separator = _separator(path, data, width=3)
    fast = _fast_rows(_without_preamble(data), separator)
    return _careful_rows(path, data, separator) if fast is None else fast


def _plain_lines(path: Path, data: bytes) -> bytes:
    """The text without byte order mark and with line feeds only."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise EkgnError(f"{path}, line 1: this is UTF-16, not UTF-8. Save it as UTF-8.")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    start = 0
    while len(data) - start > _LONGEST_LINE:
        end = data.rfind(b"\n", start, start + _LONGEST_LINE)
        if end < 0:
            line = data.count(b"\n", 0, start) + 1
            raise EkgnError(
                f"{path}, line {line}: over {_LONGEST_LINE:,} bytes long. "
                "Is this a file of triples, one a line?"
            )
        start = end + 1
    return data


def _separator(path: Path, data: bytes, width: int) -> str:
    """Tab, or comma for .csv; another where the first row has enough fields only with that."""
    usual = "," if format_of(path) == ".csv" else "\t"
    lines = [line for line in data[:20_000].split(b"\n")[:40] if line.strip()]
    rows = [line for line in lines if not line.startswith(b"#")] or lines or [b""]
    others = (separator for separator in _SEPARATOR_NAMES if separator != usual)
    for separator in (usual, *others):
        if rows[0].count(separator.encode()) >= width - 1:
            return separator
    return usual


def _without_header(frame: pl.DataFrame) -> TripleFile:
    """The triples without a first row that must be a header in words we do not know.

    None of its three words occurs again, though the other rows share their relations.
    """
    first, rest = frame.head(1), frame.slice(1)
    if len(rest) < _HEADER_ROWS or len(rest) < 2 * rest["relation"].n_unique():
        return TripleFile(frame)
    words = first.row(0)
    again = pl.any_horizontal(pl.col(name).is_in(words) for name in COLUMNS)
    if rest.select(again.any()).item() or any(any(map(str.isdigit, word)) for word in words):
        return TripleFile(frame)
    return TripleFile(rest, header_skipped=", ".join(words))


def _without_preamble(data: bytes) -> bytes:
    """The text after its opening blank lines and `# ` comments, which files often start with."""
    start = 0
    while data.startswith((b"# ", b"#\n", b"\n"), start):
        start = data.find(b"\n", start) + 1 or len(data)
    return data[start:] if start else data


def _fast_rows(data: bytes, separator: str) -> pl.DataFrame | None:
    """The triples by polars, or None where a line needs a closer look."""
    if b"\r" in data or (separator != "\t" and b'"' in data):
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


def numbered_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Head, relation, tail of each line with its number; a line of other fields as it is.

    Nothing raises but a file that cannot be read at all.
    """
    kind = format_of(path)
    if kind in FORMATS and kind not in TEXT_FORMATS:
        for row, triple in enumerate(read_triples(path).frame.iter_rows(), 1):
            yield row, list(triple)
        return
    data = _plain_lines(path, read_bytes(path))
    separator = _separator(path, data, width=3)
    places: list[int] | None = None
    for line, fields in records(path, decode(path, data), separator, partial(_is_row, width=3)):
        if places is None:
            order = header_order(fields)
            places = [order.index(name) for name in COLUMNS] if order else []
            if order:
                continue
        fits = places and len(fields) > max(places)
        yield line, [fields[place] for place in places] if fits else fields


def _is_row(fields: Sequence[str], width: int) -> bool:
    return len(fields) == width and all(value.strip() for value in fields)


def _wrong_width(path: Path, line: int, fields: list[str], width: int, separator: str) -> str:
    """The message for a line with too few or too many columns."""
    wanted = f"{width} columns ({'head, relation, tail' if width == 3 else 'as in the header'})"
    found = ", ".join(repr(value) for value in fields)
    found = found if len(found) <= 100 else found[:100] + "..."
    hint = "" if line > 1 or len(fields) <= 3 else ". A header names them: head, relation, tail."
    return (
        f"{path}, line {line}: expected {wanted} separated by {_SEPARATOR_NAMES[separator]}, "
        f"found {len(fields)}: {found}{hint}"
    )


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
                quoted = itertools.chain([line + "\n"], rest)
                yield number, next(csv.reader(quoted, delimiter=separator, strict=True))
        except csv.Error as error:
            raise EkgnError(f"{path}, line {number}: broken quotes ({error}).") from None


def _is_comment(line: str, separator: str, is_row: Callable[[Sequence[str]], bool]) -> bool:
    """Whether a line that starts with # is not a row."""
    if line.startswith("# "):
        return True
    quoted = separator != "\t" and '"' in line
    reader = csv.reader([line], delimiter=separator)
    return not is_row(next(reader) if quoted else line.split(separator))


def read_names(path: Path) -> Names:
    """Label and description by identifier, from a table with two columns or more.

    A header may name the columns (id or mid or synset; label or name or lemma; description or
    gloss; aliases, parted by |); without one they are id, label, description. A lemma with part of
    speech and sense becomes the WordNet label `dog.n.1`. Aliases end the description: `also: A, B`.
    """
    data = _plain_lines(path, read_bytes(path))
    separator = _separator(path, data, width=2)
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
        also = ", ".join(name.strip() for name in row.get("aliases", "").split("|") if name.strip())
        about = [row.get("description", ""), also and f"also: {also}"]
        names[row["id"]] = (label, "; ".join(part for part in about if part))
    return names


def gather_names(
    files: Iterable[TripleFile], paths: Iterable[Path], known: Sequence[Container[str]]
) -> tuple[Names, dict[Path, int]]:
    """All names, later files winning over earlier ones, and how many known ids each path named."""
    names: Names = {}
    used: dict[Path, int] = {}
    for file in files:
        names |= file.names
    for path in paths:
        read = {
            name: words
            for name, words in read_names(path).items()
            if any(name in ids for ids in known)
        }
        for name, (label, description) in read.items():
            before = names.get(name, ("", ""))
            names[name] = (label or before[0], description or before[1])
        used[path] = len(read)
    return names, used


def _names_columns(fields: Sequence[str]) -> dict[str, int] | None:
    """Where the known columns of a names file are, None if this row is no header."""
    words = [value.lstrip("#").strip().casefold() for value in fields]
    wanted = {"id": _ID_WORDS, "label": _LABEL_WORDS, "description": _DESCRIPTION_WORDS}
    wanted["aliases"] = _ALIAS_WORDS
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
