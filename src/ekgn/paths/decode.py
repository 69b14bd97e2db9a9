"""Writing paths at test time: greedy or beam search, from one step or a mixture of steps.

A network that is asked of parts writes paths from either end, and the answer is the path whose
parts it finds likeliest on average: every part of a shortest path is a shortest path.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ekgn.network.inference import Inference, step_weights
from ekgn.paths.batches import lay_out, parts_of
from ekgn.paths.graphs import NO_NODE, Path_, PathsData, plain_path
from ekgn.paths.model import NEXT, PREVIOUS, PathsModel

ASKED = 8192  # questions that are answered at a time
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

    def reversed(self) -> Emit:
        """The same for paths that are written from their end: only edges have a direction."""
        return self._replace(allowed_NN=self.allowed_NN.T) if self.end_needs_edge else self

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
    log_p_B: Tensor  # of the path; of a network that is asked of parts, the mean over them
    step_B: Tensor  # that answers; of a mixture the likeliest; over parts the rounded mean


class Beams(NamedTuple):
    """The state of a search: W paths for each of B queries, in S streams of the decoder."""

    hidden_SBWK: Tensor
    log_p_SBW: Tensor  # log of (weight of the stream · p(path so far | stream))
    nodes_BWL: Tensor  # start, n_1, n_2, ...; a finished path repeats its last node
    finished_BW: Tensor


class Next(NamedTuple):
    """What may come next for W paths of each of B queries."""

    hidden_SBWK: Tensor
    log_p: Tensor  # of each symbol, (S, B, W, N + 1)


class FromOnce:
    """The network was asked once: a stream from the output of the chosen step, or from each."""

    def __init__(self, model: PathsModel, starts_B: Tensor, ends_B: Tensor, readout: str) -> None:
        assert model.decoder is not None
        self.decoder, self.symbols = model.decoder, model.symbols
        inference = model(starts_B, ends_B)
        weights_TB = step_weights(inference, readout)
        self.step_B = weights_TB.argmax(dim=0) + 1
        if readout == "mixture":
            self.first_SBK, self.log_weights_SB = inference.outputs_TBK, weights_TB.log()
        else:
            self.first_SBK = chosen(inference.outputs_TBK, weights_TB)[None]
            self.log_weights_SB = self.first_SBK.new_zeros(1, len(starts_B))

    def __call__(self, hidden_SBWK: Tensor, last_BW: Tensor) -> Next:
        """One step of the decoder along each path."""
        before = hidden_SBWK.flatten(1, 2)
        hidden = self.decoder(before, self.symbols.nodes(last_BW.flatten())).view_as(hidden_SBWK)
        log_p = self.symbols.logits(hidden).log_softmax(dim=-1)
        return Next(hidden, log_p)


class FromParts:
    """The network is asked of what is left of the path: its steps are chosen or mixed there."""

    def __init__(self, model: PathsModel, goals_B: Tensor, readout: str, side: int) -> None:
        self.model, self.goals_B, self.readout, self.side = model, goals_B, readout, side
        self.first_SBK = model.symbols.bias_GS.new_zeros(1, len(goals_B), 0)
        self.log_weights_SB = self.first_SBK.new_zeros(1, len(goals_B))

    def __call__(self, hidden_SBWK: Tensor, last_BW: Tensor) -> Next:
        """The network's answers to [the node reached, the end], or [the start, the node]."""
        ends = (last_BW.flatten(), self.goals_B[:, None].expand_as(last_BW).flatten())
        inference = self.model(*(ends if self.side == NEXT else reversed(ends)))
        weights_TR = step_weights(inference, self.readout)
        log_p_RS = _mixed_log_p(self.model, inference, weights_TR, self.side)
        return Next(hidden_SBWK, log_p_RS.view(1, *last_BW.shape, -1))


Source = FromOnce | FromParts


def _mixed_log_p(model: PathsModel, inference: Inference, weights_TR: Tensor, side: int) -> Tensor:
    """log p of each symbol, (R, S), with the steps weighted: by one of them, or by several."""
    if (weights_TR.amax(dim=0) == 1).all():
        output_RK = chosen(inference.outputs_TBK, weights_TR)
        return model.symbols.logits(output_RK, side).log_softmax(dim=-1)
    log_p_TRS = model.symbols.logits(inference.outputs_TBK, side).log_softmax(dim=-1)
    return torch.logsumexp(log_p_TRS + weights_TR.log()[..., None], dim=0)


def chosen(outputs_TBK: Tensor, weights_TB: Tensor) -> Tensor:
    """The output of the step of most weight, (B, K)."""
    everyone_B = torch.arange(weights_TB.shape[1], device=weights_TB.device)
    return outputs_TBK[weights_TB.argmax(dim=0), everyone_B]


