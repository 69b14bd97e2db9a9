"""The explanation says what the forward record and the training facts say, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from ekgn import api
from ekgn.cli.app import app
from ekgn.cli.inside import register
from ekgn.errors import EkgnError
from ekgn.kbc import explain
from ekgn.kbc.answers import Answers
from ekgn.kbc.explain import Explainer, Explanation
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary, load_graph
from ekgn.kbc.model import KbcModel
from ekgn.kbc.ranking import rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.settings import KbcSettings
from tests.conftest import tiny_settings
from tests.tolerance import assert_same_answers, rank_bounds

pytestmark = pytest.mark.numerical


@pytest.fixture(scope="module")
def run(family_run: Path) -> KbcRun:
    return KbcRun(family_run)


@pytest.fixture(scope="module")
def explainer(run: KbcRun) -> Explainer:
    return Explainer(run.graph, run.model, run.known)


@pytest.fixture(scope="module")
def explanation(run: KbcRun, explainer: Explainer) -> Explanation:
    head, relation, tail = run.graph.test[0].tolist()
    return explainer.explain(head, relation, tail)


def new_explainer(graph: KnowledgeGraph, **settings: object) -> Explainer:
    """An explainer of an untrained model."""
    torch.manual_seed(0)
    model = KbcModel(graph.num_entities, graph.num_relations, tiny_settings(**settings)).eval()
    with torch.no_grad():  # decoders start at 0: every step would answer as the first
        for parameter in model.network.decoder.parameters():
            parameter.normal_()
    known = {s: Answers(graph.split(s), graph.num_relations) for s in ("train", "valid", "test")}
    return Explainer(graph, model, known)


def call(*words: str) -> tuple[int, str, BaseException | None]:
    """Exit code, output and exception of a command."""
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "100"})
    return result.exit_code, result.output, result.exception


def test_steps_are_the_record(run: KbcRun, explanation: Explanation) -> None:
    head, relation, _ = run.graph.test[0].tolist()
    with torch.no_grad():
        record = run.model(torch.tensor([head]), torch.tensor([relation]))
    steps = explanation.steps
    assert [step.number for step in steps] == [1, 2, 3]
    weights = record.log_stop_weights_TB[:, 0].exp()
    assert [step.stop_weight for step in steps] == pytest.approx(weights.tolist())
    assert sum(step.stop_weight for step in steps) == pytest.approx(1)
    assert steps[-1].stop_probability == 1
    assert steps[-1].attention == [] and steps[-1].attention_all == []
    for lookup, step in enumerate(steps[:-1]):
        assert step.attention_all == pytest.approx(record.attention_LBM[lookup, 0].tolist())
        assert step.attention[0].weight == max(step.attention_all)
        assert step.attention_all[step.attention[0].slot] == step.attention[0].weight
    chosen = float(weights[explanation.answering_step - 1])
    assert chosen == pytest.approx(float(weights.max()), rel=1e-4)


def test_answers_are_the_predictions(run: KbcRun, explainer: Explainer) -> None:
    head, relation, _ = run.graph.test[0].tolist()
    for readout in ("argmax", "mixture", "last", "step:2"):
        found = explainer.explain(head, relation, top=4, readout=readout)
        predicted = run.answers([(head, relation)], top=30, readout=readout)[0]
        assert_same_answers(
            [(a.id, a.share) for a in found.answers[:4]],
            [(p.id, p.share) for p in predicted[:4]],
        )
        known = {p.id: p.known for p in predicted}
        assert all(answer.known == known[answer.id] for answer in found.answers)
    assert explainer.explain(head, relation, readout="step:2").answering_step == 2
    assert explainer.explain(head, relation, readout="last").answering_step == 3


@pytest.mark.parametrize("has_loop", [False, True])
def test_an_entity_is_its_own_answer_only_where_training_has_that(
    run: KbcRun, has_loop: bool
) -> None:
    loaded = KbcRun(run.path)
    loop = np.array([[5, 0, 5]] * has_loop, np.int64).reshape(-1, 3)
    loaded.graph = replace(loaded.graph, train=np.concatenate([loaded.graph.train, loop]))
    assert loaded.graph.has_loops[0] == has_loop
    everyone = loaded.graph.num_entities
    for relation in (0, loaded.graph.num_relations):
        predicted = loaded.answers([(3, relation)], top=everyone)[0]
        explained = loaded.explainer.explain(3, relation, top=everyone)
        for found in (predicted, explained.answers, explained.steps[0].answers):
            assert len(found) == everyone - (not has_loop)
            assert (loaded.graph.entities.ids[3] in {answer.id for answer in found}) == has_loop
    asked = loaded.explainer.explain(3, 0, 3, top=2)
    assert asked.answers[-1].id == loaded.graph.entities.ids[3], "unless it is asked for"


@pytest.mark.parametrize("split", ["valid", "test"])
def test_target_rank_is_the_filtered_rank(run: KbcRun, explainer: Explainer, split: str) -> None:
    ranks = rank_split(run.scorer(), run.graph, split)
    bounds = rank_bounds(run.scorer(), run.graph, split)
    of_first = rank_bounds(run.scorer("step:1"), run.graph, split)
    for pair in range(len(ranks.heads)):
        head, relation = int(ranks.heads[pair]), int(ranks.relations[pair])
        found = explainer.explain(head, relation, int(ranks.targets[pair]))
        first = found.steps[0].target_rank
        assert found.target_rank is not None and first is not None
        assert bounds.low[pair] <= found.target_rank <= bounds.high[pair]
        assert of_first.low[pair] <= first <= of_first.high[pair]


def test_ties_count_half(family: KnowledgeGraph) -> None:
    untrained = new_explainer(family)
    with torch.no_grad():
        untrained.model.answers.weight.zero_()
    found = untrained.explain(0, 0, target=5)
    others = family.num_entities - len(untrained.known["train"].of(0, 0)) - 1
    assert found.target_rank == 1 + others / 2


def test_a_target_beyond_the_top_follows_with_its_place(run: KbcRun, explainer: Explainer) -> None:
    predicted = run.answers([(0, 0)], top=30)[0]
    last = predicted[-1]
    found = explainer.explain(0, 0, run.entity(last.id), top=2)
    as_likely = [p.rank for p in predicted if p.share == pytest.approx(last.share, rel=1e-3)]
    assert [answer.rank for answer in found.answers[:-1]] == [1, 2]
    assert found.answers[-1].id == last.id and found.answers[-1].rank in as_likely


def slow_distances(explainer: Explainer, state: torch.Tensor, step: int) -> list[float]:
    """The distance of every observed pair at a step by a plain loop."""
    pairs = explainer.known["train"]
    found = []
    for head, relation in zip(pairs.heads, pairs.relations, strict=True):
        with torch.no_grad():
            record = explainer.model(torch.tensor([int(head)]), torch.tensor([int(relation)]))
        found.append(float((record.states_TBH[step, 0] - state).norm()))
    return found


@pytest.mark.parametrize("kept", [True, False])
def test_nearest_pairs_agree_with_a_plain_loop(
    run: KbcRun, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(explain, "PAIR_CHUNK", 17)
    monkeypatch.setattr(explain, "KEPT_BYTES", 2**30 if kept else 0)
    fresh = Explainer(run.graph, run.model, run.known)
    with torch.no_grad():
        states = run.model(torch.tensor([3]), torch.tensor([1])).states_TBH[:, 0]
    rows, distances = fresh.nearest_pairs(states, 3)
    for step, state in enumerate(states):
        expected = slow_distances(fresh, state, step)
        nearest = sorted(expected)[:3]
        assert distances[step].tolist() == pytest.approx(nearest, abs=1e-4)
        assert [expected[row] for row in rows[step]] == pytest.approx(nearest, abs=1e-4)
        assert len(set(rows[step].tolist())) == 3


def test_distances_have_a_scale_that_is_said_once(
    run: KbcRun, explainer: Explainer, family_run: Path
) -> None:
    found = explainer.explain(3, 0)
    pair = found.steps[0].nearest[1]
    assert pair.far == pytest.approx(pair.distance / found.typical_distance)
    assert found.typical_distance > found.steps[0].nearest[0].distance
    said = f"(at {found.steps[found.answering_step - 1].nearest[1].far:.0%} of the distance of two"
    assert any(said in reason for reason in found.reasons) or found.answering_step > 1
    given = ["explain", str(family_run), "--head", "person_3", "--relation", "next"]
    printed = " ".join(CliRunner().invoke(app, given).stdout.split())
    assert printed.count("as a share of the distance of two typical questions") == 1


def test_a_training_question_is_nearest_to_itself(run: KbcRun, explainer: Explainer) -> None:
    head, relation, tail = run.graph.train[0].tolist()
    pair = explainer.explain(head, relation, tail).steps[0].nearest[0]
    assert (pair.head.id, pair.relation) == (run.graph.entities.ids[head], "Next")
    assert pair.distance == pytest.approx(0, abs=1e-5)
    assert pair.holds_answer and pair.answers[0].id == run.graph.entities.ids[tail]
    assert pair.answer_count == len(run.known["train"].of(head, relation))


def test_holds_answer_is_about_the_target_or_else_the_answer(
    run: KbcRun, explainer: Explainer
) -> None:
    head, relation, tail = run.graph.train[0].tolist()
    other = (tail + 7) % run.graph.num_entities
    assert not explainer.explain(head, relation, other).steps[0].nearest[0].holds_answer
    free = explainer.explain(head, relation)
    said = run.entity(free.answers[0].id)
    assert free.steps[0].nearest[0].holds_answer == (said in run.known["train"].of(head, relation))


def test_the_question_in_words(explainer: Explainer) -> None:
    assert explainer.explain(0, 0).question == "“Person 0 Next ?”"
    backwards = explainer.explain(0, 3)
    assert backwards.question == "“? Next Person 0”"
    assert backwards.relation == "^Next"


def test_reasons_name_training_facts(run: KbcRun, explainer: Explainer) -> None:
    head, relation, tail = run.graph.train[0].tolist()
    reasons = " ".join(explainer.explain(head, relation, tail).reasons)
    assert "Training answers this very question with Person 1." in reasons
    assert "Training also says: Person 1 Previous Person 0." in reasons
    assert "nearest other question of training is “" in reasons
    assert "Person 1 ranks 1 in the answer (by step: " in reasons


def test_reasons_say_what_stopping_earlier_changes(family: KnowledgeGraph) -> None:
    untrained = new_explainer(family)
    changed = [
        (found, step)
        for head in range(30)
        for found in [untrained.explain(head, 0, readout="last")]
        for step in found.steps[:-1]
        if step.answers[0].id != found.answers[0].id
    ]
    assert changed, "an untrained network changes its mind"
    for found, step in changed:
        (said,) = (r for r in found.reasons if f"it would say {step.answers[0].label} (" in r)
        stopped = said.split(" it would say ")[0]
        assert stopped.startswith("Stopped at step ") and str(step.number) in stopped
        assert f"{step.answers[0].share:.1%}" in said
    at_once = untrained.explain(0, 0, readout="step:1").reasons
    assert "It stops at the first step: nothing was looked up for this answer." in at_once


def test_parts_without_training_facts_are_said(family: KnowledgeGraph) -> None:
    relations = Vocabulary(
        (*family.relations.ids, "never"), (*family.relations.labels, "Never"), ("",) * 4
    )
    entities = Vocabulary(
        (*family.entities.ids, "nobody"), (*family.entities.labels, "Nobody"), ("",) * 31
    )
    graph = replace(family, relations=relations, entities=entities)
    reasons = " ".join(new_explainer(graph).explain(30, 3).reasons)
    assert "Training has no fact of the relation Never" in reasons
    assert "Training has no fact about Nobody" in reasons


def test_one_step_needs_no_memory(family: KnowledgeGraph) -> None:
    found = new_explainer(family, max_steps=1).explain(0, 0, 1)
    assert len(found.steps) == 1
    assert found.steps[0].attention == []
    assert found.steps[0].stop_weight == 1


def test_it_is_plain_json(explanation: Explanation) -> None:
    assert json.loads(json.dumps(asdict(explanation), allow_nan=False)) == asdict(explanation)


def test_bad_indices_and_counts(explainer: Explainer) -> None:
    for words, query in {
        "There is no head 30 in family: expected 0 to 29.": (30, 0, None),
        "There is no relation 6 in family: expected 0 to 5.": (0, 6, None),
        "There is no target -1 in family": (0, 0, -1),
    }.items():
        with pytest.raises(EkgnError, match=words):
            explainer.explain(*query)
    with pytest.raises(EkgnError, match="at least one answer and one pair"):
        explainer.explain(0, 0, top=0)
    with pytest.raises(EkgnError, match="Unknown readout 'step:9'"):
        explainer.explain(0, 0, readout="step:9")


def test_command_prints_steps_within_100_columns(family_run: Path) -> None:
    code, output, problem = call(
        *("explain", str(family_run), "--head", "Person 1", "--relation", "next"),
        *("--target", "person_2"),
    )
    assert code == 0, problem
    assert "Step 3" in output and "answers here" in output and "Why" in output
    assert max(len(line) for line in output.splitlines()) <= 100


def test_command_json_and_the_head_side(family_run: Path) -> None:
    code, output, problem = call(
        *("explain", str(family_run), "--tail", "Person 1", "--relation", "next", "--json")
    )
    assert code == 0, problem
    found = json.loads(output)
    assert found["relation"] == "^Next" and len(found["steps"]) == 3


def test_unknown_names_suggest_the_nearest(family_run: Path) -> None:
    for words, near in (
        (("--head", "Persn 1", "--relation", "next"), "Did you mean 'Person 1"),
        (("--head", "Person 1", "--relation", "nxt"), "Did you mean 'Next'"),
        (("--head", "Person 1", "--relation", "next", "--target", "Prson 2"), "Person 2"),
    ):
        _, _, problem = call("explain", str(family_run), *words)
        assert isinstance(problem, EkgnError) and near in str(problem)
    _, _, problem = call("explain", str(family_run), "--relation", "next")
    assert isinstance(problem, EkgnError) and "either a head or a tail" in str(problem)


def test_a_run_without_names_says_so(family: KnowledgeGraph, tmp_path: Path) -> None:
    ids = tuple(f"/m/0{i}" for i in range(30))
    graph = replace(family, entities=Vocabulary(ids, ids, ("",) * 30))
    api.train(graph, tiny_settings(epochs=1, valid_every=1), out=tmp_path / "run")
    code, output, problem = call(
        "explain", str(tmp_path / "run"), "--head", "/m/01", "--relation", "next"
    )
    assert code == 0, problem
    assert "without names, so ids are shown" in " ".join(output.split())


@pytest.mark.slow
def test_fb15k_is_encoded_once_for_all_questions(
    benchmarks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load_graph("FB15k", data_dir=benchmarks)
    torch.manual_seed(0)
    model = KbcModel(graph.num_entities, graph.num_relations, KbcSettings.build()).eval()
    known = {s: Answers(graph.split(s), graph.num_relations) for s in ("train", "valid", "test")}
    explainer = Explainer(graph, model, known)
    assert len(known["train"]) == 273_710
    explainer.prepare()
    encoded: list[int] = []
    encoder = model.network.encoder
    encoder.register_forward_hook(lambda _, query, found: encoded.append(len(query[0])))
    head, relation, tail = graph.test[0].tolist()
    explainer.explain(head, relation, tail)
    assert encoded == [1], "only the question itself"
