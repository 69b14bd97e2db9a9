"""Answers among many entities: exact ones by blocks, and those of an index."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ekgn import api
from ekgn.errors import EkgnError
from ekgn.files import read_json, write_json
from ekgn.kbc import index as index_module
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.index import FOLDER, IndexSearch, weights_digest
from ekgn.kbc.model import scorer
from ekgn.kbc.run import KbcRun
from ekgn.kbc.search import Asked, ExactSearch, Hidden
from ekgn.kbc.settings import KbcSettings

pytestmark = pytest.mark.numerical


@pytest.fixture(scope="module")
def made() -> KnowledgeGraph:
    """1,200 entities of 12 kinds, three relations from kind to kind."""
    rng = np.random.default_rng(0)
    heads, relations = rng.integers(1200, size=6000), rng.integers(3, size=6000)
    tails = (heads % 12 + relations + 1) % 12 + 12 * (100 * rng.random(6000) ** 3).astype(int)
    rows = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in zip(heads, relations, tails, strict=True)]
    return load_graph(rows)


def trained(graph: KnowledgeGraph, folder: Path, **changes: Any) -> KbcRun:
    settings = KbcSettings.build(
        "auto",
        overrides={
            "embedding_dim": 16,
            "negatives": 0,
            "penalty": 0.01,
            "held_out": 0.0,
            "batch_size": 64,
            "epochs": 3,
            "state_size": 16,
            "num_slots": 4,
            "threads": 1,
            **changes,
        },
    )
    trained: KbcRun = api.train(graph, settings, out=folder)
    return trained


@pytest.fixture(scope="module")
def run(made: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> KbcRun:
    return trained(made, tmp_path_factory.mktemp("runs") / "run")


QUERIES = np.array([3, 40, 7, 900]), np.array([0, 5, 2, 1])


@pytest.mark.parametrize("readout", ["argmax", "mixture", "last"])
def test_blocks_give_what_the_whole_matrix_gives(run: KbcRun, readout: str) -> None:
    hidden = Hidden.of(np.array([0, 0, 2, 3]), np.array([5, 900, 3, 0]))
    shares = scorer(run.model, readout)(*QUERIES).log_softmax(dim=1)
    answers = np.array([17, 900, 2, 1199])
    rows = np.array([0, 0, 1, 3])
    expected = shares[torch.from_numpy(rows), torch.from_numpy(answers)]
    shares[hidden.rows, hidden.entities] = -torch.inf
    above = (shares[torch.from_numpy(rows)] > expected[:, None]).sum(dim=1).numpy()
    asked = Asked.of(run.model, *QUERIES, readout)
    for block in (1024 * 32, 2**30):  # two blocks, and one
        search = ExactSearch(run.model, block_bytes=block)
        best = search.best(asked, 7, hidden)
        values, _ = shares.topk(7, dim=1)
        torch.testing.assert_close(best.log_share_BP, values, rtol=1e-4, atol=1e-4)
        named = shares.gather(1, best.entity_BP)
        torch.testing.assert_close(best.log_share_BP, named, rtol=1e-4, atol=1e-4)
        placed = search.places(asked, rows, answers, hidden)
        torch.testing.assert_close(placed.log_share_P, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(placed.first_B2, values[:, :2], rtol=1e-4, atol=1e-4)
        assert np.abs(placed.rank_P - 1 - above).max() <= 1  # a near tie may fall either way


def test_hidden_answers_leave_fewer_places(run: KbcRun) -> None:
    everyone = np.arange(1200)
    hidden = Hidden.of(np.zeros(1198, np.int64), everyone[2:])
    best = ExactSearch(run.model).best(Asked.of(run.model, *QUERIES), 5, hidden)
    assert set(best.entity_BP[0, :2].tolist()) == {0, 1}
    assert best.log_share_BP[0].isfinite().tolist() == [True, True, False, False, False]


faiss = pytest.mark.skipif(
    importlib.util.find_spec("faiss") is None,
    reason="needs faiss: pip install 'ekgn[index]'",
)


@faiss
def test_an_index_is_measured_kept_and_used(run: KbcRun, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    exact, indexed = KbcRun.load(path), KbcRun.load(path)
    about = indexed.index()
    assert about.recall_at_10 >= index_module.LEAST_RECALL
    assert about.entities == 1200 and 1 <= about.looked_into <= about.cells
    assert read_json(path / FOLDER / "about.json") == dataclasses.asdict(about)
    indexed = KbcRun.load(path)
    assert isinstance(indexed.search, IndexSearch)
    assert isinstance(exact.search, IndexSearch)
    exact.__dict__["search"] = ExactSearch(exact.model)
    questions = [(int(h), int(r)) for h, r, _ in run.graph.test[:40]]
    right, found = (each.answers(questions, 10, hide_known=True) for each in (exact, indexed))
    same = [
        len({a.id for a in x} & {a.id for a in y}) / 10 for x, y in zip(right, found, strict=True)
    ]
    assert np.mean(same) >= 0.9
    for one, other in zip(right, found, strict=True):
        shares = {a.id: a.share for a in one}
        for answer in other:
            assert not answer.known
            if answer.id in shares:  # the total is estimated, not summed
                assert answer.share == pytest.approx(shares[answer.id], rel=0.3)


@faiss
def test_the_index_counts_all_steps_of_a_mixture(run: KbcRun, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    indexed = KbcRun.load(path)
    indexed.index(cells=1)  # one cell: everything is looked at
    asked = Asked.of(indexed.model, *QUERIES, "mixture")
    hidden = Hidden.of(np.array([1, 1]), np.array([4, 5]))
    exact, found = (
        search.best(asked, 5, hidden) for search in (ExactSearch(indexed.model), indexed.search)
    )
    assert (exact.entity_BP == found.entity_BP).float().mean() >= 0.9
    torch.testing.assert_close(exact.log_share_BP, found.log_share_BP, rtol=0.02, atol=0.02)
    rows, answers = np.array([0, 1, 1]), np.array([10, 4, 700])
    one, other = (
        search.places(asked, rows, answers, hidden)
        for search in (ExactSearch(indexed.model), indexed.search)
    )
    torch.testing.assert_close(one.log_share_P, other.log_share_P, rtol=0.02, atol=0.02)
    assert np.abs(one.rank_P - other.rank_P).max() <= 0.05 * 1200


@faiss
def test_a_completion_by_the_index(run: KbcRun, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    right = KbcRun.load(path).complete(relations=["r0"], top=50).facts
    KbcRun.load(path).index()
    found = KbcRun.load(path).complete(relations=["r0"], top=50).facts
    key = ["head", "relation", "tail"]
    assert right.join(found, on=key, how="semi").height >= 40


@faiss
def test_an_index_of_other_weights_is_not_used(
    run: KbcRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    KbcRun.load(path).index()
    changed = KbcRun.load(path)
    with torch.no_grad():
        changed.model.entities.weight[0, 0] += 1e-3
    with caplog.at_level(logging.WARNING):
        assert isinstance(changed.search, ExactSearch)
    assert f"{path / FOLDER} was made of other weights and is not used" in caplog.text
    about = path / FOLDER / "about.json"
    write_json(about, {**read_json(about), "more": 1})
    with pytest.raises(EkgnError, match="is damaged"):
        _ = KbcRun.load(path).search


@faiss
def test_an_index_that_finds_too_little_is_refused(
    run: KbcRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(index_module, "_recall", lambda *_: 0.9)
    with pytest.raises(
        EkgnError, match=r"would find 90\.0% of the first 10 answers in .*, at least 95%"
    ):
        run.index()
    assert not (run.path / FOLDER).exists()


def test_no_index_of_distances(family: KnowledgeGraph, tmp_path: Path) -> None:
    settings = KbcSettings.build("paper", overrides={"epochs": 1, "threads": 1, "embedding_dim": 8})
    paper = api.train(family, settings, out=tmp_path / "run")
    with pytest.raises(EkgnError, match="compares by L1 distance"):
        paper.index()


def test_the_digest_is_of_every_number(run: KbcRun) -> None:
    vectors = run.model.entities.weight.detach().clone()
    before = weights_digest(vectors)
    vectors[-1, -1] += 1e-6
    assert weights_digest(vectors) != before == weights_digest(run.model.entities.weight)
