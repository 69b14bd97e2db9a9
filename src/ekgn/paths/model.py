"""Encoder and decoder of shortest path synthesis, around the network.

Shape letters, beside those of ekgn.network: L places in a path, N nodes, R (path, place) pairs of a
batch, W paths kept by a beam search; S streams of the decoder, or last N + 1 symbols (the nodes and
the end symbol).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.network.controller import Controller
from ekgn.network.inference import Inference
from ekgn.network.layers import first_state_norm, shared_dropout
from ekgn.network.network import Network
from ekgn.network.objective import Loss, objective
from ekgn.paths.batches import Batch
from ekgn.paths.settings import PathsSettings


def node_table(num_nodes: int, settings: PathsSettings) -> nn.Embedding:
    """New node vectors."""
    table = nn.Embedding(num_nodes, settings.embedding_dim)
    nn.init.normal_(table.weight, std=settings.init_scale)
    return table


class Encoder(nn.Module):
    """s_1: the vectors of a question side by side; normalised and dropped out, if set."""

    def __init__(self, state_size: int, settings: PathsSettings) -> None:
        super().__init__()
        self.norm = first_state_norm(settings.first_norm, state_size)
        self.dropout = nn.Dropout(settings.input_dropout)

    def forward(self, *vectors_BK: Tensor) -> Tensor:
        first: Tensor = self.dropout(self.norm(torch.cat(vectors_BK, dim=1)))
        return first


class FirstHidden(nn.Module):
    """tanh(W s + b): where the path decoder starts from."""

    def __init__(self, input_size: int, decoder_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(input_size, decoder_size)

    def forward(self, states: Tensor) -> Tensor:
        return torch.tanh(self.output(states))


class Places(NamedTuple):
    """Every (path, place) pair of a batch, with the decoder's hidden state there in S streams."""

    hidden_SRK: Tensor
    targets_R: Tensor  # the symbol that comes next
    path_R: Tensor


class PathDecoder(nn.Module):
    """A GRU that goes along a path, and the scores of the symbols that may come next.

    The first input is the start node, so that every input is the node the path has reached. Several
    streams read the same path from different first states.
    """

    def __init__(self, num_nodes: int, decoder_size: int, settings: PathsSettings) -> None:
        super().__init__()
        size = settings.embedding_dim
        self.settings = settings
        self.tied = settings.tie_nodes
        self.nodes = node_table(num_nodes, settings)
        self.cell = Controller(decoder_size, size)
        self.output = nn.Linear(decoder_size, size) if self.tied else nn.Identity()
        self.symbols_SK = nn.Parameter(
            torch.empty(1 if self.tied else num_nodes + 1, size if self.tied else decoder_size)
        )
        nn.init.normal_(self.symbols_SK, std=0.1)
        self.bias_S = nn.Parameter(torch.zeros(num_nodes + 1))

    def input_gates(self, before: Tensor) -> Tensor:
        """The share of the node before in the gates."""
        inputs = F.dropout(self.nodes(before), self.settings.decoder_dropout, self.training)
        return self.cell.input_gates(inputs)

    def logits(self, hidden: Tensor) -> Tensor:
        """The score of each symbol: the nodes, then the end symbol."""
        table_SK = torch.cat([self.nodes.weight, self.symbols_SK]) if self.tied else self.symbols_SK
        return F.linear(self.output(hidden), table_SK, self.bias_S)

    def along(self, first_SBK: Tensor, batch: Batch) -> Places:
        """The hidden state at every place, by teacher forcing."""
        streams, _, size = first_SBK.shape
        gates_BLG = self.input_gates(batch.inputs_BL)
        everyone_B = torch.arange(len(gates_BLG), device=first_SBK.device)
        hidden_SBK = first_SBK
        hidden, targets, path = [], [], []
        for place, count in enumerate(batch.active):
            gates_SBG = gates_BLG[:count, place].expand(streams, -1, -1)
            before_SBK = hidden_SBK[:, :count].reshape(streams * count, size)
            after = self.cell(before_SBK, gates_SBG.reshape(streams * count, -1))
            hidden_SBK = after.view(streams, count, size)
            hidden.append(hidden_SBK)
            targets.append(batch.targets_BL[:count, place])
            path.append(everyone_B[:count])
        return Places(torch.cat(hidden, dim=1), torch.cat(targets), torch.cat(path))

    def log_p(self, hidden_SRK: Tensor, places: Places) -> Tensor:
        """log p(the symbol that comes next), for each stream and place, (S, R)."""
        hidden_SRK = shared_dropout(hidden_SRK, self.settings.output_dropout, self.training)
        streams, rows, _ = hidden_SRK.shape
        return -F.cross_entropy(
            self.logits(hidden_SRK).flatten(0, 1),
            places.targets_R.repeat(streams),
            reduction="none",
        ).view(streams, rows)


