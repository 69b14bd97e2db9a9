"""Two network namespaces as two hosts, with a link between them that has a rate and a delay.

Packets of one go through a TUN device to this process, which sends them on to the other when they
would have arrived: that needs root and /dev/net/tun, and no queueing discipline of the kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET = 65_000  # bytes: large ones, so that this process keeps up


class Host(NamedTuple):
    """A namespace, its address, and the device of its end of the link."""

    name: str
    address: str
    device: str

    def command(self, *words: str) -> list[str]:
        """A command to be run on this host."""
        return ["ip", "netns", "exec", self.name, *words]


def why_not() -> str:
    """Why hosts cannot be made here; "" if they can."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    if not TUN.exists():
        return f"needs {TUN}"
    name = f"ekgn{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"cannot make network namespaces: {error}"
    return ""


@contextlib.contextmanager
def two_hosts(bits_per_second: float, delay: float) -> Iterator[list[Host]]:
    """Two hosts with a link; the delay is one way, in seconds."""
    hosts = [
        Host(f"ekgn{os.getpid()}{end}", f"10.77.0.{end}", f"ekgn{os.getpid() % 10**6}{end}")
        for end in (1, 2)
    ]
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(_end(host)) for host in hosts]
        for source, target in (ends, ends[::-1]):
            carried: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            shaped = (source, carried, bits_per_second, delay)
            threading.Thread(target=_take, args=shaped, daemon=True).start()
            threading.Thread(target=_give, args=(target, carried), daemon=True).start()
        yield hosts


@contextlib.contextmanager
def _end(host: Host) -> Iterator[int]:
    """A host with its end of the link, as the descriptor of its device."""
    descriptor = os.open(TUN, os.O_RDWR)
    try:
        request = struct.pack("16sH", host.device.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        _ip("netns", "add", host.name)
        _ip("link", "set", host.device, "netns", host.name)
        inside = ("netns", "exec", host.name, "ip")
        _ip(*inside, "addr", "add", f"{host.address}/24", "dev", host.device)
        _ip(*inside, "link", "set", host.device, "mtu", str(PACKET), "up")
        _ip(*inside, "link", "set", "lo", "up")
        yield descriptor
    finally:
        os.close(descriptor)
        subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _take(
    source: int, carried: queue.SimpleQueue[tuple[float, bytes]], rate: float, delay: float
) -> None:
    """Read packets, and note when each is through."""
    free = 0.0  # when the line has sent all before
    with contextlib.suppress(OSError):
        while packet := os.read(source, PACKET + 100):
            free = max(free, time.monotonic()) + 8 * len(packet) / rate
            carried.put((free + delay, packet))


def _give(target: int, carried: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    """Write packets when they are through."""
    with contextlib.suppress(OSError):
        while True:
            at, packet = carried.get()
            time.sleep(max(0.0, at - time.monotonic()))
            os.write(target, packet)
