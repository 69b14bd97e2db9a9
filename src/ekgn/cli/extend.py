"""The command that adds facts to a run, and how a question is asked without or with a fact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ekgn.cli.options import Json
from ekgn.errors import EkgnError

if TYPE_CHECKING:
    from ekgn.kbc.extend import Extension
    from ekgn.kbc.what_if import WhatIf

WhatIfFlag = Annotated[
    bool, typer.Option("--what-if", help="List the facts whose removal lowers the answer most.")
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", help='The answer without a fact: "head | relation | tail".'),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help='The answer with one more fact: "head | relation | tail".'),
]


def register(app: typer.Typer) -> None:
    """Add `extend` to the commands."""
    app.command()(extend)


def extend(
    run: Annotated[str, typer.Argument(help="A run's folder, or its name under runs/.")],
    file: Annotated[
        Path | None, typer.Argument(help="New facts: a file of head, relation, tail.")
    ] = None,
    names: Annotated[
        list[Path] | None, typer.Option(help="A file of id, label, description (repeatable).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Make a new run instead, here.")] = None,
    refresh: Annotated[
        int, typer.Option(help="Then train all vectors for so many epochs.", min=0)
    ] = 0,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last extension back.")] = False,
    json: Json = False,
) -> None:
    """Add facts, entities and names to a run without training it again."""
    from ekgn.cli import display
    from ekgn.kbc import extend as growth
    from ekgn.run import find_run

    if undo == (file is not None) or (undo and (names or out or refresh)):
        raise EkgnError("Give either a file of new facts, or --undo alone.")
    path = find_run(run)
    done = growth.extend(path, file, names or (), out, refresh) if file else growth.undo(path)
    if json:
        display.print_json({"undone": undo, **asdict(done)})
        return
    display.console.print(_words(done, run, undo, out))


def _words(done: Extension, run: str, undone: bool, out: Path | None) -> str:
    added = f"{done.facts:,} facts, {done.entities:,} entities and {done.names:,} names"
    if undone:
        return f"Taken back from {run}: {added} of {done.file}."
    if done.adds_nothing and not out:
        return f"Nothing to add: every fact of {done.file} is in {run} already."
    lines = [f"{added} of {done.file} are in {out or run}, after {done.seconds:.1f} s."]
    if done.already_known:
        lines.append(f"{done.already_known:,} facts were in training already.")
    if done.held_out:
        lines.append(f"{done.held_out:,} facts stay in valid or test, which hold them.")
    if done.refitted:
        lines.append(f"{done.refitted:,} old entities with new facts among them were fitted again.")
    if done.old_facts:
        before, after = done.old_facts["before"], done.old_facts["after"]
        lines.append(f"Old validation facts, hits@10: {before:.1%} before, {after:.1%} now.")
    if not out:
        lines.append(f"Take it back with: ekgn extend {run} --undo")
    return "\n".join(lines)


def parse_facts(given: list[str] | None) -> list[tuple[str, str, str]]:
    """Facts written as "head | relation | tail"."""
    facts = []
    for text in given or []:
        parts = [part.strip() for part in text.split("|")]
        if len(parts) != 3 or not all(parts):
            raise EkgnError(f"'{text}' is no fact: expected \"head | relation | tail\".")
        facts.append((parts[0], parts[1], parts[2]))
    return facts


def print_what_if(found: WhatIf, json: bool) -> None:
    """What an answer would be without or with some facts."""
    from ekgn.cli import display

    if json:
        display.print_json(asdict(found))
        return
    display.console.print(
        f"{found.question} {found.answer}: {found.share:.1%} after a refit with all facts, "
        f"rank {found.rank} of all entities",
        width=100,
    )
    for line in found.in_words() or ["No fact of the two entities, taken away, lowers it."]:
        display.console.print(f"  {line}", soft_wrap=True)
    tried = f"{found.tried} of the {found.facts:,} facts of the two were tried."
    notes = [found.trained_in_words(), found.note, tried if found.tried else ""]
    display.console.print("\n" + " ".join(note for note in notes if note), width=100)
