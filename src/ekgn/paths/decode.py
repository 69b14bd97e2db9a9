"""Writing paths at test time: greedy or beam search, from one step or a mixture of steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ekgn.network.inference import Inference, step_weights
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
    step_B: Tensor  # 1 to T_max; for a mixture the likeliest stop


class Beams(NamedTuple):
    """The state of a search: W paths for each of B queries."""

    hidden_TBWK: Tensor
    log_p_TBW: Tensor  # log of (weight of the step · p(path so far | step))
    nodes_BWL: Tensor  # start, n_1, n_2, ...; a finished path repeats its last node
    finished_BW: Tensor


def answer(
    model: PathsModel,
    inference: Inference,
    starts_B: Tensor,
    ends_B: Tensor,
    emit: Emit,
    rule: str,
    width: int,
) -> Answers:
    """The path for each query, by the test-time rule: from one step's output, or their mixture."""
    weights_TB = step_weights(inference, rule)
    step_B = weights_TB.argmax(dim=0)
    if rule == "mixture":
        first_TBK, log_weights_TB = inference.outputs_TBK, weights_TB.log()
    else:
        everyone_B = torch.arange(len(step_B), device=step_B.device)
        first_TBK = inference.outputs_TBK[step_B, everyone_B][None]
        log_weights_TB = first_TBK.new_zeros(1, len(step_B))
    nodes_BL, log_p_B = search(
        model.decoder, first_TBK, log_weights_TB, starts_B, ends_B, emit, width
    )
    return Answers(_with_ends(nodes_BL, ends_B), log_p_B, step_B + 1)


def search(
    decoder: PathDecoder,
    first_TBK: Tensor,
    log_weights_TB: Tensor,
    starts_B: Tensor,
    ends_B: Tensor,
    emit: Emit,
    width: int,
) -> tuple[Tensor, Tensor]:
    """Beam search for the paths of largest Σ_t q_t p_t; width 1 is greedy decoding."""
    steps, queries, _ = first_TBK.shape
    log_p_TBW = torch.full((steps, queries, width), -torch.inf, device=first_TBK.device)
    log_p_TBW[:, :, 0] = log_weights_TB
    beams = Beams(
        first_TBK[:, :, None].expand(-1, -1, width, -1),
        log_p_TBW,
        starts_B[:, None, None].expand(-1, width, 1),
        torch.zeros(queries, width, dtype=torch.bool, device=first_TBK.device),
    )
    context_TBG = decoder.context_gates(first_TBK)
    for _ in range(emit.most_nodes):
        beams = _advance(decoder, beams, context_TBG, ends_B, emit)
        if beams.finished_BW.all():
            break
    return beams.nodes_BWL[:, 0], torch.logsumexp(beams.log_p_TBW[:, :, 0], dim=0)


def _advance(
    decoder: PathDecoder, beams: Beams, context_TBG: Tensor, ends_B: Tensor, emit: Emit
) -> Beams:
    """Every path by one symbol, then the best W of all."""
    steps, queries, width, size = beams.hidden_TBWK.shape
    last_BW = beams.nodes_BWL[:, :, -1]
    gates_BWG = decoder.input_gates(last_BW, ends_B[:, None].expand_as(last_BW))
    gates_TBWG = (gates_BWG + context_TBG[..., None, :]).expand(steps, queries, width, -1)
    hidden_TBWK = decoder.cell(
        beams.hidden_TBWK.reshape(-1, size), gates_TBWG.reshape(-1, 3 * size)
    ).view(beams.hidden_TBWK.shape)
    log_p_TBWS = decoder.logits(hidden_TBWK).log_softmax(dim=-1)
    log_p_TBWS += FORBIDDEN * emit.forbidden(beams.nodes_BWL, ends_B)
    end = log_p_TBWS.shape[-1] - 1
    only_end_S = F.one_hot(torch.tensor(end, device=last_BW.device), end + 1).bool()
    stay_S = torch.where(only_end_S, 0.0, -torch.inf)
    log_p_TBWS = torch.where(beams.finished_BW[..., None], stay_S, log_p_TBWS)
    log_p_TBWS = log_p_TBWS + beams.log_p_TBW[..., None]
    best_BW = torch.logsumexp(log_p_TBWS, dim=0).flatten(1).topk(width, dim=1).indices
    origin_BW, symbol_BW = best_BW // (end + 1), best_BW % (end + 1)
    query_B1 = torch.arange(queries, device=last_BW.device)[:, None]
    finished_BW = symbol_BW == end
    node_BW = torch.where(finished_BW, last_BW[query_B1, origin_BW], symbol_BW)
    return Beams(
        hidden_TBWK[:, query_B1, origin_BW],
        log_p_TBWS[:, query_B1, origin_BW, symbol_BW],
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
