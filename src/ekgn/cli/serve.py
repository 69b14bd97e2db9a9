"""The command that serves runs in a browser and over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ekgn.web.site import Site


def register(app: typer.Typer) -> None:
    """Add `serve` to the commands."""
    app.command()(serve)


def serve(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or their names.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes any free one.", min=0, max=65535)
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="Secret that visitors must give.", envvar="EKGN_TOKEN"),
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Threads of the model; 1 leaves a core to the requests.", min=1)
    ] = 1,
) -> None:
    """Explore runs in a browser, and ask them over HTTP."""
    from ekgn.cli import display
    from ekgn.web.server import serve as listen_and_serve

    def ready(address: str, site: Site) -> None:
        door = "?token=..." if token else ""
        text = f"Exploring {', '.join(site.runs)} at {address}{door} (Ctrl-C stops)"
        display.console.print(text, soft_wrap=True)

    listen_and_serve(runs, host=host, port=port, token=token, threads=threads, on_ready=ready)
