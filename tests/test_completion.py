"""Completion: which questions are asked, what comes of them, and how sure one may be of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

import ekgn
from ekgn.backtest import backtest, take_away
from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers
from ekgn.kbc.completion import confidence as sure
from ekgn.kbc.completion.asking import Asker, Kept
from ekgn.kbc.completion.facts import FEATURES
from ekgn.kbc.completion.given import Problem
from ekgn.kbc.completion.roles import Choice, Roles
from ekgn.kbc.completion.shown import reason
from ekgn.kbc.completion.writers import WRITERS, iri, write_table
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.ranking import rank_split
from ekgn.kbc.run import KbcRun, Predictions
from ekgn.kbc.triples import read_triples
from tests.conftest import tiny_settings, vocabulary

pytestmark = pytest.mark.numerical

FACT = ("head", "relation", "tail")
ALL: dict[str, Any] = {"single_valued": False}  # every relation of the family has one value


@pytest.fixture(scope="module")
def run(family_run: Path, tmp_path_factory: pytest.TempPathFactory) -> KbcRun:
    """The family's run, in a folder of its own."""
    folder = tmp_path_factory.mktemp("completed") / "family"
    shutil.copytree(family_run, folder)
    return KbcRun.load(folder)


def cities(num_cities: int = 30) -> KnowledgeGraph:
    """Cities with one country each and several languages; the last has a language alone."""
    facts = [(city, 0, 40 + city % 3) for city in range(num_cities - 1)]
    facts += [(city, 1, 50 + language) for city in range(num_cities) for language in range(2)]
    train = np.array(facts, np.int64)
    names = vocabulary(*(f"e{index}" for index in range(60)))
    relations = vocabulary("country", "language")
    return KnowledgeGraph("cities", names, relations, train, train[:0], train[:0], {})


def test_what_a_kind_has_is_asked_where_it_is_missing() -> None:
    graph = cities()
    roles = Roles(graph, Answers(graph.train, graph.num_relations))
    assert np.flatnonzero(roles.asked(0, Choice())).tolist() == [29], "all others have a country"
    every = roles.asked(0, Choice(single_valued=False))
    assert np.flatnonzero(every).tolist() == list(range(30))
    assert not roles.asked(0, Choice(ask_from=0.99))[29], "29 of 30 of its kind have one"
    assert np.flatnonzero(roles.asked(1, Choice())).tolist() == list(range(30))
    assert roles.asked(0, Choice(everything=True)).all()


def test_answers_are_like_those_of_training() -> None:
    graph = cities()
    roles = Roles(graph, Answers(graph.train, graph.num_relations))
    assert np.flatnonzero(roles.considered(0, Choice())).tolist() == [40, 41, 42]
    assert np.flatnonzero(roles.considered(2, Choice())).tolist() == [29], "who has no country yet"


@drawn(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 7)), min_size=1))
def test_the_likelihood_of_a_role_is_that_of_a_slow_loop(facts: list[tuple[int, int, int]]) -> None:
    train = np.array(facts, np.int64)
    graph = KnowledgeGraph(
        "any", vocabulary(*"abcdefgh"), vocabulary(*"xyz"), train, train[:0], train[:0], {}
    )
    roles = Roles(graph, Answers(train, 3))
    held: dict[int, set[int]] = {role: set() for role in range(6)}
    for head, relation, tail in facts:
        held[relation].add(head)
        held[relation + 3].add(tail)
    for role in range(6):
        for entity, found in enumerate(roles.likely(role).tolist()):
            kinds = [
                len(held[kind] & held[role]) / len(held[kind])
                for kind in range(6)
                if entity in held[kind] and len(held[kind]) >= 5
            ]
            wanted = 1.0 if entity in held[role] else max(kinds, default=0.0)
            assert found == pytest.approx(wanted, abs=1e-6)


