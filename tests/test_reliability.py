"""Nothing lost, nothing misread: signals, kills, locks, full disks, damaged and foreign files."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ekgn import api, files, records
from ekgn.checkpoint import FORMAT, RunFolder, load_tensors
from ekgn.config import Settings
from ekgn.errors import EkgnError
from ekgn.files import locked, replace_file
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.paths.settings import PathsSettings
from ekgn.signals import StopSignals
from ekgn.trainer import Trainer

from .conftest import tiny_settings
from .processes import TRAIN, Disk, Ekgn, Fault, check_whole, ekgn, strays, trained, write_facts


def short(**changes: object) -> KbcSettings:
    """A training of a few updates."""
    return tiny_settings(
        **{"epochs": 4, "valid_every": 1, "embedding_dim": 8, "dropout": 0.2, **changes}
    )


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for no disk and no git: for tests that write hundreds of runs in one process."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(records, "_commit", lambda: None)


@pytest.fixture(scope="module")
def whole(family: KnowledgeGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the short training that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    api.train(family, short(), out=path)
    return path


@pytest.fixture(scope="module")
def whole_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an undisturbed process leaves."""
    folder = tmp_path_factory.mktemp("process")
    write_facts(folder)
    assert ekgn(folder, TRAIN).code == 0
    return trained(folder / "run")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signalled_process_resumes_to_the_same_bits(
    number: int, tmp_path: Path, whole_process: dict[str, Any]
) -> None:
    write_facts(tmp_path)
    process = Ekgn(tmp_path, TRAIN)
    process.wait_for(tmp_path / "run" / "training_state.safetensors")
    process.signal(number)
    ended = process.end()
    assert not ended.crashed, ended.errors
    assert "Go on with" in ended.errors or number == signal.SIGKILL or ended.code == 0
    check_whole(tmp_path / "run")
    assert ekgn(tmp_path, "train --resume run").code == 0
    assert trained(tmp_path / "run") == whole_process
    assert not strays(tmp_path)


def test_killed_before_the_first_checkpoint_it_starts_from_step_0(
    tmp_path: Path, whole_process: dict[str, Any]
) -> None:
    write_facts(tmp_path)
    process = Ekgn(tmp_path, TRAIN)
    process.wait_for(tmp_path / "run" / "config.json")
    process.signal(signal.SIGKILL)
    process.end()
    shutil.copytree(tmp_path / "run", tmp_path / "early")
    (tmp_path / "early" / "training_state.safetensors").unlink(missing_ok=True)
    assert "already holds a run" in ekgn(tmp_path, TRAIN).errors
    for run in ("run", "early"):
        assert ekgn(tmp_path, f"train --resume {run}").code == 0
        assert trained(tmp_path / run) == whole_process


def test_one_process_writes_a_run_and_others_read_it(tmp_path: Path) -> None:
    write_facts(tmp_path)
    write_facts(tmp_path / "beside")
    process = Ekgn(tmp_path, f"{TRAIN} --epochs 100000")
    process.wait_for(tmp_path / "run" / "training_state.safetensors")
    for words in (TRAIN.replace("--out run", "--out ../run"), "train --resume ../run"):
        ended = ekgn(tmp_path / "beside", words)
        assert ended.code == 2
        assert f"../run is being written by process {process.process.pid}" in ended.errors
    assert ekgn(tmp_path / "beside", "evaluate ../run --no-baseline").code == 0
    process.signal(signal.SIGTERM)
    assert process.end().code == 130


def test_a_second_signal_stops_at_once_and_the_last_checkpoint_stays(
    family: KnowledgeGraph, tmp_path: Path, whole: Path
) -> None:
    class Validated(KbcTask):
        count = 0

        def validate(self, model: Any) -> dict[str, float]:
            self.count += 1
            if self.count == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                pytest.fail("the second signal was not heard")
            return super().validate(model)

    with pytest.raises(KeyboardInterrupt):
        Trainer(Validated(family, short()), RunFolder(tmp_path)).fit()
    _, state = load_tensors(tmp_path / "training_state.safetensors")
    per_epoch = len(KbcTask(family, short()).batches)
    assert state["progress"]["step"] == 2 * per_epoch
    api.resume(tmp_path)
    assert trained(tmp_path) == trained(whole)


