"""The network: encode, look up until it stops, decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from ekgn.config import Settings
from ekgn.network import fused
from ekgn.network.controller import Controller, Unread
from ekgn.network.inference import Inference
from ekgn.network.memory import EmbeddedKnowledgeGraph
from ekgn.network.termination import Termination, log_stop_weights, open_stop_weights


class Memory(Protocol):
    """What the loop reads: the embedded knowledge graph, or what an analysis puts in its place."""

    def attend(self, states_BH: Tensor) -> Tensor: ...
    def read(self, attention_BM: Tensor) -> Tensor: ...


class Network(nn.Module):
    """The paper's algorithm box over any encoder (query -> s_1) and decoder (states -> outputs).

    All T_max steps, or as many as are asked for, are run and recorded; how far a query would have
    gone is in the stop weights. `until_left` runs only those that a query still needs.
    """

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, state_size: int, settings: Settings
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.memory = EmbeddedKnowledgeGraph(settings.num_slots, state_size, settings.sharpness)
        self.controller = {"gru": Controller, "mlp": Unread}[settings.controller](state_size)
        self.termination = Termination(state_size)
        self.max_steps, self.state_size = settings.max_steps, state_size

    def forward(
        self, *query: Tensor, max_steps: int | None = None, memory: Memory | None = None
    ) -> Inference:
        """The complete record of answering a batch of queries.

        Analyses give another `memory` to be read in place of the network's own.
        """
        first_BH, steps = self.encoder(*query), max_steps or self.max_steps
        if memory is None and isinstance(self.controller, Controller):  # the fast twin of `walk`
            states_TBH, attention_LBM = fused.look_up(first_BH, steps, self.memory, self.controller)
        else:
            read = memory or self.memory
            states_TBH, attention_LBM = walk(first_BH, steps, read, self.controller)
        return self._record(states_TBH, attention_LBM, steps, query)

    @torch.no_grad()
    def until_left(self, *query: Tensor) -> Inference:
        """The record up to the step that every query of the batch has left: no more is computed.

        A query leaves at the step of its largest stop weight, once all later steps together have
        less.
        """

        def all_left(states: list[Tensor]) -> bool:
            log_weights_TB, log_rest_B = open_stop_weights(self.termination(torch.stack(states)))
            return bool((log_weights_TB.amax(dim=0) > log_rest_B).all())

        first_BH, steps = self.encoder(*query), self.max_steps
        states_TBH, attention_LBM = walk(first_BH, steps, self.memory, self.controller, all_left)
        return self._record(states_TBH, attention_LBM, steps, query)

    def _record(
        self, states_TBH: Tensor, attention_LBM: Tensor, steps: int, query: tuple[Tensor, ...]
    ) -> Inference:
        stop_logits_TB = self.termination(states_TBH)
        is_whole = len(states_TBH) == steps
        return Inference(
            states_TBH=states_TBH,
            attention_LBM=attention_LBM,
            stop_logits_TB=stop_logits_TB,
            log_stop_weights_TB=log_stop_weights(stop_logits_TB)
            if is_whole
            else open_stop_weights(stop_logits_TB)[0],
            outputs_TBK=self.decoder(states_TBH, *query),
        )


def walk(
    state_BH: Tensor,
    steps: int,
    memory: Memory,
    controller: Controller | Unread,
    all_left: Callable[[list[Tensor]], bool] = lambda states: False,
) -> tuple[Tensor, Tensor]:
    """The algorithm box: the states s_1 ... s_T and the attention of the lookups between them."""
    states, attention = [state_BH], []
    while len(states) < steps and not all_left(states):
        attention.append(memory.attend(states[-1]))  # a_t
        read_BH = memory.read(attention[-1])  # x_t
        states.append(controller(states[-1], read_BH))  # s_{t+1}
    no_attention = memory.attend(state_BH)[None][:0]
    return torch.stack(states), torch.stack(attention) if attention else no_attention
