"""The trainer: it learns, it stops, it survives Ctrl-C and SIGKILL, and goes on bitwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ekgn import api
from ekgn.checkpoint import RunFolder, load_tensors
from ekgn.errors import EkgnError
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.run import KbcRun
from ekgn.kbc.task import KbcTask
from ekgn.machine import choose_device
from ekgn.trainer import Progress, Trainer, Work

from .conftest import tiny_settings

pytestmark = pytest.mark.numerical


def train(graph: KnowledgeGraph, path: Path, **settings: object) -> Trainer:
    trainer = Trainer(KbcTask(graph, tiny_settings(**settings)), RunFolder(path))
    trainer.fit()
    return trainer


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_it_learns_its_training_facts(family_run: Path) -> None:
    run = api.load(family_run)
    assert run.evaluate("train").micro.mrr > 0.9
    assert run.record["curve"][-1]["expected_reward"] > 0.7


def test_preset_paper_trains(family: KnowledgeGraph, tmp_path: Path) -> None:
    from ekgn.kbc.settings import KbcSettings

    settings = KbcSettings.build("paper", overrides={"epochs": 60, "threads": 1})
    trainer = Trainer(KbcTask(family, settings), RunFolder(tmp_path / "run"))
    trainer.fit()
    curve = lines(tmp_path / "run")
    assert curve[-1]["loss"] < curve[0]["loss"]
    entities = trainer.model.answers.weight
    assert torch.allclose(entities.norm(dim=1), torch.ones(len(entities)), atol=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_every_optimizer_and_clipping_lowers_the_loss(
    family: KnowledgeGraph, tmp_path: Path, optimizer: str
) -> None:
    rate = {"sgd": 1.0, "adagrad": 0.1}[optimizer]
    train(family, tmp_path, optimizer=optimizer, learning_rate=rate, clip_norm=5.0, epochs=20)
    curve = lines(tmp_path)
    assert curve[-1]["loss"] < curve[0]["loss"]


def test_the_rate_falls_linearly_from_decay_from_on(family: KnowledgeGraph, tmp_path: Path) -> None:
    train(
        family, tmp_path, max_steps=1, decay_from=0.5, epochs=4, valid_every=1, learning_rate=0.01
    )
    rates = [line["learning_rate"] for line in lines(tmp_path)]
    assert rates == pytest.approx([0.01, 0.01, 0.005, 0.0])


def test_work_counts_an_update_by_what_its_phase_costs() -> None:
    work = Work([0, 50, 80], [1.0, 3.0, 10.0], 100)
    # 50 updates at 1, 30 at 3, 20 at 10: 340.
    assert [work.share(step) * 340 for step in (0, 50, 60, 80, 90, 100)] == pytest.approx(
        [0, 50, 80, 140, 240, 340]
    )


def test_the_work_ahead_is_rehearsed_without_a_trace(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    settings = tiny_settings(steps_from=0.5, dropout=0.2, epochs=4, valid_every=4)
    shares = [0.0]
    trainer = Trainer(
        KbcTask(family, settings),
        RunFolder(tmp_path / "told"),
        lambda progress, total, share: shares.append(share),
    )
    trainer.fit()
    steps = np.diff(shares).reshape(4, trainer.per_epoch)
    for phase in (steps[:2], steps[2:]):
        assert phase.min() > 0 and phase == pytest.approx(phase.mean())
    assert shares[-1] == pytest.approx(1)
    untold = Trainer(KbcTask(family, settings), RunFolder(tmp_path / "untold"))
    for _ in range(untold.total_steps):
        untold.update()
    expected = untold.model.state_dict()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_clipping_bounds_the_norm_of_all_gradients(family: KnowledgeGraph, tmp_path: Path) -> None:
    """By SGD with rate 1, what an update changes is the gradient."""
    task = KbcTask(family, tiny_settings(clip_norm=1e-4, optimizer="sgd", learning_rate=1.0))
    trainer = Trainer(task, RunFolder(tmp_path))
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.update()
    after = trainer.model.state_dict()
    square = sum(float((after[name] - value).square().sum()) for name, value in before.items())
    assert square**0.5 == pytest.approx(1e-4, rel=1e-2)


def test_early_stopping_keeps_the_best_weights(family: KnowledgeGraph, tmp_path: Path) -> None:
    trainer = train(family, tmp_path, epochs=400, valid_every=5, patience=3)
    curve = lines(tmp_path)
    assert trainer.progress.step < trainer.total_steps
    best = max(curve, key=lambda line: line["hits_at_10"])
    _, saved = load_tensors(tmp_path / "model.safetensors")
    assert saved["step"] == best["step"] == trainer.progress.best_step
    again = KbcRun(tmp_path).evaluate("valid").micro
    assert again.hits_at_10 == pytest.approx(best["hits_at_10"])


def test_a_budget_ends_the_training(family: KnowledgeGraph, tmp_path: Path) -> None:
    trainer = train(family, tmp_path, epochs=100_000, budget_minutes=0.005)
    assert 0 < trainer.progress.step < trainer.total_steps
    assert (tmp_path / "record.json").exists()


def test_the_record_says_what_was_run(family_run: Path) -> None:
    record = json.loads((family_run / "record.json").read_text())
    assert record["data"]["name"] == "family" and record["data"]["train"] == 82
    assert record["settings"]["max_steps"] == 3 and record["settings"]["seed"] == 0
    assert record["environment"]["libraries"]["torch"] == torch.__version__
    assert record["wall_seconds"] > 0 and len(record["curve"]) == 1
    names = {path.name for path in family_run.iterdir()}
    assert names >= {
        "config.json",
        "graph.safetensors",
        "vocabulary.json",
        "model.safetensors",
        "training_state.safetensors",
        "metrics.jsonl",
        "record.json",
    }
    assert not any(name.endswith(".tmp") for name in names)


def same_run(one: Path, other: Path) -> None:
    for name in ("model.safetensors", "training_state.safetensors"):
        first, second = load_tensors(one / name)[0], load_tensors(other / name)[0]
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    drop = ("seconds",)
    strip = [
        [{k: v for k, v in line.items() if k not in drop} for line in lines(path)]
        for path in (one, other)
    ]
    assert strip[0] == strip[1]


def test_ctrl_c_leaves_a_usable_run_that_goes_on_bitwise(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    options = {"dropout": 0.2, "steps_from": 0.4, "valid_every": 8}
    train(family, tmp_path / "whole", **options)

    def interrupt(progress: Progress, total: int, share: float) -> None:
        if progress.step == 33:
            raise KeyboardInterrupt

    task = KbcTask(family, tiny_settings(**options))
    with pytest.raises(KeyboardInterrupt):
        Trainer(task, RunFolder(tmp_path / "cut"), interrupt).fit()
    assert KbcRun(tmp_path / "cut").predict(head="person_3", relation="next")
    api.resume(tmp_path / "cut")
    same_run(tmp_path / "whole", tmp_path / "cut")


KILLED = """
import os, signal, sys
from pathlib import Path
from ekgn import api
from ekgn.kbc.graph import KnowledgeGraph
from tests.conftest import tiny_settings

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_between_checkpoints(progress, total, share):
    if progress.step == total // 3:
        die()

