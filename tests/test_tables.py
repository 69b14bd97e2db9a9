"""The one table type: the same rows in every form, and nothing in a cell is taken for markup."""

from __future__ import annotations

import csv
import io
import json

from rich.console import Console

from ekgn.tables import METRICS, Table, in_words, metric, metrics_table

HOSTILE = "[red]<b>a|b & 50% of_$x\\"
TABLE = Table("Runs", ["name", METRICS["hits_at_10"], "facts"], [[HOSTILE, 0.45678, 1234]])


def test_the_terminal_shows_cells_as_they_are() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(TABLE.rich())
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert HOSTILE in shown and "45.7%" in shown and "1,234" in shown and "Runs" in shown


def test_markdown_html_and_latex_escape_what_they_would_obey() -> None:
    assert TABLE.markdown().splitlines()[1:] == [
        "|---|---:|---:|",
        "| [red]<b>a\\|b & 50% of_$x\\ | 45.7% | 1,234 |",
    ]
    assert "<td>[red]&lt;b&gt;a|b &amp; 50% of_$x\\</td>" in TABLE.html()
    assert r"[red]<b>a|b \& 50\% of\_\$x\textbackslash{} & 45.7\% & 1,234 \\" in TABLE.latex()
    assert TABLE._repr_html_().startswith("<b>Runs</b><table>")


def test_csv_and_json_keep_the_values() -> None:
    assert list(csv.reader(io.StringIO(TABLE.csv()))) == [
        ["name", "hits@10", "facts"],
        [HOSTILE, "0.45678", "1234"],
    ]
    kept = json.loads(json.dumps(TABLE.as_dict()))
    assert kept["rows"] == [{"name": HOSTILE, "hits@10": 0.45678, "facts": 1234}]


def test_metrics_are_written_in_one_way() -> None:
    found = {"hits_at_10": 0.5, "mrr": 0.25, "mean_rank": 1234.56, "odd_ones": 0.5}
    assert in_words(found) == "hits@10 50.0%, MRR 0.250, mean rank 1,234.6, odd ones 0.500"
    table = metrics_table("", list(found), {"model": found, "other": {"mrr": 0.1}})
    assert table.texts() == [
        ["model", "50.0%", "0.250", "1,234.6", "0.500"],
        ["other", "", "0.100", "", ""],
    ]
    assert metric("odd_ones").name == "odd ones"


def test_an_empty_table_has_its_columns() -> None:
    assert Table("", ["a", "b"], []).markdown() == "| a | b |\n|---|---|\n"
