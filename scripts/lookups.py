"""Other lookups than the default's, to see whether they pay (scripts/steps.py).

Each function changes a model whose first answer is trained already. What it puts in the place of
the memory is read by the plain loop, one lookup after the other.

Shape letters: B queries, H the state, K an entity's vector, M slots, N entities, T steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ekgn.kbc.answers import Answers
from ekgn.kbc.model import KbcModel
from ekgn.kbc.products import product

Change = Callable[[KbcModel], None]


class Read(nn.Module):
    """A GRU over what was read; unlike the default's it has no fast twin for its own memory."""

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(state_size, state_size)

    def forward(self, states_BH: Tensor, read_BH: Tensor) -> Tensor:
        after_BH: Tensor = self.cell(read_BH, states_BH)
        return after_BH


class ProductKeys(nn.Module):
    """Many thousand slots, of which the 32 nearest are read: keys are pairs of two short lists."""

    def __init__(self, size: int, side: int = 128, nearest: int = 32) -> None:
        super().__init__()
        self.query = nn.Linear(size, size)
        self.keys_2SH = nn.Parameter(torch.randn(2, side, size // 2) * size**-0.5)
        self.values_MH = nn.Parameter(torch.randn(side * side, size) * size**-0.5)
        self.side, self.nearest = side, nearest

    def attend(self, states_BH: Tensor) -> Tensor:
        halves = self.query(states_BH).chunk(2, dim=1)
        found = [(half @ keys.T).topk(16) for half, keys in zip(halves, self.keys_2SH, strict=True)]
        (left, at_left), (right, at_right) = found
        score = (left[:, :, None] + right[:, None, :]).flatten(1)
        slot = (at_left[:, :, None] * self.side + at_right[:, None, :]).flatten(1)
        best, place = score.topk(self.nearest)
        attention_BM = score.new_zeros(len(score), self.side**2)
        return torch.scatter(attention_BM, 1, slot.gather(1, place), best.softmax(dim=1))

    def read(self, attention_BM: Tensor) -> Tensor:
        read_BH: Tensor = attention_BM @ self.values_MH
        return read_BH


class Maps(nn.Module):
    """Slots that are maps: a lookup applies a mixture of them, of rank 16 each, to the state."""

    def __init__(self, size: int, slots: int = 32, rank: int = 16) -> None:
        super().__init__()
        self.choose = nn.Linear(size, slots)
        self.down_MHR = nn.Parameter(torch.randn(slots, size, rank) * size**-0.5)
        self.up_MRH = nn.Parameter(torch.randn(slots, rank, size) * rank**-0.5)
        self._state_BH = torch.empty(0)

    def attend(self, states_BH: Tensor) -> Tensor:
        self._state_BH = states_BH
        return torch.softmax(self.choose(states_BH), dim=1)

    def read(self, attention_BM: Tensor) -> Tensor:
        inner_BMR = torch.einsum("bh,mhr->bmr", self._state_BH, self.down_MHR)
        return torch.einsum("bmr,mrh->bh", inner_BMR * attention_BM[:, :, None], self.up_MRH)


class Hops(nn.Module):
    """The paper's picture made literal: follow a soft relation, read the state as a soft entity.

    A lookup mixes the relations' vectors, multiplies the entity it is at by the mixture, and is
    then at the mean of all entities by their shares. The output gets what the hop points at.
    """

    def __init__(self, model: KbcModel) -> None:
        super().__init__()
        size, width = model.network.state_size, model.settings.embedding_dim
        self.relation = nn.Linear(size, len(model.relations))
        self.into = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, size), nn.Tanh())
        self.share = nn.Linear(size, 1)
        nn.init.constant_(self.share.bias, -3.0)
        self._tables = [model.entities, model.relations]  # in a list: they are not this module's
        self._kind = model.kind
        self._at_BK = torch.empty(0)
        self.pointed: list[Tensor] = []

    def begin(self, heads_BK: Tensor) -> None:
        """Stand at the questions' entities."""
        self._at_BK, self.pointed = heads_BK, []

    def attend(self, states_BH: Tensor) -> Tensor:
        entities, relations = (table.weight for table in self._tables)
        mixed_BK = self.relation(states_BH).softmax(dim=1) @ relations
        rows = torch.arange(len(states_BH))
        pointed_BK = product(self._kind, self._at_BK, mixed_BK, rows)
        self.pointed.append(pointed_BK)
        return (pointed_BK @ entities.T).softmax(dim=1)

    def read(self, attention_BN: Tensor) -> Tensor:
        self._at_BK = attention_BN @ self._tables[0].weight
        read_BH: Tensor = self.into(self._at_BK)
        return read_BH


