"""What the steps buy, over a whole split: when it stops, what changes, what no memory would do.

The forward pass is run once and its record asked again with other readouts; only the network
without memory, whose attention is the same for all queries, is a run of its own.

Shape letters: T steps, L = T - 1 lookups, Q distinct queries, P (query, answer) pairs, M slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.memory_map import groups_of, replay
from ekgn.kbc.model import KbcModel
from ekgn.kbc.ranking import (
    CATEGORIES,
    Metrics,
    Ranks,
    Scorer,
    filter_answers,
    rank_split,
)
from ekgn.kbc.summary import relation_categories
from ekgn.kbc.words import relation_name
from ekgn.network.inference import Inference
from ekgn.network.network import Memory

Floats = NDArray[np.float64]
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class StopProfile:
    """When a group of queries stops."""

    name: str
    queries: int
    answering: list[float]  # share of the queries whose step of most weight is 1, 2, ... T_max
    weights: list[float]  # mean q_t
    early: float  # share of the queries whose step of most weight comes before T_max
    expected_step: float  # mean of Σ t q_t


@dataclass(frozen=True)
class RelationProfile:
    """When one relation stops, how peaked its attention is, what the steps do to its ranks."""

    stop: StopProfile
    category: str
    effective_slots: float | None  # exp of the mean entropy; None when nothing is looked up
    first_hits_at_10: float
    hits_at_10: float


@dataclass(frozen=True)
class LookupProfile:
    """How peaked the attention of one lookup is, over all queries."""

    step: int
    entropy: float  # nats; ln M when it looks everywhere
    effective_slots: float  # exp of the entropy
    largest: float  # mean of the largest weight


@dataclass(frozen=True)
class Changes:
    """What the steps change, as shares: of the queries, and of the (query, answer) pairs."""

    any_step: float  # the top answer is not the same at all steps
    first_to_answer: float  # the top answer is not the same at step 1 and in the answer
    improved: float  # the true answer ranks better in the answer than at step 1
    worsened: float


@dataclass(frozen=True)
class Analysis:
    """The questions that were asked about the inside, answered for one split."""

    graph: str
    split: str
    readout: str
    max_steps: int
    num_slots: int
    queries: int
    triples: int
    stop: StopProfile
    by_category: list[StopProfile]
    by_relation: list[RelationProfile]  # the most frequent first
    lookups: list[LookupProfile]
    changes: Changes
    metrics: dict[str, Metrics]  # by readout; step:N is N fixed steps without the gate
    oracle: Metrics  # of each answer's best step: what a perfect gate would reach
    no_memory: dict[str, Metrics]  # the same with the attention replaced by its mean

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def overall(self) -> dict[str, Any]:
        """Plain values for a record: all but the part by relation, which is most of the size."""
        return asdict(replace(self, by_relation=[]))

    def in_words(self) -> list[str]:
        """What matters most, in sentences."""
        answer, first = self.metrics[self.readout], self.metrics["step:1"]
        said = [
            f"{self.stop.early:.1%} of the queries stop before step {self.max_steps}.",
            f"The top answer changes over the steps for {self.changes.any_step:.1%} of them, "
            f"and from the first step to the answer for {self.changes.first_to_answer:.1%}.",
            f"From the first step to the answer, the true answer's rank gets better in "
            f"{self.changes.improved:.1%} of the cases and worse in {self.changes.worsened:.1%}; "
            f"hits@10 goes from {first.hits_at_10:.1%} to {answer.hits_at_10:.1%}; with each "
            f"answer's best step it would be {self.oracle.hits_at_10:.1%}.",
        ]
        if self.no_memory:
            said.append(
                f"With the same attention for every query, hits@10 would be "
                f"{self.no_memory[self.readout].hits_at_10:.1%}."
            )
        return said


class Replay:
    """The forward record of a split's queries, ready to be asked with any readout."""

    def __init__(self, model: KbcModel, queries: Answers, memory: Memory | None = None) -> None:
        self.model = model
        self.queries = queries
        parts: list[Inference] = []
        entropy, largest = [], []
        total_M: Tensor | float = 0.0
        for _, record in replay(model, queries.heads, queries.relations, memory):
            attention_LQM = record.attention_LBM
            entropy.append(torch.special.entr(attention_LQM).sum(dim=2))
            largest.append(attention_LQM.amax(dim=2) if attention_LQM.numel() else entropy[-1])
            total_M = total_M + attention_LQM.sum(dim=(0, 1))
            # The states and the attention of a whole split would be large; nobody asks for them.
            parts.append(
                record._replace(
                    states_TBH=record.states_TBH[:, :, :0], attention_LBM=attention_LQM[:, :, :0]
                )
            )
        self.record = Inference(*(torch.cat(part, dim=1) for part in zip(*parts, strict=True)))
        self.entropy_LQ = torch.cat(entropy, dim=1).cpu().numpy()
        self.largest_LQ = torch.cat(largest, dim=1).cpu().numpy()
        lookups = max(1, model.settings.max_steps - 1)
        self.mean_attention_M = torch.as_tensor(total_M) / (lookups * len(queries))

    @property
    def stop_weights_TQ(self) -> Floats:
        """q_t of every query."""
        weights: Floats = self.record.log_stop_weights_TB.double().exp().cpu().numpy()
        return weights

    def scorer(self, readout: str, top_answers_Q: Ints | None = None) -> Scorer:
        """The recorded network as a scorer; it also notes each query's top answer, if asked."""

        @torch.no_grad()
        def scores(heads: Ints, relations: Ints) -> Tensor:
            rows = self.queries.rows(heads, relations)
            at = torch.from_numpy(rows).to(self.record.outputs_TBK.device)
            chosen = Inference(*(part.index_select(1, at) for part in self.record))
            scores_BN = self.model.scores(chosen, readout)
            if top_answers_Q is not None:
                top_answers_Q[rows] = scores_BN.argmax(dim=1).cpu().numpy()
            return scores_BN

        return scores


