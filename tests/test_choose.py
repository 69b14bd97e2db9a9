"""What the default leaves open, and how it is settled."""

from __future__ import annotations

from operator import attrgetter

import pytest

from ekgn.errors import EkgnError
from ekgn.kbc import choose as choosing
from ekgn.kbc.choose import EARLY, OPEN, PENALTIES, Tried, choose, rate_under
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from tests.conftest import tiny_settings


def left_open(**changes: object) -> KbcSettings:
    return KbcSettings.build("auto", None, {"epochs": 3, "threads": 1, **changes})


def test_nothing_stays_open(family: KnowledgeGraph) -> None:
    chosen, why = choose(family, left_open())
    for name, value in OPEN.items():
        assert getattr(chosen, name) != value, name
        assert why[name] == getattr(chosen, name)
    assert chosen.learning_rate == rate_under(chosen.penalty)
    assert chosen.epochs == 3  # what a trial changes is the trial's alone
    assert chosen.max_steps == left_open().max_steps


def test_what_is_given_is_kept(family: KnowledgeGraph) -> None:
    chosen, why = choose(family, left_open(penalty=0.05, embedding_dim=8))
    assert (chosen.penalty, chosen.embedding_dim) == (0.05, 8)
    assert chosen.learning_rate == 0.3  # by the penalty that was given
    assert "penalty" not in why and "tried" not in why
    chosen, why = choose(family, left_open(learning_rate=0.2))
    assert chosen.learning_rate == 0.2
    assert {one["learning_rate"] for one in why["tried"]} == {0.2}


@pytest.mark.parametrize(("operations", "by"), [(1e15, "mrr"), (1.0, "early")])
def test_validation_decides_the_penalty(
    family: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch, operations: float, by: str
) -> None:
    monkeypatch.setattr(choosing, "OWN_OPERATIONS", operations)
    monkeypatch.setattr(choosing, "SMALL_OPERATIONS", operations)
    monkeypatch.setattr(choosing, "SHORT_UPDATES", 10)
    steps: list[int] = []
    chosen, why = choose(family, left_open(), lambda _, total: steps.append(total))
    assert why["by"] == by
    tried = why["tried"]
    assert [one["penalty"] for one in tried] == list(PENALTIES)
    best = max((Tried(**one) for one in tried), key=attrgetter(by))
    assert chosen.penalty == best.penalty
    assert len(steps) == steps[0]  # what was said to come came


def test_a_task_has_nothing_left_to_choose(family: KnowledgeGraph) -> None:
    left = tiny_settings(learning_rate=0.0, steps_from=-1.0)
    with pytest.raises(EkgnError, match="learning_rate, steps_from: still to be chosen"):
        KbcTask(family, left)
    opened = KbcTask.open(family, left)
    assert opened.settings.learning_rate > 0 and opened.settings.steps_from == EARLY
