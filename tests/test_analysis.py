"""What the memory holds and what the steps do: planted cases, slow loops, and the commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from ekgn import api
from ekgn.cli.inside import register
from ekgn.errors import EkgnError
from ekgn.kbc.analysis import Analysis, Replay, SameForAll, analyze
from ekgn.kbc.answers import Answers, Ints
from ekgn.kbc.explain import Explainer
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary
from ekgn.kbc.memory_map import (
    MemoryMap,
    cluster_order,
    memory_map,
    relation_words,
    spread,
)
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.ranking import filter_answers, rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.words import short_relation
from tests.conftest import tiny_settings
from tests.tolerance import assert_metrics_of, unclear

pytestmark = pytest.mark.numerical


@pytest.fixture(scope="module")
def run(family_run: Path) -> KbcRun:
    return KbcRun(family_run)


@pytest.fixture(scope="module")
def found(run: KbcRun) -> Analysis:
    return analyze(run.graph, run.model, "test")


def call(*words: str) -> tuple[int, str, BaseException | None]:
    """Exit code, output and exception of a command."""
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "100"})
    return result.exit_code, result.output, result.exception


def planted() -> MemoryMap:
    """Two vectors with a theme each, one that nobody uses."""
    names = [
        *("/film/film/genre", "^/film/director/film", "/film/actor/film"),
        *("/sports/team/player", "/sports/team/coach", "^/sports/league/team"),
    ]
    attention = np.array([[0.9, 0.09, 0.01]] * 3 + [[0.08, 0.91, 0.01]] * 3)
    return MemoryMap(names, np.array([1, 1, 1, 1, 1, 5]), attention, np.array([1, 1, 0.2]))


def test_vectors_without_words_of_their_own_are_told_by_their_relations() -> None:
    attention = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    opaque = MemoryMap(["P1", "^P2", "P3"], np.ones(3, np.int64), attention, np.ones(3))
    assert opaque.themes == ["P1 / P3", "P2, backwards / P1", "P3 / P2, backwards"]
    names = ["has town", "in town", "town of"]
    alike = MemoryMap(names, opaque.queries_R, opaque.attention_RM, opaque.peak_M)
    assert len(set(alike.themes)) == 3 and alike.themes[0] == "has town / town of"


def test_planted_themes_shares_and_unused() -> None:
    memory = planted()
    assert memory.themes[0] == "film"
    assert "sports" in memory.themes[1] or "team" in memory.themes[1]
    assert memory.themes[2] == "unused"
    assert memory.share_M.sum() == pytest.approx(1)
    assert memory.share_M[0] == pytest.approx((3 * 0.9 + 7 * 0.08) / 10)
    slots = memory.slots()
    assert [use.slot for use in slots] == [1, 0, 2]
    assert [use.unused for use in slots] == [False, False, True]
    assert {r.relation for r in slots[1].relations[:3]} == set(memory.names[:3])


def test_planted_relation_side() -> None:
    use = planted().relation("/film/film/genre")
    assert (use.slots[0].slot, use.slots[0].theme, use.queries) == (0, "film", 1)
    assert 1 < use.effective_slots < 2
    with pytest.raises(EkgnError, match="'/never' has no training facts"):
        planted().relation("/never")


def test_clustering_puts_like_rows_together() -> None:
    rng = np.random.default_rng(0)
    kind = np.array([0, 1, 2] * 4)
    rows = np.eye(3)[kind] + 0.01 * rng.random((12, 3))
    ordered = kind[cluster_order(rows)]
    assert np.count_nonzero(np.diff(ordered)) == 2
    assert sorted(cluster_order(rows[:2]).tolist()) == [0, 1]


def test_words_and_short_names_of_relations() -> None:
    assert relation_words("^/film/film/directed_by") == {"film", "directed"}
    assert relation_words("birthPlace") == {"birth", "place"}
    assert short_relation("/a/b/c./d/roster_position/player") == "roster_position/player"
    assert short_relation("/film/film/genre") == "film/genre"
    assert short_relation("/type/x") == "/type/x"
    assert short_relation("and/or") == "and/or"


def test_spread_keeps_ends_and_count() -> None:
    rows: Ints = np.arange(100)
    assert spread(rows, 5).tolist() == [0, 24, 49, 74, 99]
    assert spread(rows[:3], 5).tolist() == [0, 1, 2]


def test_memory_map_is_the_mean_attention(run: KbcRun) -> None:
    train = run.known["train"]
    memory = memory_map(run.graph, run.model, train)
    total = {name: np.zeros(8) for name in memory.names}
    peak = np.zeros(8)
    for head, relation in zip(train.heads.tolist(), train.relations.tolist(), strict=True):
        with torch.no_grad():
            attention = run.model(torch.tensor([head]), torch.tensor([relation])).attention_LBM
        total[run.relation_label(relation)] += attention[:, 0].mean(dim=0).numpy()
        peak = np.maximum(peak, attention.amax(dim=(0, 1)).numpy())
    for row, name in enumerate(memory.names):
        expected = total[name] / memory.queries_R[row]
        assert memory.attention_RM[row] == pytest.approx(expected, abs=1e-5)
    assert memory.peak_M == pytest.approx(peak, abs=1e-5)
    assert memory.attention_RM.sum(axis=1) == pytest.approx(np.ones(6), abs=1e-5)


@pytest.mark.parametrize("changes", [{"max_steps": 1}, {"controller": "mlp"}])
def test_a_run_that_reads_no_memory_has_none_to_show(
    family: KnowledgeGraph, changes: dict[str, object]
) -> None:
    model = KbcModel(30, 3, tiny_settings(**changes)).eval()
    train = Answers(family.train, 3)
    name, value = next(iter(changes.items()))
    with pytest.raises(EkgnError, match=rf"never looks at a memory: .*{name} = {value}"):
        memory_map(family, model, train)
    assert analyze(family, model, "valid").no_memory == {}
    known = {"train": train, "valid": Answers(family.valid, 3), "test": Answers(family.test, 3)}
    explained = Explainer(family, model, known).explain(0, 1)
    assert not any(step.attention for step in explained.steps)


def test_metrics_are_those_of_the_ranking(run: KbcRun, found: Analysis) -> None:
    for readout in ("argmax", "mixture", "step:1", "step:3"):
        assert_metrics_of(found.metrics[readout], run.scorer(readout), run.graph, "test")
    assert set(found.metrics) == {"argmax", "mixture", "step:1", "step:2", "step:3"}


def test_stop_profile_is_the_record(run: KbcRun, found: Analysis) -> None:
    queries = Answers(run.graph.test, 3)
    with torch.no_grad():
        record = run.model(torch.from_numpy(queries.heads), torch.from_numpy(queries.relations))
    weights_TB = record.log_stop_weights_TB.double().exp()
    doubt = 1e-6 + float(unclear(weights_TB.T).double().mean())
    weights = weights_TB.numpy()
    chosen = weights.argmax(axis=0)
    assert found.queries == len(queries) == found.stop.queries
    assert found.stop.weights == pytest.approx(weights.mean(axis=1).tolist(), abs=1e-6)
    shares = [float((chosen == step).mean()) for step in range(3)]
    assert found.stop.answering == pytest.approx(shares, abs=doubt)
    assert found.stop.early == pytest.approx(float((chosen < 2).mean()), abs=doubt)
    assert sum(profile.queries for profile in found.by_category) == len(queries)
    assert found.overall() == {**found.as_dict(), "by_relation": []}
    assert sum(row.stop.queries for row in found.by_relation) == len(queries)
    assert {row.stop.name.removeprefix("^") for row in found.by_relation} <= {
        *("Next", "Previous", "After Next")
    }


def test_lookups_and_changes_are_the_record(run: KbcRun, found: Analysis) -> None:
    queries = Answers(run.graph.test, 3)
    query = torch.from_numpy(queries.heads), torch.from_numpy(queries.relations)
    with torch.no_grad():
        record = run.model(*query)
        scores = [run.model.scores(record, f"step:{n}") for n in (1, 2, 3)]
        scores.append(run.model.scores(record))
    *tops, answer = (score.argmax(dim=1) for score in scores)
    doubtful = torch.stack([unclear(score) for score in scores]).any(dim=0)
    doubt = 1e-6 + float(doubtful.double().mean())
    attention = record.attention_LBM.numpy()
    entropy = -(attention * np.log(attention)).sum(axis=2).mean(axis=1)
    assert [lookup.entropy for lookup in found.lookups] == pytest.approx(entropy.tolist(), abs=1e-4)
    assert [lookup.largest for lookup in found.lookups] == pytest.approx(
        attention.max(axis=2).mean(axis=1).tolist(), abs=1e-5
    )
    changed = (torch.stack(tops) != tops[0]).any(dim=0).double().mean().item()
    assert found.changes.any_step == pytest.approx(changed, abs=doubt)
    other = (tops[0] != answer).double().mean().item()
    assert found.changes.first_to_answer == pytest.approx(other, abs=doubt)


def test_without_memory_all_queries_read_the_same(run: KbcRun) -> None:
    replayed = Replay(run.model, run.known["test"])
    heads, relations = torch.tensor([0, 5, 9]), torch.tensor([0, 1, 5])
    with torch.no_grad():
        before = run.model(heads, relations)
        same = SameForAll(replayed.mean_attention_M, run.model.network.memory)
        blind = run.model(heads, relations, memory=same)
        after = run.model(heads, relations)
    expected = replayed.mean_attention_M.expand(2, 3, -1)
    torch.testing.assert_close(blind.attention_LBM, expected)
    assert replayed.mean_attention_M.sum().item() == pytest.approx(1, abs=1e-4)
    assert not torch.allclose(before.states_TBH[1:], blind.states_TBH[1:], atol=1e-3)
    assert torch.equal(before.states_TBH, after.states_TBH), "the same computation, run twice"
    torch.testing.assert_close(before.states_TBH[0], blind.states_TBH[0])


def test_without_memory_changes_nothing_if_attention_is_already_even(
    family: KnowledgeGraph,
) -> None:
    torch.manual_seed(0)
    model = KbcModel(30, 3, tiny_settings()).eval()
    with torch.no_grad():
        model.network.memory.key.weight.zero_()  # every key is 0: attention is even
    found = analyze(family, model, "valid")
    assert found.lookups[0].effective_slots == pytest.approx(8, rel=1e-4)
    for readout in ("argmax", "step:3"):
        assert_metrics_of(found.metrics[readout], scorer(model, readout), family, "valid")
        assert_metrics_of(found.no_memory[readout], scorer(model, readout), family, "valid")


def test_the_oracle_takes_the_best_step_of_each_answer(family: KnowledgeGraph) -> None:
    torch.manual_seed(0)
    model = KbcModel(30, 3, tiny_settings()).eval()
    found = analyze(family, model, "valid")
    known = filter_answers(family, "valid")
    replayed = Replay(model, Answers(family.valid, family.num_relations))
    ranks = [
        rank_split(replayed.scorer(f"step:{step}"), family, "valid", known=known).realistic
        for step in (1, 2, 3)
    ]
    best = [min(of_pair) for of_pair in zip(*ranks, strict=True)]
    assert found.oracle.mrr == pytest.approx(sum(1 / rank for rank in best) / len(best))
    for step in ("step:1", "step:2", "step:3"):
        assert found.oracle.mean_rank <= found.metrics[step].mean_rank


def test_one_step_is_analyzed_too(family: KnowledgeGraph) -> None:
    torch.manual_seed(0)
    found = analyze(family, KbcModel(30, 3, tiny_settings(max_steps=1)).eval(), "valid")
    assert found.lookups == [] and found.no_memory == {}
    assert found.stop.early == 0 and found.changes.any_step == 0
    assert found.by_relation[0].effective_slots is None


def test_limit_draws_that_many(run: KbcRun) -> None:
    found = analyze(run.graph, run.model, "test", limit=2)
    assert found.triples == 2 and found.metrics["argmax"].count == 4
    assert analyze(run.graph, run.model, "test", limit=99).triples == 4
    with pytest.raises(EkgnError, match="limit = -1: expected a number of triples"):
        analyze(run.graph, run.model, "test", limit=-1)


def test_empty_and_unknown_splits(run: KbcRun) -> None:
    empty = replace(run.graph, test=np.empty((0, 3), np.int64))
    with pytest.raises(EkgnError, match="family has no test triples: there is nothing to analyze"):
        analyze(empty, run.model, "test")
    with pytest.raises(EkgnError, match="Unknown split 'tset'"):
        analyze(run.graph, run.model, "tset")


def test_sentences(found: Analysis) -> None:
    words = " ".join(found.in_words())
    assert f"{found.stop.early:.1%} of the queries stop before step 3." in words
    assert "With the same attention for every query" in words


def test_analyze_command(family_run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "steps.png"
    code, output, problem = call(
        "analyze", str(family_run), "--split", "test", "--plot", str(picture)
    )
    assert code == 0, problem
    assert "Where it stops" in output and "no memory" in output and "After Next" in output
    assert max(len(line) for line in output.splitlines()) <= 100
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, output, problem = call("analyze", str(family_run), "--split", "test", "--json")
    assert code == 0, problem
    assert json.loads(output[output.index("{") :])["stop"]["name"] == "all"


def test_memory_command(family_run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "memory.svg"
    code, output, problem = call("memory", str(family_run), "--plot", str(picture))
    assert code == 0, problem
    assert "What the memory holds" in output and "of 8 vectors are never used" in output
    assert "<svg" in picture.read_text()
    code, output, problem = call("memory", str(family_run), "--json")
    assert code == 0, problem
    shown = json.loads(output)
    assert len(shown["slots"]) == 8 and len(shown["relations"]) == 6
    code, output, problem = call("memory", str(family_run), "--relation", "^next")
    assert code == 0, problem
    assert "What Next, backwards looks at" in output


def test_memory_command_bad_input(family_run: Path, tmp_path: Path) -> None:
    for words, text in (
        (("--slot", "8"), "There is no memory vector 8: this run has 0 to 7."),
        (("--relation", "nxt"), "Did you mean 'Next'"),
        (("--plot", str(tmp_path / "map.gif")), "expected a name ending in .png, .svg, .pdf"),
    ):
        _, _, problem = call("memory", str(family_run), *words)
        assert isinstance(problem, EkgnError) and text in str(problem)


def test_a_relation_without_training_facts(family: KnowledgeGraph, tmp_path: Path) -> None:
    relations = Vocabulary(
        (*family.relations.ids, "never"), (*family.relations.labels, "Never"), ("",) * 4
    )
    graph = replace(family, relations=relations)
    path = tmp_path / "run"
    api.train(graph, tiny_settings(epochs=1, valid_every=1), out=path)
    _, _, problem = call("memory", str(path), "--relation", "never")
    assert isinstance(problem, EkgnError)
    assert "The relation 'Never' has no training facts" in str(problem)
