"""Known answers, batches, products, the partition and the loss, against slow loops."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ekgn.kbc import partition
from ekgn.kbc.answers import Answers, with_inverses
from ekgn.kbc.batches import Batch, Batches
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.partition import Candidates, Workspace, log_partition, log_sums
from ekgn.kbc.products import PRODUCTS, cubes, product
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.network.inference import step_weights
from ekgn.network.table import Table
from ekgn.optimizers import Optimizers, RowAdagrad, RowSgd

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


FORMS = {"paper": "concatenation", "sampled": "complex", "exact": "complex"}


def paper_settings(**changes: object) -> KbcSettings:
    small = {"embedding_dim": 8, "num_slots": 4, "max_steps": 3, "batch_size": 7, "threads": 1}
    return KbcSettings.build("paper-log", None, {**small, **changes})


def settings_of(form: str, **changes: object) -> KbcSettings:
    """The paper's form, or a product with sampled or with all candidates."""
    if form == "paper":
        return paper_settings(**changes)
    return tiny_settings(negatives=12 if form == "sampled" else 0, **changes)


def make_model(graph: KnowledgeGraph, settings: KbcSettings) -> KbcModel:
    torch.manual_seed(0)
    return KbcModel(graph.num_entities, graph.num_relations, settings)


def batches_of(graph: KnowledgeGraph, settings: KbcSettings) -> Batches:
    return Batches(Answers(graph.train, graph.num_relations), graph.num_entities, settings)


@pytest.mark.parametrize("form", FORMS)
def test_an_epoch_holds_every_training_fact_in_both_directions_once(
    family: KnowledgeGraph, form: str
) -> None:
    batches = batches_of(family, settings_of(form, batch_size=7))
    seen = []
    for index in range(len(batches)):
        batch = batches(3, index)
        queries = batch.query_of_answer_P
        heads, relations = batch.heads_B[queries], batch.relations_B[queries]
        seen += list(zip(heads.tolist(), relations.tolist(), batch.answers_P.tolist(), strict=True))
    expected = with_inverses(family.train, family.num_relations).tolist()
    assert sorted(seen) == sorted(map(tuple, expected))


def test_a_batch_depends_on_its_place_alone(family: KnowledgeGraph) -> None:
    settings = settings_of("sampled", batch_size=7)
    one, other = batches_of(family, settings), batches_of(family, settings)
    for epoch, index in [(0, 0), (0, 1), (1, 2)]:
        one(epoch, index)
    fresh, reached = other(1, 2), one(1, 2)
    for a, b in zip(fresh[:4], reached[:4], strict=True):
        assert isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
    assert fresh.negatives is not None and reached.negatives is not None
    assert torch.equal(fresh.negatives, reached.negatives)
    assert not torch.equal(fresh.heads_B, other(2, 2).heads_B)


def test_the_steps_are_trained_on_facts_that_the_tables_see_last(family: KnowledgeGraph) -> None:
    settings = tiny_settings(held_out=0.2, steps_from=0.5, tables_from=0.75, batch_size=7)
    batches = KbcTask(family, settings).batches
    every = set(map(tuple, with_inverses(family.train, family.num_relations).tolist()))

    def facts(done: float) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
        asked, left_out = set(), set()
        for index in range(2 * len(batches)):
            batch = batches(0, index, done)
            queries = torch.stack([batch.heads_B, batch.relations_B], dim=1).tolist()
            for query, answer in zip(batch.query_of_answer_P, batch.answers_P, strict=True):
                asked.add((*queries[query], int(answer)))
            for query, answer in zip(*(batch.left_out or ((), ())), strict=True):
                left_out.add((*queries[query], int(answer)))
        return asked, left_out

    first, steps, last = facts(0.0), facts(0.5), facts(0.75)
    assert first[0] | steps[0] == every and not first[0] & steps[0] and last[0] == every
    assert len(steps[0]) == pytest.approx(0.2 * len(every), abs=2)
    asked = {fact[:2] for fact in steps[0]}
    assert steps[1] == {fact for fact in first[0] if fact[:2] in asked}
    assert not first[1] and not last[1]


