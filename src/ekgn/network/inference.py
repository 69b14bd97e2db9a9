"""The record of a run of the network, and which of its steps gives the answer."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ekgn.config import parse_readout


class Inference(NamedTuple):
    """Everything that happened: the loss reads outputs and stop weights, explanations the rest."""

    states_TBH: Tensor
    attention_LBM: Tensor
    stop_logits_TB: Tensor
    log_stop_weights_TB: Tensor
    outputs_TBK: Tensor

    @property
    def stop_probabilities_TB(self) -> Tensor:
        """v_t, with v_Tmax := 1."""
        free = torch.sigmoid(self.stop_logits_TB[:-1])
        return torch.cat([free, torch.ones_like(self.stop_logits_TB[:1])])


def step_weights(inference: Inference, readout: str) -> Tensor:
    """How much each step's answer counts at test time, (T, B), each column summing to 1.

    argmax: the step of largest stop weight; mixture: the stop weights themselves; last: step T_max;
    sample: a step drawn from the stop weights (the algorithm box as printed); step:N: always N.
    """
    log_weights_TB = inference.log_stop_weights_TB
    max_steps, batch = log_weights_TB.shape
    name, number = parse_readout(readout, max_steps)
    weights_TB = log_weights_TB.exp()
    if name == "mixture":
        return weights_TB
    if name == "argmax":
        chosen_B = weights_TB.argmax(dim=0)
    elif name == "sample":
        chosen_B = torch.multinomial(weights_TB.T, 1).squeeze(1)
    else:
        step = max_steps if name == "last" else number
        chosen_B = torch.full((batch,), step - 1, device=weights_TB.device)
    return F.one_hot(chosen_B, max_steps).T.to(weights_TB.dtype)
