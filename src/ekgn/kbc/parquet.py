"""Triples from Parquet, read in a process of its own.

On damaged files polars panics, and now and then aborts the process; here only the reader dies.
Its start costs a few tenths of a second, once: a parsed graph is cached.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc.columns import header_order, pick
from ekgn.kbc.unpack import MOST, most_bytes

_READER = ("-P", "-m", "ekgn.kbc.parquet")
_REFUSED = 3  # the reader's exit code when its output is what is wrong with the file
_SECONDS = 900


def read_parquet(path: Path, data: bytes) -> pl.DataFrame:
    """The triples in the bytes of a Parquet file, as text columns head, relation, tail."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, *_READER],
            input=data,
            capture_output=True,
            env=environment,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise EkgnError(f"{path} was not read within {_SECONDS} s: it is damaged.") from None
    if done.returncode == 0:
        return pl.read_ipc(io.BytesIO(done.stdout))
    if done.returncode == _REFUSED:
        raise EkgnError(f"{path}{done.stdout.decode()}")
    if done.returncode < 0:
        reason = f"its reader died of {signal.Signals(-done.returncode).name}"
    else:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = f"its reader failed: {said[-1] if said else done.returncode}"
    raise EkgnError(f"{path} is not a readable Parquet file: {reason}.")


def _table(data: bytes) -> tuple[pl.DataFrame, str]:
    """The triples, or what is wrong with the file."""
    try:
        columns = list(pl.read_parquet_schema(io.BytesIO(data)))
        order = header_order(columns)
        wanted = (
            [name for name, role in zip(columns, order, strict=True) if role] if order else None
        )
        frame = pl.read_parquet(data, columns=wanted)
    except BaseException as error:  # a panic of polars is not an Exception
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return pl.DataFrame(), f" is not a readable Parquet file: {reason}"
    if frame.estimated_size() > most_bytes():
        limit = f"{most_bytes() / 2**30:g} GB"
        return frame, f" unpacks to more than {limit}. If it is meant to, set {MOST} to more."
    return pick(frame, "row")


def _limit_memory() -> None:
    """Let the system refuse what a damaged or hostile file asks for beyond reason."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (2 * most_bytes() + 8 * 2**30,) * 2)


def main() -> int:
    """Parquet on stdin; Arrow on stdout, or what is wrong with it."""
    _limit_memory()
    frame, problem = _table(sys.stdin.buffer.read())
    if problem:
        sys.stdout.buffer.write(problem.encode())
        return _REFUSED
    answer = io.BytesIO()
    frame.write_ipc(answer)
    sys.stdout.buffer.write(answer.getbuffer())
    return 0


if __name__ == "__main__":
    sys.exit(main())
