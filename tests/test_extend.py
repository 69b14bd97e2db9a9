"""A run that grows: new facts, entities and names, kept whole whatever happens, and taken back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ekgn
from ekgn.errors import EkgnError
from ekgn.kbc.run import KbcRun
from ekgn.run import current
from tests.processes import Fault, check_whole, strays
from tests.processes import ekgn as command

pytestmark = pytest.mark.numerical


@pytest.fixture
def run(steady_run: Path, tmp_path: Path) -> Path:
    """A copy of the trained run, and new.tsv beside it: a person after person_5."""
    shutil.copytree(steady_run, tmp_path / "run")
    facts = [
        ("person_5", "next", "guest"),
        ("guest", "previous", "person_5"),
        ("person_4", "after_next", "guest"),
        ("guest", "next", "person_7"),
        ("person_7", "previous", "guest"),
    ]
    (tmp_path / "new.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return tmp_path / "run"


def test_new_entities_are_answers_at_once(run: Path, tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("guest\tThe Guest\n")
    before = KbcRun(run)
    done = before.extend(tmp_path / "new.tsv", names=[tmp_path / "names.tsv"])
    assert (done.facts, done.entities, done.names) == (5, 1, 1)
    grown = ekgn.load(run)
    assert grown.graph.num_entities == before.graph.num_entities + 1
    found = grown.predict(head="The Guest", relation="next", top=3)
    assert "person_7" in [answer.id for answer in found]
    assert "guest" in [a.id for a in grown.predict(head="person_4", relation="after_next", top=4)]
    assert done.old_facts["after"] >= done.old_facts["before"] - 0.13  # one of its 8 questions


def test_an_extension_is_taken_back_to_the_same_bits(run: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lock"}
    KbcRun(run).extend(tmp_path / "new.tsv")
    (tmp_path / "more.tsv").write_text("guest\tafter_next\tperson_8\nperson_1\tnext\tperson_9\n")
    second = KbcRun(run).extend(tmp_path / "more.tsv")
    assert (second.facts, second.entities, second.refitted) == (2, 0, 4)
    assert current(run).name == "2"
    assert len(json.loads((current(run) / "config.json").read_text())["extended"]) == 2
    for expected in (2, 5):
        assert KbcRun(run).undo().facts == expected
    assert {name: (run / name).read_bytes() for name in files} == files
    assert KbcRun(run).graph.num_entities == 30
    with pytest.raises(EkgnError, match="no extension"):
        KbcRun(run).undo()


def test_out_is_a_run_of_its_own(run: Path, tmp_path: Path) -> None:
    KbcRun(run).extend(tmp_path / "new.tsv", out=tmp_path / "other", refresh=1)
    assert KbcRun(run).graph.num_entities == 30
    other = KbcRun(tmp_path / "other")
    assert other.graph.num_entities == 31
    assert other.evaluate("test").micro.count == 8
    with pytest.raises(EkgnError, match="exists already"):
        KbcRun(run).extend(tmp_path / "new.tsv", out=tmp_path / "other")


def test_what_is_there_already_changes_nothing(run: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tsv"
    again.write_text("person_0\tnext\tperson_1\n")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    done = KbcRun(run).extend(again)
    assert done.adds_nothing and done.already_known == 1
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert {path: time for path, time in after.items() if path.name != ".lock"} == {
        path: time for path, time in before.items() if path.name != ".lock"
    }


def test_what_cannot_be_added_is_one_error(run: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("person_1\tnexxt\tperson_2\n")
    with pytest.raises(EkgnError, match=r"Unknown relation 'nexxt'.*next"):
        KbcRun(run).extend(bad)
    KbcRun(run).extend(tmp_path / "new.tsv")
    with pytest.raises(EkgnError, match="was extended after its training"):
        ekgn.resume(run, epochs=200)


def test_new_entities_with_facts_among_themselves(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.tsv").write_text("person_5\tnext\ta\na\tnext\tb\nb\tnext\tc\n")
    assert KbcRun(run).extend(tmp_path / "new.tsv").entities == 3
    found = KbcRun(run).predict(head="a", relation="next", top=3)
    assert "b" in [answer.id for answer in found]


@pytest.mark.parametrize("kind", ["crash", "error"])
def test_a_run_is_whole_after_any_failure(run: Path, tmp_path: Path, kind: str) -> None:
    """Each write, sync and rename of an extension fails once: the run is as before, or extended."""
    whole = command(tmp_path, "extend run new.tsv")
    assert whole.code == 0 and "1 entities" in whole.output
    assert command(tmp_path, "extend run --undo").code == 0
    for at in range(1, whole.calls + 1, 4):
        ended = command(tmp_path, "extend run new.tsv", Fault(kind, at))
        assert not ended.crashed, ended.errors
        check_whole(current(run))
        if current(run) != run:
            assert KbcRun(run).graph.num_entities == 31
            assert command(tmp_path, "extend run --undo").code == 0
    assert KbcRun(run).graph.num_entities == 30
    assert command(tmp_path, "extend run new.tsv").code == 0
    assert strays(run) == []
