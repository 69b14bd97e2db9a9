"""Known answers, batches, the partition and the loss, against slow loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ekgn.kbc.answers import Answers, with_inverses
from ekgn.kbc.batches import Batches
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.partition import log_partition, log_sums
from ekgn.network.inference import step_weights

from .conftest import tiny_settings

pytestmark = pytest.mark.numerical

triple_lists = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), min_size=0, max_size=40
)


@given(triple_lists)
def test_answers_are_those_of_a_dictionary(facts: list[tuple[int, int, int]]) -> None:
    expected: dict[tuple[int, int], set[int]] = {}
    for head, relation, tail in facts:
        expected.setdefault((head, relation), set()).add(tail)
        expected.setdefault((tail, relation + 3), set()).add(head)
    answers = Answers(np.array(facts, np.int64).reshape(-1, 3), 3)
    assert len(answers) == len(expected)
    for head, relation in itertools.product(range(7), range(6)):
        assert answers.of(head, relation).tolist() == sorted(expected.get((head, relation), set()))


def test_inverses_follow_the_triples() -> None:
    both = with_inverses(np.array([[4, 1, 7]]), num_relations=3)
    assert both.tolist() == [[4, 1, 7], [7, 4, 4]]


@pytest.mark.parametrize("batch_by", ["query", "triple"])
def test_an_epoch_holds_every_training_fact_in_both_directions_once(
    family: KnowledgeGraph, batch_by: str
) -> None:
    known = Answers(family.train, family.num_relations)
    batches = Batches(known, family.num_entities, tiny_settings(batch_by=batch_by, batch_size=7))
    seen = []
    for index in range(len(batches)):
        batch = batches(3, index)
        queries = batch.query_of_answer_P
        heads, relations = batch.heads_B[queries], batch.relations_B[queries]
        seen += list(zip(heads.tolist(), relations.tolist(), batch.answers_P.tolist(), strict=True))
    expected = with_inverses(family.train, family.num_relations).tolist()
    assert sorted(seen) == sorted(map(tuple, expected))


def test_a_batch_depends_on_its_place_alone(family: KnowledgeGraph) -> None:
    known = Answers(family.train, family.num_relations)
    settings = tiny_settings(batch_size=7)
    one = Batches(known, family.num_entities, settings)
    other = Batches(known, family.num_entities, settings)
    for epoch, index in [(0, 0), (0, 1), (1, 2)]:
        one(epoch, index)
    fresh, reached = other(1, 2), one(1, 2)
    assert all(torch.equal(a, b) for a, b in zip(fresh[:5], reached[:5], strict=True))
    assert not torch.equal(fresh.heads_B, other(2, 2).heads_B)


def test_negatives_that_are_answers_are_marked(family: KnowledgeGraph) -> None:
    known = Answers(family.train, family.num_relations)
    batches = Batches(known, family.num_entities, tiny_settings(batch_size=50, negatives=200))
    batch = batches(0, 0)
    marked = set(zip(*(part.tolist() for part in batch.is_answer), strict=True))
    for query in range(len(batch.heads_B)):
        answers = set(known.of(int(batch.heads_B[query]), int(batch.relations_B[query])).tolist())
        for slot, entity in enumerate(batch.negatives.tolist()):
            assert ((query, slot) in marked) == (entity in answers)
    assert marked


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_the_weighted_negatives_stand_for_all_entities(
    family: KnowledgeGraph, share: float
) -> None:
    """Over many draws, the weights of a drawn entity add up to one for every batch."""
    known = Answers(family.train, family.num_relations)
    settings = tiny_settings(negatives=12, popular_negatives=share)
    batches = Batches(known, family.num_entities, settings)
    total, draws = torch.zeros(family.num_entities), 4000
    for epoch in range(draws):
        batch = batches(epoch, 0)
        total[batch.negatives] += batch.log_weight.exp()
    assert torch.allclose(total / draws, torch.ones(family.num_entities), atol=0.15)


def test_log_partition_and_its_gradient() -> None:
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 5, dtype=torch.double, requires_grad=True)
    left_out = (torch.tensor([0, 2, 2]), torch.tensor([1, 0, 4]))
    masked = scores.clone()
    masked[:, left_out[0], left_out[1]] = -torch.inf
    weight = torch.randn(2, 3, dtype=torch.double)
    expected, found = masked.logsumexp(dim=2), log_partition(scores * 1, left_out)
    assert torch.allclose(found, expected)
    (right,) = torch.autograd.grad((expected * weight).sum(), scores)
    (given,) = torch.autograd.grad((found * weight).sum(), scores)
    assert torch.allclose(given, right)


def test_log_partition_of_nothing_is_log_zero_without_nan_gradients() -> None:
    scores = torch.randn(1, 1, 2, requires_grad=True)
    total = log_partition(scores * 1, (torch.tensor([0, 0]), torch.tensor([0, 1])))
    assert total.item() == -math.inf
    torch.nn.functional.logsigmoid(3.0 - total).sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None and scores.grad.tolist() == [[[0.0, 0.0]]]


@pytest.mark.parametrize("score", ["l1", "dot"])
@pytest.mark.parametrize("batch_by", ["query", "triple"])
def test_the_loss_is_the_equation_written_as_a_loop(
    family: KnowledgeGraph, score: str, batch_by: str
) -> None:
    torch.manual_seed(0)
    settings = tiny_settings(score=score, batch_by=batch_by, rival_answers=False, size_penalty=0.3)
    model = KbcModel(family.num_entities, family.num_relations, settings).eval()
    known = Answers(family.train, family.num_relations)
    batch = Batches(known, family.num_entities, settings)(0, 0)
    record = model(batch.heads_B, batch.relations_B)
    q_TB = record.log_stop_weights_TB.exp()

    def similarity(step: int, query: int, entity: int) -> float:
        output = record.outputs_TBK[step, query].tolist()
        pairs = list(zip(output, model.answers.weight[entity].tolist(), strict=True))
        if score == "l1":
            return -settings.distance_scale * float(sum(abs(a - b) for a, b in pairs))
        return float(sum(a * b for a, b in pairs))

    total = 0.0
    pairs = zip(batch.query_of_answer_P.tolist(), batch.answers_P.tolist(), strict=True)
    for query, answer in pairs:
        head, relation = int(batch.heads_B[query]), int(batch.relations_B[query])
        answers = known.of(head, relation).tolist() if batch_by == "query" else [answer]
        negatives = batch.negatives if batch_by == "query" else batch.negatives[query]
        weights = (
            batch.log_weight
            if batch_by == "query"
            else batch.log_weight[query].expand_as(negatives)
        )
        wrong = [
            (n, math.exp(w))
            for n, w in zip(negatives.tolist(), weights.tolist(), strict=True)
            if n not in answers
        ]
        reward, steps = 0.0, 0.0
        for step in range(settings.max_steps):
            up = math.exp(similarity(step, query, answer))
            below = up + sum(w * math.exp(similarity(step, query, n)) for n, w in wrong)
            reward += q_TB[step, query].item() * up / below
            steps += math.log(up / below) / settings.max_steps
        size = sum(x * x for x in model.answers.weight[answer].tolist())
        for step in range(settings.max_steps):
            output = record.outputs_TBK[step, query].tolist()
            size += sum(x * x for x in output) / settings.max_steps
        total += -math.log(reward) - settings.step_loss * steps + 0.3 * size
    loss = model.loss(batch).total
    assert loss.item() == pytest.approx(total / len(batch.answers_P), rel=1e-3)


@pytest.mark.parametrize("rule", ["argmax", "mixture", "last", "step:2"])
def test_answer_scores_rank_as_the_weighted_probabilities(
    family: KnowledgeGraph, rule: str
) -> None:
    torch.manual_seed(0)
    model = KbcModel(family.num_entities, family.num_relations, tiny_settings()).eval()
    heads = torch.arange(10)
    with torch.no_grad():
        query = (heads, heads % 3)
        record = model(*query)
        scores = model.answer_scores(record, *query, rule).softmax(dim=1)
        by_step = torch.softmax(record.outputs_TBK @ model.answers.weight.T, dim=2)
        expected = (step_weights(record, rule)[:, :, None] * by_step).sum(dim=0)
    assert torch.allclose(scores, expected, atol=1e-6)


def test_unit_entities_are_kept_at_norm_one(family: KnowledgeGraph) -> None:
    from ekgn.optimizers import Optimizers

    settings = tiny_settings(
        unit_entities=True, init_scale=0.0, learning_rate=0.1, shared_entities=False
    )
    model = KbcModel(family.num_entities, family.num_relations, settings)
    batches = Batches(Answers(family.train, 3), family.num_entities, settings)
    optimizers = Optimizers(model, settings)
    model.constrain(optimizers.update(model.loss(batches(0, 0)).total, 1.0))
    for table in (model.answers, model.encoder.entities):
        assert torch.allclose(table.weight.norm(dim=1), torch.ones(30), atol=1e-5)


def test_an_update_moves_only_the_rows_it_used(family: KnowledgeGraph) -> None:
    from ekgn.optimizers import Optimizers

    settings = tiny_settings(batch_size=3, negatives=4, shared_entities=False)
    model = KbcModel(family.num_entities, family.num_relations, settings)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = Batches(Answers(family.train, 3), family.num_entities, settings)(0, 0)
    Optimizers(model, settings).update(model.loss(batch).total, 1.0)
    used = sorted({*batch.answers_P.tolist(), *batch.negatives.tolist()})
    changed = (model.answers.weight != before["own_answers.weight"]).any(dim=1).nonzero().flatten()
    assert changed.tolist() == used
    moved = model.encoder.entities.weight != before["network.encoder.entities.weight"]
    assert moved.any(dim=1).nonzero().flatten().tolist() == sorted(set(batch.heads_B.tolist()))


def test_log_sums_by_group() -> None:
    torch.manual_seed(0)
    values = (100 * torch.randn(2, 5)).double().requires_grad_()
    group = torch.tensor([0, 2, 0, 1, 2])
    expected = torch.stack([values[:, group == g].logsumexp(dim=1) for g in range(3)], dim=1)
    assert torch.allclose(log_sums(values, group, 3), expected)
    assert torch.autograd.gradcheck(lambda v: log_sums(v, group, 3), (values,))


def test_rival_answers_share_the_probability(family: KnowledgeGraph) -> None:
    """With every entity among the negatives, p is the softmax over all entities."""
    torch.manual_seed(0)
    settings = tiny_settings(rival_answers=True, negatives=3000, step_loss=0.0, size_penalty=0.0)
    model = KbcModel(family.num_entities, family.num_relations, settings).eval()
    batch = Batches(Answers(family.train, 3), family.num_entities, settings)(0, 0)
    assert len(batch.negatives) == family.num_entities
    record, queries = model(batch.heads_B, batch.relations_B), batch.query_of_answer_P
    p_TBN = torch.softmax(record.outputs_TBK @ model.answers.weight.T, dim=2)
    q_TP = record.log_stop_weights_TB.exp()[:, queries]
    rewards_P = (q_TP * p_TBN[:, queries, batch.answers_P]).sum(dim=0)
    loss = model.loss(batch)
    assert loss.total.item() == pytest.approx(-rewards_P.log().mean().item(), rel=1e-4)
    assert loss.expected_reward.item() == pytest.approx(rewards_P.mean().item(), rel=1e-4)


def test_exact_epochs_have_the_softmax_over_all_entities(family: KnowledgeGraph) -> None:
    settings = tiny_settings(exact_from=0.5, epochs=2, rival_answers=True, max_steps=1)
    batches = Batches(Answers(family.train, family.num_relations), family.num_entities, settings)
    assert len(batches(0, 0).negatives) < family.num_entities
    batch = batches(1, 0)
    model = KbcModel(family.num_entities, family.num_relations, settings).eval()
    query = (batch.heads_B, batch.relations_B)
    scores_BN = model.answer_scores(model(*query), *query)
    log_p_P = scores_BN.log_softmax(dim=1)[batch.query_of_answer_P, batch.answers_P]
    expected = log_p_P.exp().mean().item()
    assert model.loss(batch).expected_reward.item() == pytest.approx(expected, rel=1e-4)


def test_a_shared_table_serves_heads_and_answers(family: KnowledgeGraph) -> None:
    from ekgn.optimizers import Optimizers

    settings = tiny_settings(batch_size=3, negatives=4, shared_entities=True, unit_entities=True)
    model = KbcModel(family.num_entities, family.num_relations, settings)
    assert model.answers is model.encoder.entities
    before = model.answers.weight.detach().clone()
    batch = Batches(Answers(family.train, 3), family.num_entities, settings)(0, 0)
    model.constrain(Optimizers(model, settings).update(model.loss(batch).total, 1.0))
    moved = (model.answers.weight != before).any(dim=1).nonzero().flatten()
    used = {*batch.heads_B.tolist(), *batch.answers_P.tolist(), *batch.negatives.tolist()}
    assert moved.tolist() == sorted(used)
    assert torch.allclose(model.answers.weight[moved].norm(dim=1), torch.ones(len(moved)))


def test_relations_by_row_moves_only_those_of_the_batch(family: KnowledgeGraph) -> None:
    from ekgn.optimizers import Optimizers

    settings = tiny_settings(batch_size=2, relations_by_row=True)
    model = KbcModel(family.num_entities, family.num_relations, settings)
    before = model.encoder.relations.weight.detach().clone()
    batch = Batches(Answers(family.train, 3), family.num_entities, settings)(0, 0)
    Optimizers(model, settings).update(model.loss(batch).total, 1.0)
    moved = (model.encoder.relations.weight != before).any(dim=1).nonzero().flatten()
    assert moved.tolist() == sorted(set(batch.relations_B.tolist()))
    assert len(moved) < len(before)


@pytest.mark.parametrize("size", [8, 7])
def test_a_mirrored_output_scores_a_fact_and_its_inverse_alike(
    family: KnowledgeGraph, size: int
) -> None:
    settings = tiny_settings(
        mirror_output=True,
        modulate_head=True,
        first_norm="none",
        shared_entities=True,
        embedding_dim=size,
        max_steps=1,
        init_scale=1.0,
    )
    model = KbcModel(family.num_entities, family.num_relations, settings).eval()
    relations = model.encoder.relations.weight
    head, tail = torch.tensor([3]), torch.tensor([5])
    with torch.no_grad():
        for parameter in model.network.decoder.parameters():
            parameter.round_()  # away goes the noise, which is small
        relations[4] = relations[1].flip(0)
        forward, backward = (head, torch.tensor([1])), (tail, torch.tensor([4]))
        there = model.answer_scores(model(*forward), *forward)[0, tail]
        back = model.answer_scores(model(*backward), *backward)[0, head]
        vectors = model.answers.weight
        expected = (vectors[3] * (1 + relations[1])).flip(0) @ vectors[5]
    assert torch.allclose(there, expected, atol=1e-5)
    assert torch.allclose(back, expected, atol=1e-5)


def test_a_modulated_head_is_scaled_by_the_relation(family: KnowledgeGraph) -> None:
    settings = tiny_settings(modulate_head=True, first_norm="none")
    encoder = KbcModel(family.num_entities, family.num_relations, settings).encoder.eval()
    first = encoder(torch.tensor([4]), torch.tensor([2]))[0]
    head, relation = encoder.entities.weight[4], encoder.relations.weight[2]
    assert torch.allclose(first, torch.cat([head * (1 + relation), relation]))
