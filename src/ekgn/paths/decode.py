"""Writing paths at test time: greedy or beam search, from one step or a mixture of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ekgn.network.inference import step_weights
from ekgn.paths.graphs import NO_NODE, PathsData
from ekgn.paths.model import PathDecoder, PathsModel

# Finite, so that a search which has only forbidden ways left still ends in some path.
FORBIDDEN = -1e4


class Emit(NamedTuple):
    """What may be emitted, from what was seen in training; the hidden graph is not known here."""

    allowed_NN: Tensor  # whether a node may follow another
    end_needs_edge: bool  # whether the last node and the end must be such a pair too
    most_nodes: int

    @classmethod
    def of(cls, data: PathsData, kind: str) -> Emit:
        """The setting `emit`: any, seen_nodes or seen_edges."""
        nodes = data.graph.num_nodes
        if kind == "seen_edges":
            allowed_NN = torch.from_numpy(data.seen_edges)
        elif kind == "seen_nodes":
            allowed_NN = torch.from_numpy(data.seen_nodes).expand(nodes, nodes)
        else:
            allowed_NN = torch.ones(nodes, nodes, dtype=torch.bool)
        return cls(allowed_NN, kind == "seen_edges", max(map(len, data.train)))

    def forbidden(self, nodes_BWL: Tensor, ends_B: Tensor) -> Tensor:
        """Which symbols may not come next, (B, W, S).

        By the rules of the task: a node twice, the end node itself, an empty answer.
        """
        last_BW = nodes_BWL[:, :, -1]
        bad_BWN = ~self.allowed_NN[last_BW]
        bad_BWN.scatter_(2, nodes_BWL, True)
        bad_BWN.scatter_(2, ends_B[:, None, None].expand(*last_BW.shape, 1), True)
        if nodes_BWL.shape[2] == 1:
            no_end_BW = torch.ones_like(last_BW, dtype=torch.bool)
        elif self.end_needs_edge:
            no_end_BW = ~self.allowed_NN[last_BW, ends_B[:, None]]
        else:
            no_end_BW = torch.zeros_like(last_BW, dtype=torch.bool)
        return torch.cat([bad_BWN, no_end_BW[:, :, None]], dim=2)


class Answers(NamedTuple):
    """Paths for B queries, both ends included, filled up with -1."""

    paths_BL: Tensor
    log_p_B: Tensor
    step_B: Tensor  # 1 to T_max; for a mixture the likeliest stop; rounded, where places differ


class Beams(NamedTuple):
    """The state of a search: W paths for each of B queries, read by S streams of the decoder."""

    hidden_SBWK: Tensor
    log_p_SBW: Tensor  # log of (weight of the stream · p(path so far | stream))
    nodes_BWL: Tensor  # start, n_1, n_2, ...; a finished path repeats its last node
    steps_BW: Tensor  # sum of the network's steps over the symbols so far
    finished_BW: Tensor


Symbols = Callable[[Tensor], tuple[Tensor, Tensor]]
"""hidden (S, B, W, K) -> log p of the symbols, and the step each answer comes from, (B, W)."""


def answer(
    model: PathsModel, starts_B: Tensor, ends_B: Tensor, emit: Emit, rule: str, width: int
) -> Answers:
    """The path for each query, by the test-time rule: from one step's output, or their mixture."""
    first_SBK, log_weights_SB, symbols = (
        _asked_once(model, starts_B, ends_B, rule)
        if model.asks_once
        else _asked_at_each_place(model, ends_B, rule)
    )
    beams = _search(
        model.decoder, symbols, first_SBK, log_weights_SB, starts_B, ends_B, emit, width
    )
    nodes_BL = beams.nodes_BWL[:, 0]
    paths_BL = _with_ends(nodes_BL, ends_B)
    symbols_B = (paths_BL != NO_NODE).sum(dim=1) - 1
    step_B = (beams.steps_BW[:, 0] / symbols_B).round().long()
    return Answers(paths_BL, torch.logsumexp(beams.log_p_SBW[:, :, 0], dim=0), step_B)


def _asked_once(
    model: PathsModel, starts_B: Tensor, ends_B: Tensor, rule: str
) -> tuple[Tensor, Tensor, Symbols]:
    """A stream from the output of the chosen step, or one from each step."""
    inference = model.ask(starts_B, ends_B)
    weights_TB = step_weights(inference, rule)
    step_B = weights_TB.argmax(dim=0)
    if rule == "mixture":
        first_SBK, log_weights_SB = inference.outputs_TBK, weights_TB.log()
    else:
        everyone_B = torch.arange(len(step_B), device=step_B.device)
        first_SBK = inference.outputs_TBK[step_B, everyone_B][None]
        log_weights_SB = first_SBK.new_zeros(1, len(step_B))

    def symbols(hidden_SBWK: Tensor) -> tuple[Tensor, Tensor]:
        step_BW = (step_B + 1)[:, None].expand(hidden_SBWK.shape[1:3])
        return model.decoder.logits(hidden_SBWK).log_softmax(dim=-1), step_BW

    return first_SBK, log_weights_SB, symbols


