"""The record of a run: enough to trust its numbers and to make them again."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import ekgn

LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "polars", "numba", "safetensors")


def environment(device: torch.device) -> dict[str, Any]:
    """Code version, library versions, hardware and load, as JSON-able values."""
    return {
        "ekgn": ekgn.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "load_average": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def peak_memory() -> int:
    """Bytes of the largest resident size of this process; getrusage counts its parent's too."""
    status = Path("/proc/self/status")
    if not status.is_file():
        unit = 1 if platform.system() == "Darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The git commit of the source tree, with "+" when it was changed; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=5
        ).stdout.strip()

    try:
        if not git("ls-files", "records.py"):
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", str(here)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
