"""Several processes that work as one: who they are, and what they exchange.

PyTorch's launcher starts them (`torchrun --nproc-per-node 2 -m ekgn train ...`) and tells each its
rank. A process alone is a group of one: its exchanges do nothing and cost nothing, so that there is
one way to train, not two.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist

# Parts of PyTorch import it later, and its functions' defaults would then keep the group for good:
# gloo's threads would outlive the interpreter, and abort the process as it ends.
import torch.distributed.nn
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from ekgn.errors import EkgnError, SaidElsewhere

Value = TypeVar("Value")

TIMEOUT = "EKGN_TIMEOUT"  # the variable that holds the seconds to wait for another process
RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # set by the launcher
SECONDS = 600.0  # without it: longer than the first process needs to write a checkpoint


class Share(NamedTuple):
    """How much of a batch a process has: by what its loss is a mean over, and its reward."""

    of_loss: float = 1.0
    of_reward: float = 1.0
    rows: slice = slice(None)  # which of the batch's rows these are
    rows_of_all: int = 0  # how many it has (0: as many as here, or not known)


@dataclass(frozen=True)
class Group:
    """Processes that work as one. Every process calls the same exchanges in the same order."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """This process's contiguous part of so many items; parts differ by at most one."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def owned(self, count: int, rank: int | None = None) -> int:
        """How many of so many rows a process owns: row i belongs to process i mod size."""
        return len(range(self.rank if rank is None else rank, count, self.size))

    def sum(self, *tensors: Tensor) -> None:
        """Add up each tensor over all processes, in place."""
        if self.size > 1:
            with _exchange():
                for work in [dist.all_reduce(each, async_op=True) for each in tensors]:
                    work.wait()

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Rows for each process, one after the other, for the rows each has for this one."""
        arrived = rows.new_empty(sum(received), *rows.shape[1:])
        with _exchange():
            dist.all_to_all_single(arrived, rows.contiguous(), list(received), list(sent))
        return arrived

    def counts(self, sent: Sequence[int]) -> list[int]:
        """How many rows each process is going to send to this one."""
        ones = [1] * self.size
        received: list[int] = self.swap(torch.tensor(sent), ones, ones).tolist()
        return received

    def gather(self, *parts: Tensor) -> tuple[list[Tensor], list[int]]:
        """The rows of all processes, one after the other, and how many each has.

        Several tensors have the same rows.
        """
        if self.size == 1:
            return list(parts), [len(parts[0])]
        sent = [len(parts[0])] * self.size
        received = self.counts(sent)
        repeated = [rows.repeat(self.size, *[1] * (rows.dim() - 1)) for rows in parts]
        return [self.swap(rows, sent, received) for rows in repeated], received

    def every(self, value: Value) -> list[Value]:
        """The value of each process; a few plain numbers and words."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _exchange():
            dist.all_gather_object(values, value)
        return values

    def by_first(self, call: Callable[[], Value]) -> Value:
        """What the first process makes of a call, in all of them; so is its error."""
        if self.size == 1:
            return call()
        told: list[Any] = [None, None]
        if self.is_first:
            try:
                told[0] = call()
            except EkgnError as error:
                with _exchange():
                    dist.broadcast_object_list([None, str(error)])
                raise
        with _exchange():
            dist.broadcast_object_list(told)
        if told[1] is not None:
            raise SaidElsewhere(told[1])
        value: Value = told[0]
        return value

    def together(self, call: Callable[[], Value]) -> Value:
        """What each process makes of a call. The error of one is that of all, and is said once."""
        if self.size == 1:
            return call()
        value, error = None, None
        try:
            value = call()
        except EkgnError as found:
            error = str(found)
        errors = self.every(error)
        if any(errors):
            rank, text = next((rank, text) for rank, text in enumerate(errors) if text)
            is_common = len(set(errors)) == 1
            raise self.error(text if is_common else f"Process {rank} of {self.size}: {text}")
        return cast("Value", value)

    def error(self, text: str) -> EkgnError:
        """An error that every process has, and one of them says."""
        return EkgnError(text) if self.is_first else SaidElsewhere(text)

    def collect(self, own: Tensor, rows: int, rank: int) -> Tensor | None:
        """The rows that process `rank` owns of so many, on the first process; None elsewhere."""
        if rank == 0:
            return own if self.is_first else None
        with _exchange():
            if self.is_first:
                arrived = torch.empty(self.owned(rows, rank), *own.shape[1:], dtype=own.dtype)
                dist.recv(arrived, rank)
                return arrived
            if self.rank == rank:
                dist.send(own.detach().cpu().contiguous(), 0)
        return None

    def join(self, own: Tensor, rows: int) -> Tensor | None:
        """A whole table of so many rows, on the first process; None elsewhere."""
        whole = torch.empty(rows, *own.shape[1:], dtype=own.dtype) if self.is_first else None
        for rank in range(self.size):
            part = self.collect(own, rows, rank)
            if whole is not None and part is not None:
                whole[rank :: self.size] = part.cpu()
        return whole

    def deal(self, whole: Tensor | None, shape: Sequence[int], kind: torch.dtype) -> Tensor:
        """The rows this process owns of a table of this shape that the first one has."""
        if self.is_first:
            assert whole is not None
            with _exchange():
                for rank in range(1, self.size):
                    dist.send(whole[rank :: self.size].contiguous(), rank)
            return whole[0 :: self.size].contiguous()
        arrived = torch.empty(self.owned(shape[0]), *shape[1:], dtype=kind)
        with _exchange():
            dist.recv(arrived, 0)
        return arrived

    def copy(self, value: Tensor | None, shape: Sequence[int], kind: torch.dtype) -> Tensor:
        """A tensor of this shape that the first process has."""
        held = torch.empty(shape, dtype=kind) if value is None else value.contiguous()
        with _exchange():
            dist.broadcast(held, 0)
        return held


