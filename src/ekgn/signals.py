"""Ctrl-C and SIGTERM as a wish that is looked at when it suits."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)


def stopping() -> list[int]:
    """The signals that ask to stop: Ctrl-C, SIGTERM, and SIGALRM where it stands for one of them.

    The command line delivers an interrupt that came at a bad moment later, by SIGALRM.
    """
    put_off = signal.getsignal(signal.SIGALRM) == signal.getsignal(signal.SIGTERM)
    both = [signal.SIGINT, signal.SIGTERM]
    numbers = [*both, signal.SIGALRM] if put_off else both
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


class StopSignals:
    """While open, the first Ctrl-C or SIGTERM sets `wanted`; a second one interrupts at once.

    A wish that nobody looked at is a KeyboardInterrupt in the end. Signals that the process ignores
    stay ignored. Outside the main thread, where signals do not arrive, it does nothing.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in stopping():
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.wanted and kind is None:
            raise KeyboardInterrupt

    def _note(self, *_: Any) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
        with contextlib.suppress(RuntimeError):  # it came while another message was written
            log.warning("Stopping after this step or validation; once more stops at once.")
