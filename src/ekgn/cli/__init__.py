"""The command line: a thin skin over ekgn.api. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import logging
import os
import signal
import sys
from types import FrameType


class _Warnings(logging.Handler):
    """What the library warns of, on stderr, shown as safely as everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        from ekgn.cli import display

        display.messages.print(self.format(record), soft_wrap=True)


_interrupted = False


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt, but no import: libraries turn an interrupted one into errors of their own."""
    global _interrupted
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # SIGALRM: try again then
            return
        frame = frame.f_back
    _interrupted = True
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; an expected error is one message on stderr and exit code 2."""
    from ekgn.errors import EkgnError

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    logging.getLogger("ekgn").addHandler(_Warnings(logging.WARNING))
    try:
        from ekgn.cli.app import app

        app(standalone_mode=True)
    except EkgnError as error:
        from ekgn.cli.display import visible

        print(f"error: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception:
        if not _interrupted:
            raise
        sys.exit(130)  # a library made an error of its own of the interrupt
