"""Rules of up to three facts: mined from training facts, kept, applied, shown as evidence."""

from ekgn.kbc.rules.evidence import Evidence, evidence, in_words
from ekgn.kbc.rules.mining import Mining, Round, mine
from ekgn.kbc.rules.mixture import WEIGHTS_FILE, Mixture, Weights, fit_weights
from ekgn.kbc.rules.rulebook import Rulebook, RuleTable
from ekgn.kbc.rules.scoring import Rules

FILE = "rules.safetensors"  # where a run keeps its rules

__all__ = [
    "FILE",
    "WEIGHTS_FILE",
    "Evidence",
    "Mining",
    "Mixture",
    "Round",
    "RuleTable",
    "Rulebook",
    "Rules",
    "Weights",
    "evidence",
    "fit_weights",
    "in_words",
    "mine",
]
