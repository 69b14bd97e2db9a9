"""The network: encode, look up until it stops, decode."""

from __future__ import annotations

from torch import Tensor, nn

from ekgn.config import Settings
from ekgn.network.controller import Controller
from ekgn.network.inference import Inference
from ekgn.network.lookups import Readout, look_up
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
        states_TBH, attention_LBM = self.look_up(self.encoder(*query), max_steps or self.max_steps)
        stop_logits_TB = self.termination(states_TBH)
        return Inference(
            states_TBH=states_TBH,
            attention_LBM=attention_LBM,
            stop_logits_TB=stop_logits_TB,
            log_stop_weights_TB=log_stop_weights(stop_logits_TB),
            outputs_TBK=self.decoder(states_TBH),
        )

    def look_up(self, first_BH: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """The states of all steps from the first, and the attention of the lookups between them."""
        memory, cell = self.memory, self.controller.cell
        if steps == 1:
            return first_BH[None], first_BH.new_empty(0, len(first_BH), len(memory.slots_MH))
        return look_up(
            first_BH,
            steps - 1,
            memory.keys(),
            memory.query.weight,
            self._readout(),
            cell.weight_hh,
            cell.bias_hh,
        )

    def _readout(self) -> Readout:
        """The memory folded into the controller's input weights, or, of many slots, apart."""
        slots_MH, controller = self.memory.slots_MH, self.controller
        slots, size = slots_MH.shape
        if 2 * slots > 3 * size:  # a step of M x 3H is dearer than one of M x H and one of H x 3H
            return Readout(slots_MH, controller.cell.weight_ih, controller.cell.bias_ih)
        return Readout(controller.input_gates(slots_MH))
