"""Encoder, decoder and scores of knowledge base completion, around the network."""

from __future__ import annotations

from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.kbc.batches import Batch
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.partition import log_partition, log_sums
from ekgn.kbc.rules import Rules
from ekgn.kbc.settings import KbcSettings
from ekgn.network.inference import Inference, step_weights
from ekgn.network.l1 import l1_distances, l1_pairs
from ekgn.network.layers import first_state_norm, shared_dropout
from ekgn.network.network import Network
from ekgn.network.objective import Loss, objective


def entity_table(rows: int, size: int, settings: KbcSettings) -> nn.Embedding:
    """An embedding table whose gradient holds only the rows that were looked up."""
    table = nn.Embedding(rows, size, sparse=True)
    with torch.no_grad():
        if settings.init_scale:
            table.weight.mul_(settings.init_scale)
        else:
            F.normalize(table.weight, dim=1, out=table.weight)
    return table


class Encoder(nn.Module):
    """s_1 = [h ; r], two lookups concatenated; normalised, modulated and dropped out, if set."""

    def __init__(self, num_entities: int, num_relations: int, settings: KbcSettings) -> None:
        super().__init__()
        size = settings.embedding_dim
        self.entities = entity_table(num_entities, size, settings)
        self.relations = nn.Embedding(2 * num_relations, size, sparse=settings.relations_by_row)
        self.relations.load_state_dict(entity_table(2 * num_relations, size, settings).state_dict())
        self.norm = first_state_norm(settings.first_norm, 2 * size)
        self.modulate = settings.modulate_head
        self.dropout = nn.Dropout(settings.input_dropout)

    def forward(self, heads_B: Tensor, relations_B: Tensor) -> Tensor:
        pair_BH = torch.cat([self.entities(heads_B), self.relations(relations_B)], dim=1)
        first_BH: Tensor = self.norm(pair_BH)
        if self.modulate:
            head_BK, relation_BK = first_BH.chunk(2, dim=1)
            head_BK = torch.addcmul(head_BK, head_BK, relation_BK)
            first_BH = torch.cat([head_BK, relation_BK], dim=1)
        dropped_BH: Tensor = self.dropout(first_BH)
        return dropped_BH


class Decoder(nn.Module):
    """o_t = tanh(W_o s_t + b_o).

    With `mirror_output`, W_o starts close to the matrix that reverses the order of the head's
    entries. o_1 · y is then SimplE's score: a relation's vector, reversed, serves its inverse.
    """

    def __init__(self, settings: KbcSettings) -> None:
        super().__init__()
        size = settings.embedding_dim
        self.output = nn.Linear(2 * size, size)
        if settings.mirror_output:
            with torch.no_grad():
                self.output.weight.mul_(0.1)
                self.output.weight[:, :size] += torch.eye(size).flip(0)
        self.tanh = settings.output_tanh
        self.dropout = settings.output_dropout

    def forward(self, states_TBH: Tensor) -> Tensor:
        outputs_TBK = self.output(states_TBH)
        outputs_TBK = torch.tanh(outputs_TBK) if self.tanh else outputs_TBK
        return shared_dropout(outputs_TBK, self.dropout, self.training)