ALONE = Group()


@cache
def world() -> Group:
    """The processes that the launcher started together; joined at the first call."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return ALONE
    try:
        group = Group(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        seconds = float(os.environ.get(TIMEOUT, SECONDS))
    except (KeyError, ValueError) as error:
        raise EkgnError(
            f"WORLD_SIZE is set, and {error} is not as torchrun sets it. Start several processes "
            f"by: torchrun --nproc-per-node 2 -m ekgn ..., or unset WORLD_SIZE."
        ) from None
    _join(group, seconds)
    return group


def _join(group: Group, seconds: float) -> None:
    """Meet the other processes: gloo for main memory, NCCL for GPUs."""
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    wait = timedelta(seconds=seconds)
    try:
        store, rank, size = next(rendezvous("env://", timeout=wait))
        # The launcher keeps its store: what the processes of an attempt before said is still there.
        own = PrefixStore(f"ekgn/{os.environ.get(RESTARTS, 0)}", store)
        dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=wait)
    except (RuntimeError, ValueError) as error:
        raise EkgnError(
            f"Process {group.rank} of {group.size} on {socket.gethostname()} could not join the "
            f"others at {at} within {seconds:g} s: {_reason(error)}. Check that all were "
            f"started, that the first is reached from here, and that the port is free."
        ) from None
    atexit.register(dist.destroy_process_group)


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    """A failed exchange, as an error that says what it means."""
    try:
        yield
    except RuntimeError as error:
        raise EkgnError(
            f"Lost another process of the group ({_reason(error)}). It ended or cannot be "
            f"reached: see its message. Go on from the last checkpoint: --resume."
        ) from None


def _reason(error: Exception) -> str:
    """What went wrong, of a message that begins with a source file and ends in advice."""
    first = str(error).strip().splitlines()[0]
    return re.sub(r"\[/\S+\] ", "", first).split(". ")[0].rstrip(".")


def launch() -> str | None:
    """What the attempts of one start of the launcher share; None without a launcher."""
    if RESTARTS not in os.environ:
        return None
    return f"{socket.gethostname()}:{os.getppid()}:{os.environ.get('TORCHELASTIC_RUN_ID', '')}"


def is_restart() -> bool:
    """Whether the launcher started this process again after one of the group ended badly."""
    return int(os.environ.get(RESTARTS, "0")) > 0


def may_restart() -> bool:
    """Whether the launcher would start the group again."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def on_this_machine(group: Group) -> int:
    """How many processes of a group share this machine's memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if group.size > 1 else 1
