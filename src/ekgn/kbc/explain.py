"""Why an answer: each lookup step of one query in names, and the training facts beside its path.

Everything here is read from the record that the forward pass returns. A state s_t is put into words
by the observed pairs [entity, relation] whose own state of the same step is nearest to it (L2
distance over all pairs of the training facts, both directions). The paper's Table 2 compares with
their first states; after a lookup states lie so far from those that what is nearest says little.

Shape letters: T steps, M memory slots, H state size, N entities, Q observed pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ekgn.config import parse_readout
from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.memory_map import MemoryMap, memory_map
from ekgn.kbc.model import KbcModel
from ekgn.kbc.rules import Evidence, Rules, evidence, in_words
from ekgn.kbc.words import NO_RULES, fact_in_words, listing, question_in_words, relation_name
from ekgn.network.inference import Inference, step_weights

SPLITS = ("train", "valid", "test")
DRAWN = 512  # pairs of questions, to say how far two of them typically are
PAIR_CHUNK = 32_768  # observed pairs encoded at once
KEPT_BYTES = 2**30  # states of more pairs than this are made again for each question


@dataclass(frozen=True)
class Name:
    """An entity in words."""

    id: str
    label: str
    description: str


@dataclass(frozen=True)
class SlotAttention:
    """How much of a lookup went to one memory vector, and what that vector stands for."""

    slot: int
    weight: float
    theme: str


@dataclass(frozen=True)
class NearPair:
    """An observed pair near a state, with what training knows as its answers."""

    head: Name
    relation: str  # inverse relations are marked with a leading ^
    distance: float
    far: float  # the same as a share of the run's typical distance
    answers: list[Name]  # up to five; the target (or else the given answer) first if it is there
    answer_count: int
    holds_answer: bool  # the target, or else the given answer, is among all its known answers

    @property
    def question(self) -> str:
        """The pair as the small question it is: “France borders ?”"""
        return question_in_words(self.head.label, self.relation)


@dataclass(frozen=True)
class StepAnswer:
    """One answer of one step."""

    rank: int  # among all entities, known answers included
    id: str
    label: str
    share: float
    known: str | None  # the split that holds the fact, if one does


@dataclass(frozen=True)
class Step:
    """One step: does it stop, where does it look, where is it, what would it answer."""

    number: int
    stop_probability: float  # v_t
    stop_weight: float  # q_t
    attention: list[SlotAttention]  # strongest first; none at the last step, without a lookup
    attention_all: list[float]
    nearest: list[NearPair]
    answers: list[StepAnswer]
    target_rank: float | None  # filtered, ties count half


@dataclass(frozen=True)
class Explanation:
    """One query from its first state to its answer."""

    head: Name
    relation: str
    question: str
    target: Name | None
    target_known: str | None  # the split that holds the fact, if one does
    readout: str
    typical_distance: float  # the median between two questions of training
    answering_step: int  # for the mixture, the step of most weight
    steps: list[Step]
    answers: list[StepAnswer]  # what the readout answers
    target_rank: float | None
    evidence: list[Evidence]  # rules with their training facts; none where no rules were mined
    reasons: list[str]


class Explainer:
    """Explains answers of one trained model; what is the same for all queries is made once."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        model: KbcModel,
        known: Mapping[str, Answers],
        rules: Rules | None = None,
    ) -> None:
        self.graph = graph
        self.model = model
        self.known = known
        self.rules = rules
        self._device = model.answers.weight.device

    @cached_property
    def memory(self) -> MemoryMap:
        """What each memory vector is used for."""
        return memory_map(self.graph, self.model, self.known["train"])

    def prepare(self) -> None:
        """Do now what the first question would otherwise wait for."""
        _ = self._kept_states
        if self.model.settings.reads_memory:
            _ = self.memory.themes

    @torch.no_grad()
    def explain(
        self,
        head: int,
        relation: int,
        target: int | None = None,
        top: int = 5,
        nearest: int = 3,
        readout: str | None = None,
    ) -> Explanation:
        """Every step of answering [head, relation, ?], by index (relation + R is the inverse)."""
        self._check(head, relation, target, top, nearest)
        readout = readout or self.model.settings.readout
        view = _View(self, head, relation, target, top)
        record = self.model(*view.query)
        chosen = int(step_weights(record, readout)[:, 0].argmax()) + 1
        is_mixture = parse_readout(readout, len(record.states_TBH))[0] == "mixture"
        final_N = self._shares(view, record, "mixture" if is_mixture else f"step:{chosen}")
        answers = view.answers(final_N)
        subject = target if target is not None else int(final_N.argmax())
        pairs = self._nearest(record.states_TBH[:, 0], nearest, subject)
        steps = [self._step(view, record, step, pairs[step]) for step in range(len(pairs))]
        explanation = Explanation(
            head=self.name(head),
            relation=self.relation(relation),
            question=question_in_words(self.name(head).label, self.relation(relation)),
            target=None if target is None else self.name(target),
            target_known=view.target_known,
            readout=readout,
            typical_distance=self.typical_distance,
            answering_step=chosen,
            steps=steps,
            answers=answers,
            target_rank=view.target_rank(final_N),
            evidence=evidence(self.rules, head, relation, subject) if self.rules else [],
            reasons=[],
        )
        label = self.graph.entities.labels[subject]
        explanation.reasons.extend(
            in_words(explanation.evidence, label) if self.rules else [NO_RULES]
        )
        explanation.reasons.extend(self._reasons(explanation, head, relation, subject))
        return explanation

    def name(self, entity: int) -> Name:
        """An entity in words."""
        names = self.graph.entities
        return Name(names.ids[entity], names.labels[entity], names.descriptions[entity])

    def relation(self, relation: int) -> str:
        """A relation in words; inverses are marked with a leading ^."""
        return relation_name(self.graph, relation)

    def _check(self, head: int, relation: int, target: int | None, top: int, near: int) -> None:
        entities, relations = self.graph.num_entities, 2 * self.graph.num_relations
        for what, index, size in (
            ("head", head, entities),
            ("relation", relation, relations),
            ("target", 0 if target is None else target, entities),
        ):
            if not 0 <= index < size:
                raise EkgnError(
                    f"There is no {what} {index} in {self.graph.name}: expected 0 to {size - 1}."
                )
        if top < 1 or near < 1:
            raise EkgnError(
                f"top = {top}, nearest = {near}: ask for at least one answer and one pair."
            )

    def _shares(self, view: _View, record: Inference, readout: str) -> Tensor:
        """p(y | o_t), or the mixture of them, over all entities."""
        scores_BN = self.model.scores(record, readout)
        return scores_BN[0].softmax(dim=0)

    def _step(self, view: _View, record: Inference, step: int, pairs: list[NearPair]) -> Step:
        shares_N = self._shares(view, record, f"step:{step + 1}")
        attention: list[float] = []
        if step < len(record.attention_LBM):
            attention = record.attention_LBM[step, 0].tolist()
        order = sorted(range(len(attention)), key=lambda slot: -attention[slot])
        themes = self.memory.themes if attention else []
        return Step(
            number=step + 1,
            stop_probability=float(record.stop_probabilities_TB[step, 0]),
            stop_weight=float(record.log_stop_weights_TB[step, 0].exp()),
            attention=[SlotAttention(i, attention[i], themes[i]) for i in order[: view.top]],
            attention_all=attention,
            nearest=pairs,
            answers=view.answers(shares_N),
            target_rank=view.target_rank(shares_N),
        )

    @cached_property
    def typical_distance(self) -> float:
        """The median distance of two questions of training, over pairs drawn by seed."""
        pairs = self.known["train"]
        drawn = np.random.default_rng(0).integers(len(pairs), size=2 * DRAWN)
        with torch.no_grad():
            states = self.model.first_states(
                torch.from_numpy(pairs.heads[drawn]).to(self._device),
                torch.from_numpy(pairs.relations[drawn]).to(self._device),
            )
        found = (states[:DRAWN] - states[DRAWN:]).norm(dim=1).median()
        return max(float(found), 1e-12)

    @cached_property
    def _kept_states(self) -> list[tuple[Tensor, Tensor]]:
        """The states of all observed pairs, in chunks; none when there are too many."""
        network = self.model.network
        if 4 * network.max_steps * network.state_size * len(self.known["train"]) > KEPT_BYTES:
            return []
        return list(self._encoded())

    def _encoded(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The states of the observed pairs by step, (T, chunk, H) each, and their squared norms."""
        pairs = self.known["train"]
        for start in range(0, len(pairs), PAIR_CHUNK):
            chunk = slice(start, start + PAIR_CHUNK)
            states_TQH = self.states(pairs.heads[chunk], pairs.relations[chunk])
            yield states_TQH, torch.linalg.vector_norm(states_TQH, dim=2).square()

    @torch.no_grad()
    def states(self, heads: Ints, relations: Ints) -> Tensor:
        """The states of some queries by step, (T, Q, H)."""
        query = (torch.from_numpy(part).to(self._device) for part in (heads, relations))
        states_TQH: Tensor = self.model(*query).states_TBH
        return states_TQH

    def nearest_pairs(self, states_TH: Tensor, count: int) -> tuple[Ints, Tensor]:
        """The observed pairs nearest to each state: rows of the train answers, L2 distances.

        Each is compared with the states of its own step, the first state with first ones.
        |a - b|² = |a|² - 2ab + |b|² finds some candidates with one product; their distances are
        then taken from the differences, since the expansion loses digits where pairs are near.
        """
        spare, steps = count + 8, len(states_TH)
        squares: list[Tensor] = []
        rows: list[Tensor] = []
        states: list[Tensor] = []
        start = 0
        for all_TQH, square_TQ in self._kept_states or self._encoded():
            states_TQH = all_TQH[:steps]
            products_TQ = torch.stack(
                [mine_QH @ state_H for mine_QH, state_H in zip(states_TQH, states_TH, strict=True)]
            )
            found_TQ = square_TQ[:steps] - 2 * products_TQ
            size = states_TQH.shape[1]
            best = found_TQ.topk(min(spare, size), dim=1, largest=False)
            squares.append(best.values)
            rows.append(best.indices + start)
            states.append(states_TQH[torch.arange(steps)[:, None], best.indices])
            start += size
        keep = torch.cat(squares, dim=1).topk(min(spare, start), dim=1, largest=False).indices
        rows_TQ = torch.cat(rows, dim=1).gather(1, keep)
        near_TQH = torch.cat(states, dim=1)[torch.arange(len(keep))[:, None], keep]
        distances_TQ = (near_TQH - states_TH[:, None]).norm(dim=2)
        best = distances_TQ.topk(min(count, start), dim=1, largest=False)
        return rows_TQ.gather(1, best.indices).cpu().numpy(), best.values

    def _nearest(self, states_TH: Tensor, count: int, subject: int) -> list[list[NearPair]]:
        """The nearest observed pairs of each state, in words."""
        rows_TQ, distances_TQ = self.nearest_pairs(states_TH, count)
        return [
            [self._pair(int(row), float(d), subject) for row, d in zip(rows, near, strict=True)]
            for rows, near in zip(rows_TQ, distances_TQ, strict=True)
        ]

    def _pair(self, row: int, distance: float, subject: int) -> NearPair:
        pairs = self.known["train"]
        answers = pairs.tails[pairs.offsets[row] : pairs.offsets[row + 1]].tolist()
        shown = sorted(answers, key=lambda answer: answer != subject)[:5]
        return NearPair(
            head=self.name(int(pairs.heads[row])),
            relation=self.relation(int(pairs.relations[row])),
            distance=distance,
            far=distance / self.typical_distance,
            answers=[self.name(answer) for answer in shown],
            answer_count=len(answers),
            holds_answer=subject in answers,
        )

    def _reasons(
        self, explanation: Explanation, head: int, relation: int, subject: int
    ) -> list[str]:
        """The explanation in sentences."""
        return [
            *self._what_training_knows(explanation, head, relation, subject),
            *_what_lies_near(explanation, self.name(subject).label),
            *_what_stopping_changes(explanation),
        ]

    def _what_training_knows(
        self, explanation: Explanation, head: int, relation: int, subject: int
    ) -> list[str]:
        """What was seen of this question, its parts, and of head and answer together."""
        train, count = self.known["train"], self.graph.num_relations
        said = []
        if not (train.relations % count == relation % count).any():
            said.append(
                f"Training has no fact of the relation {explanation.relation.removeprefix('^')}: "
                f"its vector was never trained, so this answer is a guess."
            )
        low, high = np.searchsorted(train.heads, [head, head + 1])
        if low == high:
            said.append(
                f"Training has no fact about {explanation.head.label}: "
                f"its vector was never trained, so only the relation speaks."
            )
        own = train.of(head, relation)
        if len(own):
            names = [self.name(int(answer)).label for answer in own[:5]]
            said.append(f"Training answers this very question with {listing(names, len(own))}.")
        between = [
            self._fact(head, int(train.relations[row]), subject)
            for row in range(low, high)
            if subject in train.tails[train.offsets[row] : train.offsets[row + 1]]
            and train.relations[row] != relation
        ]
        if between:
            said.append(f"Training also says: {listing(between[:3], len(between))}.")
        return said

    def _fact(self, head: int, relation: int, answer: int) -> str:
        """The fact that an answer makes of a question."""
        inverse, index = divmod(relation, self.graph.num_relations)
        ends = (answer, head) if inverse else (head, answer)
        return fact_in_words(self.graph, (ends[0], index, ends[1]))


class _View:
    """What the steps of one explanation share: known answers, the target, how many to show."""

    def __init__(
        self, explainer: Explainer, head: int, relation: int, target: int | None, top: int
    ) -> None:
        self.top = top
        device = explainer.model.answers.weight.device
        self.query = torch.tensor([head], device=device), torch.tensor([relation], device=device)
        self._names = explainer.graph.entities
        self._target = target
        of_split = {split: explainer.known[split].of(head, relation) for split in SPLITS}
        self._split_of = {
            int(answer): split for split in reversed(SPLITS) for answer in of_split[split]
        }
        self.target_known = None if target is None else self._split_of.get(target)
        # An entity is not its own answer where no training fact of the relation has that.
        may_be_own = explainer.graph.has_loops[relation] or head in {target, *self._split_of}
        self._left_out = [] if may_be_own else [head]
        # A validation target is ranked as in validation: test answers are not known then.
        in_valid = target in of_split["valid"] and target not in of_split["test"]
        filtering = SPLITS[:2] if in_valid else SPLITS
        others = np.concatenate([of_split[split] for split in filtering])
        self._others = torch.from_numpy(others[others != (-1 if target is None else target)])

    def answers(self, shares_N: Tensor) -> list[StepAnswer]:
        """The most probable answers; the target follows them with its place if it is not there."""
        shares_N = shares_N.clone()
        shares_N[self._left_out] = -1.0
        order = shares_N.topk(min(self.top, len(shares_N) - len(self._left_out))).indices.tolist()
        places = list(enumerate(order, 1))
        if self._target is not None and self._target not in order:
            above = int((shares_N > shares_N[self._target]).sum())
            places.append((above + 1, self._target))
        return [
            StepAnswer(
                rank=place,
                id=self._names.ids[index],
                label=self._names.labels[index],
                share=float(shares_N[index]),
                known=self._split_of.get(index),
            )
            for place, index in places
        ]

    def target_rank(self, scores_N: Tensor) -> float | None:
        """The target's rank among the entities that are not known answers; ties count half."""
        if self._target is None:
            return None
        counted_N = torch.ones_like(scores_N, dtype=torch.bool)
        counted_N[self._others.to(scores_N.device)] = False
        counted_N[self._target] = False
        limit = scores_N[self._target]
        above = int((scores_N[counted_N] > limit).sum())
        equal = int((scores_N[counted_N] == limit).sum())
        return 1 + above + equal / 2


def _what_lies_near(explanation: Explanation, subject: str) -> list[str]:
    """The training facts nearest to the state that answered, and whether they hold the answer."""
    pairs = [
        pair
        for pair in explanation.steps[explanation.answering_step - 1].nearest
        if (pair.head, pair.relation) != (explanation.head, explanation.relation)
    ]
    if not pairs:
        return []
    first = pairs[0]
    names = [name.label for name in first.answers]
    said = (
        f"When it answers, the nearest other question of training is {first.question} "
        f"(at {first.far:.0%} of the distance of two typical questions), answered there with "
        f"{listing(names, first.answer_count)}."
    )
    holding = [pair.question for pair in pairs if pair.holds_answer]
    near = "the one other question" if len(pairs) == 1 else f"the {len(pairs)} other questions"
    if not holding:
        return [said, f"{subject} is not among the known answers of {near} near it."]
    return [
        said,
        f"{subject} is a known answer of {listing(holding, len(holding))}: "
        f"{len(holding)} of {near} near it.",
    ]


def _what_stopping_changes(explanation: Explanation) -> list[str]:
    """What the steps before the answering one would have answered."""
    final, last = explanation.answers[0], explanation.answering_step
    said = []
    earlier = explanation.steps[: last - 1]
    changed = [step for step in earlier if step.answers[0].id != final.id]
    if not earlier:
        said.append("It stops at the first step: nothing was looked up for this answer.")
    elif not changed:
        shares = _percents([step.answers[0].share for step in earlier])
        is_same = set(shares.split(", ")) == {f"{final.share:.1%}"}
        with_share = "" if is_same else f", with {shares} instead of {final.share:.1%}"
        said.append(f"Stopped at any earlier step it would also say {final.label}{with_share}.")
    for label in dict.fromkeys(step.answers[0].label for step in changed):
        same = [step for step in changed if step.answers[0].label == label]
        said.append(
            f"Stopped at step {listing([str(step.number) for step in same], len(same), 'or')} it "
            f"would say {label} ({_percents([step.answers[0].share for step in same])}) "
            f"instead of {final.label}."
        )
    beyond = [step for step in explanation.steps[last:] if step.answers[0].id != final.id]
    if beyond:
        said.append(
            f"Run on to step {beyond[0].number} it would say {beyond[0].answers[0].label} "
            f"({beyond[0].answers[0].share:.1%}) instead of {final.label}."
        )
    if explanation.target and explanation.target_rank is not None:
        ranks = ", ".join(f"{step.target_rank:g}" for step in explanation.steps)
        said.append(
            f"{explanation.target.label} ranks {explanation.target_rank:g} in the answer "
            f"(by step: {ranks})."
        )
    return said


def _percents(shares: list[float]) -> str:
    return ", ".join(f"{share:.1%}" for share in shares)
