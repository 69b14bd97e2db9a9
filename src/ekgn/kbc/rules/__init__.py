"""Rules of up to three facts: mined from training facts, kept, applied, shown as evidence."""

from ekgn.kbc.rules.mining import Mining, Round, mine
from ekgn.kbc.rules.rulebook import Rulebook, RuleTable
from ekgn.kbc.rules.scoring import Rules

__all__ = ["Mining", "Round", "RuleTable", "Rulebook", "Rules", "mine"]
