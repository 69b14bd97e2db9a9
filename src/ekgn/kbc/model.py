"""Encoder, decoder and scores of knowledge base completion, around the network."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.distributed import ALONE, Group
from ekgn.kbc.answers import Ints
from ekgn.kbc.batches import Batch
from ekgn.kbc.partition import Candidates, Workspace, log_partition, log_sums
from ekgn.kbc.products import cubes, product, relation_size
from ekgn.kbc.ranking import Scorer
from ekgn.kbc.settings import STEPS, KbcSettings
from ekgn.network.inference import Inference, step_weights
from ekgn.network.l1 import l1_distances, l1_pairs
from ekgn.network.layers import Dropout
from ekgn.network.network import Memory, Network
from ekgn.network.objective import Loss, objective
from ekgn.network.table import ShardedTable, Table, drawn

PRODUCT_START = 0.01  # standard deviation of new vectors, where a product is the first answer
LARGE = 2 * 2**30  # bytes of a table and its optimizer's state that are better divided


class Concatenation(nn.Module):
    """The paper's encoder: s_1 = [h ; r]."""

    def forward(self, heads_BK: Tensor, relations_BK: Tensor) -> Tensor:
        return torch.cat([heads_BK, relations_BK], dim=1)


class Output(nn.Module):
    """The paper's decoder: o_t = tanh(W_o s_t + b_o)."""

    def __init__(self, settings: KbcSettings) -> None:
        super().__init__()
        self.output = nn.Linear(2 * settings.embedding_dim, settings.embedding_dim)

    def forward(self, states_TBH: Tensor, *query: Tensor) -> Tensor:
        return torch.tanh(self.output(states_TBH))


class OverProduct(nn.Module):
    """The encoder over a product: s_1 = tanh(W_s norm([h ; o_1]) + b_s)."""

    def __init__(self, settings: KbcSettings) -> None:
        super().__init__()
        size = 2 * settings.embedding_dim
        self.norm = nn.LayerNorm(size)
        self.input = nn.Linear(size, settings.state_size)
        self.dropout = Dropout(settings.dropout)

    def forward(self, heads_BK: Tensor, first_BK: Tensor) -> Tensor:
        pair_B2 = torch.cat([self.dropout(heads_BK), first_BK], dim=1)
        return torch.tanh(self.input(self.dropout(self.norm(pair_B2))))


class Change(nn.Module):
    """The decoder over a product: o_t = o_1 + W_o s_t + b_o + (M s_t) ∘ o_1, and o_1 itself.

    W_o and M start at 0, so that every step starts from the first answer.
    """

    def __init__(self, settings: KbcSettings) -> None:
        super().__init__()
        self.add = nn.Linear(settings.state_size, settings.embedding_dim)
        self.scale = nn.Linear(settings.state_size, settings.embedding_dim, bias=False)
        self.dropout = Dropout(settings.dropout)
        for weight in (self.add.weight, self.add.bias, self.scale.weight):
            nn.init.zeros_(weight)

    def forward(self, states_TBH: Tensor, heads_BK: Tensor, first_BK: Tensor) -> Tensor:
        later_TBH = self.dropout(states_TBH[1:])
        changed = first_BK + self.add(later_TBH) + self.scale(later_TBH) * first_BK
        return torch.cat([first_BK[None], changed])