class KbcModel(nn.Module):
    """The network over entities and relations, with an output entity table (its own, or shared)."""

    def __init__(self, num_entities: int, num_relations: int, settings: KbcSettings) -> None:
        super().__init__()
        self.settings = settings
        encoder = Encoder(num_entities, num_relations, settings)
        self.network = Network(encoder, Decoder(settings), 2 * settings.embedding_dim, settings)
        self.own_answers: nn.Embedding | None = None
        if not settings.shared_entities:
            self.own_answers = entity_table(num_entities, settings.embedding_dim, settings)
        self.rules: Rules | None = None

    @classmethod
    def over(cls, graph: KnowledgeGraph, settings: KbcSettings) -> Self:
        """A new model of a graph, with the rules of its training facts if they have a share."""
        model = cls(graph.num_entities, graph.num_relations, settings)
        model.rules = Rules(graph) if settings.rules_share else None
        return model

    def forward(
        self, heads_B: Tensor, relations_B: Tensor, max_steps: int | None = None
    ) -> Inference:
        """The complete record of answering [head, relation, ?] for a batch."""
        record: Inference = self.network(heads_B, relations_B, max_steps=max_steps)
        return record

    def loss(self, batch: Batch, max_steps: int | None = None) -> Loss:
        """The objective over the batch's (query, answer) pairs."""
        inference = self(batch.heads_B, batch.relations_B, max_steps)
        parts = [batch.negatives.flatten(), batch.answers_P]
        rows, answers_PK = self.answers(torch.cat(parts)).split([len(part) for part in parts])
        negatives = rows.view(*batch.negatives.shape, -1)
        log_p_TP = self._log_probabilities(inference.outputs_TBK, negatives, answers_PK, batch)
        log_stop_TP = inference.log_stop_weights_TB[:, batch.query_of_answer_P]
        size_TP = None
        if self.settings.size_penalty:
            size_TB = inference.outputs_TBK.square().sum(dim=-1)
            size_TP = size_TB[:, batch.query_of_answer_P] + answers_PK.square().sum(dim=-1)
        return objective(log_stop_TP, log_p_TP, self.settings, size_TP)

    def _log_probabilities(
        self, outputs_TBK: Tensor, negatives: Tensor, answers_PK: Tensor, batch: Batch
    ) -> Tensor:
        """log p(answer | o_t) against the sampled negatives, for each pair at each step."""
        scores_TBN = self._scores(outputs_TBK, negatives).add_(batch.log_weight)
        log_wrong_TB = log_partition(scores_TBN, batch.is_answer)
        outputs_TPK = outputs_TBK.index_select(1, batch.query_of_answer_P)
        score_TP = self._pair_scores(outputs_TPK, answers_PK)
        if self.settings.rival_answers:
            log_right_TB = log_sums(score_TP, batch.query_of_answer_P, len(batch.heads_B))
            log_total_TB = torch.logaddexp(log_right_TB, log_wrong_TB)
            return score_TP - log_total_TB.index_select(1, batch.query_of_answer_P)
        log_wrong_TP = log_wrong_TB.index_select(1, batch.query_of_answer_P)
        return F.logsigmoid(score_TP - log_wrong_TP)

    def _scores(self, outputs_TBK: Tensor, rows: Tensor) -> Tensor:
        """Score of every output with every row: rows (N, K) shared, or (B, N, K) per query."""
        if rows.dim() == 3:
            return self._pair_scores(outputs_TBK[:, :, None], rows)
        if self.settings.score == "l1":
            return -self.settings.distance_scale * l1_distances(outputs_TBK, rows)
        return outputs_TBK @ rows.T

    def _pair_scores(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Score of each output with its own row (shapes broadcast)."""
        if self.settings.score == "l1":
            return -self.settings.distance_scale * l1_pairs(outputs, rows)
        return (outputs * rows).sum(dim=-1)

    def answer_scores(
        self,
        inference: Inference,
        heads_B: Tensor,
        relations_B: Tensor,
        answer_rule: str | None = None,
    ) -> Tensor:
        """Scores of all entities as the answer, (B, N), higher is better."""
        scores_BN = self._network_scores(inference, answer_rule or self.settings.answer_rule)
        if self.rules is None:
            return scores_BN
        return self.rules.mixed(scores_BN, heads_B, relations_B, self.settings.rules_share)

    def _network_scores(self, inference: Inference, answer_rule: str) -> Tensor:
        """For `mixture` log Σ_t q_t p_t; for the answer rules that choose one step, its logits."""
        weights_TB = step_weights(inference, answer_rule)
        if answer_rule == "mixture":
            total: Tensor | None = None
            for outputs_BK, weight_B in zip(inference.outputs_TBK, weights_TB, strict=True):
                share = self._scores(outputs_BK, self.answers.weight).softmax(dim=1)
                share *= weight_B[:, None]
                total = share if total is None else total.add_(share)
            assert total is not None
            return total.log_()
        chosen_BK = inference.outputs_TBK[
            weights_TB.argmax(dim=0), torch.arange(weights_TB.shape[1], device=weights_TB.device)
        ]
        return self._scores(chosen_BK, self.answers.weight)

    @property
    def answers(self) -> nn.Embedding:
        """The entity vectors that outputs are compared with."""
        return self.own_answers or self.encoder.entities

    @property
    def encoder(self) -> Encoder:
        """The network's encoder, which holds the input tables."""
        return cast(Encoder, self.network.encoder)

    @torch.no_grad()
    def constrain(self, touched: dict[Tensor, Tensor]) -> None:
        """Return the entity vectors that an update moved to L2 norm 1, if that is set."""
        if self.settings.unit_entities:
            for weight in {self.encoder.entities.weight, self.answers.weight}:
                rows = touched[weight]
                weight.index_copy_(0, rows, F.normalize(weight.index_select(0, rows), dim=1))
