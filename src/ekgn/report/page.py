"""The page of a report, and the report of a task that brings none of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import ekgn
from ekgn import canvas
from ekgn.files import replace_file
from ekgn.run import Run
from ekgn.tables import Table, metric, metrics_table
from ekgn.tasks import pieces

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Section:
    """A part of the page, in HTML."""

    key: str
    name: str
    body: str


@dataclass(frozen=True)
class Report:
    """What a report says. Texts are plain; only the bodies of sections are HTML."""

    title: str
    subtitle: str
    cards: Sequence[tuple[str, str]]  # a number, and what it is
    sections: Sequence[Section]
    note: str = ""

    def html(self) -> str:
        """The whole file."""
        template = files("ekgn.report").joinpath("template.html").read_text(encoding="utf-8")
        return Template(template).substitute(
            title=escape(self.title),
            subtitle=escape(self.subtitle),
            cards="".join(
                f'<div class="card"><b>{escape(value)}</b>{escape(words)}</div>'
                for value, words in self.cards
            ),
            links="".join(f'<a href="#{part.key}">{part.name}</a>' for part in self.sections),
            sections="\n".join(
                f'<section id="{part.key}"><h2>{part.name}</h2>{part.body}</section>'
                for part in self.sections
            ),
            footer=escape(
                f"Made by ekgn {ekgn.__version__} from the run's own record. {self.note}"
            ),
        )


def write_report(
    run: Run,
    file: Path,
    *,
    split: str = "test",
    limit: int = 2000,
    on_progress: OnProgress | None = None,
) -> None:
    """Write the report of a run."""
    page = render(run, split=split, limit=limit, on_progress=on_progress)
    replace_file(file, lambda aside: aside.write_text(page, encoding="utf-8"))


def render(
    run: Run, *, split: str = "test", limit: int = 2000, on_progress: OnProgress | None = None
) -> str:
    """The report as HTML text, made in the way of the run's task."""
    made: Report = pieces(run.task.name).get("report")(run, split, limit, on_progress)
    return made.html()


def report(run: Run, split: str, limit: int, on_progress: OnProgress | None) -> Report:
    """The report of a run of any task: its curve and its metrics."""
    found = run.measured(split)
    data = run.task.describe()
    sizes = ", ".join(f"{name} {size:,}" for name, size in data.items() if type(size) is int)
    table = metrics_table("", list(found), {split: found}, "split")
    return Report(
        f"{data['name']}: how the training went",
        f"Task {run.task.name}. {sizes}.",
        cards(found),
        [
            Section("curves", "Training", curves(run)),
            Section("metrics", "Metrics", wide(table)),
            Section("settings", "Settings", settings(run)),
        ],
    )


def cards(found: dict[str, float]) -> list[tuple[str, str]]:
    """Metrics as cards."""
    return [(metric(name).write(value), metric(name).name) for name, value in found.items()]


def curves(run: Run) -> str:
    """How the training went, in pictures."""
    curve = run.curve
    if not curve:
        return "<p>No validation has been recorded yet.</p>"
    took = run.record.get("wall_seconds")
    words = "" if took is None else f"Trained for {took / 60:,.1f} minutes; "
    words += f"the weights shown are those of step {run.checkpoint['step']:,}."
    return f"<p>{words}</p>{panels(canvas.curve_panels(curve))}"


def panels(drawn: Sequence[canvas.Panel]) -> str:
    """Panels as pictures of their own, beside each other where there is room."""
    pictures = "".join(canvas.as_svg(canvas.side_by_side([panel])) for panel in drawn)
    return f'<figure class="panels">{pictures}</figure>'


def wide(table: Table) -> str:
    """A table that scrolls by itself where it is wider than the page."""
    return f'<div class="wide">{table.html()}</div>'


def settings(run: Run) -> str:
    """The preset, and what was changed of it."""
    preset, changes = run.config.get("preset"), run.config.get("overrides", {})
    start = f"Preset {escape(preset)}" if preset else "The paper's settings"
    if not changes:
        return f"<p>{start}, unchanged.</p>"
    table = Table("", ["setting", "value"], [[name, str(value)] for name, value in changes.items()])
    return f"<p>{start}, with changes:</p>{wide(table)}"
