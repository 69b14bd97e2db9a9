"""The fast twin of the loop in Network.forward: all lookups of a batch, derivative written out.

s_{t+1} = GRU(s_t, x_t), where x_t is what the attention by s_t reads from the memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ekgn.network.controller import Controller
from ekgn.network.gru import Gates, input_gates, next_states, through_gates
from ekgn.network.memory import EmbeddedKnowledgeGraph

_through_softmax = torch.ops.aten._softmax_backward_data.default


class Readout(NamedTuple):
    """From attention to the input's share of the controller's gates, a_t R, or (a_t R) Wᵀ + b."""

    read_MX: Tensor
    mix_GX: Tensor | None = None
    bias_G: Tensor | None = None


def look_up(
    first_BH: Tensor, steps: int, memory: EmbeddedKnowledgeGraph, controller: Controller
) -> tuple[Tensor, Tensor]:
    """The states s_1 ... s_T (T, B, H) and the attention of each lookup (T - 1, B, M).

    The same as the loop in Network.forward. The attention has no gradient.
    """
    if steps == 1:
        return first_BH[None], first_BH.new_empty(0, len(first_BH), len(memory.slots_MH))
    hidden_GH, hidden_bias_G = controller.cell.weight_hh, controller.cell.bias_hh
    query_HH = memory.query.weight
    # W_hh over W_2: both are applied to the same states, so one product does it.
    weight_EH = torch.cat([hidden_GH, query_HH])
    bias_E = torch.cat([hidden_bias_G, hidden_bias_G.new_zeros(len(query_HH))])
    states_TBH, attention_LBM = _LookUp.apply(  # type: ignore[no-untyped-call]
        first_BH, steps - 1, memory.keys(), weight_EH, bias_E, *_readout(memory, controller)
    )
    return states_TBH, attention_LBM


def _readout(memory: EmbeddedKnowledgeGraph, controller: Controller) -> Readout:
    """The memory folded into the controller's input weights, or, of many slots, apart.

    x_t = Σ_i a_{t,i} e_i is linear in the slots, hence W_ih x_t + b = Σ_i a_{t,i} (W_ih e_i + b):
    the bracket is made once a batch, and a step costs attention times it.
    """
    slots, size = memory.slots_MH.shape
    if 2 * slots > 3 * size:  # a step of M x 3H is dearer than one of M x H and one of H x 3H
        return Readout(memory.slots_MH, controller.cell.weight_ih, controller.cell.bias_ih)
    return Readout(input_gates(controller.cell, memory.slots_MH))


class _LookUp(torch.autograd.Function):
    """The recurrence, and its derivative written out.

    The gradients of the weights then are one product each over all lookups, where autograd would
    make one for every lookup and add them up.
    """

    @staticmethod
    def forward(
        ctx: Any,
        first_BH: Tensor,
        lookups: int,
        keys_MH: Tensor,
        weight_EH: Tensor,
        bias_E: Tensor,
        read_MX: Tensor,
        mix_GX: Tensor | None,
        bias_G: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        batch, size = first_BH.shape
        states_TBH = first_BH.new_empty(lookups + 1, batch, size)
        attention_LBM = first_BH.new_empty(lookups, batch, len(keys_MH))
        cosine_LBM = torch.empty_like(attention_LBM)  # times λ
        per_length_LB1 = first_BH.new_empty(lookups, batch, 1)
        queries: list[Tensor] = []
        reads: list[Tensor] = []
        gates: list[Gates] = []
        states_TBH[0] = first_BH
        for t in range(lookups):
            both_BE = torch.addmm(bias_E, states_TBH[t], weight_EH.T)
            query_BH = both_BE[:, 3 * size :]
            length_B1 = torch.linalg.vector_norm(query_BH, dim=1, keepdim=True)
            torch.reciprocal(length_B1.add_(1e-12), out=per_length_LB1[t])
            torch.mm(query_BH, keys_MH.T, out=cosine_LBM[t]).mul_(per_length_LB1[t])
            torch.softmax(cosine_LBM[t], dim=1, out=attention_LBM[t])
            read_BX = attention_LBM[t] @ read_MX
            inputs_BG = read_BX
            if mix_GX is not None:
                inputs_BG = F.linear(read_BX, mix_GX, bias_G)
                reads.append(read_BX)
            states_TBH[t + 1], gate = next_states(inputs_BG, both_BE[:, : 3 * size], states_TBH[t])
            queries.append(query_BH)
            gates.append(gate)
        ctx.save_for_backward(
            *(states_TBH, attention_LBM, cosine_LBM, per_length_LB1),
            *(keys_MH, weight_EH, read_MX, mix_GX),
        )
        ctx.queries, ctx.reads, ctx.gates = queries, reads, gates
        ctx.mark_non_differentiable(attention_LBM)
        return states_TBH, attention_LBM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_states_TBH: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states_TBH, attention_LBM, cosine_LBM, per_length_LB1, *weights = ctx.saved_tensors
        keys_MH, weight_EH, read_MX, mix_GX = weights
        lookups, (batch, size) = len(attention_LBM), states_TBH.shape[1:]
        to_both_LBE = states_TBH.new_empty(lookups, batch, 4 * size)
        to_inputs_LBG = states_TBH.new_empty(lookups, batch, 3 * size)
        to_read_LBX = to_inputs_LBG if mix_GX is None else torch.empty_like(states_TBH[1:])
        to_product_LBM = torch.empty_like(attention_LBM)  # of queries with keys
        to_state_BH = to_states_TBH[lookups]
        for t in reversed(range(lookups)):
            to_gates_BG, to_query_BH = to_both_LBE[t, :, : 3 * size], to_both_LBE[t, :, 3 * size :]
            to_inputs_BG, to_product_BM = to_inputs_LBG[t], to_product_LBM[t]
            kept_BH = through_gates(
                to_state_BH, ctx.gates[t], states_TBH[t], to_inputs_BG, to_gates_BG
            )
            if mix_GX is not None:
                torch.mm(to_inputs_BG, mix_GX, out=to_read_LBX[t])
            to_attention_BM = to_read_LBX[t] @ read_MX.T
            to_cosine_BM = _through_softmax(to_attention_BM, attention_LBM[t], 1, states_TBH.dtype)
            torch.mul(to_cosine_BM, per_length_LB1[t], out=to_product_BM)
            along_B1 = (to_product_BM * cosine_LBM[t]).sum(dim=1, keepdim=True)
            torch.mm(to_product_BM, keys_MH, out=to_query_BH)
            to_query_BH.addcmul_(ctx.queries[t], along_B1 * per_length_LB1[t], value=-1)
            to_state_BH = torch.addmm(kept_BH.add_(to_states_TBH[t]), to_both_LBE[t], weight_EH)
        to_both_RE, to_inputs_RG = to_both_LBE.flatten(0, 1), to_inputs_LBG.flatten(0, 1)
        to_mix_GX = to_bias_G = None
        if mix_GX is not None:
            to_mix_GX, to_bias_G = to_inputs_RG.T @ torch.cat(ctx.reads), to_inputs_RG.sum(dim=0)
        return (
            to_state_BH,
            None,
            to_product_LBM.flatten(0, 1).T @ torch.cat(ctx.queries),
            to_both_RE.T @ states_TBH[:-1].flatten(0, 1),
            to_both_RE.sum(dim=0),
            attention_LBM.flatten(0, 1).T @ to_read_LBX.flatten(0, 1),
            to_mix_GX,
            to_bias_G,
        )
