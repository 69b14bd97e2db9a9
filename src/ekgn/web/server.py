"""Listening: where, for whom, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ekgn.errors import EkgnError
from ekgn.web.app import create_app
from ekgn.web.guard import LEAST_TOKEN, is_loopback
from ekgn.web.site import Site

MOST_CONNECTIONS = 512
GRACE_SECONDS = 30
HEAD_SECONDS = 5  # for the head of a request to arrive


class Connection(H11Protocol):
    """A connection that is closed when its client takes too long to say what it wants.

    uvicorn itself waits for ever for the end of a request's head; a request that has begun is
    bounded by the application.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop the clock once there is a request, start it again for the next one."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._watch()
        elif self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clock."""
        super().connection_lost(exc)
        if self._deadline:
            self._deadline.cancel()

    def _watch(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Server(uvicorn.Server):
    """uvicorn that says when it is ready and takes SIGTERM as a wish, not as an error."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the server after what was begun is finished; a second, at once."""
        handlers: dict[int, Any] = {}

        def stop(number: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                handlers[number] = signal.signal(number, stop)
        except ValueError:  # not the main thread, where signals do not arrive
            pass
        try:
            yield
        finally:
            for caught, handler in handlers.items():
                signal.signal(caught, handler)


def check_token(host: str, token: str | None) -> None:
    """Refuse to listen beyond this machine without a token that is hard to guess."""
    if token is not None and len(token) < LEAST_TOKEN:
        raise EkgnError(
            f"The token has {len(token)} characters: give at least {LEAST_TOKEN}, "
            f'for example from: python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    if token is None and not is_loopback(host):
        raise EkgnError(
            f"Host {host} can be reached from other machines: give a token with --token or "
            f"EKGN_TOKEN, or listen on 127.0.0.1."
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, or an error that says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EkgnError(
            f"Cannot listen on {host} port {port}: {reason}. Choose another with --port."
        ) from None
    return bound


def _server(
    bound: socket.socket,
    site: Site,
    host: str,
    token: str | None,
    on_ready: Callable[[str], None],
) -> Server:
    app = create_app(site, token=token, local_only=is_loopback(host))
    config = uvicorn.Config(
        app,
        http=Connection,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
    )
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{bound.getsockname()[1]}/"
    return Server(config, lambda: on_ready(address))


def serve(
    runs: Sequence[str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    threads: int = 1,
    on_ready: Callable[[str, Site], None] = lambda address, site: None,
) -> None:
    """Serve some runs until SIGINT or SIGTERM, then finish what was begun."""
    check_token(host, token)
    with listen(host, port) as bound:
        torch.set_num_threads(threads)
        site = Site(runs)
        server = _server(bound, site, host, token, lambda address: on_ready(address, site))
        server.run(sockets=[bound])


@contextmanager
def running(
    runs: Sequence[str | Path], *, port: int = 0, token: str | None = None
) -> Iterator[str]:
    """A server in a thread of its own for as long as the block lasts; yields its address."""
    addresses: queue.SimpleQueue[str] = queue.SimpleQueue()
    with listen("127.0.0.1", port) as bound:
        server = _server(bound, Site(runs), "127.0.0.1", token, addresses.put)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            yield addresses.get(timeout=60)
        finally:
            server.should_exit = True
            thread.join(timeout=GRACE_SECONDS)
