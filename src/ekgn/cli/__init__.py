"""The command line: a thin skin over ekgn.api. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType


class _Warnings(logging.Handler):
    """What the library warns of, on stderr, shown as safely as everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        from ekgn.cli import display

        display.messages.print(self.format(record), soft_wrap=True)


_OWN = str(Path(__file__).parent.parent)
_WAIT, _WAITS = 0.02, 100  # seconds until it is tried again, how often
_waited = 0
_interrupted = False


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; while an import or a library is at work, two seconds later at most.

    Some of them turn an interrupt into an error of their own, or end the process.
    """
    global _interrupted, _waited
    if _in_library(frame) and _waited < _WAITS:
        _waited += 1
        signal.setitimer(signal.ITIMER_REAL, _WAIT)  # SIGALRM: try again then
        return
    _interrupted = True
    raise KeyboardInterrupt


def _in_library(frame: FrameType | None) -> bool:
    """Whether ekgn waits for an import or for a call of an installed package."""
    while frame and not frame.f_code.co_filename.startswith(_OWN):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        if "site-packages" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def main() -> None:
    """Run the command line; an expected error is one message on stderr and exit code 2."""
    from ekgn.errors import EkgnError, SaidElsewhere

    if os.environ.get("RANK", "0") != "0":  # of several processes, the first one prints
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    logging.getLogger("ekgn").addHandler(_Warnings(logging.WARNING))
    try:
        from ekgn.cli.app import app

        app(standalone_mode=True)
    except SaidElsewhere:
        sys.exit(2)
    except EkgnError as error:
        from ekgn.cli.display import visible

        print(f"error: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except BaseException as error:
        if not _interrupted or isinstance(error, SystemExit):
            raise
        sys.exit(130)  # a library made an error of its own of the interrupt
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # an interrupt that waits comes too late
