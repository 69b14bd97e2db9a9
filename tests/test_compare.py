"""Comparisons: what is run, what is not run again, what fails, what the table says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ekgn
from ekgn.comparison import bench, peers, scoring
from ekgn.comparison.bench import LABELS, MODELS, comparison_table, parse_models
from ekgn.comparison.budget import Budget
from ekgn.comparison.paper import TABLE_1
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import rank_split

MINUTES = 0.02


def test_models_are_named_in_any_order_and_case() -> None:
    assert parse_models("transe, EKGN,ekgn") == ["ekgn", "transe"]
    assert parse_models(["all"]) == list(MODELS)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("ekgn,transee", "Unknown model 'transee'. Did you mean 'transe'"),
        ("rules", "Unknown model 'rules'"),
        (" ,", "No models to compare. Models: ekgn, complex"),
    ],
)
def test_bad_models(models: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EkgnError) as caught:
        ekgn.compare("world", models, out=tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_minutes_are_positive(tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match="minutes = 0: expected more than 0"):
        ekgn.compare("world", minutes=0, out=tmp_path)


@pytest.fixture
def no_pykeen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes started from here do not find PyKEEN."""
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "pykeen.py").write_text("raise ImportError('none here')\n")
    path = os.pathsep.join([str(tmp_path / "block"), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)


def test_a_failed_model_is_a_row_and_the_others_go_on(
    family: KnowledgeGraph, tmp_path: Path, no_pykeen: None
) -> None:
    done: list[tuple[str, int, int]] = []
    doing: set[tuple[str, str]] = set()
    found = ekgn.compare(
        family,
        "complex,transe",
        minutes=MINUTES,
        out=tmp_path / "out",
        on_progress=lambda model, what, share: doing.add((model, what)),
        on_model=lambda record, place, total: done.append((record["model"], place, total)),
    )
    assert done == [("complex", 1, 3), ("transe", 2, 3), ("rules", 3, 3)]
    assert ("complex", "training") in doing
    rows = {row["model"]: row for row in found.table().as_dict()["rows"]}
    assert list(rows) == ["ComplEx", "TransE", "rules of one fact"]
    assert "pip install 'ekgn[peers]'" in rows["TransE"]["failed"]
    assert rows["TransE"]["hits@10"] is None and rows["ComplEx"]["failed"] is None
    assert 0 < rows["ComplEx"]["MRR"] <= 1 and rows["rules of one fact"]["parameters"] is None

    record = found.records[0]
    assert len(record["tried"]) == 3 and record["recipe"]["max_steps"] == 1
    run = ekgn.load(tmp_path / "out" / "complex")
    # Ranked in batches of another size there, so that near-ties may fall otherwise.
    assert run.evaluate("test").micro.mrr == pytest.approx(record["test"]["micro"]["mrr"], abs=0.05)
    for name in ("table.md", "table.json", "comparison.svg", "transe.log"):
        assert (tmp_path / "out" / name).stat().st_size

    with pytest.raises(EkgnError, match=r"holds another comparison \(it differs in: minutes\)"):
        ekgn.compare(family, "complex", minutes=1, out=tmp_path / "out")


def _start(data: Path, out: Path) -> subprocess.Popen[bytes]:
    words = ["compare", str(data), "--models", "complex,distmult", "--minutes", str(MINUTES)]
    return subprocess.Popen(
        [sys.executable, "-m", "ekgn", *words, "--out", str(out), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None, "it ended before"
        time.sleep(0.01)


def test_a_killed_comparison_goes_on(family: KnowledgeGraph, tmp_path: Path) -> None:
    data, out = tmp_path / "family", tmp_path / "out"
    data.mkdir()
    for split in ("train", "valid", "test"):
        names = [
            "\t".join([family.entities.ids[h], family.relations.ids[r], family.entities.ids[t]])
            for h, r, t in family.split(split).tolist()
        ]
        (data / f"{split}.tsv").write_text("\n".join(names) + "\n")
    first = _start(data, out)
    _wait_for(out / "distmult.log", first)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    kept = (out / "complex.json").read_bytes()
    assert not (out / "table.md").exists()

    again = _start(data, out)
    output, _ = again.communicate()
    assert again.returncode == 0
    assert (out / "complex.json").read_bytes() == kept
    found = json.loads(output)
    assert [record["model"] for record in found["records"]] == ["complex", "distmult", "rules"]
    assert not any("problem" in record for record in found["records"])


def test_the_table_marks_less_than_an_epoch_and_quotes_the_paper() -> None:
    def record(model: str, epochs: float) -> dict[str, Any]:
        micro = {"hits_at_10": 0.5, "mean_rank": 12.0, "mrr": 0.25}
        sizes = {"parameters": 1_000, "peak_bytes": 2**30, "training_seconds": 90.0}
        return {"model": model, "epochs": epochs, **sizes, "test": {"micro": micro}}

    table = comparison_table("FB15k-237", 2, [record("ekgn", 3.0), record("conve", 0.25)])
    assert table.names[-1] == "paper hits@10 / MR"
    assert [row[4:] for row in table.texts()] == [
        ["1.5", "3.0", "1,000", "1,024", "46.4 / 211"],
        ["1.5", "0.25 (<1)", "1,000", "1,024", "45.8 / 330"],
    ]


def test_every_quoted_model_is_there_once() -> None:
    labels = [row.label for row in TABLE_1]
    assert len(labels) == len(set(labels)) == 20
    run_here = set(labels) & set(LABELS.values())
    assert set(MODELS.values()) - run_here == {"RESCAL", "RotatE"}


def test_a_budget_counts_only_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    told: list[float] = []
    watch = Budget(10.0, told.append)
    now[0] += 5
    with watch.running():
        now[0] += 2
        with watch.paused():
            now[0] += 50
        now[0] += 1
        watch.tell()
    now[0] += 5
    assert (watch.spent, watch.left, told) == (3.0, 7.0, [0.3])
    with watch.running():
        now[0] += 20
    assert watch.left == 0.0


@pytest.mark.parametrize("name", sorted(peers.RECIPES))
def test_peers_train_and_score_both_sides(name: str, family: KnowledgeGraph) -> None:
    pytest.importorskip("pykeen", reason="needs PyKEEN: pip install 'ekgn[peers]'")
    torch.manual_seed(0)
    found = peers.train(family, name, Budget(0.05), seed=0)
    assert len(found["tried"]) == 3 and found["epochs"] > 0
    assert found["recipe"]["learning_rate"] in peers.RECIPES[name].rates
    heads, relations = family.test[:, 0], family.test[:, 1]
    forward = found["scorer"](heads, relations)
    backward = found["scorer"](family.test[:, 2], relations + family.num_relations)
    assert forward.shape == backward.shape == (len(heads), family.num_entities)
    assert torch.isfinite(forward).all() and torch.isfinite(backward).all()
    if not peers.RECIPES[name].inverse:  # one score of a fact, whichever side is asked for
        rows = np.arange(len(heads))
        one, other = forward[rows, family.test[:, 2]], backward[rows, heads]
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", sorted(scoring.SPACES))
def test_scores_by_relation_are_pykeens(name: str, family: KnowledgeGraph) -> None:
    pytest.importorskip("pykeen", reason="needs PyKEEN: pip install 'ekgn[peers]'")
    model, _ = peers.train_for(family, peers.RECIPES[name], 0.01, Budget(1.0), 0.2, 0)
    both = np.concatenate([family.test[:, :2], family.test[:, [2, 1]] + [0, family.num_relations]])
    ours = scoring.scorer(model, name, family)(both[:, 0], both[:, 1])
    theirs = scoring.plain_scorer(model, family)(both[:, 0], both[:, 1])
    if name == "transd":  # theirs are squares of distances
        theirs = -theirs.neg().sqrt()
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_peer_learns(family: KnowledgeGraph) -> None:
    pytest.importorskip("pykeen", reason="needs PyKEEN: pip install 'ekgn[peers]'")
    found = peers.train(family, "transe", Budget(6.0), seed=0)
    ranks = rank_split(found["scorer"], family, "train").realistic
    assert ranks.mean() < 12  # of 30 entities: 15 by chance


def test_a_peer_that_always_diverges_says_so(
    family: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pykeen", reason="needs PyKEEN: pip install 'ekgn[peers]'")

    def diverge(*_: Any) -> None:
        raise EkgnError("The model's scores are not numbers (NaN): it diverged.")

    monkeypatch.setattr(peers, "valid_hits", diverge)
    with pytest.raises(EkgnError, match=r"TransE failed with learning rates 0.001, .*: The model"):
        peers.train(family, "transe", Budget(0.05), seed=0)


def test_the_order_of_the_table_is_that_of_the_models() -> None:
    assert list(LABELS)[-1] == bench.RULES
