"""One self-contained HTML file about a run of any task; it opens offline."""

from ekgn.report.page import render, write_report

__all__ = ["render", "write_report"]
