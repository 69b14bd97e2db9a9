"""Rows fitted again: against the training loss, a slow plain optimisation, and a case by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.kbc import refit as refits
from ekgn.kbc.answers import with_inverses
from ekgn.kbc.descent import minimise
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.products import cubes
from ekgn.kbc.refit import NEW, Case, Refit, facts_of
from ekgn.kbc.run import KbcRun
from ekgn.kbc.what_if import NOTE
from tests.conftest import tiny_settings

pytestmark = pytest.mark.numerical


def model_of(graph: KnowledgeGraph, **changes: object) -> KbcModel:
    torch.manual_seed(3)
    settings = tiny_settings(penalty=0.05, **changes)
    model = KbcModel(graph.num_entities, graph.num_relations, settings)
    for table in (model.entities, model.relations):
        table.weight.mul_(40)
    return model.eval()


def training_loss(model: KbcModel, graph: KnowledgeGraph, entity: int, row: torch.Tensor) -> float:
    """What training sums over all its pairs, with one row replaced: the slow way."""
    weight = model.entities.weight.clone()
    weight[entity] = row
    both = torch.from_numpy(with_inverses(graph.train, graph.num_relations))
    heads, relations, tails = weight[both[:, 0]], model.relations.weight[both[:, 1]], both[:, 2]
    real, imaginary = heads.chunk(2, dim=1)
    by_real, by_imaginary = relations.chunk(2, dim=1)
    outputs = torch.cat(
        [real * by_real - imaginary * by_imaginary, real * by_imaginary + imaginary * by_real], 1
    )
    losses = F.cross_entropy(outputs @ weight.T, tails, reduction="none")
    own = ((both[:, 0] == entity) | (both[:, 2] == entity)).sum()
    scale = model.settings.penalty / (1 + model.settings.step_loss)
    return float(losses.sum() + own * scale * cubes("complex", weight[[entity]])[0])


@pytest.mark.parametrize("entity", [0, 7])
def test_the_loss_of_a_row_is_that_of_training(family: KnowledgeGraph, entity: int) -> None:
    model = model_of(family)
    case = Case(entity, facts_of(family.train, entity, family.num_relations))
    losses = refits._Problem(Refit(model, family.train), [case]).losses
    old = model.entities.weight[entity]
    rows = [old, old + 0.3 * torch.randn_like(old), torch.zeros_like(old)]
    fast = [2 * len(case.facts) * float(losses(row[None])[0]) for row in rows]
    slow = [training_loss(model, family, entity, row) for row in rows]
    # Other rows are at rest, so only differences are the same.
    assert np.diff(fast) == pytest.approx(np.diff(slow), rel=1e-3, abs=1e-2)


def test_a_fitted_row_is_where_plain_descent_ends(family: KnowledgeGraph) -> None:
    model = model_of(family)
    refit = Refit(model, family.train)
    case = Case(4, facts_of(family.train, 4, family.num_relations))
    found = refit.rows([case], tolerance=1e-4)
    problem = refits._Problem(refit, [case])
    plain = model.entities.weight[[4]].clone().requires_grad_()
    descent = torch.optim.Adam([plain], lr=0.02)
    for _ in range(1500):
        descent.zero_grad()
        problem.losses(plain).sum().backward()  # type: ignore[no-untyped-call]
        descent.step()
    assert float(problem.losses(found)) <= float(problem.losses(plain.detach())) + 1e-4
    assert torch.allclose(found, plain.detach(), atol=0.02)


def test_rows_fitted_together_are_those_fitted_alone(family: KnowledgeGraph) -> None:
    refit = Refit(model_of(family), family.train)
    cases = [Case(e, facts_of(family.train, e, family.num_relations)) for e in (1, 5, 9)]
    together = refit.rows(cases, tolerance=1e-4)
    alone = torch.cat([refit.rows([case], tolerance=1e-4) for case in cases])
    assert torch.allclose(together, alone, atol=0.02)


def test_a_problem_by_hand() -> None:
    """Σ a (x - b)² has its least at b, whatever a is: each row at its own pace."""
    scale, goal = torch.tensor([[1.0, 100.0], [0.01, 3.0]]), torch.tensor([[2.0, -1.0], [5.0, 0.5]])
    found = minimise(lambda x: (scale * (x - goal) ** 2).sum(1), torch.zeros(2, 2), 100, 1e-6)
    assert torch.allclose(found, goal, atol=1e-3)


def test_one_fact_by_hand() -> None:
    """DistMult of size 1, two entities, r = 1: the best row of a new head has a closed form.

    With y = (1, -1), S questions left out and no penalty, -log p(y_0) falls in x for the head's
    question, and the question it answers asks for a large o · x: the row grows until the penalty
    balances it.
    """
    settings = tiny_settings(first_answer="distmult", embedding_dim=1, penalty=0.5, max_steps=1)
    model = KbcModel(2, 1, settings).eval()
    model.entities.weight[:] = torch.tensor([[1.0], [-1.0]])
    model.relations.weight[:] = 1.0
    refit = Refit(model, np.array([[0, 0, 1]]))
    row = refit.rows([Case(NEW, np.array([[0, 0]]))], tolerance=1e-5)[0, 0]

    def loss(x: float) -> float:
        z = np.log(np.exp(x) + np.exp(-x) + np.exp(x * x))  # itself is a candidate, too
        asked = z - x
        others = np.log(np.exp(1) + np.exp(-1))
        answered = np.log(np.exp(others) + np.exp(x)) - x
        unanswered = sum(np.log1p(np.exp(o * x - others)) for o in (1.0, -1.0))
        return float((asked + answered + unanswered) / 2 + 0.5 / 1.5 * abs(x) ** 3)

    grid = np.linspace(-3, 3, 6001)
    assert float(row) == pytest.approx(grid[np.argmin([loss(x) for x in grid])], abs=0.01)


def test_no_facts_leave_a_row_where_it_starts(family: KnowledgeGraph) -> None:
    model = model_of(family)
    case = Case(NEW, np.empty((0, 2), np.int64))
    found = Refit(model, family.train).rows([case])
    assert torch.allclose(found[0], model.entities.weight.mean(dim=0))


def test_the_paper_form_is_one_clear_error(family: KnowledgeGraph) -> None:
    settings = tiny_settings(first_answer="concatenation", negatives=5)
    model = KbcModel(family.num_entities, family.num_relations, settings)
    with pytest.raises(EkgnError, match="concatenation"):
        Refit(model, family.train)


def test_pulls_are_derivatives_of_the_facts_losses(family: KnowledgeGraph) -> None:
    model = model_of(family)
    refit, entity = Refit(model, family.train), 6
    facts = facts_of(family.train, entity, family.num_relations)
    row, way = model.entities.weight[entity], torch.randn(16)
    pulls = refit.pulls(row, way, entity, facts)

    def loss(at: torch.Tensor, relation: int, other: int) -> float:
        asked = refit.products(at[None], np.array([relation]))
        answer = model.entities.weight[other]
        inverse = (relation + 3) % 6
        answered = refit.outputs(np.array([other]), np.array([inverse]))
        without = np.array([entity])
        one = refit.log_totals(asked, without)[0] - asked[0] @ answer
        two = F.softplus(refit.log_totals(answered, without)[0] - answered[0] @ at)
        return float(one + two)

    for pull, (relation, other) in zip(pulls.tolist(), facts.tolist(), strict=True):
        ahead, behind = (loss(row + step * way, relation, other) for step in (0.01, -0.01))
        assert -pull == pytest.approx((ahead - behind) / 0.02, rel=0.02, abs=0.02)


def test_what_if_names_the_fact_that_holds_an_answer_up(steady_run: Path) -> None:
    run = KbcRun(steady_run)
    weights = run.model.entities.weight.clone()
    found = run.what_if(head="person_3", relation="next", target="person_4")
    assert found.changes[0].is_question or "Person 4" in found.changes[0].words
    assert [c.share for c in found.changes] == sorted(c.share for c in found.changes)
    assert found.changes[0].share < found.share
    assert "not a retraining" in found.note
    assert torch.equal(run.model.entities.weight, weights)


def test_without_and_with_answer_directly(steady_run: Path) -> None:
    run = KbcRun(steady_run)
    fact = ("person_3", "next", "person_4")
    gone = run.what_if(head="person_3", relation="next", target="person_4", without=[fact])
    assert gone.changes[0].kind == "without" and gone.changes[0].share < gone.share
    more = ("person_3", "next", "person_20")
    added = run.what_if(head="person_3", relation="next", target="person_20", added=[more])
    assert added.changes[0].kind == "with" and added.changes[0].share > added.share


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"without": [("person_3", "next", "person_9")]}, "no training fact"),
        ({"added": [("person_3", "next", "person_4")]}, "already a training fact"),
        ({"without": [("person_9", "next", "person_10")]}, "expected a fact of Person 3 or"),
        ({"added": [("person_3", "next", "nobody")]}, "Unknown entity"),
    ],
)
def test_a_fact_that_cannot_be_asked_of_is_an_error(
    steady_run: Path, facts: dict[str, Any], words: str
) -> None:
    with pytest.raises(EkgnError, match=words):
        KbcRun(steady_run).what_if(head="person_3", relation="next", target="person_4", **facts)


def test_shares_that_differ_are_explained_and_those_that_do_not_are_not_shown(
    steady_run: Path,
) -> None:
    run = KbcRun(steady_run)
    found = run.what_if(head="person_3", relation="next", target="person_4")
    assert all(line.split(": ")[1].count("%") == 2 for line in found.in_words())
    before, after = (replace(found, trained_share=share) for share in (found.share, 0.5))
    assert before.trained_in_words() == ""
    assert "The model itself gives Person 4 50.0%" in after.trained_in_words()
    still = replace(found, changes=[replace(found.changes[0], share=found.share)])
    assert still.in_words() == []
    [given] = replace(still, tried=0).in_words()
    assert "no change" in given and "→" not in given
    assert "not a retraining" in found.note and "Both sides of an arrow are refitted" in found.note


def test_rows_are_fitted_once_for_all_questions_of_an_entity(
    steady_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    plain = Refit.rows

    def counting(self: Refit, cases: Any, *given: Any) -> torch.Tensor:
        fitted.extend(case.entity for case in cases)
        return plain(self, cases, *given)

    monkeypatch.setattr(Refit, "rows", counting)
    run = KbcRun.load(steady_run)
    asked: Any = {"head": "person_3", "relation": "next", "target": "person_4"}
    first = run.what_if(**asked)
    assert fitted and set(fitted) == {run.entity("person_3"), run.entity("person_4")}
    fitted.clear()
    again = run.what_if(**asked)
    assert [change.facts for change in again.changes] == [c.facts for c in first.changes]
    fact = first.changes[0].facts[0]
    alone = run.what_if(**asked, without=[fact])
    assert alone.changes[0].share == pytest.approx(first.changes[0].share)
    assert not fitted
    run.what_if(head="person_3", relation="next", target="person_9")
    assert set(fitted) == {run.entity("person_9")}


def test_the_command_line_asks_what_if(steady_run: Path) -> None:
    question = ["explain", str(steady_run), "--head", "person_3", "--relation", "next"]
    listed = CliRunner().invoke(app, [*question, "--what-if", "--json"], catch_exceptions=False)
    assert json.loads(listed.stdout)["note"] == NOTE
    fact = "Person 3 | next | Person 4"
    said = CliRunner().invoke(app, [*question, "--without", fact], catch_exceptions=False)
    assert "without Person 3 Next Person 4" in said.stdout and "→" in said.stdout
    with pytest.raises(EkgnError, match="is no fact: expected"):
        CliRunner().invoke(app, [*question, "--with", "Person 3 | next"], catch_exceptions=False)
