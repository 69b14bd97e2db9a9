"""The command line: a thin skin over ekgn.api. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any


class _Warnings(logging.Handler):
    """What the library warns of, on stderr, shown as safely as everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        from ekgn.cli import display

        display.messages.print(self.format(record), soft_wrap=True)


def main() -> None:
    """Run the command line; an expected error is one message on stderr and exit code 2."""
    from ekgn.errors import EkgnError

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
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
