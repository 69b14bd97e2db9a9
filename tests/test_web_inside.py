"""What the explorer shows of an answer's inside: its states, what-ifs, the facts of its rules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ekgn.kbc.ranking import Metrics
from ekgn.kbc.rules import Evidence
from ekgn.web import results
from ekgn.web.app import create_app
from ekgn.web.served_kbc import ServedKbc
from ekgn.web.site import Site
from tests.tolerance import rank_bounds
from tests.web_material import run_folders

API = "/api/runs/atlas"
QUESTION = {"head": "France", "relation": "borders"}


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(run_folders())


@pytest.fixture(scope="module")
def web(site: Site) -> Iterator[TestClient]:
    with TestClient(create_app(site), base_url="http://127.0.0.1") as client:
        yield client


def test_the_states_of_a_question_are_seen_in_a_plane(web: TestClient) -> None:
    reply = web.get(f"{API}/states", params=QUESTION).json()
    assert len(reply["path"]) == 3
    assert 0 < sum(reply["variance"]) <= 1 + 1e-9
    assert reply["variance"][0] >= reply["variance"][1]
    for step, place in enumerate(reply["path"], 1):
        near = [point for point in reply["points"] if point["near"] == step]
        assert len(near) == 3, "of the same step"
        own = next(p for p in near if p["head"]["label"] == "France" and p["relation"] == "borders")
        np.testing.assert_allclose([own["x"], own["y"]], place, atol=1e-3)
    other_way = web.get(f"{API}/states", params={"tail": "France", "relation": "borders"}).json()
    assert other_way["path"] != reply["path"]
    assert web.get(f"{API}/states", params={"head": "France"}).status_code == 422


def test_an_answer_with_and_without_facts(web: TestClient) -> None:
    asked = {"head": "Portugal", "relation": "in_continent", "target": "Europe"}
    new = "Portugal | borders | Germany"
    reply = web.get(f"{API}/what-if", params={**asked, "with": new}).json()["what_if"]
    (change,) = reply["changes"]
    assert change["kind"] == "with"
    assert [part for fact in change["facts"] for part in fact[1:2]] == ["borders"]
    both = {**asked, "with": new, "without": "Portugal City | located_in | Portugal"}
    (change,) = web.get(f"{API}/what-if", params=both).json()["what_if"]["changes"]
    assert len(change["facts"]) == 2
    known = web.get(f"{API}/what-if", params={**asked, "with": "Spain | borders | Poland"})
    assert known.status_code == 422
    assert "expected a fact of Portugal or Europe" in known.json()["error"]["message"]


def test_the_facts_of_a_rule_are_given_in_words(site: Site) -> None:
    served = site.run("atlas")
    assert isinstance(served, ServedKbc)
    fact = ("/m/027", "located_in", "/m/006")
    found = served.paths([Evidence("a rule", ["…"], [fact], 22, 28, 0.7)])
    assert [(f.head.label, f.relation.label, f.tail.label) for path in found for f in path] == [
        ("Spain City", "located in", "Spain")
    ]


@pytest.mark.numerical
def test_results_are_those_of_the_evaluation(web: TestClient, site: Site) -> None:
    reply = web.get(f"{API}/results").json()
    served = site.run("atlas")
    assert isinstance(served, ServedKbc)
    low, high, candidates = rank_bounds(served.run.scorer(), served.run.graph, "test")
    assert reply["facts"] == reply["of"] == len(served.run.graph.test)
    (only,) = reply["relations"]
    ends = Metrics.over(low, candidates), Metrics.over(high, candidates)
    for name in ("mrr", "hits_at_1", "hits_at_10", "mean_rank"):
        least, most = sorted(getattr(end, name) for end in ends)
        assert least - 1e-9 <= only[name] <= most + 1e-9, name
    missed = [miss["rank"] for miss in reply["misses"]]
    assert missed == sorted(missed, reverse=True) and min(missed) > 1
    assert (low > 1).sum() <= len(missed) <= (high > 1).sum()
    for miss in reply["misses"]:
        assert miss["said"] != miss["answer"]
        assert miss["question"][miss["question"]["missing"]] is None


def test_a_large_split_is_ranked_in_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    served = site.run("atlas")
    assert isinstance(served, ServedKbc)
    monkeypatch.setattr(results, "MOST_SCORES", 2 * 3 * served.run.graph.num_entities)
    monkeypatch.setattr(results, "PIECE", 2)
    found = results.Results(served, "valid")
    pieces = 0
    while not found.is_done:
        found.advance()
        pieces += 1
    assert pieces == 2
    found.advance()
    assert (found.reply().facts, found.reply().of) == (3, len(served.run.graph.valid))


def test_two_questions_side_by_side(web: TestClient) -> None:
    other = {"other_tail": "Germany", "other_relation": "borders"}
    reply = web.get(f"{API}/compare", params={**QUESTION, **other}).json()
    one, two = (side["reply"]["question"] for side in reply["sides"])
    assert one["head"]["label"] == "France"
    assert (two["tail"]["label"], two["missing"]) == ("Germany", "head")
    same = web.get(f"{API}/compare", params={**QUESTION, "other": "atlas"}).json()["sides"]
    assert same[0] == same[1]
    wrong = web.get(f"{API}/compare", params={**QUESTION, "other": "sphere"})
    assert wrong.json()["error"]["code"] == "wrong_task"
