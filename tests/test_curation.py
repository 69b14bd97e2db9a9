"""Decisions about proposed facts: kept beside the run, counted, taken back, handed on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

from ekgn.errors import EkgnError
from ekgn.files import locked
from ekgn.kbc.completion import work
from ekgn.kbc.completion.confidence import TooFew
from ekgn.kbc.decisions import FILE, Decision, Decisions, tally
from ekgn.kbc.run import KbcRun
from ekgn.kbc.triples import read_triples
from ekgn.web.app import create_app
from ekgn.web.site import Site
from tests.web_material import run_folders

API = "/api/runs/atlas"
KEY = ("head", "relation", "tail")
FACT = {"head": "France", "relation": "in_continent", "tail": "Europe"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that nobody has decided about: other tests send decisions to the shared one."""
    nothing_decided = shutil.ignore_patterns(FILE)
    return Path(shutil.copytree(run_folders()[0], tmp_path / "atlas", ignore=nothing_decided))


@pytest.fixture
def web(folder: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Site([folder])), base_url="http://127.0.0.1") as client:
        yield client


def queue(web: TestClient, **asked: Any) -> dict[str, Any]:
    reply: dict[str, Any] = web.get(f"{API}/curate", params=asked).json()
    return reply


def decide(web: TestClient, fact: dict[str, Any], verdict: str, **headers: str) -> Any:
    parts = {part: fact[part]["id"] for part in ("head", "relation", "tail")}
    body = {**parts, "verdict": verdict, "who": "Ada"}
    return web.post(f"{API}/decisions", json=body, headers=headers)


def test_the_last_decision_about_a_fact_counts(tmp_path: Path) -> None:
    kept = Decisions(tmp_path)
    kept.add(Decision("a", "r", "b", "accepted", 0.5, "Ada"))
    kept.add(Decision("a", "r", "c", "accepted", 0.7))
    kept.add(Decision("a", "r", "b", "rejected", 0.5))
    kept.add(Decision("a", "r", "d", "accepted", None))
    kept.add(Decision("a", "r", "d", "undone", None))
    found = kept.all()
    assert {key[2]: one.verdict for key, one in found.items()} == {"c": "accepted", "b": "rejected"}
    assert all(one.when for one in found.values())
    counted = tally(found.values())
    assert (counted.accepted, counted.rejected, counted.precision) == (1, 1, 0.5)
    assert counted.promised == pytest.approx(0.6)


def test_a_line_cut_off_by_a_crash_costs_no_other(tmp_path: Path) -> None:
    kept = Decisions(tmp_path)
    kept.add(Decision("a", "r", "b", "accepted"))
    with kept.path.open("a") as file:
        file.write('{"head": "a", "rel')
    kept.add(Decision("a", "r", "c", "rejected"))
    assert [key[2] for key in kept.all()] == ["b", "c"]


def test_one_process_writes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ekgn.files.LOCK_SECONDS", 0.0)
    with locked(tmp_path), pytest.raises(EkgnError, match="is being written by process"):
        Decisions(tmp_path).add(Decision("a", "r", "b", "accepted"))


def test_a_queue_is_decided_counted_and_exported(web: TestClient, folder: Path) -> None:
    first = queue(web, relation="in_continent")
    assert first["open"] == len(first["facts"]) > 2
    one, other = first["facts"][:2]
    assert decide(web, one, "accepted").json()["tally"]["accepted"] == 1
    assert decide(web, other, "rejected").json()["tally"]["precision"] == 0.5
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    assert [line["who"] for line in lines] == ["Ada", "Ada"]
    after = queue(web, relation="in_continent")
    assert after["open"] == first["open"] - 2
    assert after["facts"][0] == first["facts"][2]

    for form in ("tsv", "csv"):
        text = web.get(f"{API}/decisions/export", params={"form": form})
        (folder / f"accepted.{form}").write_bytes(text.content)
        rows = read_triples(folder / f"accepted.{form}").frame.rows()
        assert rows == [(one["head"]["id"], "in_continent", one["tail"]["id"])]
    lines_of_rdf = web.get(f"{API}/decisions/export", params={"form": "nt"}).text.splitlines()
    assert len(lines_of_rdf) == 1 and "<urn:ekgn:in_continent>" in lines_of_rdf[0]

    assert decide(web, one, "undone").json()["tally"]["accepted"] == 0
    assert queue(web, relation="in_continent")["open"] == first["open"] - 1
    assert decide(web, one, "undone").json()["error"]["code"] == "undecided"


def test_a_queue_of_one_kind_of_things(web: TestClient) -> None:
    everything = queue(web, relation="in_continent", limit=200)
    found = {
        kind: queue(web, relation="in_continent", kind=kind, limit=200)
        for kind in ("located_in", "^located_in")
    }
    assert found["^located_in"]["kind"]["id"] == "located_in"
    assert everything["open"] > 0
    assert found["^located_in"]["open"] == everything["open"], "a country has cities"
    assert found["located_in"]["open"] < everything["open"]


