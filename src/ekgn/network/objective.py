"""The objective: J = Σ_t q_t p(y* | o_t), in log space."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ekgn.config import Settings


class Loss(NamedTuple):
    """What is minimised, and the mean expected reward J for the progress display."""

    total: Tensor
    expected_reward: Tensor


def objective(log_stop_weights_TP: Tensor, log_p_TP: Tensor, settings: Settings) -> Loss:
    """The loss over P (query, answer) pairs.

    log form: -log Σ_t q_t p_t, whose gradient is the contrastive reward of the first version;
    expected form: the printed -Σ_t q_t p_t. Two departures, off by default: `step_loss` adds the
    mean of -log p_t over the steps, `stop_prior` the KL of q to the uniform distribution.
    """
    log_reward_P = torch.logsumexp(log_stop_weights_TP + log_p_TP, dim=0)
    reward = log_reward_P.exp().mean()
    total = -log_reward_P.mean() if settings.objective == "log" else -reward
    if settings.step_loss:
        total = total - settings.step_loss * log_p_TP.mean()
    if settings.stop_prior:
        entropy = -(log_stop_weights_TP.exp() * log_stop_weights_TP).sum(dim=0).mean()
        total = total + settings.stop_prior * (math.log(len(log_p_TP)) - entropy)
    return Loss(total, reward.detach())
