"""The embedded knowledge graph E_KG: learned vectors, read by attention, never written to."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class EmbeddedKnowledgeGraph(nn.Module):
    """M vectors e_i, random with unit L2 norm at the start; only back-propagation changes them."""

    def __init__(self, num_slots: int, state_size: int, sharpness: float) -> None:
        super().__init__()
        slots_MH = torch.randn(num_slots, state_size)
        if not slots_MH.is_meta:  # there it would import a compiler, which takes over a second
            slots_MH = F.normalize(slots_MH, dim=1)
        self.slots_MH = nn.Parameter(slots_MH)
        self.key = nn.Linear(state_size, state_size, bias=False)  # W_1
        self.query = nn.Linear(state_size, state_size, bias=False)  # W_2
        self.sharpness = sharpness

    def keys(self) -> Tensor:
        """λ · W_1 e_i / |W_1 e_i|: the same for a whole batch and for all of its steps."""
        keys_MH: Tensor = F.normalize(self.key(self.slots_MH), dim=1)
        return self.sharpness * keys_MH

    def attend(self, states_BH: Tensor) -> Tensor:
        """a_{t,i} = softmax_i(λ · cos(W_1 e_i, W_2 s_t))."""
        queries_BH = F.normalize(self.query(states_BH), dim=1)
        return torch.softmax(queries_BH @ self.keys().T, dim=1)

    def read(self, attention_BM: Tensor) -> Tensor:
        """x_t = Σ_i a_{t,i} e_i."""
        return attention_BM @ self.slots_MH


class NoMemory(nn.Module):
    """The control's: no vectors, so nothing is attended to and nothing read."""

    def attend(self, states_BH: Tensor) -> Tensor:
        return states_BH.new_empty(len(states_BH), 0)

    def read(self, attention_BM: Tensor) -> Tensor:
        return attention_BM
