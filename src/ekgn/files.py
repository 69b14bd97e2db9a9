"""Files that are never half-written, and folders that one process at a time writes into.

Everything ekgn keeps is written here. `before` is called ahead of each write, sync and rename, so
that a test can fail any of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ekgn.errors import EkgnError

log = logging.getLogger(__name__)

LOCK = ".lock"
STRAYS = (".*.tmp", ".tmp??????")  # ours, and those of safetensors
LOCK_SECONDS = 2.0  # storing a result takes less


def before(operation: str, path: Path) -> None:
    """Called ahead of each "write", "sync" and "rename" of a path; does nothing."""


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Call write(temporary path), flush it to disk, then rename it over `path`.

    What processes that were killed left of it is removed.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _errors_about(path):
        make_folder(path.parent)
        _remove_left(path)
        try:
            aside.touch()
            mode = aside.stat().st_mode  # by the umask, which some writers do not ask
            before("write", aside)
            write(aside)
            aside.chmod(mode)
            sync(aside)
            before("rename", path)
            aside.replace(path)
            sync(path.parent)
        finally:
            with contextlib.suppress(OSError):
                aside.unlink()


def replace_folder(folder: Path, write: Callable[[Path], Any]) -> None:
    """Call write(temporary folder), then rename it to `folder`, whose old content is dropped.

    What processes that were killed left of it is removed.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with _errors_about(folder):
        _remove_left(folder)
        try:
            write(aside)
            shutil.rmtree(folder, ignore_errors=True)
            before("rename", folder)
            aside.rename(folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _remove_left(path: Path) -> None:
    """Delete what a killed process left when it was writing this file or folder aside."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if not _is_alive(left.name.split(".")[-2]):
            shutil.rmtree(left, ignore_errors=True)
            with contextlib.suppress(OSError):
                left.unlink()


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, on disk when this returns; a crash can leave a part of it."""
    with _errors_about(path), path.open("a", encoding="utf-8") as file:
        before("write", path)
        file.write(line + "\n")
        file.flush()
        before("sync", path)
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, on disk when this returns."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    before("sync", path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # a file system without such a thing
            raise
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Readable JSON, replaced as a whole."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    replace_file(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Any:
    """The content of a JSON file of ours."""
    text = read_text(path)
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise EkgnError(f"{path} is damaged ({error}). Restore it or train again.") from None


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def read_text(path: Path) -> str:
    """The content of a text file of ours."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise EkgnError(f"{path} is missing: the run is not complete.") from None
    except UnicodeDecodeError as error:
        raise EkgnError(f"{path} is damaged ({error}). Restore it or train again.") from None
    except OSError as error:
        raise EkgnError(f"Cannot read {path}: {error.strerror or error}.") from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which the system frees when the process ends, however it ends.

    Temporary files of processes that were killed are removed. Raises if another process has the
    lock, or if the folder cannot be written.
    """
    with _errors_about(folder):
        make_folder(folder)
        before("write", folder / LOCK)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(descriptor, folder)
        with _errors_about(folder):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            for stray in (path for pattern in STRAYS for path in folder.glob(pattern)):
                stray.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    """Lock an open file, waiting a moment for one that only stores a result."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                owner = os.pread(descriptor, 32, 0).decode(errors="replace") or "another one"
                raise EkgnError(
                    f"{folder} is being written by process {owner}: wait until it has ended, "
                    f"stop it, or give another folder."
                ) from None
            time.sleep(0.02)
        except OSError as error:  # a file system without locks
            log.warning("%s cannot be locked (%s): start no other process on it.", folder, error)
            return None


@contextlib.contextmanager
def _errors_about(path: Path) -> Iterator[None]:
    """What the system refuses, as an error that names the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EkgnError(f"Could not write {path}: {reason}.") from error
