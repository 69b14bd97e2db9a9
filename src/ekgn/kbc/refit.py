"""The row of an entity as a function of its facts: fitted again with everything else frozen.

Over a product, training minimises for each fact, in both directions, -log p(answer | o_1) and the
N3 penalty. As a function of one row x, with all other vectors at rest, that is

    the entity's questions    Σ log Σ_n exp(o(x) · y_n) - o(x) · answer      o(x) = x ∘ r
    questions it answers      Σ log (Z + exp(o · x)) - o · x                 Z: of all others
    questions it does not     Σ log (Z + exp(o · x))
    penalty                   Σ |x|³, twice a fact

which is convex but for the entity's own place among its candidates. The first two are over all
entities, unless there are more than CANDIDATES: then a seeded sample of them stands for all. The
third is over a seeded sample of the training questions, weighted to stand for all.

Shape letters: E cases, F facts, Q distinct questions of the cases, S sampled questions, K size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Ints, with_inverses
from ekgn.kbc.descent import minimise
from ekgn.kbc.model import KbcModel
from ekgn.kbc.partition import Candidates, Workspace, log_partition
from ekgn.kbc.products import cubes, product
from ekgn.machine import without_denormals

CANDIDATES = 2**16
QUESTIONS = 4096  # training questions that stand for those an entity does not answer
SCORES = 2**25  # scores held at once
ITERATIONS = 60
TOLERANCE = 0.01  # of the gradient at the start
NEW = -1


class Case(NamedTuple):
    """A row to fit: of an entity of the table, or NEW, by facts that have it as their head.

    `facts` are rows of relation, other entity; relation + R is the inverse.
    """

    entity: int
    facts: Ints


def facts_of(triples: Ints, entity: int, num_relations: int) -> Ints:
    """The facts of an entity, seen from it: rows of relation, other entity."""
    touching = triples[(triples[:, 0] == entity) | (triples[:, 2] == entity)]
    both = with_inverses(touching, num_relations)
    seen: Ints = both[both[:, 0] == entity][:, 1:]
    return seen


class Refit:
    """Fits rows of one model; what is the same for all rows is made once."""

    def __init__(self, model: KbcModel, train: Ints, seed: int = 0) -> None:
        if not model.settings.has_product:
            raise EkgnError(
                "The row of an entity can be fitted again where the first answer is a product "
                "(first_answer complex, distmult or rescal): this run has the paper's "
                "concatenation, whose heads and answers have tables of their own."
            )
        self.model = model
        self._train = train
        self.rows_NK = model.entities.weight
        self.relations_2R = model.relations.weight
        self.count = len(model.relations) // 2
        # As training weighs them: -log p of the one step counts step_loss times more.
        self.penalty = model.settings.penalty / (1 + model.settings.step_loss)
        self._random = np.random.default_rng(seed)
        self._workspace = Workspace()
        self._everyone = self._candidates()
        self.others = self._sampled_questions()

    def rows(
        self,
        cases: Sequence[Case],
        start_EK: Tensor | None = None,
        tolerance: float = TOLERANCE,
    ) -> Tensor:
        """The fitted rows, (E, K), from the given start or the mean of all rows.

        A case without facts stays at its start: nothing is known of it. A fact of an entity with
        itself is left out.
        """
        if start_EK is None:
            start_EK = self.rows_NK.mean(dim=0).expand(len(cases), -1)
        found = start_EK.clone()
        candidates = len(self._everyone.vectors_NK) + len(self.others.log_z_S)
        plain = [Case(case.entity, case.facts[case.facts[:, 1] != case.entity]) for case in cases]
        with without_denormals():
            for chunk in _chunks(plain, candidates, self.rows_NK.shape[1]):
                problem = _Problem(self, [plain[place] for place in chunk])
                found[chunk] = minimise(problem.losses, found[chunk], ITERATIONS, tolerance)
        return found

    def pulls(self, row: Tensor, direction: Tensor, entity: int, facts: Ints) -> Tensor:
        """How much each fact of an entity holds its row up along a direction, (F,).

        Minus the derivative of the fact's own loss: what its removal takes from the gradient.
        """
        size = max(1, SCORES // len(self._everyone.vectors_NK))
        parts = [facts[at : at + size] for at in range(0, len(facts), size)]
        return torch.cat([self._pulls(row, direction, entity, part) for part in parts])

    def _pulls(self, row: Tensor, direction: Tensor, entity: int, facts: Ints) -> Tensor:
        without = np.full(len(facts), entity)
        outputs = self.products(row.expand(len(facts), -1), facts[:, 0]).requires_grad_()
        with torch.enable_grad():
            totals = self.log_totals(outputs, without)
            (expected,) = torch.autograd.grad(totals.sum(), outputs)
        turned = self.products(direction.expand(len(facts), -1), facts[:, 0])
        answers = self.rows_NK[torch.from_numpy(facts[:, 1])]
        asked = (turned * (answers - expected)).sum(dim=1)
        answered = self.outputs(facts[:, 1], (facts[:, 0] + self.count) % (2 * self.count))
        missing = torch.sigmoid(self.log_totals(answered, without) - answered @ row)
        return asked + missing * (answered @ direction)

    def _candidates(self) -> Candidates:
        """Every entity, or a sample with the log of how many each stands for."""
        count = len(self.rows_NK)
        if count <= CANDIDATES:
            self.place_of = np.arange(count)
            return Candidates(self.rows_NK)
        drawn = np.sort(self._random.choice(count, CANDIDATES, replace=False))
        self.place_of = np.full(count, -1)
        self.place_of[drawn] = np.arange(CANDIDATES)
        weight = self.rows_NK.new_full((CANDIDATES,), float(np.log(count / CANDIDATES)))
        return Candidates(self.rows_NK[torch.from_numpy(drawn)], None, weight)

    def _sampled_questions(self) -> _Questions:
        """Training questions with their answers, drawn by seed."""
        both = with_inverses(self._train, self.count)
        size = min(QUESTIONS, len(both))
        drawn = both[np.sort(self._random.choice(len(both), size, replace=False))]
        outputs_SK = self.outputs(drawn[:, 0], drawn[:, 1])
        log_z_S = self.log_totals_chunked(outputs_SK, np.full(size, NEW))
        return _Questions(drawn, outputs_SK, log_z_S, len(both) / size)

    def outputs(self, heads: Ints, relations: Ints) -> Tensor:
        """o_1 of questions by index."""
        rows = self.rows_NK[torch.from_numpy(heads)]
        return self.products(rows, relations)

    def products(self, rows: Tensor, relations: Ints) -> Tensor:
        """o_1 of rows and relations by index."""
        distinct, which = np.unique(relations, return_inverse=True)
        vectors = self.relations_2R[torch.from_numpy(distinct)]
        return product(self.model.kind, rows, vectors, torch.from_numpy(which))

    def log_totals(self, outputs: Tensor, without: Ints) -> Tensor:
        """log Σ exp of each output with all candidates but one, by index (NEW: none)."""
        place = np.where(without == NEW, -1, self.place_of[without])
        left = np.flatnonzero(place >= 0)
        left = left[np.argsort(place[left], kind="stable")]
        pairs = torch.from_numpy(left), torch.from_numpy(place[left])
        return log_partition(outputs, self._everyone._replace(left_out=pairs), self._workspace)

    def log_totals_chunked(self, outputs: Tensor, without: Ints) -> Tensor:
        """The same for any number of outputs, without gradient."""
        size = max(1, SCORES // len(self._everyone.vectors_NK))
        parts = [slice(at, at + size) for at in range(0, len(outputs), size)]
        return torch.cat([self.log_totals(outputs[part], without[part]) for part in parts])


class _Questions(NamedTuple):
    """Training questions that stand for all of them, each for `weight`."""

    triples: Ints
    outputs_SK: Tensor
    log_z_S: Tensor
    weight: float


class _Problem:
    """The losses of some cases as a function of their rows."""

    def __init__(self, refit: Refit, cases: Sequence[Case]) -> None:
        self._refit = refit
        self._entities = np.array([case.entity for case in cases])
        counts = np.array([len(case.facts) for case in cases])
        case_F = np.repeat(np.arange(len(cases)), counts)
        facts = np.concatenate([case.facts for case in cases])
        self._has_E = torch.from_numpy(counts)
        self._questions(case_F, facts)
        self._answered(case_F, facts)
        self._unanswered()

    def _questions(self, case_F: Ints, facts: Ints) -> None:
        """The distinct questions of each case, how often each is, the sum of its answers."""
        refit, width = self._refit, len(self._refit.relations_2R)
        keys, of_F = np.unique(case_F * width + facts[:, 0], return_inverse=True)
        self._case_Q, self._relation_Q = np.divmod(keys, width)
        self._row_Q = torch.from_numpy(self._case_Q)
        self._count_Q = torch.from_numpy(np.bincount(of_F, minlength=len(keys))).float()
        answers_FK = refit.rows_NK[torch.from_numpy(facts[:, 1])]
        wanted_QK = answers_FK.new_zeros(len(keys), answers_FK.shape[1])
        self._wanted_QK = wanted_QK.index_add_(0, torch.from_numpy(of_F), answers_FK)

    def _answered(self, case_F: Ints, facts: Ints) -> None:
        """The outputs of the questions that the cases answer, and log Z of all other answers."""
        refit, count = self._refit, self._refit.count
        inverse = (facts[:, 0] + count) % (2 * count)
        asked = np.stack([facts[:, 1], inverse, self._entities[case_F]], axis=1)
        distinct, self._of_F = np.unique(asked, axis=0, return_inverse=True)
        self._of_F = self._of_F.reshape(-1)
        self._outputs_UK = refit.outputs(distinct[:, 0], distinct[:, 1])
        log_z_U = refit.log_totals_chunked(self._outputs_UK, distinct[:, 2])
        self._case_F = torch.from_numpy(case_F)
        self._log_z_F = log_z_U[self._of_F]

    def _unanswered(self) -> None:
        """log Z of the sampled questions without each case's old row, and which ones count."""
        triples, outputs_SK, log_z_S, _ = self._refit.others
        entities = torch.from_numpy(self._entities)
        is_old_E = entities != NEW
        old_EK = self._refit.rows_NK[entities.clamp(min=0)]
        share_SE = (outputs_SK @ old_EK.T - log_z_S[:, None]).exp_().clamp_(max=1 - 1e-6)
        self._log_z_SE = log_z_S[:, None] + torch.log1p(-share_SE * is_old_E)
        own = (triples[:, [0]] == self._entities) | (triples[:, [2]] == self._entities)
        self._counts_SE = torch.from_numpy(~own)

    def losses(self, rows_EK: Tensor) -> Tensor:
        """The loss of each case, (E,), as a mean over its facts."""
        refit, total_E = self._refit, rows_EK.new_zeros(len(rows_EK))
        own_QK = rows_EK.index_select(0, self._row_Q)
        outputs_QK = refit.products(own_QK, self._relation_Q)
        log_z_Q = refit.log_totals(outputs_QK, self._entities[self._case_Q])
        log_z_Q = torch.logaddexp(log_z_Q, (outputs_QK * own_QK).sum(dim=1))
        asked_Q = self._count_Q * log_z_Q - (outputs_QK * self._wanted_QK).sum(dim=1)
        total_E = total_E.index_add(0, self._row_Q, asked_Q)
        outputs_FK = self._outputs_UK[self._of_F]
        score_F = (outputs_FK * rows_EK.index_select(0, self._case_F)).sum(dim=1)
        total_E = total_E.index_add(0, self._case_F, F.softplus(self._log_z_F - score_F))
        score_SE = refit.others.outputs_SK @ rows_EK.T
        wrong_SE = F.softplus(score_SE - self._log_z_SE) * self._counts_SE
        total_E = total_E + refit.others.weight * wrong_SE.sum(dim=0)
        mean_E = total_E / (2 * self._has_E)
        return mean_E + refit.penalty * cubes(refit.model.kind, rows_EK)


def _chunks(cases: Sequence[Case], candidates: int, size: int) -> Iterator[list[int]]:
    """The places of cases with facts that hold at most SCORES scores and numbers together."""
    chunk: list[int] = []
    held = 0
    for place, case in enumerate(cases):
        if not len(case.facts):
            continue
        questions = len(np.unique(case.facts[:, 0])) + 1
        needed = questions * candidates + len(case.facts) * size
        if chunk and held + needed > SCORES:
            yield chunk
            chunk, held = [], 0
        chunk.append(place)
        held += needed
    if chunk:
        yield chunk