def test_ranks_and_shares_are_those_of_the_evaluation(run: KbcRun) -> None:
    """Candidates of validation have the place that filtered ranking gives them."""
    ranks = rank_split(run.scorer(), run.graph, "valid", known=run.known["train"])
    scored = run.score(
        [
            tuple(
                names.ids[index]
                for names, index in zip(
                    (run.graph.entities, run.graph.relations, run.graph.entities), fact, strict=True
                )
            )
            for fact in run.graph.valid.tolist()
        ]
    ).facts
    half = len(ranks.heads) // 2
    own = run.graph.valid[:, 0] != run.graph.valid[:, 2]
    assert own.all()
    for place in range(half):
        assert abs(scored["tail_rank"][place] - ranks.optimistic[place]) <= 1, "but for itself"
        assert abs(scored["head_rank"][place] - ranks.optimistic[half + place]) <= 1
    first = run.graph.valid[0]
    shares = run.scorer()(first[:1], first[1:2]).softmax(dim=1)[0]
    assert scored["tail_share"][0] == pytest.approx(float(shares[first[2]]), rel=1e-3)


def test_completion_finds_what_was_held_out(run: KbcRun) -> None:
    found = run.complete().facts
    train = {tuple(fact) for fact in run.graph.train.tolist()}
    entities, relations = run.graph.entities.index_of, run.graph.relations.index_of
    facts = [
        (entities[head], relations[relation], entities[tail])
        for head, relation, tail in found.select(FACT).iter_rows()
    ]
    assert len(set(facts)) == len(facts) and not train & set(facts)
    assert all(head != tail for head, _, tail in facts)
    held_out = found["held_out"].to_list()
    assert held_out.count("test") == 4 and held_out.count("valid") == 4
    assert found["confidence"].null_count() == len(found), "too little validation to fit one"
    assert reason(run, 9, 0, 4) == "Person 9 is most like Person 3: Next Person 4"
    with pytest.raises(EkgnError, match="no confidence to choose by"):
        run.complete(min_confidence=0.5)


def test_only_some_relations_and_entities(run: KbcRun) -> None:
    found = run.complete(relations=["After Next"], entities=["Person 3"], top=5, **ALL).facts
    assert 0 < len(found) <= 5 and set(found["relation"]) == {"after_next"}
    assert all("person_3" in ends for ends in found.select("head", "tail").iter_rows())
    with pytest.raises(EkgnError, match="Unknown relation 'nxt'"):
        run.complete(relations=["nxt"])


def candidates(count: int, seed: int = 0) -> pl.DataFrame:
    """Candidates whose truth depends on the tail's share."""
    rng = np.random.default_rng(seed)
    log_share = -rng.exponential(3.0, count)
    chance = 1 / (1 + np.exp(-3 * (log_share + 1.5)))
    columns = {name: rng.normal(size=count) for name in FEATURES}
    columns |= {"tail_log_share": log_share, "tail_share": np.exp(log_share)}
    whole = np.arange(count)
    ranks = {"tail_rank": rng.integers(1, 20, count), "head_rank": rng.integers(1, 20, count)}
    keys = {"head": whole, "relation": whole % 3, "tail": whole[::-1]}
    return pl.DataFrame({**keys, **columns, **ranks, "true": rng.random(count) < chance})