@pytest.mark.parametrize("negatives", [0, 3000])
def test_what_is_left_out_does_not_compete(family: KnowledgeGraph, negatives: int) -> None:
    settings = tiny_settings(
        held_out=0.3, steps_from=0.5, change_penalty=0.0, step_loss=0.0, negatives=negatives
    )
    task = KbcTask(family, settings)
    torch.manual_seed(0)
    model = task.new_model().eval()
    model.entities.weight.data.normal_()
    for parameter in model.network.decoder.parameters():
        parameter.data.normal_(std=0.3)
    batch = task.batches(0, 0, 0.5)
    record = model(batch.heads_B, batch.relations_B)
    scores = (record.outputs_TBK @ model.entities.weight.T).double()
    known = Answers(family.train, family.num_relations)
    total = 0.0
    for query, answer in zip(
        batch.query_of_answer_P.tolist(), batch.answers_P.tolist(), strict=True
    ):
        asked = batch.answers_P[batch.query_of_answer_P == query].tolist()
        head, relation = int(batch.heads_B[query]), int(batch.relations_B[query])
        others = [entity for entity in known.of(head, relation).tolist() if entity not in asked]
        row = scores[:, query].clone()
        row[:, others] = -torch.inf
        stop = record.log_stop_weights_TB[:, query].double()
        total -= float((stop + row.log_softmax(dim=1)[:, answer]).logsumexp(dim=0).detach())
    loss = float(model.loss(batch, 0.5).total.detach())
    assert loss == pytest.approx(total / len(batch.heads_B), rel=1e-3)


def test_negatives_that_are_answers_are_marked(family: KnowledgeGraph) -> None:
    known = Answers(family.train, family.num_relations)
    batch = batches_of(family, tiny_settings(batch_size=50, negatives=200))(0, 0)
    assert batch.left_out is not None and batch.negatives is not None
    marked = set(zip(*(part.tolist() for part in batch.left_out), strict=True))
    for query in range(len(batch.heads_B)):
        answers = set(known.of(int(batch.heads_B[query]), int(batch.relations_B[query])).tolist())
        for slot, entity in enumerate(batch.negatives.tolist()):
            assert ((query, slot) in marked) == (entity in answers)
    assert marked
    assert (batch.left_out[1].diff() >= 0).all()


@pytest.mark.parametrize("block", [64, 2**18])  # many blocks of candidates, and one
@pytest.mark.parametrize("kind", ["all", "weighted", "left out", "into"])
def test_log_partition_and_its_gradients(
    monkeypatch: pytest.MonkeyPatch, block: int, kind: str
) -> None:
    monkeypatch.setattr(partition, "_BLOCK", block)
    torch.manual_seed(0)
    outputs = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    vectors = torch.randn(150, 4, dtype=torch.double, requires_grad=True)
    weights = torch.randn(150, dtype=torch.double) if kind == "weighted" else None
    pairs = (torch.tensor([2, 0, 1]), torch.tensor([0, 65, 149])) if kind == "left out" else None
    into = torch.empty(150, 4, dtype=torch.double) if kind == "into" else None
    scores = outputs @ vectors.T
    if weights is not None:
        scores = scores + weights
    if pairs is not None:
        scores = scores.index_put(pairs, torch.tensor(-torch.inf, dtype=torch.double))
    expected, scale = scores.logsumexp(dim=1), torch.randn(3, dtype=torch.double)
    right = torch.autograd.grad((expected * scale).sum(), (outputs, vectors))
    used = vectors.detach() if kind == "into" else vectors
    found = log_partition(outputs, Candidates(used, into, weights, pairs), Workspace())
    assert torch.allclose(found, expected)
    if into is None:
        given = torch.autograd.grad((found * scale).sum(), (outputs, vectors))
    else:
        given = (*torch.autograd.grad((found * scale).sum(), (outputs,)), into)
    for ours, theirs in zip(given, right, strict=True):
        assert torch.allclose(ours, theirs)


def test_log_partition_of_nothing_is_log_zero_without_nan_gradients() -> None:
    outputs, vectors = torch.randn(1, 3, requires_grad=True), torch.randn(2, 3)
    nobody = (torch.tensor([0, 0]), torch.tensor([0, 1]))
    total = log_partition(outputs, Candidates(vectors, left_out=nobody), Workspace())
    assert total.item() == -math.inf
    torch.nn.functional.logsigmoid(3.0 - total).sum().backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None and outputs.grad.tolist() == [[0.0, 0.0, 0.0]]


