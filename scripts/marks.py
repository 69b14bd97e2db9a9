"""Tables between the marks of a page: `<!-- NAME -->` and `<!-- end of NAME -->`; prose stays."""

from __future__ import annotations

from pathlib import Path

from ekgn.files import replace_file


def filled(file: Path, blocks: dict[str, str]) -> str:
    """The text of a file with what stands between the marks of each name replaced."""
    text = file.read_text(encoding="utf-8")
    for name, block in blocks.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not start or not end:
            raise SystemExit(f"{file.name} has no marks for {name}.")
        text = before + start + block + end + after
    return text


def write(file: Path, text: str) -> None:
    """Put a text into a file, whole or not at all."""
    replace_file(file, lambda aside: aside.write_text(text, encoding="utf-8"))
