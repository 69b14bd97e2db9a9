"""What every picture shares: colours, an empty figure, panels side by side, how it is written."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ekgn.errors import EkgnError
from ekgn.files import replace_file
from ekgn.tables import metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREY = "#2f6f9f", "#c0504d", "#9aa5ad"
FORMATS = (".png", ".svg", ".pdf")
NOT_MEASURED = ("step", "epoch", "seconds", "loss", "expected_reward", "learning_rate")
"""What a line of a learning curve has besides the validation's metrics."""

Panel = Callable[["Axes"], None]
"""Draws one panel of a figure."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, without any display or global state."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # Room above: without it a title in the first row touches the edge.
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.1))


def side_by_side(panels: Sequence[Panel]) -> Figure:
    """One figure of several panels."""
    figure = new_figure(2.8 * len(panels), 2.8)
    for place, draw in enumerate(panels):
        panel = figure.add_subplot(1, len(panels), place + 1)
        draw(panel)
        plain_look(panel)
    return figure


def curve_panels(curve: Sequence[dict[str, Any]]) -> list[Panel]:
    """Loss and validation metrics over the epochs."""
    epochs = [line["epoch"] for line in curve]

    def draw(name: str, title: str, write: Callable[[float], str]) -> Panel:
        def on(panel: Axes) -> None:
            panel.plot(epochs, [line[name] for line in curve], "o-", color=BLUE, markersize=3)
            write_as(panel, write)
            panel.set(xlabel="epoch", title=title)

        return on

    measured = [name for name in curve[0] if name not in NOT_MEASURED]
    found = [(name, f"validation {metric(name).name}", metric(name).write) for name in measured]
    return [draw(*one) for one in [("loss", "loss", "{:.3g}".format), *found]]


def write_as(panel: Any, write: Callable[[float], str]) -> None:
    """Write the numbers beside the panel in some way."""
    panel.yaxis.set_major_formatter(lambda value, _: write(value))


def plain_look(panel: Any) -> None:
    """The look that all line and bar panels share."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)
    panel.tick_params(labelsize=8)
    panel.title.set_fontsize(9)
    panel.xaxis.label.set_fontsize(8)


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
