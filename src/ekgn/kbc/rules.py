"""Length-1 rules: a baseline that copies reversed or renamed facts, and a voice in the answer.

A rule says: whoever stands in relation r' to somebody also stands in r to them, where r' may be an
inverse. Its confidence is the share of r' pairs in train that r also holds for.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from ekgn.kbc.answers import Answers, Ints, spans
from ekgn.kbc.graph import KnowledgeGraph


class Rules:
    """Scores an answer by the most confident length-1 rule that yields it, 0 when none does."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        known = Answers(graph.train, graph.num_relations)
        self._num_entities = graph.num_entities
        self._width = 2 * graph.num_relations
        heads = np.repeat(known.heads, np.diff(known.offsets))
        relations = np.repeat(known.relations, np.diff(known.offsets))
        pairs, pair_of_fact = np.unique(
            heads * graph.num_entities + known.tails, return_inverse=True
        )
        ones = np.ones(len(relations), np.float32)
        holds = sparse.csr_matrix((ones, (relations, pair_of_fact)), (self._width, len(pairs)))
        together = (holds @ holds.T).tocoo()
        support = np.asarray(holds.sum(axis=1)).ravel()
        other = together.row != together.col
        body, conclusion = together.row[other], together.col[other]
        keys = conclusion.astype(np.int64) * self._width + body
        order = np.argsort(keys)
        # The last key is beyond all: whatever is looked up, there is a place for it.
        self._keys = np.append(keys[order], np.iinfo(np.int64).max)
        confidence = together.data[other] / support[body]
        self._confidence = np.append(confidence[order], np.float32(0))
        self._facts_of_head = np.searchsorted(heads, np.arange(graph.num_entities + 1))
        self._relations, self._tails = relations, known.tails

    def scores(self, heads: Ints, relations: Ints) -> Tensor:
        """Confidence of every entity as the answer, (B, N)."""
        query, fact = self._facts(heads)
        confidence = self._rule_confidence(relations[query], self._relations[fact])
        cells = torch.from_numpy(query * self._num_entities + self._tails[fact])
        scores = torch.zeros(len(heads) * self._num_entities)
        scores.scatter_reduce_(0, cells, torch.from_numpy(confidence), "amax")
        return scores.view(len(heads), -1)

    def best(self, head: int, relation: int, answer: int) -> tuple[int, float] | None:
        """The most confident rule that yields an answer: (r', its confidence)."""
        _, fact = self._facts(np.array([head]))
        bodies = self._relations[fact][self._tails[fact] == answer]
        confidence = self._rule_confidence(np.full(len(bodies), relation), bodies)
        if not confidence.any():
            return None
        best = int(confidence.argmax())
        return int(bodies[best]), float(confidence[best])

    def _facts(self, heads: Ints) -> tuple[Ints, Ints]:
        """The training facts of some heads: (which head, index of the fact)."""
        starts = self._facts_of_head[heads]
        return spans(starts, self._facts_of_head[heads + 1] - starts)

    def _rule_confidence(self, conclusions: Ints, bodies: Ints) -> NDArray[np.float32]:
        """The confidence of each rule, 0 where training never has both."""
        keys = conclusions * self._width + bodies
        at = np.searchsorted(self._keys, keys)
        return np.where(self._keys[at] == keys, self._confidence[at], np.float32(0))
