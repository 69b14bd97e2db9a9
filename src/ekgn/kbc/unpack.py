"""The bytes of a file, unpacked if it is compressed, and never more of them than agreed."""

from __future__ import annotations

import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from ekgn.errors import EkgnError

COMPRESSIONS = (".gz", ".xz", ".zst")
MOST = "EKGN_MAX_GB"
"""The setting (an environment variable) for how many gigabytes a file may unpack to."""
_DEFAULT_GB = 4.0
_PIECE = 2**20
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def most_bytes() -> int:
    """How many bytes a compressed file may unpack to."""
    given = os.environ.get(MOST, "")
    try:
        gigabytes = float(given or _DEFAULT_GB)
        if 0 < gigabytes < 1e6:
            return int(gigabytes * 2**30)
    except ValueError:
        pass
    raise EkgnError(f"{MOST} is '{given}': expected a number of gigabytes above 0.")


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked when it is gzip, xz or zstd (told by its first bytes)."""
    try:
        with path.open("rb") as handle:
            start = handle.peek(6)
            opener = next((_OPENERS[magic] for magic in _OPENERS if start.startswith(magic)), None)
            data = handle.read() if opener is None else _unpack(path, handle, opener)
    except FileNotFoundError:
        raise EkgnError(f"No such file: {path}") from None
    except IsADirectoryError:
        raise EkgnError(f"{path} is a directory: expected one file.") from None
    except OSError as error:
        raise EkgnError(f"Cannot read {path}: {error.strerror or error}") from None
    except MemoryError:
        raise EkgnError(f"{path} does not fit into the memory of this machine.") from None
    if not data.strip(b" \r\n"):
        raise EkgnError(f"{path} is empty.")
    return data


Opener = Callable[[Path, IO[bytes]], tuple[IO[bytes], type[Exception]]]


def _unpack(path: Path, packed: IO[bytes], opener: Opener) -> bytes:
    """All that is in the archive, read piece by piece up to the limit."""
    pieces: list[bytes] = []
    most, total = most_bytes(), 0
    stream, damage = opener(path, packed)
    try:
        while piece := stream.read(_PIECE):
            total += len(piece)
            if total > most:
                raise EkgnError(
                    f"{path} unpacks to more than {most / 2**30:g} GB. If it is meant to, "
                    f"set {MOST} to the gigabytes it may take."
                )
            pieces.append(piece)
    except (OSError, EOFError, damage) as error:
        raise EkgnError(f"{path} is damaged and cannot be unpacked: {error}.") from None
    return b"".join(pieces)


def _gzip(path: Path, packed: IO[bytes]) -> tuple[IO[bytes], type[Exception]]:
    return gzip.GzipFile(fileobj=packed), zlib.error  # type: ignore[return-value]


def _xz(path: Path, packed: IO[bytes]) -> tuple[IO[bytes], type[Exception]]:
    return lzma.LZMAFile(packed), lzma.LZMAError


def _zstd(path: Path, packed: IO[bytes]) -> tuple[IO[bytes], type[Exception]]:
    try:
        zstd: Any = import_module(_ZSTD)
    except ImportError:
        raise EkgnError(
            f"{path} is zstd, which needs backports.zstd. "
            "Install it with: pip install backports.zstd"
        ) from None
    return zstd.open(packed), zstd.ZstdError


_OPENERS: dict[bytes, Opener] = {
    b"\x1f\x8b": _gzip,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
}