def test_signals_are_put_back_and_a_late_one_is_not_lost() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.wanted
    assert signal.getsignal(signal.SIGTERM) is before


def run_code(code: str, folder: Path) -> tuple[str, str, int]:
    """What a Python process of its own prints on stdout and stderr, and its exit code."""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr, done.returncode


def test_a_signal_during_an_import_waits_for_its_end(tmp_path: Path) -> None:
    """Libraries turn an interrupted import into tracebacks of their own."""
    slow = (
        "import signal\nsignal.raise_signal(signal.SIGINT)\nfor _ in range(10**6): pass\ndone = 1"
    )
    (tmp_path / "slow.py").write_text(slow)
    code = (
        "import signal, sys, time; from ekgn.cli import _stop\n"
        "for number in (signal.SIGINT, signal.SIGALRM): signal.signal(number, _stop)\n"
        "try:\n    import slow\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print(sys.modules['slow'].done)"
    )
    assert run_code(code, tmp_path) == ("1\n", "", 0)


def test_an_interrupt_that_a_library_makes_an_error_of_is_still_one(tmp_path: Path) -> None:
    code = (
        "import signal; import ekgn.cli, ekgn.cli.app\n"
        "def app(**_):\n"
        "    try: signal.raise_signal(signal.SIGTERM)\n"
        "    except KeyboardInterrupt as error: raise ValueError('made of it') from error\n"
        "ekgn.cli.app.app = app\n"
        "ekgn.cli.main()"
    )
    assert run_code(code, tmp_path) == ("", "", 130)


def test_an_interrupt_that_waits_is_forgotten_when_the_command_has_ended(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)")
    code = (
        "import signal; import ekgn.cli, ekgn.cli.app\n"
        "def app(**_): import slow\n"
        "ekgn.cli._WAIT = 60\n"
        "ekgn.cli.app.app = app\n"
        "ekgn.cli.main()\n"
        "print(signal.getitimer(signal.ITIMER_REAL)[0])"
    )
    assert run_code(code, tmp_path) == ("0.0\n", "", 0)


def test_a_signal_that_was_put_off_is_a_wish_too() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), StopSignals() as signals:
            signal.raise_signal(signal.SIGALRM)
            assert signals.wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGINT)
            assert not signals.wanted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def faulty(fault: Fault) -> Iterator[Disk]:
    """A disk that fails once, or from then on."""
    disk, untouched = Disk(fault), files.before
    files.before = disk
    try:
        yield disk
    finally:
        files.before = untouched


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("kind", ["error", "full"])
def test_a_failure_at_any_write_sync_or_rename_is_one_message_and_loses_nothing(
    kind: str, family: KnowledgeGraph, tmp_path: Path, whole: Path
) -> None:
    expected = trained(whole)
    with faulty(Fault()) as disk:
        api.train(family, short(), out=tmp_path / "counted")
    assert disk.calls > 40
    for call in range(1, disk.calls + 1, 3):
        path = tmp_path / str(call)
        with faulty(Fault(kind, call)), pytest.raises(EkgnError, match="Could not write"):
            api.train(family, short(), out=path)
        check_whole(path)
        if (path / "config.json").exists():
            api.resume(path)
        else:
            api.train(family, short(), out=path)
        assert trained(path) == expected
        assert not strays(tmp_path)


