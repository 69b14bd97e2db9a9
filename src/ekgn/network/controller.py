"""The controller: s_{t+1} = GRU(s_t, x_t); and the control, which reads nothing."""

from __future__ import annotations

from torch import Tensor, nn

from ekgn.network.layers import ResidualLayers


class Controller(nn.Module):
    """s_{t+1} = GRU(s_t, x_t)."""

    def __init__(self, state_size: int, input_size: int | None = None) -> None:
        super().__init__()
        self.cell = nn.GRUCell(input_size or state_size, state_size)

    def forward(self, states_BH: Tensor, inputs_BX: Tensor) -> Tensor:
        after_BH: Tensor = self.cell(inputs_BX, states_BH)
        return after_BH


class Unread(nn.Module):
    """The control: residual layers of about as many numbers as GRU and memory, which read nothing.

    W_hh and W_ih of the GRU have 6 H² numbers, W_1 and W_2 of the attention 2 H²; these have 8 H².
    """

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.layers = ResidualLayers(state_size, 2 * state_size)

    def forward(self, states_BH: Tensor, inputs_BX: Tensor) -> Tensor:
        """s_{t+1} from s_t alone."""
        after_BH: Tensor = self.layers(states_BH)
        return after_BH
