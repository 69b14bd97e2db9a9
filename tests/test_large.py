"""What large graphs need: mapped arrays, ranks among samples, and a rule that chooses them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ekgn import api
from ekgn.checkpoint import read_lines
from ekgn.cli.app import app
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph, load_graph, triple_keys
from ekgn.kbc.mapped import mapped
from ekgn.kbc.model import scorer
from ekgn.kbc.ranking import rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.sampled import SAMPLED_CANDIDATES, SAMPLED_FACTS, measured, rank_sampled
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.texts import Positions, Texts
from ekgn.kbc.vocabulary import Vocabulary
from ekgn.tables import metric

pytestmark = pytest.mark.numerical

SMALL = {
    "embedding_dim": 16,
    "negatives": 0,
    "penalty": 0.01,
    "held_out": 0.0,
    "batch_size": 16,
    "epochs": 2,
    "state_size": 16,
    "num_slots": 4,
    "threads": 1,
}


@pytest.fixture(scope="module")
def run(family: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> KbcRun:
    settings = KbcSettings.build("auto", overrides=SMALL)
    trained: KbcRun = api.train(family, settings, out=tmp_path_factory.mktemp("runs") / "run")
    return trained


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=12))
def test_texts_are_the_strings_they_were_made_of(strings: list[str]) -> None:
    texts = Texts.of(strings)
    assert list(texts) == strings == [texts[at] for at in range(len(strings))]
    assert texts == tuple(strings) and texts[1:3] == tuple(strings[1:3])
    for text in {*strings, "not there"}:
        right = [at for at, other in enumerate(strings) if other == text]
        assert texts.where(text).tolist() == right
        assert (text in texts) == bool(right)
    assert texts != [*strings, "more"]


def test_positions_are_a_mapping() -> None:
    positions = Positions(Texts.of(["b", "a", "c"]))
    assert dict(positions) == {"b": 0, "a": 1, "c": 2}
    assert positions.get("d") is None and "a" in positions
    with pytest.raises(IndexError):
        Texts.of(["a"])[1]


def test_a_mapped_graph_is_the_graph_in_memory(family: KnowledgeGraph, tmp_path: Path) -> None:
    family.save(tmp_path)
    found = KnowledgeGraph.load(tmp_path)
    for split in ("train", "valid", "test"):
        assert np.array_equal(found.split(split), family.split(split))
        assert found.split(split).dtype == np.int64
    assert (found.entities, found.relations) == (family.entities, family.relations)
    base = found.train
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    found.train[0] = 0  # stays here
    assert np.array_equal(KnowledgeGraph.load(tmp_path).train, family.train)


def test_graphs_of_the_first_format_are_read(family: KnowledgeGraph, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    from ekgn.kbc.graph import _digest

    parts = ("ids", "labels", "descriptions")
    words = {
        "format": 1,
        "name": family.name,
        "entities": {part: list(getattr(family.entities, part)) for part in parts},
        "relations": {part: list(getattr(family.relations, part)) for part in parts},
        "source": family.source,
    }
    text = json.dumps(words).encode()
    arrays = {name: family.split(name).astype(np.int32) for name in ("train", "valid", "test")}
    (tmp_path / "vocabulary.json").write_bytes(text)
    save_file(arrays, tmp_path / "graph.safetensors", {"sha256": _digest(text, arrays)})
    found = KnowledgeGraph.load(tmp_path)
    assert found.train.dtype == np.int64 and np.array_equal(found.train, family.train)
    assert (found.entities, found.relations) == (family.entities, family.relations)


def test_a_type_that_no_graph_has_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"train": np.zeros(3, np.float16)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="train is of type F16"):
        mapped(tmp_path / "x.safetensors")


def test_too_many_names_are_said() -> None:
    with pytest.raises(EkgnError, match=r"86,000,000 entities and 15,000 relations are too many"):
        triple_keys(np.zeros((1, 3), np.int64), 15_000, 86_000_000)


@pytest.mark.parametrize("readout", ["argmax", "mixture"])
def test_a_sample_of_all_entities_gives_the_exact_ranks(run: KbcRun, readout: str) -> None:
    graph = run.graph
    exact = rank_split(scorer(run.model, readout), graph, "test")
    found = rank_sampled(run.model, graph, "test", graph.num_entities + 5, readout=readout)
    assert np.array_equal(found.candidates, exact.candidates)
    assert np.array_equal(found.targets, exact.targets)
    assert np.abs(found.realistic - exact.realistic).max() <= 1  # a near tie may fall either way
    assert (found.realistic == exact.realistic).mean() >= 0.9


def test_ranks_among_a_sample_are_counted_one_by_one(run: KbcRun) -> None:
    graph, size = run.graph, 11
    found = rank_sampled(run.model, graph, "test", size, seed=3)
    sample = np.random.default_rng([3, 1]).choice(
        graph.num_entities, size, replace=False, shuffle=False
    )
    every = np.concatenate([graph.train, graph.valid, graph.test])
    count = graph.num_relations
    for at in range(len(found.heads)):
        head, relation, target = found.heads[at], found.relations[at], found.targets[at]
        asked = (head, relation) if relation < count else (head, relation - count)
        column = (0, 2) if relation < count else (2, 0)
        same = (every[:, column[0]] == asked[0]) & (every[:, 1] == asked[1])
        known = set(every[same, column[1]].tolist()) | {int(target)}
        scores = scorer(run.model)(np.array([head]), np.array([relation]))[0].numpy()
        others = scores[[entity for entity in sample if int(entity) not in known]]
        assert found.candidates[at] == len(others) + 1
        above = (others > scores[target] + 1e-5).sum()
        assert above <= found.optimistic[at] - 1 <= (others > scores[target] - 1e-5).sum()


def test_sampled_metrics_are_named_so_everywhere(run: KbcRun) -> None:
    found = run.evaluate("test", candidates=7)
    assert found.sampled == 7
    assert set(found.headline()) == {
        f"{name}_of_7_sampled"
        for name in ("hits_at_10", "hits_at_3", "hits_at_1", "mrr", "mean_rank")
    }
    assert "hits_at_10" not in json.dumps(found.as_dict()).replace("hits_at_10_of_7_sampled", "")
    kept = KbcRun.load(run.path).record
    assert "test/argmax/of 7 sampled" in kept["sampled_evaluations"]
    assert "test/argmax/of 7 sampled" not in kept["evaluations"]
    assert metric("hits_at_10_of_10000_sampled").name == "hits@10 of 10,000 sampled"
    shown = CliRunner().invoke(app, ["evaluate", str(run.path), "--candidates", "7"])
    assert "ranks of 7 sampled" in " ".join(shown.output.split()), shown.output
    assert "rules alone" not in shown.output
    told = CliRunner().invoke(app, ["evaluate", str(run.path), "--candidates", "7", "--json"])
    assert json.loads(told.output)["model"]["sampled"] == 7


def test_validation_among_a_sample(family: KnowledgeGraph, tmp_path: Path) -> None:
    settings = KbcSettings.build(
        "auto", overrides={**SMALL, "valid_candidates": 9, "valid_every": 1}
    )
    trained = api.train(family, settings, out=tmp_path / "run")
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert all("hits_at_10_of_9_sampled" in line and "hits_at_10" not in line for line in lines)
    assert "hits_at_10_of_9_sampled" in trained.record["best"]
    assert trained.record["data"]["validation"]["candidates"] == 9
    assert trained.headline()[0].keys() == {
        "hits_at_10_of_9_sampled",
        "mean_rank_of_9_sampled",
        "mrr_of_9_sampled",
    }


def test_what_validation_measures_follows_from_counts(family: KnowledgeGraph) -> None:
    settings = KbcSettings.build("auto", overrides={**SMALL, "embedding_dim": 256})
    assert measured(family, settings) == (0, 0)
    facts = np.zeros((50_000, 3), np.int64)

    def of(entities: int) -> tuple[int, int]:
        names = Vocabulary.plain(Texts.empty(entities))
        return measured(replace(family, entities=names, valid=facts), settings)

    assert of(10_000) == (0, 0)
    assert of(240_000) == (8138, 0), "fewer facts, among all entities"
    assert of(5_000_000) == (SAMPLED_FACTS, SAMPLED_CANDIDATES)
    exact = settings.model_copy(update={"valid_candidates": 0})
    assert measured(replace(family, valid=facts), exact) == (0, 0)


def test_a_made_graph_has_what_was_asked_for(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parent.parent / "benchmarks" / "made.py"
    out = tmp_path / "made.tsv"
    sizes = ["--entities", "3000", "--relations", "20", "--triples", "9000"]
    subprocess.run([sys.executable, str(script), str(out), *sizes], check=True)
    graph = load_graph(out)
    assert graph.num_entities == 3000
    assert len(graph.train) + len(graph.valid) + len(graph.test) == 9000
    degrees = np.sort(np.bincount(graph.train[:, [0, 2]].ravel()))[::-1]
    assert degrees[:300].sum() > 0.3 * degrees.sum(), "a tenth of the entities has a third"


def test_weights_are_mapped_and_never_written_back(run: KbcRun) -> None:
    maps = Path("/proc/self/maps")
    loaded = KbcRun.load(run.path)
    if maps.exists():
        assert str(loaded.folder.model.resolve()) in maps.read_text()
    before = loaded.folder.model.read_bytes()
    with torch.no_grad():
        loaded.model.entities.weight.zero_()
    assert loaded.folder.model.read_bytes() == before
    assert KbcRun.load(run.path).model.entities.weight.abs().sum() > 0
