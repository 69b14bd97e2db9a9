"""Tables: one type, whatever they are shown in, and one place that says how a metric is written.

>>> table = Table("Ranks", ["model", METRICS["hits_at_10"]], [["EKGN", 0.4567]])
>>> print(table.markdown())
| model | hits@10 |
|---|---:|
| EKGN | 45.7% |
<BLANKLINE>
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table as RichTable

NUMERIC = "0123456789-.–+"
NO_NUMBER = ("none", "n/a", "∞")
LATEX = str.maketrans(
    {
        **{letter: "\\" + letter for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def plain(value: Any) -> str:
    """A value in words: whole numbers with separators, others with three digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def percent(share: float) -> str:
    """0.4567 -> 45.7%, with more digits where they matter."""
    value = 100 * share
    return f"{value:.1f}%" if value >= 0.1 or value == 0 else f"{value:.1g}%"


def rank(value: float) -> str:
    """A mean rank."""
    return f"{value:,.1f}"


@dataclass(frozen=True)
class Column:
    """What a column is called, and how its values are written."""

    name: str
    write: Callable[[Any], str] = plain
    wraps: bool = False  # in HTML, between words and after / and _


METRICS = {
    "hits_at_10": Column("hits@10", percent),
    "hits_at_3": Column("hits@3", percent),
    "hits_at_1": Column("hits@1", percent),
    "mrr": Column("MRR"),
    "mean_rank": Column("mean rank", rank),
    "adjusted_mean_rank_index": Column("AMRI"),
    "correct": Column("correct", percent),
    "valid": Column("valid", percent),
}
"""The metrics of all tasks. One that is not here is written under its own name."""


_SAMPLED = re.compile(r"(.+)_of_(\d+)_sampled")


def sampled_name(name: str, candidates: int) -> str:
    """What a metric is called that was measured among sampled candidates; 0: among all."""
    return f"{name}_of_{candidates}_sampled" if candidates else name


def metric(name: str) -> Column:
    """How a metric is called and written."""
    if among := _SAMPLED.fullmatch(name):
        exact = metric(among[1])
        return Column(f"{exact.name} of {int(among[2]):,} sampled", exact.write)
    return METRICS.get(name) or Column(name.replace("_", " "))


def metrics_table(
    title: str, names: Sequence[str], rows: Mapping[str, Any], first: str = ""
) -> Table:
    """A row for each of some metrics, which are mappings or objects."""

    def value(found: Any, name: str) -> Any:
        return found.get(name) if isinstance(found, Mapping) else getattr(found, name)

    cells = [[row, *(value(found, name) for name in names)] for row, found in rows.items()]
    return Table(title, [first, *map(metric, names)], cells)


def in_words(metrics: Mapping[str, float]) -> str:
    """Metrics in one line: hits@10 45.7%, MRR 0.300."""
    return ", ".join(f"{metric(name).name} {metric(name).write(v)}" for name, v in metrics.items())


class Table:
    """Rows of values under a title; each rendering writes the values in its own way."""

    def __init__(
        self, title: str, columns: Sequence[str | Column], rows: Iterable[Sequence[Any]]
    ) -> None:
        self.title = title
        self.columns = [Column(c) if isinstance(c, str) else c for c in columns]
        self.rows = [list(row) for row in rows]

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.columns]

    def texts(self) -> list[list[str]]:
        """The cells as they are written; a missing value is empty."""
        return [
            ["" if v is None else c.write(v) for c, v in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def _to_the_right(self) -> list[bool]:
        """Which columns hold numbers."""
        by_column = zip(*self.texts(), strict=True) if self.rows else [()] * len(self.columns)
        return [
            any(texts) and all(not t or t[0] in NUMERIC or t in NO_NUMBER for t in texts)
            for texts in by_column
        ]

    def rich(self, clean: Callable[[str], str] = str) -> RichTable:
        """For the terminal. Texts are cleaned, and nothing in them is taken for markup."""
        from rich.table import Table as RichTable
        from rich.text import Text

        title = Text(clean(self.title), style="bold") if self.title else None
        grid = RichTable(title=title, title_justify="left", box=None, pad_edge=False)
        for name, right in zip(self.names, self._to_the_right(), strict=True):
            grid.add_column(
                Text(clean(name)), justify="right" if right else "left", overflow="fold"
            )
        for row in self.texts():
            grid.add_row(*(Text(clean(cell.replace("\n", "␊"))) for cell in row))
        return grid

    def markdown(self) -> str:
        """In Markdown, without the title."""
        marks = ["---:" if right else "---" for right in self._to_the_right()]
        lines = [self.names, *self.texts()]
        first, *rest = ["| " + " | ".join(map(_one_line, line)) + " |\n" for line in lines]
        return first + "|" + "|".join(marks) + "|\n" + "".join(rest)

    def html(self) -> str:
        """In HTML, without the title."""
        kinds = [
            ' class="words"' if column.wraps else ' class="number"' if right else ""
            for column, right in zip(self.columns, self._to_the_right(), strict=True)
        ]

        def line(tag: str, texts: Sequence[str]) -> str:
            cells = [
                breakable(t) if c.wraps else escape(t)
                for c, t in zip(self.columns, texts, strict=True)
            ]
            pairs = zip(kinds, cells, strict=True)
            return (
                "<tr>" + "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in pairs) + "</tr>"
            )

        body = "".join(line("td", row) for row in self.texts())
        return f"<table><thead>{line('th', self.names)}</thead><tbody>{body}</tbody></table>"

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        return f"<b>{escape(self.title)}</b>{self.html()}"

    def frame(self) -> pl.DataFrame:
        """The values, not rounded, as a polars data frame."""
        import polars as pl

        return pl.DataFrame(self.rows, schema=self.names, orient="row", infer_schema_length=None)

    def csv(self) -> str:
        """The values, not rounded, as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.names, *self.rows])
        return text.getvalue()

    def latex(self) -> str:
        """As a LaTeX tabular."""
        layout = "".join("r" if right else "l" for right in self._to_the_right())
        head, *rest = [
            " & ".join(cell.translate(LATEX) for cell in line) + r" \\" + "\n"
            for line in [self.names, *self.texts()]
        ]
        start = f"\\begin{{tabular}}{{{layout}}}\n\\hline\n"
        return f"{start}{head}\\hline\n{''.join(rest)}\\hline\n\\end{{tabular}}\n"

    def as_dict(self) -> dict[str, Any]:
        """The values, not rounded, for JSON."""
        rows = [dict(zip(self.names, row, strict=True)) for row in self.rows]
        return {"title": self.title, "columns": self.names, "rows": rows}


def breakable(text: str) -> str:
    """Text as HTML; long names in it may break after / and _."""
    return escape(text).replace("/", "/<wbr>").replace("_", "_<wbr>")


def _one_line(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
