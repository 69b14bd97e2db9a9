"""Everything that can be wrong with a request, as one kind of exception with one shape."""

from __future__ import annotations

from collections.abc import Sequence

from ekgn.web.schema import ErrorBody, ErrorReply, Thing


class Problem(Exception):
    """An answer that is an error: an HTTP status, a code for programs, a message for people."""

    def __init__(
        self, status: int, code: str, message: str, suggestions: Sequence[Thing] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorReply(
            error=ErrorBody(code=code, message=message, suggestions=list(suggestions))
        )

    def json(self) -> bytes:
        """The body of the answer."""
        return self.body.model_dump_json().encode()


def shown(text: str, most: int = 80) -> str:
    """What was given, short enough for a message."""
    safe = text.encode("utf-8", "replace").decode()
    return safe if len(safe) <= most else safe[:most] + "…"