def test_a_disk_that_fills_up_in_the_middle_of_a_file(
    family: KnowledgeGraph, tmp_path: Path, whole: Path
) -> None:
    """The limit on a file's size stops safetensors half-way, as a full disk does."""
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    state = (path / "training_state.safetensors").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = RunFolder(path)
    trainer = Trainer(KbcTask(family, short(epochs=8)), folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(state) // 2, limits[1]))
    try:
        with pytest.raises(EkgnError, match=r"Could not write .*safetensors: .*too large"):
            trainer.fit(resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert folder.state.read_bytes() == state
    assert not strays(path)


def test_a_torn_last_line_is_dropped_with_a_warning(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = trained(whole)
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 9, "lo')
    with caplog.at_level(logging.WARNING):
        api.resume(path)
    assert "metrics.jsonl: the last line was cut off and is dropped" in caplog.text
    assert trained(path) == expected


def test_files_have_the_mode_that_the_umask_gives(tmp_path: Path, family: KnowledgeGraph) -> None:
    before = os.umask(0o027)
    try:
        api.train(family, short(epochs=1), out=tmp_path / "run")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()}
    assert set(modes.values()) == {0o640}, modes


def test_a_run_that_cannot_be_written_is_used_without_storing(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    record = (path / "record.json").read_bytes()
    with faulty(Fault("full", 1)):
        result = api.load(path).evaluate("test")
    assert result.micro.count == 8
    assert "The result is not stored in the run. Could not write" in caplog.text
    with locked(path):
        api.load(path).evaluate("test")
    assert f"is being written by process {os.getpid()}" in caplog.text
    assert (path / "record.json").read_bytes() == record
    api.load(path).evaluate("test")
    assert "test/argmax" in json.loads((path / "record.json").read_text())["evaluations"]


def test_results_of_two_evaluations_are_both_kept(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    one, other = api.load(tmp_path / "run"), api.load(tmp_path / "run")
    assert one.record and other.record  # both have read it before either writes
    one.evaluate("test")
    other.evaluate("valid")
    assert {"test/argmax", "valid/argmax"} <= api.load(tmp_path / "run").record[
        "evaluations"
    ].keys()


def test_an_unreadable_file_is_called_unreadable(whole: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "record.json", "vocabulary.json"):
        path = tmp_path / name / "run"
        shutil.copytree(whole, path)
        (path / name).unlink()
        (path / name).mkdir()  # what no user, root included, can read as a file
        with pytest.raises(EkgnError, match=r"(Cannot read|cannot be read|No run).*"):
            assert api.load(path).record


def test_an_unwritable_folder_is_found_before_training(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    def no_step(*_: Any) -> None:
        pytest.fail("the training began")

    with pytest.raises(EkgnError, match=r"Could not write .*file/run"):
        api.train(family, short(), out=tmp_path / "file" / "run", listener=no_step)


@pytest.mark.parametrize("kind", [KbcSettings, PathsSettings])
def test_every_number_has_finite_bounds(kind: type[Settings]) -> None:
    for name, about in kind.model_json_schema()["properties"].items():
        if about["type"] in ("integer", "number"):
            assert about.keys() & {"minimum", "exclusiveMinimum"}, name
            assert about.keys() & {"maximum", "exclusiveMaximum"}, name
            for value in (float("inf"), float("nan"), 1e12):
                with pytest.raises(EkgnError, match=f"Bad setting: {name} = "):
                    kind.parse({name: value})


def test_a_model_beyond_memory_is_refused_before_a_folder_is_made(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    for huge in (
        {"state_size": 65_536, "num_slots": 10**6},
        {"num_slots": 10**6, "batch_size": 10**6},
    ):
        with pytest.raises(EkgnError, match=r"needs at least [\d,.]+ GB of memory, .* are free"):
            api.train(family, short(**{**huge, "max_steps": 60}), out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_threads_used_are_stored(family: KnowledgeGraph, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    api.train(family, short(threads=0, epochs=1), out=tmp_path / "run")
    assert RunFolder(tmp_path / "run").read_config()["settings"]["threads"] == 1


def test_a_run_of_a_newer_version_is_refused(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps({"format": FORMAT + 1, "what": "ever"}))
    for use in (api.load, api.resume):
        with pytest.raises(EkgnError, match=r"config.json is of format .* newer version. Update"):
            use(tmp_path / "run")


def test_a_file_that_fails_to_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write(aside: Path) -> None:
        aside.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(EkgnError, match=r"Could not write .*file: No space left on device"):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


JSON_FILES = ("config.json", "record.json", "vocabulary.json", "metrics.jsonl")
TENSOR_FILES = ("model.safetensors", "training_state.safetensors", "graph.safetensors")
JUNK: list[Any] = [None, True, -1, 10**30, 1e308, float("nan"), "text", "", [], {}, [[]], {"a": 1}]


def tampered(path: Path, chance: random.Random) -> None:
    """Change one thing in a file of a run."""
    if path.suffix == ".safetensors" and chance.random() < 0.6:
        return tampered_tensors(path, chance)
    if path.suffix == ".json" and chance.random() < 0.7:
        return tampered_json(path, chance)
    data = bytearray(path.read_bytes())
    match chance.randrange(4):
        case 0:
            data = data[: chance.randrange(len(data))]
        case 1:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case 2:
            data = bytearray(
                chance.choice([b"", b"[" * 5000, b"null", b"{}", b"\xff\xfe", b"[1]\n"])
            )
        case _:
            data += b"more"
    path.write_bytes(data)
    return None


def tampered_tensors(path: Path, chance: random.Random) -> None:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    name = chance.choice(sorted(tensors))
    value = tensors.pop(name)
    match chance.randrange(5):
        case 0:
            pass
        case 1:
            tensors[name + "x"] = value
        case 2:
            tensors[name] = torch.cat([value.reshape(-1), value.reshape(-1)[:1]])
        case 3:
            tensors[name] = value.double() if value.dtype != torch.float64 else value.float()
        case _:
            tensors[name] = torch.full_like(value.float(), float("nan"))
    if chance.random() < 0.2:
        metadata = {"json": json.dumps(chance.choice(JUNK))}
    save_file(tensors, path, metadata)


def tampered_json(path: Path, chance: random.Random) -> None:
    value = json.loads(path.read_text())
    inside = value
    while True:
        key = chance.choice(sorted(inside))
        if not isinstance(inside[key], dict) or not inside[key] or chance.random() < 0.4:
            break
        inside = inside[key]
    if chance.random() < 0.3:
        del inside[key]
    else:
        inside[key] = chance.choice(JUNK)
    path.write_text(json.dumps(value))


def used(path: Path) -> list[str]:
    """Everything that reads a run: what it answers, what it holds, what it resumes to."""
    run = api.load(path)
    answers = run.predict(head="person_3", relation="next", top=5)
    assert len(answers) == 5
    run.evaluate("valid")
    assert run.record
    api.resume(path)
    return [answer.id for answer in answers]


@pytest.mark.usefixtures("quick_disk")
def test_a_tampered_run_is_one_message_that_names_the_file(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    shutil.copytree(whole, tmp_path / "right")
    right = used(tmp_path / "right")
    refused = 0
    for seed in range(300):
        chance = random.Random(seed)
        path = tmp_path / "run"
        shutil.copytree(whole, path)
        name = chance.choice(JSON_FILES + TENSOR_FILES)
        tampered(path / name, chance)
        try:
            assert used(path) == right or name.endswith(".safetensors"), (seed, name)
        except EkgnError as error:
            refused += 1
            assert str(tmp_path / "run") in str(error), (seed, name, error)
        shutil.rmtree(path)
    assert refused > 150


def test_a_lock_is_free_when_its_process_is_gone(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("1")
    (tmp_path / ".model.safetensors.99.tmp").write_text("half")
    with locked(tmp_path):
        assert not strays(tmp_path)
        with pytest.raises(EkgnError, match=f"process {os.getpid()}: wait"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass


def test_the_simulated_power_failure_loses_what_was_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, torture could not tell code that syncs from code that does not."""

    def dead(*_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "kill", dead)
    file = tmp_path / "file"
    cases = [
        ((), "old"),
        (("aside",), "old"),
        (("folder",), "ne"),
        (("aside", "folder"), "newer"),
    ]
    for synced, left in cases:
        file.write_text("old")
        aside = tmp_path / f".file.{os.getpid()}.tmp"
        aside.touch()
        disk = Disk(Fault("power", 3 + len(synced)))
        disk("write", aside)
        aside.write_text("newer")
        if "aside" in synced:
            disk("sync", aside)
        disk("rename", file)
        aside.replace(file)
        if "folder" in synced:
            disk("sync", tmp_path)
        with pytest.raises(KeyboardInterrupt):
            disk("write", tmp_path / "next")
        assert file.read_text() == left
