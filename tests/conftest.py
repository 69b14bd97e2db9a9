"""Shared test material: a small graph with structure in it, and a run trained on it in seconds."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from ekgn.kbc.graph import KnowledgeGraph, Vocabulary
from ekgn.kbc.settings import KbcSettings

# No test fails for being slow on a busy machine.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Two test processes on two cores: threads of one that wait for a core slow down the other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
THREADS = int(os.environ["OMP_NUM_THREADS"])

if "EKGN_ROUNDING" in os.environ:  # make test-machines
    from tests.rounding import chosen_rounding  # torch, which reads the variable above

    chosen_rounding().__enter__()


def vocabulary(*ids: str) -> Vocabulary:
    return Vocabulary(ids, tuple(i.replace("_", " ").title() for i in ids), ("",) * len(ids))


@pytest.fixture(scope="session")
def family() -> KnowledgeGraph:
    """30 people in a ring: `next` and its inverse `previous`, and `after_next`, two steps on."""
    return made_family()


def made_family() -> KnowledgeGraph:
    n = 30
    facts = [(i, 0, (i + 1) % n) for i in range(n)]
    facts += [((i + 1) % n, 1, i) for i in range(n)]
    facts += [(i, 2, (i + 2) % n) for i in range(n)]
    triples = np.array(facts, np.int64)
    held_out = np.zeros(len(triples), bool)
    held_out[[31, 37, 43, 62, 69, 75, 81, 88]] = True
    return KnowledgeGraph(
        name="family",
        entities=vocabulary(*(f"person_{i}" for i in range(n))),
        relations=vocabulary("next", "previous", "after_next"),
        train=triples[~held_out],
        valid=triples[held_out][:4],
        test=triples[held_out][4:],
        source={},
    )


def tiny_settings(**changes: object) -> KbcSettings:
    """Settings that train in a second."""
    options = {
        "embedding_dim": 16,
        "state_size": 16,
        "num_slots": 8,
        "max_steps": 3,
        "batch_size": 32,
        "epochs": 40,
        "valid_every": 10,
        "penalty": 0.0,
        "learning_rate": 0.1,
        "held_out": 0.0,
        "steps_from": 0.8,
        "tables_from": 1.0,
        "negatives": 0,
        "dropout": 0.0,
        "network_rate": 0.01,
        "threads": THREADS,
    }
    return KbcSettings.build("auto", None, {**options, **changes})


@pytest.fixture(scope="session")
def family_run(family: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run trained on the family graph."""
    from ekgn import api

    path = tmp_path_factory.mktemp("runs") / "family"
    settings = tiny_settings(epochs=120, valid_every=120, embedding_dim=32, steps_from=0.5)
    api.train(family, settings, out=path)
    return path


@pytest.fixture(scope="session")
def steady_run(family: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the penalty that keeps vectors small, without which no row has a best place."""
    from ekgn import api

    path = tmp_path_factory.mktemp("runs") / "steady"
    changes = {"epochs": 60, "valid_every": 60, "embedding_dim": 32, "steps_from": 0.8}
    api.train(family, tiny_settings(penalty=0.03, **changes), out=path)
    return path


def count_comparisons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by each text that difflib is given to compare."""
    compared: list[str] = []

    class Counting(difflib.SequenceMatcher[str]):
        def __init__(self, junk: None, one: str, other: str, autojunk: bool = True) -> None:
            compared.append(other)
            super().__init__(junk, one, other, autojunk)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    return compared


@pytest.fixture(scope="session")
def benchmarks() -> Path:
    """The folder of the real benchmarks; the test is skipped where there is none."""
    folder = os.environ.get("EKGN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the real benchmarks: set EKGN_DATA to the folder that holds them")
    return Path(folder)