def _asked_at_each_place(
    model: PathsModel, ends_B: Tensor, rule: str
) -> tuple[Tensor, Tensor, Symbols]:
    """One stream; at each place the network's steps are chosen or mixed."""
    first_SBK = model.aim_at(ends_B)

    def symbols(hidden_SBWK: Tensor) -> tuple[Tensor, Tensor]:
        inference = model.ask_next(hidden_SBWK.flatten(0, 2))
        weights_TR = step_weights(inference, rule)
        step_R = weights_TR.argmax(dim=0)
        if rule == "mixture":
            log_p_TRS = model.decoder.logits(inference.outputs_TBK).log_softmax(dim=-1)
            log_p_RS = torch.logsumexp(log_p_TRS + weights_TR.log()[..., None], dim=0)
        else:
            rows_R = torch.arange(len(step_R), device=step_R.device)
            chosen_RK = inference.outputs_TBK[step_R, rows_R]
            log_p_RS = model.decoder.logits(chosen_RK).log_softmax(dim=-1)
        shape = hidden_SBWK.shape[:3]
        return log_p_RS.view(*shape, -1), (step_R + 1).view(shape)[0]

    return first_SBK, first_SBK.new_zeros(first_SBK.shape[:2]), symbols


def _search(
    decoder: PathDecoder,
    symbols: Symbols,
    first_SBK: Tensor,
    log_weights_SB: Tensor,
    starts_B: Tensor,
    ends_B: Tensor,
    emit: Emit,
    width: int,
) -> Beams:
    """Beam search for the likeliest paths; width 1 is greedy decoding."""
    streams, queries, _ = first_SBK.shape
    log_p_SBW = torch.full((streams, queries, width), -torch.inf, device=first_SBK.device)
    log_p_SBW[:, :, 0] = log_weights_SB
    beams = Beams(
        first_SBK[:, :, None].expand(-1, -1, width, -1),
        log_p_SBW,
        starts_B[:, None, None].expand(-1, width, 1),
        torch.zeros(queries, width, dtype=torch.long, device=first_SBK.device),
        torch.zeros(queries, width, dtype=torch.bool, device=first_SBK.device),
    )
    for _ in range(emit.most_nodes):
        beams = _advance(decoder, symbols, beams, ends_B, emit)
        if beams.finished_BW.all():
            break
    return beams


def _advance(
    decoder: PathDecoder, symbols: Symbols, beams: Beams, ends_B: Tensor, emit: Emit
) -> Beams:
    """Every path by one symbol, then the best W of all."""
    streams, queries, width, size = beams.hidden_SBWK.shape
    last_BW = beams.nodes_BWL[:, :, -1]
    gates_SBWG = decoder.input_gates(last_BW).expand(streams, -1, -1, -1)
    hidden_SBWK = decoder.cell(
        beams.hidden_SBWK.reshape(-1, size), gates_SBWG.reshape(-1, 3 * size)
    ).view(beams.hidden_SBWK.shape)
    log_p, step_BW = symbols(hidden_SBWK)
    log_p = log_p + FORBIDDEN * emit.forbidden(beams.nodes_BWL, ends_B)
    end = log_p.shape[-1] - 1
    only_end = F.one_hot(torch.tensor(end, device=last_BW.device), end + 1).bool()
    stay = torch.where(only_end, 0.0, -torch.inf)
    log_p = torch.where(beams.finished_BW[..., None], stay, log_p) + beams.log_p_SBW[..., None]
    best_BW = torch.logsumexp(log_p, dim=0).flatten(1).topk(width, dim=1).indices
    origin_BW, symbol_BW = best_BW // (end + 1), best_BW % (end + 1)
    query_B1 = torch.arange(queries, device=last_BW.device)[:, None]
    finished_BW = symbol_BW == end
    node_BW = torch.where(finished_BW, last_BW[query_B1, origin_BW], symbol_BW)
    steps_BW = beams.steps_BW + torch.where(beams.finished_BW, 0, step_BW)
    return Beams(
        hidden_SBWK[:, query_B1, origin_BW],
        log_p[:, query_B1, origin_BW, symbol_BW],
        torch.cat([beams.nodes_BWL[query_B1, origin_BW], node_BW[:, :, None]], dim=2),
        steps_BW[query_B1, origin_BW],
        finished_BW,
    )


def _with_ends(nodes_BL: Tensor, ends_B: Tensor) -> Tensor:
    """Start and intermediate nodes, then the end node, then -1."""
    # A node is never emitted twice, so a repeated one marks the places after the end.
    repeated_BL = nodes_BL[:, 1:] == nodes_BL[:, :-1]
    none_B1 = torch.full_like(nodes_BL[:, :1], NO_NODE)
    paths_BL = torch.cat([nodes_BL.clone(), none_B1], dim=1)
    paths_BL[:, 1:-1][repeated_BL] = NO_NODE
    paths_BL.scatter_(1, (paths_BL != NO_NODE).sum(dim=1, keepdim=True), ends_B[:, None])
    return paths_BL