class SameForAll:
    """A memory that gives every query the same attention: what is read tells nothing of it."""

    def __init__(self, attention_M: Tensor, memory: Memory) -> None:
        self._attention_M, self.read = attention_M, memory.read

    def attend(self, states_BH: Tensor) -> Tensor:
        return self._attention_M.expand(len(states_BH), -1)


def analyze(
    graph: KnowledgeGraph,
    model: KbcModel,
    split: str = "valid",
    *,
    readout: str | None = None,
    limit: int = 0,
    on_progress: OnProgress | None = None,
) -> Analysis:
    """Everything about the inside over a split (over `limit` of its triples, drawn by the seed)."""
    known, drawn = (
        filter_answers(graph, split),
        drawn_graph(graph, split, limit, model.settings.seed),
    )
    readout, steps = readout or model.settings.readout, model.settings.max_steps
    readouts = list(
        dict.fromkeys([readout, "argmax", "mixture", *(f"step:{n + 1}" for n in range(steps))])
    )
    passes = len(readouts) + 2 * model.settings.reads_memory

    def rank(replayed: Replay, name: str, top_answers: Ints | None = None) -> Ranks:
        torch.manual_seed(model.settings.seed)
        scores = replayed.scorer(name, top_answers)
        ranks = rank_split(scores, drawn, split, known=known)
        if on_progress:
            on_progress(1, passes)
        return ranks

    replayed = Replay(model, Answers(drawn.split(split), graph.num_relations))
    tops = {name: np.empty(len(replayed.queries), np.int64) for name in readouts}
    ranks = {name: rank(replayed, name, tops[name]) for name in readouts}
    no_memory = {}
    if model.settings.reads_memory:
        same = SameForAll(replayed.mean_attention_M, model.network.memory)
        blind = Replay(model, replayed.queries, same)
        no_memory = {name: _metrics(rank(blind, name)) for name in (readout, f"step:{steps}")}
    return Analysis(
        graph=graph.name,
        split=split,
        readout=readout,
        max_steps=steps,
        num_slots=model.settings.num_slots,
        queries=len(replayed.queries),
        triples=len(drawn.split(split)),
        stop=_profile("all", replayed.stop_weights_TQ),
        by_category=_by_category(graph, replayed),
        by_relation=_by_relation(graph, replayed, ranks["step:1"], ranks[readout]),
        lookups=_lookups(replayed),
        changes=_changes(
            [tops[f"step:{n + 1}"] for n in range(steps)], tops[readout], ranks, readout
        ),
        metrics={name: _metrics(found) for name, found in ranks.items()},
        oracle=oracle([ranks[f"step:{n + 1}"] for n in range(steps)]),
        no_memory=no_memory,
    )


