"""Command-line flags made from the settings classes, so that each setting is written once."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from ekgn.config import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Top = Annotated[int, typer.Option(help="How many answers.")]
Readout = Annotated[
    str | None,
    typer.Option(help="How the steps give an answer: argmax, mixture, last, sample, step:N."),
]
DataDir = Annotated[
    str | None,
    typer.Option(help="Folder that holds the benchmarks.", envvar="EKGN_DATA"),
]


def settings_flags(settings: type[Settings]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command a flag for each setting; those given reach it as the dict `overrides`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(**values: Any) -> Any:
            chosen = {name: values.pop(name) for name in settings.model_fields}
            given = {name: value for name, value in chosen.items() if value is not None}
            return command(**values, overrides=given)

        own = inspect.signature(command, eval_str=True)
        parameters = [p for p in own.parameters.values() if p.name != "overrides"]
        parameters += [_flag(name, settings) for name in settings.model_fields]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return decorate


def _flag(name: str, settings: type[Settings]) -> inspect.Parameter:
    field = settings.model_fields[name]
    extra = field.json_schema_extra
    symbol = str(extra.get("symbol", "")) if isinstance(extra, dict) else ""
    kind, choices = _plain_type(field.annotation)
    notes = [note for note in (symbol, choices, f"paper: {field.default}") if note]
    option = typer.Option(
        help=f"{field.description} ({'; '.join(notes)})".replace("[", r"\["),  # typer reads markup
        rich_help_panel="Settings",
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _plain_type(annotation: Any) -> tuple[Any, str]:
    """The type a flag is parsed as, and its choices in words; pydantic checks the value."""
    if get_origin(annotation) is Literal:
        return str, "|".join(get_args(annotation))
    if get_origin(annotation) is types.UnionType:
        return str, ""
    return annotation, ""
