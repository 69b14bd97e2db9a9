"""Complete knowledge graphs with a model that reasons in steps and shows them.

>>> import ekgn
>>> run = ekgn.load("runs/world")                                     # doctest: +SKIP
>>> run.predict(head="France", relation="borders")                    # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ekgn.api import Run, compare, list_runs, load, resume, train

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "compare", "list_runs", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import the API when it is first asked for: torch alone takes seconds to load."""
    if name in __all__:
        from ekgn import api

        return getattr(api, name)
    raise AttributeError(f"module 'ekgn' has no attribute '{name}'")