class ReadPair(nn.Module):
    """The encoder of the sequence-to-sequence baseline: a GRU reads start, then end.

    Its record has one step and no lookups, so that all that reads records reads this one too.
    """

    def __init__(self, size: int, settings: PathsSettings) -> None:
        super().__init__()
        self.cell = Controller(size, settings.embedding_dim)
        self.encoder = Encoder(settings.embedding_dim, settings)

    def forward(self, starts_BK: Tensor, ends_BK: Tensor) -> Inference:
        state_BH = starts_BK.new_zeros(len(starts_BK), self.cell.cell.hidden_size)
        for node_BK in (starts_BK, ends_BK):
            state_BH = self.cell(state_BH, self.cell.input_gates(self.encoder(node_BK)))
        no_logit_TB = state_BH.new_zeros(1, len(state_BH))
        no_lookup_LBM = state_BH.new_zeros(0, len(state_BH), 0)
        states_TBH = state_BH[None]
        return Inference(states_TBH, no_lookup_LBM, no_logit_TB, no_logit_TB, states_TBH)


class Reading(NamedTuple):
    """What the network was asked while a batch of paths was read, and the paths' probabilities."""

    inference: Inference  # of P questions: one for each path, or one for each of its places
    log_p_TP: Tensor  # log p(what is right | o_t)
    path_P: Tensor


class PathsModel(nn.Module):
    """A decoder that writes paths, and the network that it asks: once, or at each place."""

    def __init__(self, num_nodes: int, settings: PathsSettings) -> None:
        super().__init__()
        self.settings = settings
        self.num_nodes = num_nodes
        self.asks_once = settings.lookups == "once" or settings.system == "seq2seq"
        size, nodes = settings.decoder_size, settings.embedding_dim
        self.network: nn.Module
        if settings.system == "seq2seq":
            size = settings.seq2seq_size or like_size(num_nodes, settings)
            self.network = ReadPair(size, settings)
        elif self.asks_once:
            pair = Encoder(2 * nodes, settings)
            self.network = Network(pair, FirstHidden(2 * nodes, size), 2 * nodes, settings)
        else:
            self.network = Network(Encoder(size, settings), nn.Identity(), size, settings)
        self.aim = None if self.asks_once else FirstHidden(nodes, size)
        self.decoder = PathDecoder(num_nodes, size, settings)
        self.own_nodes = None if settings.tie_nodes else node_table(num_nodes, settings)

    def ask(self, starts_B: Tensor, ends_B: Tensor) -> Inference:
        """The network's record of [start, end], for a network that is asked once."""
        nodes = self.own_nodes or self.decoder.nodes
        record: Inference = self.network(nodes(starts_B), nodes(ends_B))
        return record

    def ask_next(self, hidden_RK: Tensor) -> Inference:
        """The network's record of what comes next, for a network that is asked at each place."""
        record: Inference = self.network(hidden_RK)
        return record

    def aim_at(self, ends_B: Tensor) -> Tensor:
        """Where the decoder starts from when it asks at each place: its end, (1, B, K)."""
        assert self.aim is not None
        nodes = self.own_nodes or self.decoder.nodes
        first_BK: Tensor = self.aim(nodes(ends_B))
        return first_BK[None]

    def read(self, batch: Batch) -> Reading:
        """The probabilities of the batch's paths, by teacher forcing."""
        if not self.asks_once:
            places = self.decoder.along(self.aim_at(batch.ends_B), batch)
            inference = self.ask_next(places.hidden_SRK[0])
            log_p_TR = self.decoder.log_p(inference.outputs_TBK, places)
            return Reading(inference, log_p_TR, places.path_R)
        inference = self.ask(batch.starts_B, batch.ends_B)
        places = self.decoder.along(inference.outputs_TBK, batch)
        log_p_TR = self.decoder.log_p(places.hidden_SRK, places)
        log_p_TB = log_p_TR.new_zeros(inference.log_stop_weights_TB.shape)
        log_p_TB = log_p_TB.index_add(1, places.path_R, log_p_TR)
        return Reading(inference, log_p_TB, torch.arange(log_p_TB.shape[1], device=log_p_TB.device))

    def loss(self, batch: Batch) -> Loss:
        """The objective over the batch's paths: reward 1 only if the whole path is right."""
        reading = self.read(batch)
        log_stop_TP = reading.inference.log_stop_weights_TB
        return objective(log_stop_TP, reading.log_p_TP, self.settings, reading.path_P)

    def constrain(self, touched: dict[nn.Parameter, Tensor]) -> None:
        """Nothing is constrained here."""

    def num_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.parameters())


def like_size(num_nodes: int, settings: PathsSettings) -> int:
    """The GRU size at which the baseline has about as many parameters as the network."""

    def parameters(system: str, size: int = 0) -> int:
        changed = settings.model_copy(update={"system": system, "seq2seq_size": size})
        with torch.device("meta"):
            return PathsModel(num_nodes, changed).num_parameters()

    goal = parameters("ekgn")
    low, high = 1, 2
    while parameters("seq2seq", high) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if parameters("seq2seq", middle) < goal else (low, middle)
    return low if goal - parameters("seq2seq", low) < parameters("seq2seq", high) - goal else high
