"""Encoder and decoder of shortest path synthesis, around the network.

Shape letters, beside those of ekgn.network: L places in a path, N nodes, P parts of the paths of a
batch, R (path, place) pairs of it, W paths kept by a beam search, G sides of a part; S streams of
the decoder, or last N + 1 symbols (the nodes and the end symbol).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.network import gru
from ekgn.network.controller import Controller
from ekgn.network.inference import Inference
from ekgn.network.layers import Dropout
from ekgn.network.network import Network
from ekgn.network.objective import Loss, objective
from ekgn.paths.batches import Batch, parts_of
from ekgn.paths.settings import PathsSettings

NEXT, PREVIOUS = 0, 1  # the sides of a part to go on from: its start, its end


def node_table(num_nodes: int, settings: PathsSettings) -> nn.Embedding:
    """New node vectors."""
    table = nn.Embedding(num_nodes, settings.embedding_dim)
    nn.init.normal_(table.weight, std=settings.init_scale)
    return table


class Encoder(nn.Module):
    """s_1: the vectors of a question side by side; normalised and dropped out, if set."""

    def __init__(self, state_size: int, settings: PathsSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(state_size) if settings.first_norm == "layer" else nn.Identity()
        self.dropout = Dropout(settings.input_dropout)

    def forward(self, *vectors_BK: Tensor) -> Tensor:
        first: Tensor = self.dropout(self.norm(torch.cat(vectors_BK, dim=1)))
        return first


class FirstHidden(nn.Module):
    """tanh(W s + b): where the path decoder starts from."""

    def __init__(self, input_size: int, decoder_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(input_size, decoder_size)

    def forward(self, states: Tensor, *query: Tensor) -> Tensor:
        return torch.tanh(self.output(states))


class States(nn.Module):
    """The states themselves, where the symbols are scored by them."""

    def forward(self, states: Tensor, *query: Tensor) -> Tensor:
        return states


class Symbols(nn.Module):
    """What may come next, a node or the end symbol: vectors to score them by, and nodes to read.

    With tied nodes, one table does both. Each of the sides to go on from, the start and the end of
    a part, has its own output and end symbol.
    """

    def __init__(
        self, num_nodes: int, input_size: int, settings: PathsSettings, sides: int
    ) -> None:
        super().__init__()
        size = settings.embedding_dim
        self.dropout = Dropout(settings.output_dropout)
        self.tied = settings.tie_nodes
        self.nodes = node_table(num_nodes, settings)
        self.outputs = nn.ModuleList(
            nn.Linear(input_size, size) if self.tied else nn.Identity() for _ in range(sides)
        )
        own = (1, size) if self.tied else (num_nodes + 1, input_size)
        self.symbols_GSK = nn.Parameter(torch.empty(sides, *own))
        nn.init.normal_(self.symbols_GSK, std=0.1)
        self.bias_GS = nn.Parameter(torch.zeros(sides, num_nodes + 1))

    def table(self, side: int) -> Tensor:
        """The vector of each symbol: the nodes, then the end symbol."""
        own_SK = self.symbols_GSK[side]
        return torch.cat([self.nodes.weight, own_SK]) if self.tied else own_SK

    def logits(self, vectors: Tensor, side: int = NEXT) -> Tensor:
        """The score of each symbol."""
        return F.linear(self.outputs[side](vectors), self.table(side), self.bias_GS[side])

    def log_p(self, vectors_TRK: Tensor, targets_R: Tensor, side: int) -> Tensor:
        """log p of the symbol that is right, for each step and question."""
        vectors_TRK = self.dropout(vectors_TRK)
        steps, rows, _ = vectors_TRK.shape
        logits = self.logits(vectors_TRK, side).flatten(0, 1)
        loss = F.cross_entropy(logits, targets_R.repeat(steps), reduction="none")
        return -loss.view(steps, rows)


class PathDecoder(nn.Module):
    """A GRU that goes along a path, in a stream from each of several first states.

    The first input is the start node, so that every input is the node the path has reached.
    """

    def __init__(self, decoder_size: int, settings: PathsSettings) -> None:
        super().__init__()
        self.dropout = settings.decoder_dropout
        self.cell = Controller(decoder_size, settings.embedding_dim)

    def forward(self, hidden_SBK: Tensor, nodes_BK: Tensor) -> Tensor:
        """The hidden states after one more node."""
        streams, rows, size = hidden_SBK.shape
        inputs_BK = F.dropout(nodes_BK, self.dropout, self.training)
        gates_SBG = gru.input_gates(self.cell.cell, inputs_BK).expand(streams, -1, -1)
        states_RH, gates_RG = hidden_SBK.reshape(-1, size), gates_SBG.reshape(streams * rows, -1)
        after = gru.step(self.cell.cell, states_RH, gates_RG)
        return after.view(hidden_SBK.shape)


def one_step(state_BH: Tensor) -> Inference:
    """A record of one step and no lookups, so that all that reads records reads this one too."""
    no_logit_TB = state_BH.new_zeros(1, len(state_BH))
    no_lookup_LBM = state_BH.new_zeros(0, len(state_BH), 0)
    states_TBH = state_BH[None]
    return Inference(states_TBH, no_lookup_LBM, no_logit_TB, no_logit_TB, states_TBH)


class ReadPair(nn.Module):
    """The encoder of the sequence-to-sequence baseline: a GRU reads start, then end."""

    def __init__(self, size: int, settings: PathsSettings) -> None:
        super().__init__()
        self.cell = Controller(size, settings.embedding_dim)
        self.encoder = Encoder(settings.embedding_dim, settings)

    def forward(self, starts_BK: Tensor, ends_BK: Tensor) -> Inference:
        state_BH = starts_BK.new_zeros(len(starts_BK), self.cell.cell.hidden_size)
        for node_BK in (starts_BK, ends_BK):
            state_BH = self.cell(state_BH, self.encoder(node_BK))
        return one_step(state_BH)


class Reading(NamedTuple):
    """What the network was asked while a batch of paths was read, and the paths' probabilities."""

    inference: Inference  # of P questions: one for each path, or one for each of its parts
    log_p_TP: Tensor  # log p(what is right | o_t)
    path_P: Tensor


