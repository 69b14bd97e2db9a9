"""Listening: where, for whom, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import queue
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from ekgn.errors import EkgnError
from ekgn.signals import stopping
from ekgn.web.app import create_app
from ekgn.web.guard import LEAST_TOKEN, is_loopback
from ekgn.web.site import Site

MOST_CONNECTIONS = 512
GRACE_SECONDS = 30
HEAD_SECONDS = 5  # for the head of a request to arrive
QUIET_SECONDS = 1  # without a request, after which an ending server closes a connection
WRITE_SECONDS = 10  # in which a client must take WRITE_BYTES of what waits for it
WRITE_BYTES = 16 * 1024


class Connection(H11Protocol):
    """A connection that is closed when its client is too slow to ask or to take the answer.

    uvicorn itself waits for ever for the end of a request's head, and for a client that does not
    read; a request that has begun is bounded by the application. At the end uvicorn closes idle
    connections at once, and others without a word: requests on their way there would be reset.
    """

    _deadline: asyncio.TimerHandle | None = None
    _write_check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clocks."""
        super().connection_made(transport)
        self._watch()
        self._check_writes(0)

    def data_received(self, data: bytes) -> None:
        """Stop the clock once there is a request, start it again for the next one."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._watch()
        elif self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clocks."""
        super().connection_lost(exc)
        for clock in (self._deadline, self._write_check):
            if clock:
                clock.cancel()

    def shutdown(self) -> None:
        """The server ends: say so with the answer, or close once no request comes any more."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(QUIET_SECONDS, self._hang_up)
            return
        self.cycle.default_headers = [*self.cycle.default_headers, CLOSE_HEADER]
        super().shutdown()

    def _check_writes(self, waiting: int) -> None:
        """Give up on a client that took too little of the `waiting` bytes since the last look."""
        left = self.transport.get_write_buffer_size()
        if waiting and left and left > waiting - WRITE_BYTES:
            # Without lingering, or the system would go on where the server gave up.
            lost: socket.socket = self.transport.get_extra_info("socket")
            lost.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
            return
        self._write_check = self.loop.call_later(WRITE_SECONDS, self._check_writes, left)

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let every answer from now on end its connection; take in who knocked before the end."""
        state = self.server_state
        state.default_headers = [*state.default_headers, CLOSE_HEADER]
        for bound in sockets or []:
            with suppress(BlockingIOError):
                while True:
                    await asyncio.get_running_loop().connect_accepted_socket(
                        self._connection, bound.accept()[0]
                    )
        await super().shutdown(sockets)

    def _connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the server after what was begun is finished; a second, at once."""
        handlers: dict[int, Any] = {}

        def stop(number: int, frame: FrameType | None) -> None:
            if self.should_exit:
                self.force_exit = True  # what is cut off now is no error
                logging.getLogger("uvicorn.error").disabled = True
            self.should_exit = True

        try:
            for number in stopping():
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
