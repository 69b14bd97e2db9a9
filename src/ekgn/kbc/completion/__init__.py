"""Completion: the missing facts of a graph, each with the probability that it is true."""

from ekgn.kbc.completion.complete import Completion, complete
from ekgn.kbc.completion.confidence import Check, Confidence
from ekgn.kbc.completion.roles import Choice
from ekgn.kbc.completion.work import fit_confidence

__all__ = ["Check", "Choice", "Completion", "Confidence", "complete", "fit_confidence"]