def test_log_sums_by_group() -> None:
    torch.manual_seed(0)
    values = (100 * torch.randn(2, 5)).double().requires_grad_()
    group = torch.tensor([0, 2, 0, 1, 2])
    expected = torch.stack([values[:, group == g].logsumexp(dim=1) for g in range(3)], dim=1)
    assert torch.allclose(log_sums(values, group, 3), expected)
    assert torch.autograd.gradcheck(lambda v: log_sums(v, group, 3), (values,))


def test_products_are_the_models_they_are_named_after() -> None:
    torch.manual_seed(0)
    heads, which = torch.randn(5, 6), torch.tensor([1, 0, 1, 2, 1])
    vectors, matrices = torch.randn(3, 6), torch.randn(3, 36)
    answers = torch.randn(5, 6)
    distmult = (product("distmult", heads, vectors, which) * answers).sum(dim=1)
    h, r, t = (torch.complex(*x.chunk(2, dim=1)) for x in (heads, vectors[which], answers))
    complex_ = (product("complex", heads, vectors, which) * answers).sum(dim=1)
    rescal = (product("rescal", heads, matrices, which) * answers).sum(dim=1)
    by_matrix = torch.einsum("bi,bij,bj->b", heads, matrices[which].view(5, 6, 6), answers)
    assert torch.allclose(distmult, (heads * vectors[which] * answers).sum(dim=1), atol=1e-5)
    assert torch.allclose(complex_, (h * r * t.conj()).real.sum(dim=1), atol=1e-5)
    assert torch.allclose(rescal, by_matrix, atol=1e-5)
    assert torch.allclose(cubes("complex", heads), h.abs().pow(3).sum(dim=1), atol=1e-4)
    assert torch.allclose(cubes("distmult", heads), heads.abs().pow(3).sum(dim=1), atol=1e-4)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_one_step_over_a_product_is_that_model(family: KnowledgeGraph, kind: str) -> None:
    model = make_model(family, tiny_settings(first_answer=kind, max_steps=1)).eval()
    heads, relations = torch.tensor([4, 7]), torch.tensor([2, 5])
    with torch.no_grad():
        scores = model.scores(model(heads, relations))
        first = product(
            kind, model.entities(heads), model.relations(relations), torch.tensor([0, 1])
        )
    assert torch.allclose(scores, first @ model.entities.weight.T)
    assert model.num_parameters() == sum(
        t.weight.numel() for t in (model.entities, model.relations)
    )


def test_the_paper_loss_is_the_equation_written_as_a_loop(family: KnowledgeGraph) -> None:
    settings = paper_settings(step_loss=0.5)
    model = make_model(family, settings).eval()
    batch = batches_of(family, settings)(0, 0)
    record = model(batch.heads_B, batch.relations_B)
    q_TB = record.log_stop_weights_TB.exp()
    assert batch.negatives is not None

    def similarity(step: int, query: int, entity: int) -> float:
        difference = record.outputs_TBK[step, query] - model.answers.weight[entity]
        return -settings.distance_scale * float(difference.abs().sum())

    total = 0.0
    for query, answer in enumerate(batch.answers_P.tolist()):
        wrong = [n for n in batch.negatives[query].tolist() if n != answer]
        reward, steps = 0.0, 0.0
        for step in range(settings.max_steps):
            up = math.exp(similarity(step, query, answer))
            chance = up / (up + sum(math.exp(similarity(step, query, n)) for n in wrong))
            reward += q_TB[step, query].item() * chance
            steps += math.log(chance) / settings.max_steps
        total += -math.log(reward) - settings.step_loss * steps
    assert model.loss(batch).total.item() == pytest.approx(total / len(batch.answers_P), rel=1e-3)


def loop_over_a_product(
    model: KbcModel, batch: Batch, outputs_TBK: torch.Tensor, q_TB: torch.Tensor
) -> float:
    """-log Σ_t q_t p_t, p by the softmax over all entities, and the loss of each step."""
    p_TBN = torch.softmax(outputs_TBK.double() @ model.entities.weight.double().T, dim=2)
    total, step_loss = 0.0, model.settings.step_loss
    pairs = list(zip(batch.query_of_answer_P.tolist(), batch.answers_P.tolist(), strict=True))
    for query, answer in pairs:
        chances = p_TBN[:, query, answer].tolist()
        reward = sum(q * p for q, p in zip(q_TB[:, query].tolist(), chances, strict=True))
        total -= math.log(reward) + step_loss * sum(map(math.log, chances)) / len(chances)
    return total / len(pairs)


