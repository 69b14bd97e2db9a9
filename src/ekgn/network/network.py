"""The network: encode, look up until it stops, decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ekgn.config import Settings
from ekgn.network import fused
from ekgn.network.controller import Controller, Unread
from ekgn.network.inference import Inference
from ekgn.network.memory import EmbeddedKnowledgeGraph, NoMemory
from ekgn.network.termination import Never, Termination, log_stop_weights, open_stop_weights


class Memory(Protocol):
    """What the loop reads: the embedded knowledge graph, or what an analysis puts in its place."""

    def attend(self, states_BH: Tensor) -> Tensor: ...
    def read(self, attention_BM: Tensor) -> Tensor: ...


AllLeft = Callable[[Sequence[Tensor]], bool]
"""From the stop logits of the steps so far, whether every query of the batch has left."""


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
        self.memory: EmbeddedKnowledgeGraph
        self.controller: Controller
        self.termination: Termination
        self.memory, self.controller, self.termination = _parts(state_size, settings)
        self.max_steps, self.state_size = settings.max_steps, state_size

    def forward(
        self,
        *query: Tensor,
        max_steps: int | None = None,
        memory: Memory | None = None,
        all_left: AllLeft | None = None,
    ) -> Inference:
        """The complete record of answering a batch of queries.

        Analyses give another `memory` to be read in place of the network's own. Where neither that
        nor an early end is asked for, the fast twin of this loop makes the same record.
        """
        steps = max_steps or self.max_steps
        if memory is None and all_left is None and isinstance(self.controller, Controller):
            return self._fast(query, steps)
        memory = memory or self.memory
        states = [self.encoder(*query)]  # s_1
        stops = [self.termination(states[0])]  # v_1, as logits
        attention: list[Tensor] = []
        while len(states) < steps and not (all_left and all_left(stops)):
            attention.append(memory.attend(states[-1]))  # a_t
            read_BH = memory.read(attention[-1])  # x_t
            states.append(self.controller(states[-1], read_BH))  # s_{t+1}
            stops.append(self.termination(states[-1]))  # v_{t+1}
        attention_LBM = torch.stack(attention or [memory.attend(states[0])])[: len(attention)]
        return self._record(torch.stack(states), attention_LBM, torch.stack(stops), steps, query)

    def _fast(self, query: tuple[Tensor, ...], steps: int) -> Inference:
        """The same by fused lookups, whose derivative is written out."""
        first_BH = self.encoder(*query)
        states_TBH, attention_LBM = fused.look_up(first_BH, steps, self.memory, self.controller)
        stop_logits_TB = self.termination(states_TBH)
        return self._record(states_TBH, attention_LBM, stop_logits_TB, steps, query)

    @torch.no_grad()
    def until_left(self, *query: Tensor) -> Inference:
        """The record up to the step that every query of the batch has left: no more is computed.

        A query leaves at the step of its largest stop weight, once all later steps together have
        less.
        """

        def all_left(stops: Sequence[Tensor]) -> bool:
            log_weights_TB, log_rest_B = open_stop_weights(torch.stack(list(stops)))
            return bool((log_weights_TB.amax(dim=0) > log_rest_B).all())

        record: Inference = self(*query, all_left=all_left)
        return record

    def _record(
        self,
        states_TBH: Tensor,
        attention_LBM: Tensor,
        stop_logits_TB: Tensor,
        steps: int,
        query: tuple[Tensor, ...],
    ) -> Inference:
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


def _parts(state_size: int, settings: Settings) -> tuple[Any, Any, Any]:
    """Memory, controller and termination: the paper's, or those of the control."""
    if settings.controller == "mlp":
        return NoMemory(), Unread(state_size), Never()
    memory = EmbeddedKnowledgeGraph(settings.num_slots, state_size, settings.sharpness)
    return memory, Controller(state_size), Termination(state_size)