def die_renaming(aside, target, rename=Path.replace, states=[]):
    if target.name == "training_state.safetensors":
        states.append(target)
    die() if len(states) == 2 else rename(aside, target)

run = Path(sys.argv[1])
if run.exists():
    Path.replace = die_renaming
    api.resume(run)
else:
    settings = tiny_settings(**{settings})
    api.train(KnowledgeGraph.load(Path(sys.argv[2])), settings, out=run,
              listener=die_between_checkpoints)
"""


def test_sigkill_loses_nothing_but_time(family: KnowledgeGraph, tmp_path: Path) -> None:
    """A real process is killed twice at awkward moments, and ends with the same weights.

    First between two checkpoints, then with the next checkpoint written but not yet in its place.
    """
    settings = {"epochs": 30, "valid_every": 4, "checkpoint_minutes": 0.002, "dropout": 0.3}
    train(family, tmp_path / "whole", **settings)
    family.save(tmp_path / "graph")
    root = Path(__file__).resolve().parent.parent
    places = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = KILLED.replace("{settings}", repr(settings))
    for _ in range(2):
        killed = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "cut"), str(tmp_path / "graph")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
            timeout=600,
        )
        assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / "cut").glob(".training_state*.tmp"))
    api.resume(tmp_path / "cut")
    same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_folder_with_a_run_is_not_overwritten(family: KnowledgeGraph, family_run: Path) -> None:
    with pytest.raises(EkgnError, match=r"already holds a run. Go on with it \(--resume\)"):
        api.train(family, tiny_settings(), out=family_run)


def test_resuming_what_was_never_begun_is_said(tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match=r"No run in .* expected a folder made by `ekgn train`"):
        api.resume(tmp_path / "nothing")


def test_a_damaged_checkpoint_is_said(family: KnowledgeGraph, tmp_path: Path) -> None:
    train(family, tmp_path, epochs=2, valid_every=2)
    (tmp_path / "training_state.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(EkgnError, match=r"training_state.safetensors is damaged"):
        api.resume(tmp_path)


def test_divergence_is_one_clear_error(family: KnowledgeGraph, tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match=r"the training diverged. Try a lower --learning-rate"):
        train(family, tmp_path, optimizer="sgd", learning_rate=1e6)


def test_an_unusable_device_is_said() -> None:
    with pytest.raises(EkgnError, match="Device 'cuda:99' cannot be used here"):
        choose_device("cuda:99")


def test_tensorboard_logs_are_written(family: KnowledgeGraph, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(family, tmp_path, epochs=2, valid_every=1, tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_each_phase_has_its_own_fall_of_the_rate(family: KnowledgeGraph, tmp_path: Path) -> None:
    settings = tiny_settings(steps_from=0.5, decay_from=0.5, epochs=8, valid_every=1)
    Trainer(KbcTask(family, settings), RunFolder(tmp_path)).fit()
    rates = [line["learning_rate"] / settings.learning_rate for line in lines(tmp_path)]
    assert rates == pytest.approx([1, 1, 0.5, 1, 1, 1, 0.5, 0])


def test_a_spent_budget_moves_the_training_on_to_its_next_phase(
    family: KnowledgeGraph, tmp_path: Path
) -> None:
    settings = tiny_settings(steps_from=0.5, decay_from=0.5, epochs=8, budget_minutes=1)
    trainer = Trainer(KbcTask(family, settings), RunFolder(tmp_path))
    tables = trainer.model.entities.weight
    before = tables.clone()
    trainer.progress.seconds = 45.0
    trainer.update()
    assert torch.equal(tables, before), "half of the budget is spent: the tables rest"
    assert trainer._rate_factor() == pytest.approx(1)
    trainer.progress.seconds = 60.0
    assert trainer._rate_factor() == 0 and trainer._is_over()
