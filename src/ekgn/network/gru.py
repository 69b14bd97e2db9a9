"""A GRU step by its gates, with the derivative written out.

The elementwise operations that autograd would record one by one cost as much as the matrix
products around them. A step is that of `nn.GRUCell`, in two halves: the input's share of the gates
can be made apart, once for many states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_through_sigmoid = torch.ops.aten.sigmoid_backward.grad_input  # gradient times y (1 - y)
_through_tanh = torch.ops.aten.tanh_backward.grad_input  # gradient times (1 - y²)


def input_gates(cell: nn.GRUCell, vectors_MH: Tensor) -> Tensor:
    """W_ih x + b_ih for each vector: the input's share of the three gates."""
    return F.linear(vectors_MH, cell.weight_ih, cell.bias_ih)


def step(cell: nn.GRUCell, states_BH: Tensor, input_gates_BG: Tensor) -> Tensor:
    """The next states, from the states and the input's share of their gates."""
    state_gates_BG = F.linear(states_BH, cell.weight_hh, cell.bias_hh)
    next_BH: Tensor = _NextStates.apply(input_gates_BG, state_gates_BG, states_BH)  # type: ignore[no-untyped-call]
    return next_BH


class Gates(NamedTuple):
    """What a step of the controller leaves for its derivative."""

    reset_BH: Tensor
    update_BH: Tensor
    hidden_BH: Tensor  # the state's share of the new
    new_BH: Tensor


def next_states(inputs_BG: Tensor, gates_BG: Tensor, states_BH: Tensor) -> tuple[Tensor, Gates]:
    """r = σ(i_r + h_r), z = σ(i_z + h_z), n = tanh(i_n + r h_n), s' = n + z (s - n)."""
    size = states_BH.shape[1]
    reset_update = (inputs_BG[:, : 2 * size] + gates_BG[:, : 2 * size]).sigmoid_()
    reset_BH, update_BH = reset_update[:, :size], reset_update[:, size:]
    hidden_BH = gates_BG[:, 2 * size :]
    new_BH = torch.addcmul(inputs_BG[:, 2 * size :], reset_BH, hidden_BH).tanh_()
    after_BH = torch.lerp(new_BH, states_BH, update_BH)
    return after_BH, Gates(reset_BH, update_BH, hidden_BH, new_BH)


def through_gates(
    grad_BH: Tensor, gates: Gates, states_BH: Tensor, to_inputs_BG: Tensor, to_gates_BG: Tensor
) -> Tensor:
    """Writes the derivative by both shares of the gates; returns that by s through z alone."""
    size = grad_BH.shape[1]
    to_reset, to_update, to_new = to_inputs_BG.chunk(3, dim=1)
    kept_BH = grad_BH * gates.update_BH
    _through_tanh(grad_BH - kept_BH, gates.new_BH, grad_input=to_new)
    to_step = (states_BH - gates.new_BH).mul_(grad_BH)
    _through_sigmoid(to_step, gates.update_BH, grad_input=to_update)
    _through_sigmoid(to_new * gates.hidden_BH, gates.reset_BH, grad_input=to_reset)
    to_gates_BG[:, : 2 * size] = to_inputs_BG[:, : 2 * size]
    torch.mul(to_new, gates.reset_BH, out=to_gates_BG[:, 2 * size :])
    return kept_BH


class _NextStates(torch.autograd.Function):
    """One step as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, inputs_BG: Tensor, gates_BG: Tensor, states_BH: Tensor) -> Tensor:
        after_BH, gates = next_states(inputs_BG, gates_BG, states_BH)
        ctx.save_for_backward(states_BH, *gates)
        return after_BH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states_BH, *gates = ctx.saved_tensors
        to_inputs_BG = grad_BH.new_empty(len(grad_BH), 3 * grad_BH.shape[1])
        to_gates_BG = torch.empty_like(to_inputs_BG)
        kept_BH = through_gates(grad_BH, Gates(*gates), states_BH, to_inputs_BG, to_gates_BG)
        return to_inputs_BG, to_gates_BG, kept_BH
