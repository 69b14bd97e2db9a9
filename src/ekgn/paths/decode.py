"""Writing paths at test time: greedy or beam search, from one step or a mixture of steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ekgn.network.inference import step_weights
from ekgn.paths.graphs import NO_NODE, PathsData
from ekgn.paths.model import PathsModel

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
    """The state of a search: W paths for each of B queries, in S streams of the decoder."""

    hidden_SBWK: Tensor
    log_p_SBW: Tensor  # log of (weight of the stream · p(path so far | stream))
    nodes_BWL: Tensor  # start, n_1, n_2, ...; a finished path repeats its last node
    steps_BW: Tensor  # sum of the network's steps over the symbols so far
    finished_BW: Tensor


class Next(NamedTuple):
    """What may come next for W paths of each of B queries."""

    hidden_SBWK: Tensor
    log_p: Tensor  # of each symbol, (S, B, W, N + 1)
    step_BW: Tensor  # the network's step that it comes from


class FromOnce:
    """The network was asked once: a stream from the output of the chosen step, or from each."""

    def __init__(self, model: PathsModel, starts_B: Tensor, ends_B: Tensor, rule: str) -> None:
        assert model.decoder is not None
        self.decoder, self.symbols = model.decoder, model.symbols
        inference = model(starts_B, ends_B)
        weights_TB = step_weights(inference, rule)
        self.step_B = weights_TB.argmax(dim=0) + 1
        if rule == "mixture":
            self.first_SBK, self.log_weights_SB = inference.outputs_TBK, weights_TB.log()
        else:
            self.first_SBK = chosen(inference.outputs_TBK, weights_TB)[None]
            self.log_weights_SB = self.first_SBK.new_zeros(1, len(starts_B))

    def __call__(self, hidden_SBWK: Tensor, last_BW: Tensor) -> Next:
        """One step of the decoder along each path."""
        before = hidden_SBWK.flatten(1, 2)
        hidden = self.decoder(before, self.symbols.nodes(last_BW.flatten())).view_as(hidden_SBWK)
        log_p = self.symbols.logits(hidden).log_softmax(dim=-1)
        return Next(hidden, log_p, self.step_B[:, None].expand_as(last_BW))


class FromEach:
    """The network is asked at each place: its steps are chosen or mixed there."""

    def __init__(self, model: PathsModel, ends_B: Tensor, rule: str) -> None:
        self.model, self.ends_B, self.rule = model, ends_B, rule
        self.first_SBK = model.symbols.bias_S.new_zeros(1, len(ends_B), 0)
        self.log_weights_SB = self.first_SBK.new_zeros(1, len(ends_B))

    def __call__(self, hidden_SBWK: Tensor, last_BW: Tensor) -> Next:
        """The network's answers to [the node reached, the end]."""
        ends_BW = self.ends_B[:, None].expand_as(last_BW)
        inference = self.model(last_BW.flatten(), ends_BW.flatten())
        weights_TR = step_weights(inference, self.rule)
        if self.rule == "mixture":
            log_p_TRS = self.model.symbols.logits(inference.outputs_TBK).log_softmax(dim=-1)
            log_p_RS = torch.logsumexp(log_p_TRS + weights_TR.log()[..., None], dim=0)
        else:
            output_RK = chosen(inference.outputs_TBK, weights_TR)
            log_p_RS = self.model.symbols.logits(output_RK).log_softmax(dim=-1)
        step_BW = (weights_TR.argmax(dim=0) + 1).view_as(last_BW)
        return Next(hidden_SBWK, log_p_RS.view(1, *last_BW.shape, -1), step_BW)


def chosen(outputs_TBK: Tensor, weights_TB: Tensor) -> Tensor:
    """The output of the step of most weight, (B, K)."""
    everyone_B = torch.arange(weights_TB.shape[1], device=weights_TB.device)
    return outputs_TBK[weights_TB.argmax(dim=0), everyone_B]


def answer(
    model: PathsModel, starts_B: Tensor, ends_B: Tensor, emit: Emit, rule: str, width: int
) -> Answers:
    """The path for each query, by the test-time rule: from one step's output, or their mixture.

    A beam search for the likeliest path; width 1 is greedy decoding.
    """
    source: FromOnce | FromEach
    if model.decoder is None:
        source = FromEach(model, ends_B, rule)
    else:
        source = FromOnce(model, starts_B, ends_B, rule)
    queries = len(starts_B)
    log_p_SBW = source.log_weights_SB.new_full((*source.log_weights_SB.shape, width), -torch.inf)
    log_p_SBW[:, :, 0] = source.log_weights_SB
    beams = Beams(
        source.first_SBK[:, :, None].expand(-1, -1, width, -1),
        log_p_SBW,
        starts_B[:, None, None].expand(-1, width, 1),
        torch.zeros(queries, width, dtype=torch.long, device=starts_B.device),
        torch.zeros(queries, width, dtype=torch.bool, device=starts_B.device),
    )
    for _ in range(emit.most_nodes):
        beams = _advance(source, beams, ends_B, emit)
        if beams.finished_BW.all():
            break
    paths_BL = _with_ends(beams.nodes_BWL[:, 0], ends_B)
    symbols_B = (paths_BL != NO_NODE).sum(dim=1) - 1
    step_B = (beams.steps_BW[:, 0] / symbols_B).round().long()
    return Answers(paths_BL, torch.logsumexp(beams.log_p_SBW[:, :, 0], dim=0), step_B)


def _advance(source: FromOnce | FromEach, beams: Beams, ends_B: Tensor, emit: Emit) -> Beams:
    """Every path by one symbol, then the best W of all."""
    last_BW = beams.nodes_BWL[:, :, -1]
    following = source(beams.hidden_SBWK, last_BW)
    log_p = following.log_p + FORBIDDEN * emit.forbidden(beams.nodes_BWL, ends_B)
    end = log_p.shape[-1] - 1
    only_end = F.one_hot(torch.tensor(end, device=last_BW.device), end + 1).bool()
    stay = torch.where(only_end, 0.0, -torch.inf)
    log_p = torch.where(beams.finished_BW[..., None], stay, log_p) + beams.log_p_SBW[..., None]
    best_BW = torch.logsumexp(log_p, dim=0).flatten(1).topk(last_BW.shape[1], dim=1).indices
    origin_BW, symbol_BW = best_BW // (end + 1), best_BW % (end + 1)
    query_B1 = torch.arange(len(ends_B), device=last_BW.device)[:, None]
    finished_BW = symbol_BW == end
    node_BW = torch.where(finished_BW, last_BW[query_B1, origin_BW], symbol_BW)
    steps_BW = beams.steps_BW + torch.where(beams.finished_BW, 0, following.step_BW)
    return Beams(
        following.hidden_SBWK[:, query_B1, origin_BW],
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
