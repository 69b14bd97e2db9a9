"""Several processes train, rank and answer as one does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ekgn import api, distributed
from ekgn.checkpoint import RunFolder, load_tensors, read_lines
from ekgn.distributed import Group
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import shards
from ekgn.kbc.ranking import rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.task import KbcTask
from ekgn.state import read_state
from tests import ranks
from tests.hosts import two_hosts, why_not
from tests.tolerance import assert_same_answers

pytestmark = pytest.mark.numerical
ROOT = Path(__file__).resolve().parent.parent
KINDS = [f"{name}-{tables}" for name in ranks.cases() for tables in ("replicated", "sharded")]


PATHS = os.pathsep.join([str(ROOT), str(ROOT / "src")])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}


def launcher(plans: str, folder: Path, *options: str) -> list[str]:
    """The command that runs plans of tests/ranks.py by PyTorch's launcher."""
    launch = [sys.executable, "-m", "torch.distributed.run", *options]
    return [*launch, "-m", "tests.ranks", plans, str(folder)]


def torchrun(size: int, plans: str, folder: Path, *options: str) -> None:
    """Run plans in so many processes."""
    command = launcher(plans, folder, "--standalone", f"--nproc-per-node={size}", *options)
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, family: KnowledgeGraph) -> Path:
    """The same trainings by one process."""
    folder = tmp_path_factory.mktemp("alone")
    for name, settings in ranks.cases().items():
        ranks.train(KbcTask(family, settings), folder / name)
    ranks.train(ranks.paths_task(), folder / "paths")
    return folder


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The trainings by 2 and by 3 processes; one moves from 2 to 1 to 3."""
    folders = {size: tmp_path_factory.mktemp(f"by{size}") for size in (2, 3)}
    torchrun(2, "same,half", folders[2])
    moved = folders[3] / "moved"
    (folders[2] / "moved").rename(moved)
    ranks.train(api.reopen(moved).task, moved, stop_at=18, resume=True)
    torchrun(3, "same,whole", folders[3])
    return folders


def assert_same_training(found: Path, expected: Path) -> None:
    """The same curve and the same weights, but for rounding, and what it does to near-ties."""
    lines = [read_lines(RunFolder(path).metrics) for path in (found, expected)]
    assert len(lines[0]) == len(lines[1]) > 0
    for one, other in zip(*lines, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - {"seconds"}:
            by_rank = name in ("hits_at_10", "mean_rank", "mrr", "correct", "valid")
            near = 0.1 if by_rank else 2e-3
            expected_value = pytest.approx(other[name], rel=near, abs=near if by_rank else 1e-12)
            assert one[name] == expected_value, name
    weights = [load_tensors(RunFolder(path).model)[0] for path in (found, expected)]
    assert weights[0].keys() == weights[1].keys()
    by_adam = RunFolder(expected).read_config()["settings"]["optimizer"] != "sgd"
    for name, tensor in weights[0].items():
        is_table = name.split(".")[0] in ("entities", "relations", "own_answers")
        if is_table or not by_adam:  # which makes much of the rounding of a tiny gradient
            assert tensor.numpy() == pytest.approx(weights[1][name].numpy(), abs=1e-3), name


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", [*KINDS, "paths"])
def test_several_processes_train_as_one(
    alone: Path, several: dict[int, Path], size: int, kind: str
) -> None:
    assert_same_training(several[size] / kind, alone / kind.split("-")[0])
    is_sharded = kind.endswith("sharded")
    assert RunFolder(several[size] / kind).index.exists() == is_sharded
    assert RunFolder(several[size] / kind).read_record()["processes"] == size


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_and_answers_are_those_of_one_process(several: dict[int, Path], size: int) -> None:
    run = KbcRun(several[size] / "exact-sharded")
    found = json.loads((several[size] / "asked.json").read_text())
    expected = rank_split(run.scorer(), run.graph, "test").realistic
    # Products of other shapes round otherwise, so two near-ties may change places.
    assert np.array(found["ranks"]) == pytest.approx(expected, abs=1)
    kept = run.record["evaluations"]["test/argmax"]["headline"]
    assert found["evaluation"] == pytest.approx(kept, rel=0.05, abs=0.05)
    for one, (_, other) in zip(
        found["answers"], run.predict_many(ranks.QUESTIONS, top=5), strict=True
    ):
        if isinstance(other, list):
            assert_same_answers([(n, p) for n, p in one], [(a.id, a.share) for a in other])
        else:
            assert one == other.message
    run.complete(several[size] / "alone.tsv", explained=0)
    tables = [
        (several[size] / name).read_text().splitlines() for name in ("missing.tsv", "alone.tsv")
    ]
    facts = [{tuple(line.split("\t")[:3]) for line in table} for table in tables]
    assert len(facts[0] ^ facts[1]) <= 2 and len(facts[0]) > 20


def test_a_checkpoint_moves_between_numbers_of_processes(
    alone: Path, several: dict[int, Path]
) -> None:
    moved = several[3] / "moved"
    assert_same_training(moved, alone / "exact")
    files = json.loads(RunFolder(moved).index.read_text())["files"]
    assert [name[-len("1-of-3.safetensors") :] for name in files] == [
        f"{rank}-of-3.safetensors" for rank in (1, 2, 3)
    ]
    assert sorted(path.name for path in moved.glob("training_state-*")) == sorted(files)
    assert not RunFolder(moved).state.exists()


def test_a_killed_process_ends_in_a_restart_from_the_last_checkpoint(
    alone: Path, tmp_path: Path
) -> None:
    torchrun(2, "killed", tmp_path, "--max-restarts=1")
    assert_same_training(tmp_path / "killed", alone / "exact")


@pytest.mark.parametrize("size", [2, 3])
def test_processes_that_do_not_fit_are_refused_by_name(several: dict[int, Path], size: int) -> None:
    said = json.loads((several[size] / "refused.json").read_text())
    assert "Process 1 on" in said["settings"] and "seed 1, not 0" in said["settings"]
    assert "Process 1 on" in said["data"] and "has other data than process 0" in said["data"]
    assert said["open"].startswith(f"Process 1 of {size}: No data 'nowhere'")
    assert said["open by all"].startswith("No data 'nowhere'")
    assert said["batch"].startswith(f"{size} processes cannot share batches of 1 queries")
    if size == 3:
        assert said["rows"].startswith("3 processes cannot divide 2 entities")
    assert not (several[size] / "refused").exists()


def join(monkeypatch: pytest.MonkeyPatch, **variables: Any) -> Group:
    for name, value in {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": 2, **variables}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    return distributed.world.__wrapped__()


def test_a_port_in_use_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EkgnError, match=rf"could not join .* at 127.0.0.1:{port} .*port"):
            join(monkeypatch, RANK=0, MASTER_PORT=port, EKGN_TIMEOUT=1)


def test_a_first_process_that_is_not_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EkgnError, match=r"Process 1 of 2 .* could not join the others"):
        join(monkeypatch, RANK=1, MASTER_PORT=port, EKGN_TIMEOUT=1)


def test_variables_that_no_launcher_sets_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(EkgnError, match="'RANK' is not as torchrun sets it"):
        join(monkeypatch)


def test_parts_cover_everything_once() -> None:
    for count in range(12):
        groups = [Group(rank, 5) for rank in range(5)]
        assert [i for g in groups for i in range(count)[g.part(count)]] == list(range(count))
        assert sum(g.owned(count) for g in groups) == count


def test_tables_are_divided_by_a_rule() -> None:
    two, exact = Group(1, 2), ranks.cases()["exact"].model_copy(update={"batch_size": 400})
    sampled = exact.model_copy(update={"negatives": 2000, "embedding_dim": 256})
    assert not shards(10_000, exact, Group())  # alone
    assert shards(10_000, exact, two)  # 400 outputs are exchanged, not 10,000 gradients
    assert not shards(300, exact, two)
    assert not shards(10**6, sampled, two)  # 2 GB with Adagrad's sums, of 2 x 2**30
    assert shards(2 * 10**6, sampled, two)
    assert not shards(2 * 10**6, sampled.model_copy(update={"tables": "replicated"}), two)


def test_of_two_states_the_later_one_is_read(several: dict[int, Path], tmp_path: Path) -> None:
    """A process killed between writing one and removing the other leaves both."""
    sharded, whole = (RunFolder(several[2] / f"exact-{kind}") for kind in ("sharded", "replicated"))
    both = RunFolder(tmp_path)
    for path in [*sharded.path.glob("training_state*"), whole.state]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index = json.loads(both.index.read_text())
    both.index.write_text(json.dumps({**index, "step": index["step"] + 1}))
    (tmp_path / index["files"][1]).unlink()
    with pytest.raises(EkgnError, match=r"training_state-.*-2-of-2.safetensors is missing"):
        read_state(both)  # the shards are later, and one is gone
    both.index.write_text(json.dumps(index))
    assert read_state(both)[1]["progress"]["step"] == index["step"]


@pytest.mark.slow
def test_two_hosts_train_as_one_process(alone: Path, tmp_path: Path) -> None:
    """Two network namespaces, 1 Gbit/s and 5 ms each way between them."""
    reason = why_not()
    if reason:
        pytest.skip(f"two hosts: {reason}")
    with two_hosts(bits_per_second=1e9, delay=0.005) as hosts:
        started = []
        for rank, host in enumerate(hosts):
            nodes = ["--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1"]
            first = [f"--master-addr={hosts[0].address}", "--master-port=29500"]
            command = host.command(*launcher("hosts", tmp_path, *nodes, *first))
            environment = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": host.device}
            log = (tmp_path / f"host{rank}.txt").open("w")
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=ROOT)
            )
        codes = [process.wait() for process in started]
        logs = [(tmp_path / f"host{rank}.txt").read_text()[-3000:] for rank in (0, 1)]
        assert codes == [0, 0], logs
    for name in ("exact", "paper"):
        assert_same_training(tmp_path / "0" / name, alone / name)
    assert not (tmp_path / "1").exists()
