"""The controller: s_{t+1} = GRU(s_t, x_t)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_through_sigmoid = torch.ops.aten.sigmoid_backward  # gradient times y (1 - y)
_through_tanh = torch.ops.aten.tanh_backward  # gradient times (1 - y²)


class Controller(nn.Module):
    """A GRU cell whose input half is computed apart, so the memory can be folded into it.

    x_t = Σ_i a_{t,i} e_i is linear in the slots, hence W_ih x_t + b = Σ_i a_{t,i} (W_ih e_i + b):
    the bracket is computed once per batch, and a step costs attention times it.
    """

    def __init__(
        self, state_size: int, input_size: int | None = None, keep_bias: float = 0.0
    ) -> None:
        super().__init__()
        self.cell = nn.GRUCell(input_size or state_size, state_size)
        with torch.no_grad():
            self.cell.bias_hh[state_size : 2 * state_size] += keep_bias

    def input_gates(self, vectors_MH: Tensor) -> Tensor:
        """W_ih e + b_ih for each vector: the input's share of the three gates."""
        return F.linear(vectors_MH, self.cell.weight_ih, self.cell.bias_ih)

    def reader(self, slots_MH: Tensor) -> Callable[[Tensor], Tensor]:
        """From attention over the slots to the input's share of the gates, the cheaper way."""
        slots, size = slots_MH.shape
        if 2 * slots > 3 * size:  # a step of M x 3H is dearer than one of M x H and one of H x 3H
            return lambda attention_BM: self.input_gates(attention_BM @ slots_MH)
        slot_gates_MG = self.input_gates(slots_MH)
        return lambda attention_BM: attention_BM @ slot_gates_MG

    def forward(self, states_BH: Tensor, input_gates_BG: Tensor) -> Tensor:
        """The next state, from the state and the input's share of its gates."""
        state_gates_BG = F.linear(states_BH, self.cell.weight_hh, self.cell.bias_hh)
        next_BH: Tensor = _Gates.apply(input_gates_BG, state_gates_BG, states_BH)  # type: ignore[no-untyped-call]
        return next_BH


class _Gates(torch.autograd.Function):
    """r = σ(i_r + h_r), z = σ(i_z + h_z), n = tanh(i_n + r h_n), s' = n + z (s - n).

    The derivative is written out: the elementwise operations that autograd would record one by one
    cost as much as the matrix products around them.
    """

    @staticmethod
    def forward(ctx: Any, inputs_BG: Tensor, gates_BG: Tensor, states_BH: Tensor) -> Tensor:
        size = states_BH.shape[1]
        reset_update = (inputs_BG[:, : 2 * size] + gates_BG[:, : 2 * size]).sigmoid_()
        reset_BH, update_BH = reset_update[:, :size], reset_update[:, size:]
        hidden_BH = gates_BG[:, 2 * size :]
        new_BH = torch.addcmul(inputs_BG[:, 2 * size :], reset_BH, hidden_BH).tanh_()
        ctx.save_for_backward(reset_BH, update_BH, hidden_BH, new_BH, states_BH)
        return torch.lerp(new_BH, states_BH, update_BH)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (grad_BH,) = grads
        reset_BH, update_BH, hidden_BH, new_BH, states_BH = ctx.saved_tensors
        kept_BH = grad_BH * update_BH
        to_new = _through_tanh(grad_BH - kept_BH, new_BH)
        to_update = _through_sigmoid((states_BH - new_BH).mul_(grad_BH), update_BH)
        to_reset = _through_sigmoid(to_new * hidden_BH, reset_BH)
        to_inputs_BG = torch.cat([to_reset, to_update, to_new], dim=1)
        to_gates_BG = torch.cat([to_reset, to_update, to_new.mul_(reset_BH)], dim=1)
        return to_inputs_BG, to_gates_BG, kept_BH
