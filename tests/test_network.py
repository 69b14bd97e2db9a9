"""The network against slow loops written from the equations, by invariants, and by gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.config import Settings
from ekgn.errors import EkgnError
from ekgn.network import gru
from ekgn.network.controller import Unread
from ekgn.network.inference import Inference, step_weights
from ekgn.network.layers import Dropout
from ekgn.network.network import Network
from ekgn.network.objective import objective
from ekgn.network.termination import log_stop_weights

pytestmark = pytest.mark.numerical


class Decoder(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, states: Tensor, *query: Tensor) -> Tensor:
        return super().forward(states)


def make_network(**settings: object) -> Network:
    torch.manual_seed(1)
    options = {"num_slots": 5, "max_steps": 4, **settings}
    return Network(nn.Identity(), Decoder(), 6, Settings.parse(options))


def cosine(a: Tensor, b: Tensor) -> float:
    return float(((a @ b) / (a.norm() * b.norm())).detach())


def test_attention_is_the_equation_written_as_a_loop() -> None:
    network, states = make_network(), torch.randn(3, 6)
    memory, attention = network.memory, network(states).attention_LBM[0]
    for b in range(3):
        scores = [
            10.0 * cosine(memory.key.weight @ slot, memory.query.weight @ states[b])
            for slot in memory.slots_MH
        ]
        total = sum(math.exp(score) for score in scores)
        for i in range(5):
            assert attention[b, i].item() == pytest.approx(math.exp(scores[i]) / total, rel=1e-4)


def test_the_control_reads_nothing_and_has_about_as_many_numbers() -> None:
    network, states = make_network(controller="mlp"), torch.randn(3, 6)
    record = network(states)
    assert isinstance(network.controller, Unread)
    layers: Any = network.controller.layers
    by_hand = states
    for first, _, second in layers:
        hidden = (by_hand @ first.weight.T + first.bias).clamp(min=0)
        by_hand = by_hand + hidden @ second.weight.T + second.bias
    torch.testing.assert_close(record.states_TBH[1], by_hand)
    assert record.attention_LBM.shape == (3, 3, 0)
    stops = record.log_stop_weights_TB.exp()
    torch.testing.assert_close(stops, torch.tensor([[0.0], [0.0], [0.0], [1.0]]).expand(4, 3))
    torch.testing.assert_close(network.until_left(states).outputs_TBK, record.outputs_TBK)
    of_lookups = make_network(num_slots=1)
    ours, theirs = (sum(w.numel() for w in n.parameters()) for n in (network, of_lookups))
    assert ours == pytest.approx(theirs, rel=0.1)


def test_slots_start_with_unit_norm_and_attention_sums_to_one_and_survives_zero_states() -> None:
    network = make_network(num_slots=7)
    assert torch.allclose(network.memory.slots_MH.norm(dim=1), torch.ones(7))
    states = torch.zeros(2, 6, requires_grad=True)
    record = network(states)
    assert torch.allclose(record.attention_LBM[0], torch.full((2, 7), 1 / 7))
    record.outputs_TBK.sum().backward()
    assert states.grad is not None and states.grad.isfinite().all()


def test_fewer_steps_are_the_first_ones_and_the_last_of_them_takes_what_is_left() -> None:
    network, queries = make_network(), torch.randn(3, 6)
    whole, short = network(queries), network(queries, max_steps=2)
    assert torch.allclose(short.outputs_TBK, whole.outputs_TBK[:2], atol=1e-6)
    assert torch.allclose(short.attention_LBM, whole.attention_LBM[:1], atol=1e-6)
    assert torch.allclose(short.log_stop_weights_TB.exp().sum(dim=0), torch.ones(3))


def test_a_step_by_its_gates_is_that_of_a_gru_cell() -> None:
    torch.manual_seed(0)
    cell = nn.GRUCell(4, 6).double()
    states = torch.randn(3, 6, dtype=torch.double, requires_grad=True)
    inputs = torch.randn(3, 4, dtype=torch.double)
    apart, whole = gru.step(cell, states, gru.input_gates(cell, inputs)), cell(inputs, states)
    assert torch.allclose(apart, whole, atol=1e-9)
    leaves = [states, *cell.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(apart.square().sum(), leaves),
        torch.autograd.grad(whole.square().sum(), leaves),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-9)


def test_stop_weights_by_hand() -> None:
    stop = torch.tensor([[0.25], [0.5], [0.9]])
    weights = log_stop_weights(torch.logit(stop)).exp().squeeze()
    assert weights.tolist() == pytest.approx([0.25, 0.75 * 0.5, 0.75 * 0.5])


@pytest.mark.parametrize("scale", [0.0, 1.0, 200.0])
def test_stop_weights_sum_to_one_even_for_extreme_logits(scale: float) -> None:
    torch.manual_seed(0)
    weights = log_stop_weights(scale * torch.randn(6, 50)).exp()
    assert torch.allclose(weights.sum(dim=0), torch.ones(50), atol=1e-5)


def test_one_step_stops_at_once() -> None:
    assert log_stop_weights(torch.randn(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("num_slots", [5, 50])  # few enough to be folded, and too many
@pytest.mark.parametrize("steps", [1, 4])
def test_the_fast_twin_agrees_with_the_loop(num_slots: int, steps: int) -> None:
    network = make_network(num_slots=num_slots, max_steps=steps).double()
    queries = torch.randn(3, 6, dtype=torch.double)
    fast, plain = network(queries), network(queries, memory=network.memory)
    for ours, loop in zip(fast, plain, strict=True):
        assert torch.allclose(ours, loop, atol=1e-9)
    weight = torch.randn_like(fast.outputs_TBK)
    found, expected = (
        torch.autograd.grad(
            (record.outputs_TBK * weight).sum() + record.log_stop_weights_TB.sum(),
            list(network.parameters()),
            allow_unused=True,
        )
        for record in (fast, plain)
    )
    for ours, loop in zip(found, expected, strict=True):
        if loop is not None and loop.any():
            assert ours is not None and torch.allclose(ours, loop, atol=1e-8)


def test_the_loop_reads_like_the_algorithm_box() -> None:
    network, first = make_network().eval(), torch.randn(2, 6)
    record, state = network(first, memory=network.memory), first
    for step in range(4):
        assert torch.allclose(record.states_TBH[step], state, atol=1e-5)
        assert torch.allclose(record.outputs_TBK[step], network.decoder(state), atol=1e-5)
        stop = torch.sigmoid(network.termination.gate(state)).squeeze(1)
        expected = stop if step < 3 else torch.ones(2)
        assert torch.allclose(record.stop_probabilities_TB[step], expected, atol=1e-5)
        if step < 3:
            query = network.memory.query(state)
            cosines = F.cosine_similarity(query[:, None], network.memory.keys()[None], dim=2)
            attention = torch.softmax(10.0 * cosines, dim=1)
            assert torch.allclose(record.attention_LBM[step], attention, atol=1e-5)
            state = network.controller.cell(attention @ network.memory.slots_MH, state)


def test_a_single_step_makes_no_lookup() -> None:
    record = make_network(max_steps=1)(torch.randn(2, 6))
    assert record.attention_LBM.shape == (0, 2, 5)
    assert record.outputs_TBK.shape == (1, 2, 3)


@pytest.mark.parametrize("num_slots", [3, 12])  # few enough to be folded, and too many
def test_gradients_of_the_whole_network_agree_with_finite_differences(num_slots: int) -> None:
    network = make_network(num_slots=num_slots, max_steps=3).double()

    def loss(first: Tensor, *_: Tensor) -> Tensor:
        record = network(first)
        log_p = torch.log_softmax(record.outputs_TBK, dim=2)[:, :, 0]
        return objective(
            record.log_stop_weights_TB, log_p, Settings(objective="log", step_loss=0.5)
        ).total

    first = torch.randn(2, 6, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (first, *network.parameters()))


def record_with(stop: list[float]) -> Inference:
    logits = torch.logit(torch.tensor([stop]).T)
    states = torch.zeros(len(stop), 1, 2)
    return Inference(states, states, logits, log_stop_weights(logits), states)


def test_the_five_readouts() -> None:
    record = record_with([0.3, 0.6, 0.5])
    assert step_weights(record, "mixture").squeeze().tolist() == pytest.approx([0.3, 0.42, 0.28])
    assert step_weights(record, "argmax").squeeze().tolist() == [0, 1, 0]
    assert step_weights(record, "last").squeeze().tolist() == [0, 0, 1]
    assert step_weights(record, "step:1").squeeze().tolist() == [1, 0, 0]


def test_sampling_draws_steps_by_their_stop_weights() -> None:
    torch.manual_seed(0)
    one = record_with([0.3, 0.6, 0.5])
    many = one._replace(log_stop_weights_TB=one.log_stop_weights_TB.expand(3, 20_000))
    shares = step_weights(many, "sample").mean(dim=1)
    assert shares.tolist() == pytest.approx([0.3, 0.42, 0.28], abs=0.02)


@pytest.mark.parametrize("readout", ["best", "step:0", "step:4", "step:x", "last:2"])
def test_an_unknown_readout_names_the_known_ones(readout: str) -> None:
    with pytest.raises(EkgnError, match=r"expected argmax, mixture, last, sample, or step:N"):
        step_weights(record_with([0.3, 0.6, 0.5]), readout)


def test_both_objectives_by_hand() -> None:
    log_q = torch.tensor([[0.25, 0.5], [0.75, 0.5]]).log()
    log_p = torch.tensor([[0.5, 0.1], [0.9, 0.3]]).log()
    rewards = [0.25 * 0.5 + 0.75 * 0.9, 0.5 * 0.1 + 0.5 * 0.3]
    log_form = objective(log_q, log_p, Settings(objective="log"))
    printed = objective(log_q, log_p, Settings(objective="expected"))
    assert log_form.total.item() == pytest.approx(-sum(map(math.log, rewards)) / 2)
    assert printed.total.item() == pytest.approx(-sum(rewards) / 2)
    assert log_form.expected_reward.item() == pytest.approx(sum(rewards) / 2)


def test_the_log_objective_has_the_gradient_of_the_contrastive_reward() -> None:
    """Σ_t π_t ∇log π_t (r_t / b - 1), b = Σ_t π_t r_t, is ∇ log J."""
    logits = torch.randn(3, 1, dtype=torch.double, requires_grad=True)
    rewards = torch.tensor([[0.2], [0.7], [0.4]], dtype=torch.double)
    loss = objective(log_stop_weights(logits), rewards.log(), Settings(objective="log")).total
    (gradient,) = torch.autograd.grad(loss, logits)
    policy = log_stop_weights(logits)
    advantage = (rewards / (policy.exp() * rewards).sum() - 1).detach()
    contrastive = (policy.exp().detach() * policy * advantage).sum()
    (expected,) = torch.autograd.grad(-contrastive, logits)
    assert torch.allclose(gradient, expected)


def test_step_loss_adds_its_term() -> None:
    log_q = torch.tensor([[0.25], [0.75]]).log()
    log_p = torch.tensor([[0.5], [0.9]]).log()
    plain = objective(log_q, log_p, Settings(objective="log")).total.item()
    stepped = objective(log_q, log_p, Settings(objective="log", step_loss=2.0)).total.item()
    assert stepped - plain == pytest.approx(-(math.log(0.5) + math.log(0.9)))


def test_a_whole_is_right_when_all_its_parts_are() -> None:
    log_q = torch.tensor([[0.25, 0.5, 0.5], [0.75, 0.5, 0.5]]).log()
    log_p = torch.tensor([[0.5, 0.2, 0.4], [0.9, 0.6, 0.4]]).log()
    parts = [0.25 * 0.5 + 0.75 * 0.9, 0.4, 0.4]
    found = objective(log_q, log_p, Settings(objective="log"), whole_of_P=torch.tensor([0, 1, 0]))
    assert found.total.item() == pytest.approx(-math.log(parts[0] * parts[2] * parts[1]) / 2)
    assert found.expected_reward.item() == pytest.approx((parts[0] * parts[2] + parts[1]) / 2)


def test_no_nan_for_far_outputs_in_log_space() -> None:
    log_p = torch.tensor([[-1e4], [-2e4]], requires_grad=True)
    loss = objective(log_stop_weights(torch.zeros(2, 1)), log_p, Settings(objective="log")).total
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite() and log_p.grad is not None and log_p.grad.isfinite().all()


def test_dropout_uses_one_mask_for_all_steps() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.5)
    dropped = dropout(torch.ones(3, 4, 50))
    assert (dropped == dropped[0]).all() and 0 < (dropped == 0).sum() < dropped.numel()
    assert dropout.eval()(dropped) is dropped


@pytest.mark.parametrize("bias", [-3.0, 0.0, 3.0])
def test_a_step_that_every_query_has_left_is_not_computed(bias: float) -> None:
    network, queries = make_network(max_steps=6).double(), torch.randn(40, 6).double()
    nn.init.constant_(network.termination.gate.bias, bias)
    whole = network(queries)
    early = network.until_left(queries)
    steps = len(early.states_TBH)
    chosen_1B = early.log_stop_weights_TB.argmax(dim=0, keepdim=True)
    largest_1B = whole.log_stop_weights_TB.amax(dim=0, keepdim=True)
    torch.testing.assert_close(whole.log_stop_weights_TB.gather(0, chosen_1B), largest_1B)
    assert torch.allclose(early.outputs_TBK, whole.outputs_TBK[:steps], atol=1e-5)
    left_B = whole.log_stop_weights_TB.exp()
    before = left_B[: steps - 1]
    assert steps == 1 or (before.amax(dim=0) <= 1 - before.sum(dim=0) + 1e-6).any()
    if bias > 0:
        assert steps == 1, "v_1 is above a half for every query"


def test_each_query_alone_gets_the_steps_it_needs() -> None:
    # Doubles: what a batch rounds otherwise than a query alone is far below any margin here.
    network, queries = make_network(max_steps=6).double(), torch.randn(40, 6).double()
    together = network.until_left(queries).outputs_TBK
    alone = [len(network.until_left(query[None]).states_TBH) for query in queries]
    assert max(alone) == len(together) and len(set(alone)) > 1