class PathsModel(nn.Module):
    """The network, asked once for where a path decoder starts, or of each part what goes on.

    The baseline's GRUs have so many `cells`; 0: as many parameters as the network.
    """

    def __init__(self, num_nodes: int, settings: PathsSettings, cells: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.num_nodes = num_nodes
        pair, size, sides = 2 * settings.embedding_dim, settings.decoder_size, 1
        self.decoder: PathDecoder | None = None
        self.network: nn.Module
        if settings.system == "seq2seq":
            size = cells or like_size(num_nodes, settings)
            self.network = ReadPair(size, settings)
            self.decoder = PathDecoder(size, settings)
        elif settings.lookups == "once":
            encoder = Encoder(pair, settings)
            self.network = Network(encoder, FirstHidden(pair, size), pair, settings)
            self.decoder = PathDecoder(size, settings)
        else:
            size, sides = pair, 2
            self.network = Network(Encoder(pair, settings), States(), pair, settings)
        if isinstance(self.network, Network) and settings.controller == "gru":
            nn.init.constant_(self.network.termination.gate.bias, settings.stop_bias)
        self.symbols = Symbols(num_nodes, size, settings, sides)
        self.own_nodes = None if settings.tie_nodes else node_table(num_nodes, settings)

    def forward(self, starts_B: Tensor, ends_B: Tensor) -> Inference:
        """The network's record of [start, end], of a whole path or of a part of it."""
        nodes = self.own_nodes or self.symbols.nodes
        record: Inference = self.network(nodes(starts_B), nodes(ends_B))
        return record

    def read(self, batch: Batch) -> Reading:
        """The probabilities of the batch's paths, by teacher forcing."""
        if self.decoder is None:
            return self._read_parts(batch)
        return self._read_places(self.decoder, batch)

    def _read_parts(self, batch: Batch) -> Reading:
        """The network is asked of every part; it is right if both of its answers are."""
        parts = parts_of(batch, self.num_nodes)
        inference = self(parts.from_P, parts.to_P)
        outputs_TPK = inference.outputs_TBK
        after_TP = self.symbols.log_p(outputs_TPK, parts.next_P, NEXT)
        before_TP = self.symbols.log_p(outputs_TPK, parts.previous_P, PREVIOUS)
        return Reading(inference, after_TP + before_TP, parts.path_P)

    def _read_places(self, decoder: PathDecoder, batch: Batch) -> Reading:
        """The network is asked once, and the decoder goes along the path from each of its steps."""
        everyone_B = torch.arange(len(batch.starts_B), device=batch.starts_B.device)
        places = list(enumerate(batch.active))
        targets_R = torch.cat([batch.targets_BL[:count, place] for place, count in places])
        path_R = torch.cat([everyone_B[:count] for count in batch.active])
        inference = self(batch.starts_B, batch.ends_B)
        hidden_TBK, hidden = inference.outputs_TBK, []
        for place, count in places:
            nodes_BK = self.symbols.nodes(batch.nodes_BL[:count, place])
            hidden_TBK = decoder(hidden_TBK[:, :count], nodes_BK)
            hidden.append(hidden_TBK)
        log_p_TR = self.symbols.log_p(torch.cat(hidden, dim=1), targets_R, NEXT)
        log_p_TB = log_p_TR.new_zeros(inference.log_stop_weights_TB.shape)
        log_p_TB = log_p_TB.index_add(1, path_R, log_p_TR)
        return Reading(inference, log_p_TB, everyone_B)

    def loss(self, batch: Batch, done: float = 1.0) -> Loss:
        """The objective over the batch's paths: reward 1 only if the whole path is right."""
        reading = self.read(batch)
        log_stop_TP = reading.inference.log_stop_weights_TB
        return objective(log_stop_TP, reading.log_p_TP, self.settings, reading.path_P)

    def constrain(self, touched: dict[Tensor, Tensor | None]) -> None:
        """Nothing is constrained here."""

    def num_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.parameters())


def like_size(num_nodes: int, settings: PathsSettings) -> int:
    """The GRU size at which the baseline has about as many parameters as the network."""

    def parameters(system: str, cells: int = 0) -> int:
        changed = settings.model_copy(update={"system": system})
        with torch.device("meta"):
            return PathsModel(num_nodes, changed, cells).num_parameters()

    goal = parameters("ekgn")
    low, high = 1, 2
    while parameters("seq2seq", high) < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if parameters("seq2seq", middle) < goal else (low, middle)
    return low if goal - parameters("seq2seq", low) < parameters("seq2seq", high) - goal else high