@pytest.mark.parametrize("prepared", [0, 10**6])
def test_an_answer_is_told_alike_with_its_rank_and_without(run: KbcRun, prepared: int) -> None:
    asker = Asker(run)
    expected = len(run.known["train"]) if prepared else 0
    assert sum(len(part) for part in asker.prepare(prepared)) == expected
    heads, relations, tails = run.graph.train[:40].T
    told, _ = asker.places(heads, relations, tails)
    back, _ = asker.places(tails, asker.inverse(relations), heads)
    rows = np.arange(len(heads))
    for _ in range(2):  # the second time from what was kept
        some = asker.questions(heads, relations)
        for side, other_side in zip((told, back), asker.both(some, rows, tails), strict=True):
            for one, other in zip(side, other_side, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_what_a_search_found_is_kept(run: KbcRun, monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Asker(run)
    heads, relations, tails = run.graph.train[:20].T
    some = asker.questions(heads, relations)
    best = run.search.best(some.asked, run.graph.num_entities, asker._hidden(heads, relations))
    expected = Asker(run).both(some, np.arange(20), tails)[0]
    asker.note(some, best, best.log_share_BP.isfinite().numpy())
    _, is_kept = asker._table(3).get(asker._keys(some))
    assert is_kept.all()
    for one, other in zip(expected, asker.both(some, np.arange(20), tails)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@drawn(st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=30), max_size=6))
def test_what_is_kept_is_that_of_its_question(batches: list[list[int]]) -> None:
    kept = Kept(places=16, width=2)
    for batch in batches:
        keys = np.array(batch, np.int64)
        kept.put(keys, np.stack([keys % 1000, keys % 7], axis=1).astype(np.float32))
        found, is_there = kept.get(keys)
        assert is_there.any()
        np.testing.assert_array_equal(found[is_there, 0], keys[is_there] % 1000)
        np.testing.assert_array_equal(found[is_there, 1], keys[is_there] % 7)


@pytest.mark.parametrize("count", [900, 6000])
def test_a_confidence_is_calibrated_on_what_it_did_not_see(count: int, tmp_path: Path) -> None:
    made = sure.fit(candidates(count), {"step": 7})
    assert bool(made.knots) == (count == 6000), "isotonic where there is enough"
    fresh = candidates(20_000, seed=1)
    error = sure.calibration_error(made.of(fresh), fresh["true"].to_numpy())
    before = sure.calibration_error(fresh["tail_share"].to_numpy(), fresh["true"].to_numpy())
    assert error < 0.05 < before
    assert ((made.of(fresh) > 0) & (made.of(fresh) < 1)).all()
    made.save(tmp_path)
    again = sure.Confidence.load(tmp_path)
    assert again is not None and again.checkpoint == {"step": 7}
    np.testing.assert_allclose(again.of(fresh), made.of(fresh))


def test_a_promised_precision_is_kept() -> None:
    made = sure.fit(candidates(6000), {})
    fresh = candidates(20_000, seed=2)
    level, expected = astuple(made.check.promise(0.8))
    kept = fresh["true"].to_numpy()[made.of(fresh) >= level]
    assert len(kept) > 100 and kept.mean() > 0.78
    assert expected > 0.8 and kept.mean() == pytest.approx(expected, abs=0.05)
    assert made.check.promise(0.8, unlisted_true=0.5).level < level
    with pytest.raises(EkgnError, match=r"No confidence is known to give a precision of 1:"):
        made.check.promise(1.0)


def test_too_few_true_candidates_are_refused() -> None:
    with pytest.raises(sure.TooFew, match="40 are needed"):
        sure.fit(candidates(300).with_columns(true=pl.lit(False)), {})


@drawn(st.integers(0, 60), st.integers(0, 60))
def test_the_lower_bound_is_one(true: int, false: int) -> None:
    bound = sure.lower_bound(true, true + false)
    assert 0 <= bound <= (true / (true + false) if true else 0)


def keep_confidence(run: KbcRun) -> KbcRun:
    """The run with a confidence, fitted on candidates of no graph."""
    sure.fit(candidates(6000), run.checkpoint).save(run.path)
    return KbcRun.load(run.path)


def test_a_fitted_confidence_is_shown_everywhere(run: KbcRun, tmp_path: Path) -> None:
    folder = tmp_path / "sure"
    shutil.copytree(run.path, folder)
    fitted = keep_confidence(KbcRun.load(folder))
    questions = [
        ("person_3", "next", "?"),
        ("?", "next", "person_4"),
        ("?", "after_next", "person_9"),
    ]
    for words, (_, found) in zip(questions, fitted.predict_many(questions, top=5), strict=True):
        assert isinstance(found, list)
        head, relation, tail = (None if word == "?" else word for word in words)
        alone = fitted.predict(head, relation, tail, top=5)
        for one, other in zip(found, alone, strict=True):
            assert (one.confidence is None) == (one.known == "train")
            if one.confidence is not None:
                assert one.confidence == pytest.approx(other.confidence, abs=1e-3)
                fact = [one.id if word == "?" else word for word in words]
                scored = fitted.score([fact]).facts["confidence"][0]
                assert one.confidence == pytest.approx(scored, abs=1e-3)
    by_last = fitted.predict("person_3", "next", top=5, readout="last")
    assert all(answer.confidence is None for answer in by_last), "it was fitted by another readout"
    facts = fitted.complete(min_confidence=0.3).facts
    levels = facts["confidence"].to_list()
    assert levels == sorted(levels, reverse=True) and min(levels) >= 0.3
    false = [("person_3", "next", "person_20"), ("person_3", "next", "nobody")]
    against = fitted.complete(min_confidence=0.3, negatives=false).negatives
    assert against and against["facts"] == 1 and against["not_read"] == 1
    (folder / sure.FILE).write_text('{"features": []}')
    with pytest.raises(EkgnError, match=r"is damaged\. Remove it"):
        KbcRun.load(folder).predict(head="person_3", relation="next")


def test_a_confidence_of_other_weights_is_not_used(run: KbcRun, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "other")
    sure.fit(candidates(300), {"step": -1}).save(tmp_path / "other")
    assert KbcRun.load(tmp_path / "other").confidence is None


KILLED = """
import os, signal, sys
from ekgn.kbc.completion import work
from ekgn.kbc.run import KbcRun

work._PIECE = 8
asked = []

def die(done, total):
    asked.append(done)
    if len(asked) == 5:
        os.kill(os.getpid(), signal.SIGKILL)

KbcRun.load(sys.argv[1]).complete(sys.argv[2], single_valued=False, on_progress=die)
"""


def test_a_killed_completion_goes_on(
    run: KbcRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ekgn.kbc.completion import work

    monkeypatch.setattr(work, "_PIECE", 8)
    whole, cut = tmp_path / "whole.tsv", tmp_path / "cut.tsv"
    run.complete(whole, **ALL)
    places = [str(Path(ekgn.__file__).parent.parent)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(run.path), str(cut)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        timeout=600,
    )
    assert killed.returncode == -signal.SIGKILL
    parts = tmp_path / ".cut.tsv.parts"
    assert not cut.exists() and len(list(parts.glob("*.arrow"))) == 5
    before, after = written(parts), dict[str, int]()
    run.complete(cut, **ALL, on_progress=lambda done, total: after.update(written(parts)))
    assert before.items() <= after.items(), "what was asked before is not asked again"
    assert len(after) > len(before)
    assert not parts.exists()
    same_facts(whole, cut)


def written(folder: Path) -> dict[str, int]:
    """The pieces in a folder, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.arrow")}


def same_facts(one: Path, other: Path) -> None:
    """Equal but for the last digits: they were computed by two processes."""
    first, second = (pl.read_csv(path, separator="\t").sort(FACT) for path in (one, other))
    assert first.select(FACT).equals(second.select(FACT))
    shares = [frame.select("tail_share", "head_share").to_numpy() for frame in (first, second)]
    np.testing.assert_allclose(shares[0], shares[1], rtol=1e-4)


def test_pieces_of_another_completion_are_dropped(run: KbcRun, tmp_path: Path) -> None:
    out = tmp_path / "facts.tsv"
    parts = tmp_path / ".facts.tsv.parts"
    parts.mkdir()
    (parts / "plan.json").write_text("{}")
    (parts / "0-0.arrow").write_bytes(b"of another plan")
    assert len(run.complete(out, top=3).facts) == 3
    assert len(out.read_text().splitlines()) == 4 and not parts.exists()


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)


@drawn(st.lists(st.tuples(names, names, names), min_size=1, max_size=5))
def test_every_form_holds_the_facts(rows: list[tuple[str, str, str]]) -> None:
    columns = [*FACT, *(f"{part}_name" for part in FACT)]
    frame = pl.DataFrame([(*row, *row) for row in rows], schema=columns, orient="row")
    frame = frame.with_columns(confidence=pl.lit(0.5))
    for ending in WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"facts{ending}"
            write_table(frame, path)
            if ending == ".parquet":
                assert pl.read_parquet(path).select(columns).rows() == frame.select(columns).rows()
            elif ending == ".jsonl":
                lines = [json.loads(line) for line in path.read_text().split("\n") if line]
                assert [tuple(line[part] for part in FACT) for line in lines] == rows
            elif ending == ".csv":
                assert pl.read_csv(path, infer_schema=False).select(FACT).rows() == rows
            elif ending in (".nt", ".ttl"):
                pytest.importorskip("pyoxigraph")
                found = read_triples(path).frame.rows()
                terms = [tuple(iri(part).strip("<>") for part in row) for row in rows]
                assert found[: len(rows)] == [
                    (h, r if not r.startswith("_:") else found[at][1], t)
                    for at, (h, r, t) in enumerate(terms)
                ]


def test_an_output_that_cannot_be_is_refused_at_once(run: KbcRun, tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match=r"facts.doc: expected a name that ends in .tsv"):
        run.complete(tmp_path / "facts.doc")
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(EkgnError, match="is a folder"):
        run.complete(tmp_path / "folder.tsv")


def test_given_facts_are_scored_and_bad_lines_said(run: KbcRun, tmp_path: Path) -> None:
    file = tmp_path / "given.tsv"
    file.write_text(
        "head\trelation\ttail\nPerson 3\tnext\tperson_4\nperson_3\tnext\tnobody\n"
        "person_3\tnext\nperson_3\tnext\tperson_20\n"
    )
    found = run.score(file)
    assert found.facts["line"].to_list() == [2, 5]
    assert found.facts["known"].to_list() == ["train", None]
    assert found.facts["plausible"][0] and found.facts["tail_rank"][0] == 1
    assert found.facts["share"][0] > found.facts["share"][1]
    assert [(problem.line, problem.message.split(":")[0]) for problem in found.problems] == [
        (3, "Unknown entity 'nobody'"),
        (4, "expected head, relation, tail, found 2 fields."),
    ]


def test_a_role_never_seen_is_said(tmp_path: Path, run: KbcRun) -> None:
    train = run.graph.train
    alone = {int(h) for h in train[train[:, 1] == 2, 0]}
    missing = next(e for e in range(run.graph.num_entities) if e not in alone)
    fact = (run.graph.entities.ids[missing], "after_next", "person_1")
    assert run.score([fact]).facts["note"][0] == "never a head of this relation in training"


@drawn(st.lists(st.lists(st.text(max_size=12), max_size=4), max_size=4))
def test_no_question_stops_the_others(rows: list[list[str]]) -> None:
    loaded = FAMILY[0]
    asked = [*rows, ["person_3", "next", "?"]]
    found = [answer for _, answer in loaded.predict_many(asked, top=2)]
    assert len(found) == len(asked)
    assert isinstance(found[-1], Predictions) and found[-1][0].id == "person_4"
    assert all(isinstance(answer, Predictions | Problem) for answer in found)


FAMILY: list[KbcRun] = []


@pytest.fixture(autouse=True)
def _loaded(run: KbcRun) -> None:
    FAMILY[:] = [run]


@pytest.mark.parametrize("by", ["random", "newest"])
def test_what_is_taken_away_is_a_share_of_all(family: KnowledgeGraph, by: str) -> None:
    left = take_away(family, 0.1, by)
    parts = [left.train, left.valid, left.test]
    whole = np.concatenate([family.train, family.valid, family.test])
    assert [len(part) for part in parts] == [72, 9, 9]
    assert sorted(np.concatenate(parts).tolist()) == sorted(whole.tolist())
    if by == "newest":
        last = [part[:, [0, 2]].max(axis=1) for part in parts]
        assert last[1].min() >= np.median(last[0]) and last[2].min() >= np.median(last[0])
    with pytest.raises(EkgnError, match="Did you mean 'random'"):
        take_away(family, 0.1, "randm")


def test_a_backtest_counts_what_comes_back(family: KnowledgeGraph, tmp_path: Path) -> None:
    settings = tiny_settings(epochs=60, valid_every=60, embedding_dim=32, steps_from=0.9)
    found = backtest(family, out=tmp_path / "run", settings=settings)
    last = found.curve[-1]
    assert last["facts"] and last["precision"] is not None and last["recall"] is not None
    assert last["recall"] * found.taken == pytest.approx(last["precision"] * last["facts"])
    assert found.at_promise is None and "No confidence was known" in found.in_words()
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["backtest"]["random"]["taken"] == 9
