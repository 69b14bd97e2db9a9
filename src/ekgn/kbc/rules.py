"""The rule baseline: what a model is worth beyond copying a reversed or renamed fact.

A length-1 rule says: whoever stands in relation r' to somebody also stands in r to them, where r'
may be an inverse. Its confidence is the share of r' pairs in train that r also holds for.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.graph import KnowledgeGraph


class RuleBaseline:
    """Scores an answer by the most confident length-1 rule that yields it, 0 when none does."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        known = Answers(graph.train, graph.num_relations)
        self._num_entities = graph.num_entities
        width = 2 * graph.num_relations
        heads = np.repeat(known.heads, np.diff(known.offsets))
        relations = np.repeat(known.relations, np.diff(known.offsets))
        pairs, pair_of_fact = np.unique(
            heads * graph.num_entities + known.tails, return_inverse=True
        )
        ones = np.ones(len(relations), np.float32)
        holds = sparse.csr_matrix((ones, (relations, pair_of_fact)), (width, len(pairs)))
        together = (holds @ holds.T).tocoo()
        support = np.asarray(holds.sum(axis=1)).ravel()
        other = together.row != together.col
        body, conclusion = together.row[other], together.col[other]
        confidence = together.data[other] / support[body]
        self._rules = sparse.csr_matrix((confidence, (conclusion, body)), (width, width))
        self._facts_of_head = np.searchsorted(heads, np.arange(graph.num_entities + 1))
        self._relations, self._tails = relations, known.tails

    def scores(self, heads: Ints, relations: Ints) -> Tensor:
        """Confidence of every entity as the answer, (B, N)."""
        scores_BN = torch.zeros(len(heads), self._num_entities)
        table = scores_BN.numpy()
        for row, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            facts = slice(self._facts_of_head[head], self._facts_of_head[head + 1])
            low, high = self._rules.indptr[relation : relation + 2]
            bodies, confidence = self._rules.indices[low:high], self._rules.data[low:high]
            by_relation = np.zeros(self._rules.shape[1], np.float32)
            by_relation[bodies] = confidence
            np.maximum.at(table[row], self._tails[facts], by_relation[self._relations[facts]])
        return scores_BN
