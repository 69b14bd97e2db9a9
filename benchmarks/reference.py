"""The equations of the paper in plain PyTorch, one triple an instance: the yardstick for speed.

Written as a reader of the paper would write it first, with stock modules and a dense optimizer. It
computes the same loss and gradients as the package does for the same batch, and a test checks that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.kbc.settings import KbcSettings


class PlainComplEx(nn.Module):
    """ComplEx with the softmax over all entities and N3, from stock parts, for speed alone."""

    def __init__(self, num_entities: int, num_relations: int, settings: KbcSettings) -> None:
        super().__init__()
        self.settings = settings
        self.entities = nn.Embedding(num_entities, settings.embedding_dim)
        self.relations = nn.Embedding(2 * num_relations, settings.embedding_dim)
        for table in (self.entities, self.relations):
            nn.init.normal_(table.weight, std=0.01)

    def loss(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """Cross-entropy over all entities, a row of scores for each triple, and the penalty."""
        head, relation, tail = (
            torch.complex(*vectors.chunk(2, dim=1))
            for vectors in (self.entities(heads), self.relations(relations), self.entities(tails))
        )
        both = head * relation
        scores = torch.cat([both.real, both.imag], dim=1) @ self.entities.weight.T
        size = sum((x.abs() ** 3).sum() for x in (head, relation, tail)) / len(heads)
        return F.cross_entropy(scores, tails) + self.settings.penalty * size


class ReferenceModel(nn.Module):
    """Encoder, memory, GRU, termination and decoder, step by step."""

    def __init__(self, num_entities: int, num_relations: int, settings: KbcSettings) -> None:
        super().__init__()
        size = settings.embedding_dim
        self.settings = settings
        self.entities = nn.Embedding(num_entities, size)
        self.relations = nn.Embedding(2 * num_relations, size)
        self.answers = nn.Embedding(num_entities, size)
        self.memory = nn.Parameter(F.normalize(torch.randn(settings.num_slots, 2 * size), dim=1))
        self.key = nn.Linear(2 * size, 2 * size, bias=False)
        self.query = nn.Linear(2 * size, 2 * size, bias=False)
        self.cell = nn.GRUCell(2 * size, 2 * size)
        self.stop = nn.Linear(2 * size, 1)
        self.output = nn.Linear(2 * size, size)

    def loss(self, heads: Tensor, relations: Tensor, tails: Tensor, negatives: Tensor) -> Tensor:
        """-J or -log J, J = Σ_t q_t p(tail | o_t), for single triples with their own negatives."""
        settings = self.settings
        state = torch.cat([self.entities(heads), self.relations(relations)], dim=1)
        candidates = torch.cat([tails[:, None], negatives], dim=1)
        reached, reward = torch.ones(len(heads)), torch.zeros(len(heads))
        for step in range(settings.max_steps):
            output = torch.tanh(self.output(state))
            distances = (output[:, None] - self.answers(candidates)).abs().sum(dim=2)
            scores = -settings.distance_scale * distances
            chance = torch.softmax(scores, dim=1)[:, 0]
            last = step == settings.max_steps - 1
            stop = torch.ones(len(heads)) if last else torch.sigmoid(self.stop(state)).squeeze(1)
            reward = reward + reached * stop * chance
            reached = reached * (1 - stop)
            if not last:
                similarity = F.cosine_similarity(
                    self.query(state)[:, None], self.key(self.memory)[None], dim=2
                )
                attention = torch.softmax(settings.sharpness * similarity, dim=1)
                state = self.cell(attention @ self.memory, state)
        return -torch.log(reward + 1e-30).mean() if settings.objective == "log" else -reward.mean()