@pytest.mark.parametrize("form", ["exact", "sampled"])
def test_the_loss_over_a_product_is_the_equation_written_as_a_loop(
    family: KnowledgeGraph, form: str
) -> None:
    """With as many draws as it takes to draw every entity, the sample is all of them."""
    settings = settings_of(form, steps_from=0.5, penalty=0.3, change_penalty=0.2)
    settings = settings.model_copy(update={"negatives": 3000 if form == "sampled" else 0})
    model = make_model(family, settings).eval()
    with torch.no_grad():
        for parameter in model.network.decoder.parameters():
            parameter.normal_(std=0.3)
        model.entities.weight.normal_()
    batch = batches_of(family, settings)(0, 0)
    record = model(batch.heads_B, batch.relations_B)
    head, of = model.entities(batch.heads_B), batch.query_of_answer_P
    factors = [head[of], model.relations(batch.relations_B)[of], model.entities(batch.answers_P)]
    size = sum(float(cubes("complex", factor).sum()) for factor in factors) / len(of)
    each = len(of) / len(head)  # answers of a query
    first = loop_over_a_product(model, batch, record.outputs_TBK[:1], torch.ones(1, len(head)))
    assert model.loss(batch, 0.0).total.item() == pytest.approx(
        each * (first + 0.3 * size), rel=1e-3
    )
    change = (record.outputs_TBK[1:] - record.outputs_TBK[0]).square().sum(dim=2)[:, of].mean()
    q_TB = record.log_stop_weights_TB.exp()
    steps = loop_over_a_product(model, batch, record.outputs_TBK, q_TB)
    assert model.loss(batch, 0.5).total.item() == pytest.approx(
        each * (steps + 0.2 * change.item()), rel=1e-3
    )


def test_the_sample_stands_for_all_entities(family: KnowledgeGraph) -> None:
    """Over many draws, the mean of the sampled partition is that over all wrong entities."""
    settings = tiny_settings(negatives=10, max_steps=1, batch_size=3)
    model = make_model(family, settings).eval()
    model.entities.weight.normal_()
    batches = batches_of(family, settings)
    first = batches(0, 0)
    known = Answers(family.train, family.num_relations)
    with torch.no_grad():
        outputs_BK = model(first.heads_B, first.relations_B).outputs_TBK[0]
        wrong_BN = (outputs_BK @ model.entities.weight.T).exp()
        for query, (head, relation) in enumerate(
            zip(first.heads_B.tolist(), first.relations_B.tolist(), strict=True)
        ):
            wrong_BN[query, known.of(head, relation)] = 0
        drawn = []
        for epoch in range(3000):
            sample = batches(epoch, 0).negatives
            assert sample is not None
            pairs = [
                (query, place)
                for place, entity in enumerate(sample.tolist())
                for query in range(3)
                if wrong_BN[query, entity] == 0
            ]
            left = (
                tuple(torch.tensor(part) for part in zip(*pairs, strict=True))
                if pairs
                else (
                    torch.empty(0, dtype=torch.long),
                    torch.empty(0, dtype=torch.long),
                )
            )
            batch = first._replace(negatives=sample, left_out=(left[0], left[1]))
            candidates = model.candidates(batch, 1)
            drawn.append(log_partition(outputs_BK, candidates, Workspace()).exp())
    assert torch.allclose(torch.stack(drawn).mean(dim=0), wrong_BN.sum(dim=1), rtol=0.1)


@pytest.mark.parametrize("readout", ["argmax", "mixture", "last", "step:2"])
def test_scores_rank_as_the_weighted_probabilities(family: KnowledgeGraph, readout: str) -> None:
    model = make_model(family, tiny_settings()).eval()
    heads = torch.arange(10)
    with torch.no_grad():
        record = model(heads, heads % 3)
        scores = model.scores(record, readout).softmax(dim=1)
        by_step = torch.softmax(record.outputs_TBK @ model.answers.weight.T, dim=2)
        expected = (step_weights(record, readout)[:, :, None] * by_step).sum(dim=0)
    assert torch.allclose(scores, expected, atol=1e-6)