def drawn_graph(graph: KnowledgeGraph, split: str, limit: int, seed: int) -> KnowledgeGraph:
    """The graph with only `limit` triples in the split."""
    triples = graph.split(split)
    if not len(triples):
        raise EkgnError(
            f"{graph.name} has no {split} triples: there is nothing to analyze. "
            f"Choose another --split."
        )
    if limit < 0:
        raise EkgnError(f"limit = {limit}: expected a number of triples, or 0 for all.")
    if not limit or limit >= len(triples):
        return graph
    chosen = np.random.default_rng(seed).choice(len(triples), limit, replace=False)
    only: dict[str, Any] = {split: triples[np.sort(chosen)]}
    return replace(graph, **only)


def oracle(by_step: Sequence[Ranks]) -> Metrics:
    """The metrics of each answer's best step."""
    best = np.min([ranks.realistic for ranks in by_step], axis=0)
    return Metrics.over(best, by_step[0].candidates)


def _metrics(ranks: Ranks) -> Metrics:
    return Metrics.over(ranks.realistic, ranks.candidates)


def _profile(name: str, weights_TQ: Floats) -> StopProfile:
    steps, queries = weights_TQ.shape
    answering = np.bincount(weights_TQ.argmax(axis=0), minlength=steps) / queries
    mean = weights_TQ.mean(axis=1)
    return StopProfile(
        name=name,
        queries=queries,
        answering=answering.tolist(),
        weights=mean.tolist(),
        early=float(1 - answering[-1]),
        expected_step=float(mean @ np.arange(1, steps + 1)),
    )


def _by_category(graph: KnowledgeGraph, replayed: Replay) -> list[StopProfile]:
    """When each category of relation stops, for either missing side."""
    relations = replayed.queries.relations
    category = np.array(relation_categories(graph))[relations % graph.num_relations]
    inverse = relations >= graph.num_relations
    return [
        _profile(f"{kind}, {side} missing", replayed.stop_weights_TQ[:, here])
        for kind in (*CATEGORIES, "unseen")
        for side, of_side in (("head", inverse), ("tail", ~inverse))
        if (here := (category == kind) & of_side).any()
    ]


def _by_relation(
    graph: KnowledgeGraph, replayed: Replay, first: Ranks, answer: Ranks
) -> list[RelationProfile]:
    """Each relation and inverse relation of the split, the one of most queries first."""
    weights_TQ, categories = replayed.stop_weights_TQ, relation_categories(graph)
    pairs_of = {int(answer.relations[p[0]]): p for p in groups_of(answer.relations)}
    profiles = []
    for rows in groups_of(replayed.queries.relations):
        relation = int(replayed.queries.relations[rows[0]])
        pairs = pairs_of[relation]
        entropy_LQ = replayed.entropy_LQ[:, rows]
        profiles.append(
            RelationProfile(
                stop=_profile(relation_name(graph, relation), weights_TQ[:, rows]),
                category=categories[relation % graph.num_relations],
                effective_slots=float(np.exp(entropy_LQ.mean())) if entropy_LQ.size else None,
                first_hits_at_10=float((first.realistic[pairs] <= 10).mean()),
                hits_at_10=float((answer.realistic[pairs] <= 10).mean()),
            )
        )
    return sorted(profiles, key=lambda profile: -profile.stop.queries)


def _lookups(replayed: Replay) -> list[LookupProfile]:
    return [
        LookupProfile(
            step=lookup + 1,
            entropy=float(entropy_Q.mean()),
            effective_slots=float(np.exp(entropy_Q.mean())),
            largest=float(largest_Q.mean()),
        )
        for lookup, (entropy_Q, largest_Q) in enumerate(
            zip(replayed.entropy_LQ, replayed.largest_LQ, strict=True)
        )
    ]


def _changes(
    by_step: Sequence[Ints], answer_Q: Ints, ranks: dict[str, Ranks], readout: str
) -> Changes:
    tops_TQ = np.stack(by_step)
    before, after = ranks["step:1"].realistic, ranks[readout].realistic
    return Changes(
        any_step=float((tops_TQ != tops_TQ[0]).any(axis=0).mean()),
        first_to_answer=float((tops_TQ[0] != answer_Q).mean()),
        improved=float((after < before).mean()),
        worsened=float((after > before).mean()),
    )
