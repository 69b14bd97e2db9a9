"""What leaves a run: vectors, per-relation metrics, pictures, PyKEEN's factories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph, load_graph
from ekgn.kbc.run import KbcRun

pytestmark = pytest.mark.numerical


def test_vectors_come_back_from_every_format(family_run: Path, tmp_path: Path) -> None:
    run = KbcRun(family_run)
    found = run.embeddings()
    expected = run.model.entities.weight.detach().numpy()
    assert found.ids == list(run.graph.entities.ids)
    assert np.array_equal(found.array, expected)
    for ending in ("parquet", "npz", "txt"):
        found.save(tmp_path / f"vectors.{ending}")
    frame = pl.read_parquet(tmp_path / "vectors.parquet")
    assert frame["id"].to_list() == found.ids
    assert np.array_equal(frame["vector"].to_numpy(), expected)
    with np.load(tmp_path / "vectors.npz") as arrays:
        assert arrays["ids"].tolist() == found.ids and np.array_equal(arrays["vectors"], expected)
    first, *lines = (tmp_path / "vectors.txt").read_text().splitlines()
    assert first == f"{len(expected)} {expected.shape[1]}"
    words = [line.split(" ") for line in lines]
    assert [word[0] for word in words] == ["_".join(name.split()) for name in found.ids]
    assert np.allclose([[float(n) for n in word[1:]] for word in words], expected, rtol=1e-5)
    with pytest.raises(EkgnError, match="ending in"):
        found.save(tmp_path / "vectors.docx")


def test_the_command_writes_relations_too(family_run: Path, tmp_path: Path) -> None:
    words = ["vectors", str(family_run), "--relations", "--out", str(tmp_path / "r.parquet")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert len(pl.read_parquet(tmp_path / "r.parquet")) == KbcRun(family_run).graph.num_relations


def test_the_metrics_of_each_relation_make_up_those_of_all(family_run: Path) -> None:
    run = KbcRun(family_run)
    found = run.evaluate("test")
    assert found.relations is not None
    frame = found.relations.frame()
    facts, ranks = frame["facts"].to_numpy(), frame["mean rank"].to_numpy()
    assert facts.sum() == len(run.graph.test)
    assert (facts * ranks).sum() / facts.sum() == pytest.approx(found.micro.mean_rank)
    assert "relations" not in found.as_dict()
    assert "hits@10" in found._repr_html_()


def test_a_run_draws_its_curve_and_a_prediction_shows_in_a_notebook(family_run: Path) -> None:
    run = KbcRun(family_run)
    assert len(run.plot().axes) >= 3
    graph = run.graph
    answers = run.predict(graph.entities.ids[0], graph.relations.ids[0], top=2)
    assert answers._repr_html_().count("<tr>") == 3


def test_a_triples_factory_goes_out_and_comes_in(family: KnowledgeGraph) -> None:
    pytest.importorskip("pykeen.triples", reason="needs PyKEEN: pip install 'ekgn[peers]'")
    factory = family.triples_factory("train")
    assert factory.mapped_triples.tolist() == family.train.tolist()
    again = load_graph(factory, seed=1)

    def facts(graph: KnowledgeGraph, rows: np.ndarray) -> set[tuple[str, str, str]]:
        names = graph.entities.ids, graph.relations.ids
        return {(names[0][h], names[1][r], names[0][t]) for h, r, t in rows}

    every = np.concatenate([again.train, again.valid, again.test])
    assert facts(again, every) == facts(family, family.train)