def test_the_paper_keeps_entities_at_norm_one(family: KnowledgeGraph) -> None:
    settings = paper_settings(learning_rate=0.1)
    model, batches = make_model(family, settings), batches_of(family, settings)
    model.constrain(Optimizers(model, settings).update(model.loss(batches(0, 0)).total, 1.0))
    for table in (model.answers, model.entities):
        assert torch.allclose(table.weight.norm(dim=1), torch.ones(30), atol=1e-5)


def test_an_update_moves_only_the_rows_it_used(family: KnowledgeGraph) -> None:
    settings = paper_settings(batch_size=3, negatives=4)
    model = make_model(family, settings)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = batches_of(family, settings)(0, 0)
    assert batch.negatives is not None
    Optimizers(model, settings).update(model.loss(batch).total, 1.0)
    used = {
        "own_answers": {*batch.answers_P.tolist(), *batch.negatives.flatten().tolist()},
        "entities": set(batch.heads_B.tolist()),
        "relations": set(batch.relations_B.tolist()),
    }
    for name, rows in used.items():
        moved = (model.state_dict()[f"{name}.weight"] != before[f"{name}.weight"]).any(dim=1)
        assert moved.nonzero().flatten().tolist() == sorted(rows), name


def test_tables_rest_while_the_steps_are_trained(family: KnowledgeGraph) -> None:
    settings = tiny_settings(steps_from=0.5)
    model = make_model(family, settings)
    optimizers, batch = Optimizers(model, settings), batches_of(family, settings)(0, 0)

    def moved(done: float) -> dict[str, bool]:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        optimizers.update(model.loss(batch, done).total, 1.0)
        after = model.state_dict()
        return {name: not torch.equal(value, after[name]) for name, value in before.items()}

    first, then = moved(0.0), moved(0.5)
    assert {name for name, has in first.items() if has} == {"entities.weight", "relations.weight"}
    assert not then["entities.weight"] and not then["relations.weight"]
    assert then["network.decoder.add.weight"]


def test_a_table_gathers_the_gradient_of_its_rows() -> None:
    table = Table(torch.zeros(5, 2)).train()
    (2.0 * table(torch.tensor([1, 3]))).sum().backward()
    assert table.gather() is not None
    assert table.weight.grad is not None
    assert table.weight.grad.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [2, 2], [0, 0]]
    table.forget()
    twice = table(torch.tensor([[4, 4], [0, 4]]))
    whole = table.gradient_of_all()
    assert twice.shape == (2, 2, 2) and whole is not None
    twice.sum().backward()
    whole.fill_(10.0)  # what the partition would write
    assert table.gather() is None
    assert table.weight.grad.tolist() == [[11, 11], [10, 10], [10, 10], [10, 10], [13, 13]]


@pytest.mark.parametrize("sparse", [False, True])
def test_row_adagrad_is_adagrad(sparse: bool) -> None:
    torch.manual_seed(0)
    ours = torch.nn.Parameter(torch.randn(6, 3), requires_grad=False)
    theirs = torch.nn.Parameter(ours.detach().clone())
    updates = RowAdagrad([ours], 0.1), torch.optim.Adagrad([theirs], lr=0.1)
    for _ in range(5):
        gradient = torch.randn(6, 3)
        gradient[[1, 4]] = 0
        theirs.grad, ours.grad = gradient, gradient.to_sparse(1).coalesce() if sparse else gradient
        for update in updates:
            update.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_row_sgd_is_sgd() -> None:
    table = torch.nn.Parameter(torch.ones(3, 1), requires_grad=False)
    table.grad = torch.tensor([[0.0], [2.0], [0.0]]).to_sparse(1).coalesce()
    RowSgd([table], 0.5).step()
    assert table.tolist() == [[1.0], [0.0], [1.0]]


def test_entities_never_seen_stand_at_the_mean_of_the_others(family: KnowledgeGraph) -> None:
    facts = family.train[(family.train[:, [0, 2]] != 7).all(axis=1)]
    graph = dataclasses.replace(family, train=facts)
    task = KbcTask(graph, tiny_settings())
    model = task.new_model().eval()
    task.validate(model)
    others = torch.arange(30) != 7
    expected = model.entities.weight[others].mean(dim=0)
    assert torch.allclose(model.entities.weight[7], expected)
