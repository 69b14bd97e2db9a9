"""How questions, facts, relations, rules and paths are put in words: one place for all of them.

The command line, reports, JSON and web page take their sentences from here.
"""

from __future__ import annotations

ONE_FACT_ALONE = "rules of one fact alone"
WITH_RULES = "model with rules"