class KbcModel(nn.Module):
    """The network over entities and relations.

    In the paper's form a query is [h ; r] and answers have a table of their own. Over a product the
    query is [h ; o_1], one table serves heads and answers, and the network changes o_1.
    Entity tables may be divided among the processes of a group.
    """

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        settings: KbcSettings,
        group: Group = ALONE,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.group = group
        self.kind = settings.first_answer
        size = settings.embedding_dim
        shard = shards(num_entities, settings, group)
        self.entities = _table(num_entities, size, settings, group, shard)
        self.relations = _table(2 * num_relations, relation_size(self.kind, size), settings, group)
        self.own_answers = (
            None if settings.has_product else _table(num_entities, size, settings, group, shard)
        )
        if settings.has_product:
            encoder, decoder = OverProduct(settings), Change(settings)
            self.network = Network(encoder, decoder, settings.state_size, settings)
        else:
            self.network = Network(Concatenation(), Output(settings), 2 * size, settings)
        self._workspace = Workspace()

    @property
    def answers(self) -> Table:
        """The entity vectors that outputs are compared with."""
        return self.own_answers or self.entities

    def num_parameters(self) -> int:
        """How many numbers are learned: of a single step over a product, those of its tables."""
        unused = self.settings.has_product and self.settings.max_steps == 1
        learned = [self.entities, self.relations] if unused else [self]
        kept = sum(p.numel() for part in learned for p in part.parameters())
        divided = [t for t in (self.entities, self.own_answers) if isinstance(t, ShardedTable)]
        elsewhere = sum((len(t) - len(t.weight)) * t.weight.shape[1] for t in divided)
        return kept + elsewhere

    def query(self, heads_B: Tensor, relations_B: Tensor) -> tuple[Tensor, Tensor]:
        """What the network is asked with: [h, r] by their vectors, or [h, o_1]."""
        head_BK = self.entities(heads_B)
        if not self.settings.has_product:
            return head_BK, self.relations(relations_B)
        distinct_U, which_B = torch.unique(relations_B, return_inverse=True)
        return head_BK, product(self.kind, head_BK, self.relations(distinct_U), which_B)

    def first_states(self, heads_B: Tensor, relations_B: Tensor) -> Tensor:
        """s_1 of each query."""
        first_BH: Tensor = self.network.encoder(*self.query(heads_B, relations_B))
        return first_BH

    def forward(
        self,
        heads_B: Tensor,
        relations_B: Tensor,
        max_steps: int | None = None,
        memory: Memory | None = None,
    ) -> Inference:
        """The complete record of answering [head, relation, ?] for a batch."""
        query = self.query(heads_B, relations_B)
        record: Inference = self.network(*query, max_steps=max_steps, memory=memory)
        return record

    def loss(self, batch: Batch, done: float = 1.0) -> Loss:
        """The objective over the batch's (query, answer) pairs, `done` of the training being over.

        Over a product the first answer is trained alone; then the tables rest, and the steps are
        trained; then the tables again. There every fact weighs the same, in batches of any size.
        """
        if not self.settings.has_product:
            return self._paper_loss(batch)
        steps = self.settings.phase(done) == STEPS
        loss = self._steps_loss(batch) if steps else self._first_loss(batch)
        return loss._replace(total=loss.total * (len(batch.answers_P) / len(batch.heads_B)))

    def _paper_loss(self, batch: Batch) -> Loss:
        """Triples, each with negatives of its own, by the L1 distance."""
        inference = self(batch.heads_B, batch.relations_B)
        assert batch.negatives is not None and batch.left_out is not None
        outputs_TBK = inference.outputs_TBK
        parts = [batch.negatives.flatten(), batch.answers_P]
        rows, answers_BK = self.answers(torch.cat(parts)).split([len(part) for part in parts])
        negatives_BNK = rows.view(*batch.negatives.shape, -1)
        right_TB = -self.settings.distance_scale * l1_pairs(outputs_TBK, answers_BK)
        wrong_TBN = -self.settings.distance_scale * l1_pairs(outputs_TBK[:, :, None], negatives_BNK)
        wrong_TBN[:, batch.left_out[0], batch.left_out[1]] = -torch.inf
        log_p_TB = F.logsigmoid(right_TB - wrong_TBN.logsumexp(dim=2))
        return objective(inference.log_stop_weights_TB, log_p_TB, self.settings)

    def _first_loss(self, batch: Batch) -> Loss:
        """The first answer alone, with the penalty on its factors."""
        settings, of_P = self.settings, batch.query_of_answer_P
        parts = [batch.heads_B, batch.answers_P]
        head_BK, answer_PK = self.entities(torch.cat(parts)).split([len(part) for part in parts])
        distinct_U, which_B = torch.unique(batch.relations_B, return_inverse=True)
        relation_UX = self.relations(distinct_U)
        first_BK = product(self.kind, head_BK, relation_UX, which_B)
        log_p_TP = self._log_p(first_BK[None], answer_PK, batch)
        loss = objective(torch.zeros_like(log_p_TP), log_p_TP, settings)
        if not settings.penalty:
            return loss
        cubes_B = cubes(self.kind, head_BK) + cubes(self.kind, relation_UX)[which_B]
        size_P = cubes_B[of_P] + cubes(self.kind, answer_PK)
        return loss._replace(total=loss.total + settings.penalty * size_P.mean())

    def _steps_loss(self, batch: Batch) -> Loss:
        """All steps over resting tables, with the penalty on what they change."""
        settings, of_P = self.settings, batch.query_of_answer_P
        with torch.no_grad():
            query = self.query(batch.heads_B, batch.relations_B)
            answer_PK = self.entities(batch.answers_P)
        inference: Inference = self.network(*query)
        outputs_TBK = inference.outputs_TBK
        log_p_TP = self._log_p(outputs_TBK, answer_PK, batch)
        loss = objective(inference.log_stop_weights_TB[:, of_P], log_p_TP, settings)
        change_TB = (outputs_TBK[1:] - outputs_TBK[0]).square().sum(dim=2)
        change = change_TB[:, of_P].mean()
        return loss._replace(total=loss.total + settings.change_penalty * change)

    def _log_p(self, outputs_TBK: Tensor, answer_PK: Tensor, batch: Batch) -> Tensor:
        """log p(answer | o_t) of each pair at each step, by the softmax over all entities."""
        steps, queries, _ = outputs_TBK.shape
        of_P = batch.query_of_answer_P
        score_TP = (outputs_TBK.index_select(1, of_P) * answer_PK).sum(dim=-1)
        candidates = self.candidates(batch, steps)
        log_total_R = log_partition(
            outputs_TBK.flatten(0, 1), candidates, self._workspace, self._keepers(steps)
        )
        log_total_TB = log_total_R.view(steps, queries)
        if batch.negatives is not None:  # the sample stands for the wrong entities alone
            log_right_TB = log_sums(score_TP, of_P, queries)
            log_total_TB = torch.logaddexp(log_right_TB, log_total_TB)
        return score_TP - log_total_TB.index_select(1, of_P)

    def _keepers(self, steps: int) -> Group:
        """The processes that score the candidates they keep, by the outputs of all.

        A sample that is smaller than the outputs of all is fetched by each instead.
        """
        shards, settings = self.entities.shards, self.settings
        outputs = steps * settings.batch_size
        return ALONE if 0 < settings.negatives < outputs else shards

    def candidates(self, batch: Batch, steps: int) -> Candidates:
        """Every entity, or the sampled ones with how many each stands for; of a shard its own."""
        rests = steps > 1  # the tables
        left_out = batch.left_out
        if rests and left_out is not None:
            step_T = torch.arange(steps, device=left_out[0].device)
            shifted = (left_out[0][:, None] + step_T * len(batch.heads_B)).flatten()
            left_out = shifted, left_out[1].repeat_interleave(steps)
        left_out = self._left_out_here(left_out, batch, steps)
        if batch.negatives is None:
            whole = None if rests else self.entities.gradient_of_all()
            return Candidates(self.entities.weight, whole, None, left_out)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not rests):
            is_kept = self._keepers(steps).size > 1
            rows = self.entities.own if is_kept else self.entities.forward
            vectors_NK = rows(batch.negatives)
        drawn = -torch.expm1(
            self.settings.negatives * torch.log1p(torch.tensor(-1 / len(self.entities)))
        )
        log_weight_N = torch.full((len(vectors_NK),), -float(drawn.log()))
        return Candidates(vectors_NK, None, log_weight_N.to(vectors_NK.device), left_out)

    def _left_out_here(
        self, left_out: tuple[Tensor, Tensor] | None, batch: Batch, steps: int
    ) -> tuple[Tensor, Tensor] | None:
        """Of a shard: the pairs of all processes' outputs with the candidates kept here."""
        table, group = self.entities, self._keepers(steps)
        if left_out is None or group.size == 1 or not isinstance(table, ShardedTable):
            return left_out
        outputs = steps * len(batch.heads_B)
        before = sum(group.counts([outputs] * group.size)[: group.rank])
        (row, place), _ = group.gather(left_out[0] + before, left_out[1])
        if batch.negatives is None:
            here, place_here = table.keeps(place), place // group.size
        else:
            kept_N = table.keeps(batch.negatives)
            here, place_here = kept_N[place], (kept_N.cumsum(0) - 1)[place]
        order = torch.argsort(place_here[here], stable=True)
        return row[here][order], place_here[here][order]

    def scores(self, inference: Inference, readout: str | None = None) -> Tensor:
        """Scores of all entities as the answer, (B, N), higher is better; of a shard its own.

        For `mixture` log Σ_t q_t p_t; for readouts that choose one step, its logits.
        """
        readout = readout or self.settings.readout
        weights_TB = step_weights(inference, readout)
        if readout == "mixture":
            total: Tensor | None = None
            for outputs_BK, weight_B in zip(inference.outputs_TBK, weights_TB, strict=True):
                share = self._softmax(self._scores(outputs_BK))
                share *= weight_B[:, None]
                total = share if total is None else total.add_(share)
            assert total is not None
            return total.log_()
        everyone_B = torch.arange(weights_TB.shape[1], device=weights_TB.device)
        return self._scores(inference.outputs_TBK[weights_TB.argmax(dim=0), everyone_B])

    def _scores(self, outputs_BK: Tensor) -> Tensor:
        """Score of every output with every entity."""
        return self.compare(outputs_BK, self.answers.weight)

    def compare(self, outputs_BK: Tensor, rows_NK: Tensor) -> Tensor:
        """Score of every output with every one of some entity vectors."""
        if self.settings.has_product:
            return outputs_BK @ rows_NK.T
        return -self.settings.distance_scale * l1_distances(outputs_BK, rows_NK)

    def _softmax(self, scores_BN: Tensor) -> Tensor:
        """The softmax over all entities, of those kept here."""
        shards = self.answers.shards
        if shards.size == 1:
            return scores_BN.softmax(dim=1)
        (totals,), _ = shards.gather(scores_BN.logsumexp(dim=1)[None])
        return (scores_BN - totals.logsumexp(dim=0)[:, None]).exp_()

    @torch.no_grad()
    def constrain(self, touched: dict[Tensor, Tensor | None]) -> None:
        """The paper's form: return the entity vectors that an update moved to L2 norm 1."""
        if self.own_answers is None:
            return
        for table in (self.entities, self.own_answers):
            rows = touched[table.weight]
            assert rows is not None
            vectors = F.normalize(table.weight.index_select(0, rows), dim=1)
            table.weight.index_copy_(0, rows, vectors)

    @torch.no_grad()
    def place(self, unseen: Tensor) -> None:
        """Put entities that training never saw where nothing is known: at the mean of all others.

        A softmax over all entities pushes them away from every answer, which says nothing of them.
        """
        table = self.entities
        if not len(unseen) or not self.settings.has_product:
            return
        if isinstance(table, ShardedTable):
            unseen = unseen[table.keeps(unseen)] // table.shards.size
        others = torch.ones(len(table.weight), dtype=torch.bool, device=unseen.device)
        others[unseen] = False
        total_K = table.weight[others].sum(dim=0)
        count = others.sum()
        table.shards.sum(total_K, count)
        table.weight[unseen] = total_K / count


