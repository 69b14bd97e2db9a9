"""When to stop: v_t = P(stop | s_t), and the distribution over stopping steps it makes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Termination(nn.Module):
    """The logit of v_t = sigmoid(W_c s_t + b_c)."""

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(state_size, 1)
        nn.init.zeros_(self.gate.bias)

    def forward(self, states_TBH: Tensor) -> Tensor:
        logits: Tensor = self.gate(states_TBH)
        return logits.squeeze(-1)


class Never(nn.Module):
    """The control's: no query stops before the last step."""

    def forward(self, states_TBH: Tensor) -> Tensor:
        return states_TBH.new_full(states_TBH.shape[:-1], -100.0)


def log_stop_weights(stop_logits_TB: Tensor) -> Tensor:
    """log q_t with q_t = v_t Π_{i<t} (1 - v_i); the last step takes all mass that is left."""
    log_go_on = F.logsigmoid(-stop_logits_TB[:-1])
    log_reached = torch.cat([torch.zeros_like(stop_logits_TB[:1]), log_go_on.cumsum(dim=0)])
    log_stop = torch.cat([F.logsigmoid(stop_logits_TB[:-1]), torch.zeros_like(stop_logits_TB[:1])])
    return log_reached + log_stop


def open_stop_weights(stop_logits_TB: Tensor) -> tuple[Tensor, Tensor]:
    """log q_t where steps may follow, and the log of what is left for them."""
    log_weights = log_stop_weights(torch.cat([stop_logits_TB, stop_logits_TB[:1]]))
    return log_weights[:-1], log_weights[-1]
