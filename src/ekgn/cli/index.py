"""The command that makes an index of a run's answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ekgn.cli.options import Json


def register(app: typer.Typer) -> None:
    """Add `index` to the commands."""
    app.command()(index)


def index(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")],
    cells: Annotated[
        int,
        typer.Option(help="Cells that the vectors are put into (0: 4 times their root).", min=0),
    ] = 0,
    json: Json = False,
) -> None:
    """Make an index that answers among millions of entities: predict, complete and serve use it.

    Its recall is measured, and below 95% it is not written. Delete RUN/index to be without it.
    """
    from ekgn.cli import display
    from ekgn.kbc.run import KbcRun

    loaded = KbcRun.load(run)
    with display.messages.status("making the index"):
        about = loaded.index(cells)
    if json:
        display.print_json(asdict(about))
        return
    display.console.print(
        f"An index of {about.entities:,} entities in {about.cells:,} cells, of which a question "
        f"looks into {about.looked_into:,}. It finds {about.recall_at_10:.1%} of the first 10 "
        f"answers (measured on {about.questions} questions), in {about.index_ms:.2f} ms a question "
        f"instead of {about.exact_ms:.2f}. Made in {about.seconds:,.0f} s.",
        soft_wrap=True,
    )
