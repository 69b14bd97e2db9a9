"""The one kind of error a user is meant to read, and the helper that suggests what they meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EkgnError(Exception):
    """Bad input or a bad situation: the text says what was given, expected, and what to do."""


class SaidElsewhere(EkgnError):
    """An error of a whole group of processes, of which another one tells the user."""


def did_you_mean(given: str, valid: Iterable[str], limit: int = 3) -> str:
    """A sentence with the valid words nearest to `given`, or "" when none is near."""
    by_folded = {word.casefold(): word for word in valid}
    near = difflib.get_close_matches(given.casefold(), by_folded, n=limit, cutoff=0.6)
    if not near:
        return ""
    return "Did you mean " + " or ".join(repr(by_folded[word]) for word in near) + "?"
