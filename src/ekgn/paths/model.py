"""Encoder and decoder of shortest path synthesis, around the network.

Shape letters, beside those of ekgn.network: L places in a path, N nodes, S = N + 1 symbols (the
nodes and the end symbol), R (path, place) pairs of a batch, W paths kept by a beam search.
"""

from __future__ import annotations

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
    """s_1 = [start ; end], two node vectors (then normalised and dropped out, if set)."""

    def __init__(self, settings: PathsSettings) -> None:
        super().__init__()
        self.norm = first_state_norm(settings.first_norm, 2 * settings.embedding_dim)
        self.dropout = nn.Dropout(settings.input_dropout)

    def forward(self, starts_BK: Tensor, ends_BK: Tensor) -> Tensor:
        first: Tensor = self.dropout(self.norm(torch.cat([starts_BK, ends_BK], dim=1)))
        return first


class FirstHidden(nn.Module):
    """o_t = tanh(W_o s_t + b_o): where the path decoder starts from at step t."""

    def __init__(self, state_size: int, decoder_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(state_size, decoder_size)

    def forward(self, states_TBH: Tensor) -> Tensor:
        return torch.tanh(self.output(states_TBH))


class Cell(Controller):
    """The controller's GRU cell, with inputs of another size than its state."""

    def __init__(self, input_size: int, state_size: int) -> None:
        nn.Module.__init__(self)
        self.cell = nn.GRUCell(input_size, state_size)


class PathDecoder(nn.Module):
    """A GRU that emits the intermediate nodes one by one, then the end symbol.

    The first input is the start node, so that every input is the node the path has reached.
    """

    def __init__(self, num_nodes: int, decoder_size: int, settings: PathsSettings) -> None:
        super().__init__()
        size = settings.embedding_dim
        self.settings = settings
        self.tied = settings.tie_nodes
        self.nodes = node_table(num_nodes, settings)
        self.cell = Cell(size * (1 + settings.decoder_sees_end), decoder_size)
        self.context: nn.Linear | None = None
        if settings.decoder_sees_state:
            self.context = nn.Linear(decoder_size, 3 * decoder_size, bias=False)
        self.output = nn.Linear(decoder_size, size) if self.tied else nn.Identity()
        self.symbols_SK = nn.Parameter(
            torch.empty(1 if self.tied else num_nodes + 1, size if self.tied else decoder_size)
        )
        nn.init.normal_(self.symbols_SK, std=0.1)
        self.bias_S = nn.Parameter(torch.zeros(num_nodes + 1))

    def input_gates(self, before: Tensor, ends: Tensor) -> Tensor:
        """The inputs' share of the gates: of the node before and, if set, the end node."""
        inputs = self.nodes(before)
        if self.settings.decoder_sees_end:
            inputs = torch.cat([inputs, self.nodes(ends)], dim=-1)
        inputs = F.dropout(inputs, self.settings.decoder_dropout, self.training)
        return self.cell.input_gates(inputs)

    def context_gates(self, first: Tensor) -> Tensor:
        """The share of o_t in the gates of every place; 0 if the decoder only starts from it."""
        gates: Tensor = first.new_zeros(1) if self.context is None else self.context(first)
        return gates

    def logits(self, hidden: Tensor) -> Tensor:
        """The score of each symbol: the nodes, then the end symbol."""
        table_SK = torch.cat([self.nodes.weight, self.symbols_SK]) if self.tied else self.symbols_SK
        return F.linear(self.output(hidden), table_SK, self.bias_S)

    def log_p(self, first_TBK: Tensor, batch: Batch) -> Tensor:
        """log p(whole path | o_t) for each step and path, by teacher forcing, (T, B)."""
        steps, paths, size = first_TBK.shape
        gates_BLG = self.input_gates(
            batch.inputs_BL, batch.ends_B[:, None].expand_as(batch.inputs_BL)
        )
        ones_1BK = first_TBK.new_ones(1, paths, size)
        keep_BK = shared_dropout(ones_1BK, self.settings.output_dropout, self.training)[0]
        hidden_BTK = first_TBK.transpose(0, 1)
        context_BTG = self.context_gates(hidden_BTK)
        outputs = []
        for place, count in enumerate(batch.active):
            gates_BTG = gates_BLG[:count, place, None] + context_BTG[:count]
            gates_BTG = gates_BTG.expand(-1, steps, -1)
            hidden = hidden_BTK[:count].reshape(count * steps, size)
            hidden = self.cell(hidden, gates_BTG.reshape(count * steps, -1))
            hidden_BTK = hidden.view(count, steps, size)
            outputs.append(hidden_BTK * keep_BK[:count, None])
        places = list(enumerate(batch.active))
        targets_R = torch.cat([batch.targets_BL[:count, place] for place, count in places])
        everyone_B = torch.arange(paths, device=first_TBK.device)
        path_R = torch.cat([everyone_B[:count] for count in batch.active])
        log_p_RT = -F.cross_entropy(
            self.logits(torch.cat(outputs)).flatten(0, 1),
            targets_R.repeat_interleave(steps),
            reduction="none",
        ).view(-1, steps)
        return log_p_RT.new_zeros(paths, steps).index_add(0, path_R, log_p_RT).T


class ReadPair(nn.Module):
    """The encoder of the sequence-to-sequence baseline: a GRU reads start, then end.

    Its record has one step and no lookups, so that all that reads records reads this one too.
    """

    def __init__(self, size: int, settings: PathsSettings) -> None:
        super().__init__()
        self.cell = Cell(settings.embedding_dim, size)
        self.norm = first_state_norm(settings.first_norm, settings.embedding_dim)
        self.dropout = nn.Dropout(settings.input_dropout)

    def forward(self, starts_BK: Tensor, ends_BK: Tensor) -> Inference:
        state_BH = starts_BK.new_zeros(len(starts_BK), self.cell.cell.hidden_size)
        for node_BK in (starts_BK, ends_BK):
            inputs_BK = self.dropout(self.norm(node_BK))
            state_BH = self.cell(state_BH, self.cell.input_gates(inputs_BK))
        no_logit_TB = state_BH.new_zeros(1, len(state_BH))
        no_lookup_LBM = state_BH.new_zeros(0, len(state_BH), 0)
        states_TBH = state_BH[None]
        return Inference(states_TBH, no_lookup_LBM, no_logit_TB, no_logit_TB, states_TBH)


class PathsModel(nn.Module):
    """What reads [start, end] into an inference record, and the decoder that writes paths."""

    def __init__(self, num_nodes: int, settings: PathsSettings) -> None:
        super().__init__()
        self.settings = settings
        self.num_nodes = num_nodes
        if settings.system == "seq2seq":
            size = settings.seq2seq_size or like_size(num_nodes, settings)
            self.network: nn.Module = ReadPair(size, settings)
        else:
            size = settings.decoder_size
            state_size = 2 * settings.embedding_dim
            self.network = Network(
                Encoder(settings), FirstHidden(state_size, size), state_size, settings
            )
        self.decoder = PathDecoder(num_nodes, size, settings)
        self.own_nodes = None if settings.tie_nodes else node_table(num_nodes, settings)

    def forward(self, starts_B: Tensor, ends_B: Tensor) -> Inference:
        """The complete record of answering [start, end] for a batch."""
        nodes = self.decoder.nodes if self.own_nodes is None else self.own_nodes
        record: Inference = self.network(nodes(starts_B), nodes(ends_B))
        return record

    def loss(self, batch: Batch) -> Loss:
        """The objective over the batch's paths: reward 1 only if the whole path is right."""
        inference = self(batch.starts_B, batch.ends_B)
        log_p_TB = self.decoder.log_p(inference.outputs_TBK, batch)
        return objective(inference.log_stop_weights_TB, log_p_TB, self.settings)

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