def test_what_was_decided_teaches_the_confidence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[pl.DataFrame] = []

    def fit(facts: pl.DataFrame, *rest: Any) -> None:
        fitted.append(facts)
        raise TooFew("enough for this test")

    monkeypatch.setattr(work, "fit", fit)
    run = KbcRun.load(folder)
    ids, relations = run.graph.entities.ids, run.graph.relations.ids
    with pytest.raises(TooFew):
        run.fit_confidence()
    before = dict(zip(fitted[0].select(KEY).iter_rows(), fitted[0]["true"], strict=True))
    no, yes = (next(key for key, true in before.items() if true is side) for side in (True, False))
    for (head, relation, tail), verdict in ((yes, "accepted"), (no, "rejected")):
        fact = ids[head], relations[relation], ids[tail]
        Decisions(folder).add(Decision(*fact, verdict))  # type: ignore[arg-type]
    with pytest.raises(TooFew):
        run.fit_confidence()
    after = dict(zip(fitted[1].select(KEY).iter_rows(), fitted[1]["true"], strict=True))
    assert {key for key in before if before[key] is not after[key]} == {yes, no}


def test_no_split_has_a_fact_of_the_queue(web: TestClient, folder: Path) -> None:
    app: Any = web.app
    while not hasattr(app, "state"):  # below what every answer passes through
        app = app.app
    graph = app.state.site.runs["atlas"].run.graph
    known = {
        (graph.entities.ids[h], graph.relations.ids[r], graph.entities.ids[t])
        for split in ("train", "valid", "test")
        for h, r, t in graph.split(split)
    }
    for relation in graph.relations.ids:
        for fact in queue(web, relation=relation)["facts"]:
            assert tuple(fact[part]["id"] for part in ("head", "relation", "tail")) not in known


def test_a_file_of_complete_is_the_queue_of_all_relations(folder: Path) -> None:
    columns = ("head", "relation", "tail", "confidence", "tail_share", "tail_rank")
    rows = [
        (*columns, "head_share", "head_rank", "held_out"),
        ("/m/003", "borders", "/m/010", "0.9", "0.5", "1", "0.5", "1", "none"),
        ("/m/008", "in_continent", "/m/001", "0.4", "0.5", "1", "0.5", "1", "none"),
        ("/m/999", "borders", "/m/010", "0.9", "0.5", "1", "0.5", "1", "none"),
    ]
    (folder / "completed.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n")
    with TestClient(create_app(Site([folder])), base_url="http://127.0.0.1") as web:
        assert [fact["confidence"] for fact in queue(web)["facts"]] == [0.9, 0.4]
        assert len(queue(web, relation="borders")["facts"]) == 1
        assert len(queue(web, least=0.5)["facts"]) == 1


def test_evidence_and_what_is_missing_of_an_entity(web: TestClient) -> None:
    missing = web.get(f"{API}/missing", params={"entity": "Portugal"}).json()
    assert missing["facts"]
    for fact in missing["facts"]:
        assert "Portugal" in (fact["head"]["label"], fact["tail"]["label"])
    fact = missing["facts"][0]
    parts = {part: fact[part]["id"] for part in ("head", "relation", "tail")}
    found = web.get(f"{API}/evidence", params=parts).json()
    assert found["tail_rank"] >= 1
    about = web.get(f"{API}/entity", params={"entity": "France"}).json()
    lacking = web.get(f"{API}/entity", params={"entity": "Portugal"}).json()["gaps"]
    assert [(gap["relation"]["id"], gap["side"]) for gap in lacking] == [("in_continent", "head")]
    assert {(group["relation"]["id"], group["side"]) for group in about["known"]} == {
        ("in_continent", "head"),
        ("borders", "head"),
        ("borders", "tail"),
        ("located_in", "tail"),
    }


def test_decisions_are_not_taken_from_other_sites_nor_about_known_facts(web: TestClient) -> None:
    known = {part: {"id": name} for part, name in FACT.items()}
    assert decide(web, known, "accepted").json()["error"]["code"] == "known_fact"
    fact = queue(web, relation="in_continent")["facts"][0]
    foreign = decide(web, fact, "accepted", origin="http://elsewhere.example")
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "other_site")
    assert decide(web, fact, "accepted", origin="http://127.0.0.1").status_code == 200


def test_a_queue_has_an_order(web: TestClient) -> None:
    surest = queue(web, relation="borders", limit=200)["facts"]

    def ordered(sort: str) -> list[dict[str, Any]]:
        facts: list[dict[str, Any]] = queue(web, relation="borders", limit=200, sort=sort)["facts"]
        assert sorted(map(str, facts)) == sorted(map(str, surest))
        return facts

    heads = [one["head"]["label"].casefold() for one in ordered("head")]
    assert heads == sorted(heads)
    far = [abs(one["tail_share"] - 0.5) for one in ordered("doubtful")]
    assert far == sorted(far)
    assert ordered("relation") == surest, "of one relation the surest stay first"
    types = ["City" in one["head"]["label"] for one in ordered("type")]
    assert types == sorted(types) or types == sorted(types, reverse=True)
    assert not queue(web, relation="borders")["has_confidence"]


def test_what_was_decided_is_listed_in_words(web: TestClient, folder: Path) -> None:
    fact = queue(web, relation="in_continent")["facts"][0]
    decide(web, fact, "accepted")
    Decisions(folder).add(Decision("gone", "in_continent", "elsewhere", "rejected"))
    found = web.get(f"{API}/decisions").json()
    assert [one["verdict"] for one in found["decisions"]] == ["accepted", "rejected"]
    assert found["facts"][0]["head"] == fact["head"]
    assert found["facts"][1]["head"]["label"] == "gone", "a name that the graph does not have"
