"""The shape of the house: imports go one way, functions stay short, import is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ekgn"

# A module may import from its own floor and the floors below.
FLOORS = [
    ("errors", "distributed", "files", "signals", "tables", "tasks"),
    ("config",),
    ("network",),
    ("checkpoint", "canvas", "machine", "records", "optimizers", "state", "trainer", "run"),
    ("kbc", "paths"),
    ("api", "backtest", "comparison", "figures", "report", "sweep"),
    ("cli", "web"),
]
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def room(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ekgn."):
            rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "ekgn":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {a.name.split(".")[1] for a in node.names if a.name.startswith("ekgn.")}
    return rooms & FLOOR_OF.keys()


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_one_way(file: Path) -> None:
    if room(file) in ("__init__", "__main__"):
        return
    assert room(file) in FLOOR_OF, f"{room(file)} has no floor: add it to FLOORS"
    for other in imported_rooms(file):
        assert FLOOR_OF[other] <= FLOOR_OF[room(file)], f"{file.name} must not import {other}"
        assert {room(file), other} != {"kbc", "paths"}, "the two tasks never import each other"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_functions_and_files_stay_readable(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is too long"


def test_the_command_line_starts_without_anything_heavy() -> None:
    heavy = (
        "torch",
        "numpy",
        "polars",
        "scipy",
        "numba",
        "fastapi",
        "matplotlib",
        "optuna",
        "sklearn",
    )
    code = f"import sys, ekgn.cli.app; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
