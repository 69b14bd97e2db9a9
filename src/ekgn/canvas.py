"""What every picture shares: colours, an empty figure, and how it is written."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ekgn.errors import EkgnError
from ekgn.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREY = "#2f6f9f", "#c0504d", "#9aa5ad"
FORMATS = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, without any display or global state."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # Room above: without it a title in the first row touches the edge.
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.1))


def save(figure: Figure, file: Path) -> None:
    """Write a figure as PNG, SVG or PDF by the file's ending."""
    if file.suffix.casefold() not in FORMATS:
        raise EkgnError(f"Cannot plot to '{file}': expected a name ending in {', '.join(FORMATS)}.")
    kind = file.suffix.casefold()[1:]
    replace_file(file, lambda aside: _write(figure, aside, kind))


def as_svg(figure: Figure) -> str:
    """A figure as SVG to be put into an HTML page: no addresses, the page's own font."""
    text = io.StringIO()
    _write(figure, text, "svg", text_as_text=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'\s(width|height)="[\d.]+pt"', "", svg, count=2)
    return re.sub(r"font:[^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1", svg)


def _write(
    figure: Figure, target: Path | io.StringIO, kind: str, *, text_as_text: bool = False
) -> None:
    """The same figure gives the same bytes: no date, no random names."""
    import matplotlib

    undated = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    fonts = "none" if text_as_text else "path"
    with matplotlib.rc_context({"svg.fonttype": fonts, "svg.hashsalt": "ekgn"}):
        figure.savefig(target, dpi=110, format=kind, metadata=undated)
