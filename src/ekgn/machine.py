"""What a training needs of the machine it is on, and of the others it trains with."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ekgn import __version__
from ekgn.distributed import ALONE, Group, on_this_machine
from ekgn.errors import EkgnError


@contextmanager
def without_denormals() -> Iterator[None]:
    """Numbers next to 0 are 0: a sure softmax makes them, and products with them crawl."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def choose_device(name: str) -> torch.device:
    """The torch device for the setting `device`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise EkgnError(f"Device '{name}' cannot be used here: {reason}") from None
    return device


def outline(task: Any, group: Group = ALONE) -> torch.nn.Module:
    """The model of a task on the meta device: its sizes, which take no memory."""
    with torch.device("meta"):
        model: torch.nn.Module = task.new_model(group)
        return model


def check_memory(task: Any, group: Group) -> None:
    """Refuse a training whose model, optimizer state and batches are larger than free memory."""
    states = {"sgd": 0, "adagrad": 1, "adam": 2}[task.settings.optimizer]
    model = sum(p.numel() * p.element_size() for p in outline(task, group).parameters())
    needed = on_this_machine(group) * ((1 + states) * model + task.update_bytes())
    free = free_memory()
    if needed > free:
        raise EkgnError(
            f"The training needs at least {needed / 2**30:,.1f} GB of memory, {free / 2**30:,.1f} "
            f"GB are free. Lower --embedding-dim, --num-slots, --batch-size or --max-steps."
        )


def check_group(task: Any, group: Group) -> None:
    """Refuse processes that would not train the same, or more of them than a batch is for."""
    if group.size == 1:
        return
    if group.size > task.settings.batch_size:
        raise group.error(
            f"{group.size} processes cannot share batches of {task.settings.batch_size} "
            f"{task.unit}: start fewer, or give a larger --batch-size."
        )
    here = {"threads", "device", "tensorboard"}  # may differ by process
    found = group.every(
        {
            "host": socket.gethostname(),
            "ekgn": __version__,
            "torch": torch.__version__,
            "settings": task.settings.model_dump(mode="json", exclude=here),
            "data": task.digest(),
        }
    )
    for rank, other in enumerate(found):
        for what in ("ekgn", "torch", "data", "settings"):
            if other[what] != found[0][what]:
                raise group.error(
                    f"Process {rank} on {other['host']} has other {what} than process 0 on "
                    f"{found[0]['host']}: {_difference(found[0][what], other[what])}. Start all "
                    f"with the same command, data and versions."
                )


def _difference(first: Any, other: Any) -> str:
    if isinstance(first, dict):
        name = next(name for name in first if first[name] != other[name])
        return f"{name} {other[name]}, not {first[name]}"
    return f"{other}, not {first}"


def free_memory() -> int:
    """Bytes of main memory that can still be used."""
    try:
        text = Path("/proc/meminfo").read_text()
        return 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