def shards(num_entities: int, settings: KbcSettings, group: Group) -> bool:
    """Whether entity tables are divided among the processes.

    With every entity in the softmax, processes that have all rows exchange N vectors of gradients
    an update; with rows divided, the outputs of a batch there and back. Otherwise both exchange the
    rows of a batch, and only large tables are divided.
    """
    if group.size == 1:
        return False
    states = {"sgd": 1, "adagrad": 2}[settings.optimizer]
    divided = settings.tables == "sharded"
    if settings.tables == "auto":
        every = settings.has_product and settings.negatives == 0
        large = 4 * states * num_entities * settings.embedding_dim > LARGE
        divided = large or (every and settings.batch_size < num_entities)
    if divided and group.size > num_entities:
        raise group.error(
            f"{group.size} processes cannot divide {num_entities} entities: start at most "
            f"{num_entities}, or give each all of them (--tables replicated)."
        )
    return divided


def _table(rows: int, size: int, settings: KbcSettings, group: Group, shard: bool = False) -> Table:
    """New vectors: of unit L2 norm in the paper's form, small over a product."""

    def draw(count: int) -> Tensor:
        vectors = torch.randn(count, size)
        return vectors.mul_(PRODUCT_START) if settings.has_product else F.normalize(vectors, dim=1)

    return drawn(rows, draw, group, shard)


def scorer(model: KbcModel, readout: str | None = None) -> Scorer:
    """The model as a function from queries to scores of all entities, or of those of its shard."""
    device = model.answers.weight.device

    def scores(heads: Ints, relations: Ints) -> Tensor:
        with torch.no_grad():
            query = (
                torch.from_numpy(np.ascontiguousarray(heads)).to(device),
                torch.from_numpy(np.ascontiguousarray(relations)).to(device),
            )
            if (readout or model.settings.readout) != "argmax":
                return model.scores(model(*query), readout)
            return model.scores(model.network.until_left(*model.query(*query)), readout)

    return scores
