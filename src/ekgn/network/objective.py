"""The objective: J = Σ_t q_t p(y* | o_t), in log space."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ekgn.config import Settings


class Loss(NamedTuple):
    """What is minimised, and the mean expected reward J for the progress display."""

    total: Tensor
    expected_reward: Tensor


def objective(
    log_stop_weights_TP: Tensor,
    log_p_TP: Tensor,
    settings: Settings,
    whole_of_P: Tensor | None = None,
) -> Loss:
    """The loss over P (query, answer) pairs.

    log form: -log Σ_t q_t p_t, whose gradient is the contrastive reward of the first version;
    expected form: the printed -Σ_t q_t p_t. `step_loss`, off by default, adds the mean of -log p_t
    over the steps (deep supervision).

    With `whole_of_P` a pair is a part of a whole, and the reward is that all parts are right.
    """
    log_reward_P = torch.logsumexp(log_stop_weights_TP + log_p_TP, dim=0)
    if whole_of_P is not None:
        wholes = int(whole_of_P.max()) + 1
        log_reward_P = log_reward_P.new_zeros(wholes).index_add(0, whole_of_P, log_reward_P)
        log_p_TP = log_p_TP.new_zeros(len(log_p_TP), wholes).index_add(1, whole_of_P, log_p_TP)
    reward = log_reward_P.exp().mean()
    total = -log_reward_P.mean() if settings.objective == "log" else -reward
    if settings.step_loss:
        total = total - settings.step_loss * log_p_TP.mean()
    return Loss(total, reward.detach())
