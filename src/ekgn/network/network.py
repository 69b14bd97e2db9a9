"""The network: encode, look up until it stops, decode."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ekgn.config import Settings
from ekgn.network.controller import Controller
from ekgn.network.inference import Inference
from ekgn.network.memory import EmbeddedKnowledgeGraph
from ekgn.network.termination import Termination, log_stop_weights


class Network(nn.Module):
    """The paper's algorithm box over any encoder (query -> s_1) and decoder (states -> outputs).

    All T_max steps, or as many as are asked for, are run and recorded; how far a query would have
    gone is in the stop weights.
    """

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, state_size: int, settings: Settings
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.memory = EmbeddedKnowledgeGraph(settings.num_slots, state_size, settings.sharpness)
        self.controller = Controller(state_size, keep_bias=settings.keep_bias)
        self.termination = Termination(state_size, settings.stop_bias)
        self.max_steps = settings.max_steps

    def forward(self, *query: Tensor, max_steps: int | None = None) -> Inference:
        """The complete record of answering a batch of queries."""
        state_BH = self.encoder(*query)
        keys_MH = self.memory.keys()
        read = self.controller.reader(self.memory.slots_MH)
        states, attention = [state_BH], []
        for _ in range((max_steps or self.max_steps) - 1):
            attention_BM = self.memory.attend(state_BH, keys_MH)
            state_BH = self.controller(state_BH, read(attention_BM))
            states.append(state_BH)
            attention.append(attention_BM)
        states_TBH = torch.stack(states)
        stop_logits_TB = self.termination(states_TBH)
        return Inference(
            states_TBH=states_TBH,
            attention_LBM=torch.stack(attention)
            if attention
            else states_TBH.new_empty(0, len(state_BH), len(keys_MH)),
            stop_logits_TB=stop_logits_TB,
            log_stop_weights_TB=log_stop_weights(stop_logits_TB),
            outputs_TBK=self.decoder(states_TBH),
        )
