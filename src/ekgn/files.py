"""Files that are never half-written: written aside, flushed, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ekgn.errors import EkgnError


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Call write(temporary path), flush it to disk, then rename it over `path`."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(aside)
        with aside.open("rb") as handle:
            os.fsync(handle.fileno())
        aside.replace(path)
    except OSError as error:
        raise EkgnError(f"Could not write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def write_json(path: Path, value: Any) -> None:
    """Readable JSON, replaced as a whole."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    replace_file(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Any:
    """The content of a JSON file of ours."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EkgnError(f"{path} is missing: the run is not complete.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EkgnError(f"{path} is damaged ({error}). Restore it or train again.") from None