def answer(
    model: PathsModel, starts_B: Tensor, ends_B: Tensor, emit: Emit, readout: str, width: int
) -> Answers:
    """The path for each query, by the test-time readout: from one step's output, or their mixture.

    A beam search for the likeliest path; width 1 is greedy decoding.
    """
    if model.decoder is not None:
        source = FromOnce(model, starts_B, ends_B, readout)
        beams = _search(source, starts_B, ends_B, emit, width)
        log_p_B = torch.logsumexp(beams.log_p_SBW[:, :, 0], dim=0)
        return Answers(_with_ends(beams.nodes_BWL[:, 0], ends_B), log_p_B, source.step_B)
    after = FromParts(model, ends_B, readout, NEXT)
    before = FromParts(model, starts_B, readout, PREVIOUS)
    forth = _search(after, starts_B, ends_B, emit, width)
    back = _search(before, ends_B, starts_B, emit.reversed(), width)
    return _likeliest(model, _paths(forth, ends_B), _paths(back, starts_B), readout)


def _search(source: Source, starts_B: Tensor, ends_B: Tensor, emit: Emit, width: int) -> Beams:
    """The W best paths of a beam search, the best first."""
    queries = len(starts_B)
    log_p_SBW = source.log_weights_SB.new_full((*source.log_weights_SB.shape, width), -torch.inf)
    log_p_SBW[:, :, 0] = source.log_weights_SB
    beams = Beams(
        source.first_SBK[:, :, None].expand(-1, -1, width, -1),
        log_p_SBW,
        starts_B[:, None, None].expand(-1, width, 1),
        torch.zeros(queries, width, dtype=torch.bool, device=starts_B.device),
    )
    for _ in range(emit.most_nodes):
        beams = _advance(source, beams, ends_B, emit)
        if beams.finished_BW.all():
            break
    return beams


def _paths(beams: Beams, ends_B: Tensor) -> list[dict[Path_, bool]]:
    """The paths kept for each query, and whether each keeps to what is allowed."""
    log_p_BW = torch.logsumexp(beams.log_p_SBW, dim=0)
    width = log_p_BW.shape[1]
    rows = _with_ends(beams.nodes_BWL.flatten(0, 1), ends_B.repeat_interleave(width)).tolist()
    paths = map(plain_path, rows)
    allowed = (log_p_BW > FORBIDDEN / 2).flatten().tolist()
    every = list(zip(paths, allowed, strict=True))
    return [dict(every[first : first + width][::-1]) for first in range(0, len(every), width)]


def _likeliest(
    model: PathsModel, forth: list[dict[Path_, bool]], back: list[dict[Path_, bool]], readout: str
) -> Answers:
    """Of the paths written from either end, the one whose parts are likeliest on average."""
    written = [
        ahead | {path[::-1]: allowed for path, allowed in behind.items()}
        for ahead, behind in zip(forth, back, strict=True)
    ]
    log_p, steps = part_means(model, list({path for paths in written for path in paths}), readout)
    best = [max(paths, key=lambda path: (paths[path], log_p[path])) for paths in written]
    rows = [torch.tensor(path) for path in best]
    paths_BL = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=NO_NODE)
    device = model.symbols.bias_GS.device
    return Answers(
        paths_BL.to(device),
        torch.tensor([log_p[path] for path in best], device=device),
        torch.tensor([steps[path] for path in best], device=device).round().long(),
    )


def part_means(
    model: PathsModel, paths: list[Path_], readout: str
) -> tuple[dict[Path_, float], dict[Path_, float]]:
    """The means over each path's parts: of log p of both answers, and of the step they come from.

    Paths share most of their parts, so the network is asked of each pair of nodes once.
    """
    paths = sorted(paths, key=len, reverse=True)
    device = model.symbols.bias_GS.device
    parts = parts_of(lay_out(paths, model.num_nodes).to(device), model.num_nodes)
    pairs_U, pair_P = torch.unique(parts.from_P * model.num_nodes + parts.to_P, return_inverse=True)
    sums = torch.zeros(3, len(paths), device=device)
    for first in range(0, len(pairs_U), ASKED):
        asked_Q = pairs_U[first : first + ASKED]
        part_P = torch.nonzero((pair_P >= first) & (pair_P < first + ASKED))[:, 0]
        question_P = pair_P[part_P] - first
        inference = model(asked_Q // model.num_nodes, asked_Q % model.num_nodes)
        weights_TQ = step_weights(inference, readout)
        after_QS, before_QS = (
            _mixed_log_p(model, inference, weights_TQ, side) for side in (NEXT, PREVIOUS)
        )
        log_p_P = after_QS[question_P, parts.next_P[part_P]]
        log_p_P += before_QS[question_P, parts.previous_P[part_P]]
        step_P = (weights_TQ.argmax(dim=0) + 1.0)[question_P]
        found = torch.stack([log_p_P, step_P, torch.ones_like(step_P)])
        sums.index_add_(1, parts.path_P[part_P], found)
    log_p, steps = (sums[:2] / sums[2]).tolist()
    return dict(zip(paths, log_p, strict=True)), dict(zip(paths, steps, strict=True))


def _advance(source: Source, beams: Beams, ends_B: Tensor, emit: Emit) -> Beams:
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
    return Beams(
        following.hidden_SBWK[:, query_B1, origin_BW],
        log_p[:, query_B1, origin_BW, symbol_BW],
        torch.cat([beams.nodes_BWL[query_B1, origin_BW], node_BW[:, :, None]], dim=2),
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