class WithHops(nn.Module):
    """The default's decoder, and a share of what each hop points at."""

    def __init__(self, decoder: nn.Module, hops: Hops) -> None:
        super().__init__()
        self.decoder = decoder
        self._hops = [hops]

    def forward(self, states_TBH: Tensor, *query: Tensor) -> Tensor:
        outputs_TBK: Tensor = self.decoder(states_TBH, *query)
        hops = self._hops[0]
        pointed = hops.pointed[: len(states_TBH) - 1]
        if not pointed:
            return outputs_TBK
        share_TB1 = hops.share(states_TBH[1:]).sigmoid()
        more = torch.stack(pointed) * share_TB1
        return torch.cat([outputs_TBK[:1], outputs_TBK[1:] + more])


class Begin(nn.Module):
    """The default's encoder; the hops begin at the question's entity."""

    def __init__(self, encoder: nn.Module, hops: Hops) -> None:
        super().__init__()
        self.encoder = encoder
        self._hops = [hops]

    def forward(self, heads_BK: Tensor, first_BK: Tensor) -> Tensor:
        self._hops[0].begin(heads_BK)
        first_BH: Tensor = self.encoder(heads_BK, first_BK)
        return first_BH


class KnowingAnswers(nn.Module):
    """The default's encoder, told the mean vector of the question's answers in training.

    What training asks for now is not among them: its facts were held out of the tables.
    """

    def __init__(self, model: KbcModel, seen: Answers, all_known: Answers) -> None:
        super().__init__()
        self.encoder = model.network.encoder
        size = model.settings.embedding_dim
        self.told = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, model.network.state_size))
        self._table, self._known = [model.entities], {True: seen, False: all_known}
        self.asked = np.empty(0, np.int64), np.empty(0, np.int64)  # heads and relations

    def forward(self, heads_BK: Tensor, first_BK: Tensor) -> Tensor:
        state_BH = self.encoder(heads_BK, first_BK)
        return torch.tanh(state_BH + self.told(self._mean()))

    def _mean(self) -> Tensor:
        vectors_NK, known = self._table[0].weight, self._known[self.training]
        query, answers = map(torch.from_numpy, known.gather(known.rows(*self.asked)))
        total_BK = vectors_NK.new_zeros(len(self.asked[0]), vectors_NK.shape[1])
        total_BK.index_add_(0, query, vectors_NK[answers])
        count_B = torch.bincount(query, minlength=len(total_BK))
        return total_BK / count_B.clamp(min=1)[:, None]


def product_keys(model: KbcModel) -> None:
    """16,384 slots read sparsely."""
    _read_by(model, ProductKeys(model.network.state_size))


def maps(model: KbcModel) -> None:
    """Slots that are maps."""
    _read_by(model, Maps(model.network.state_size))


def hops(model: KbcModel) -> None:
    """Soft relations and soft entities."""
    memory = Hops(model)
    _read_by(model, memory)
    network = model.network
    network.encoder, network.decoder = (
        Begin(network.encoder, memory),
        WithHops(network.decoder, memory),
    )


def known_answers(seen: Answers, all_known: Answers) -> Change:
    """A first state that knows the question's other answers."""

    def change(model: KbcModel) -> None:
        encoder, query = KnowingAnswers(model, seen, all_known), model.query

        def noted(heads_B: Tensor, relations_B: Tensor) -> tuple[Tensor, Tensor]:
            encoder.asked = heads_B.numpy(), relations_B.numpy()
            return query(heads_B, relations_B)

        model.network.encoder = encoder
        model.query = noted  # type: ignore[method-assign]

    return change


def _read_by(model: KbcModel, memory: nn.Module) -> None:
    """Put another memory in the place of the network's, with a controller that reads any."""
    network = model.network
    network.memory = memory  # type: ignore[assignment]
    network.controller = Read(network.state_size)  # type: ignore[assignment]
