"""What the explorer shows of an answer's inside: its states, what-ifs, the facts of its rules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient

from ekgn.kbc.rules import Evidence
from ekgn.web.app import create_app
from ekgn.web.served_kbc import ServedKbc
from ekgn.web.site import Site
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
    near = [point for point in reply["points"] if 1 in point["near"]]
    own = next(p for p in near if p["head"]["label"] == "France" and p["relation"] == "borders")
    np.testing.assert_allclose([own["x"], own["y"]], reply["path"][0], atol=1e-3)
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
