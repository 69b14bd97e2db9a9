"""What each process of a group does in the tests of several processes.

    torchrun --nproc-per-node 2 -m tests.ranks PLAN FOLDER

A plan is a function of this file; its results are run folders and JSON files below the folder.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ekgn import api
from ekgn.checkpoint import RunFolder
from ekgn.distributed import is_restart, world
from ekgn.errors import EkgnError
from ekgn.files import write_json
from ekgn.kbc.graph import Vocabulary
from ekgn.kbc.ranking import rank_split
from ekgn.kbc.run import KbcRun
from ekgn.kbc.settings import KbcSettings
from ekgn.kbc.task import KbcTask
from ekgn.paths.graphs import make
from ekgn.paths.settings import PathsSettings
from ekgn.paths.task import PathsTask
from ekgn.trainer import Progress, Trainer
from tests.conftest import made_family, tiny_settings

QUESTIONS = [["person_3", "next", "?"], ["?", "after_next", "person_9"], ["nobody", "next", "?"]]
QUESTIONS += [[f"person_{n}", "previous", "?"] for n in range(30)] * 5  # more than one batch


def cases() -> dict[str, KbcSettings]:
    """Each kind of training: 164 queries in batches of 27, so that the last batch has 2."""
    shared: dict[str, Any] = {"batch_size": 27, "epochs": 4, "valid_every": 2}
    phases: dict[str, Any] = {"steps_from": 0.4, "tables_from": 0.7, "held_out": 0.2}
    exact = tiny_settings(**shared, **phases, penalty=0.01, dropout=0.3)
    sampled = exact.model_copy(
        update={"negatives": 6, "readout": "mixture", "clip_norm": 0.5, "seed": 4}
    )
    # More samples than outputs: these go to where the samples are kept, not the other way.
    many = sampled.model_copy(update={"negatives": 100})
    paper = KbcSettings.build(
        "paper", None, {**shared, "embedding_dim": 8, "num_slots": 4, "threads": 1}
    )
    return {"exact": exact, "sampled": sampled, "many": many, "paper": paper}


def paths_task() -> PathsTask:
    """A small task 2; its dropout, of which a process draws its own part, is off."""
    settings = PathsSettings.build(
        "base",
        None,
        {
            "embedding_dim": 8,
            "decoder_size": 8,
            "num_slots": 4,
            "max_steps": 2,
            "batch_size": 25,
            "epochs": 2,
            "valid_every": 1,
            "threads": 1,
            "input_dropout": 0.0,
            "output_dropout": 0.0,
            "decoder_dropout": 0.0,
        },
    )
    return PathsTask(make(nodes=40, k=6, sizes=(60, 20, 20), seed=3), settings)


def train(task: Any, folder: Path, stop_at: int = 0, resume: bool = False) -> None:
    """A training, which the last process of the group asks to stop, if it is to."""

    def listen(progress: Progress, total: int, share: float) -> None:
        if stop_at and progress.step >= stop_at:
            raise KeyboardInterrupt

    trainer = Trainer(task, RunFolder(folder))
    if trainer.group.rank == trainer.group.size - 1:
        trainer.listener = listen
    try:
        trainer.fit(resume=resume)
    except KeyboardInterrupt:
        assert stop_at


def same(folder: Path) -> None:
    """Every kind of training, replicated and sharded; evaluation and answers; refusals."""
    family = made_family()
    for name, settings in cases().items():
        for tables in ("replicated", "sharded"):
            changed = settings.model_copy(update={"tables": tables})
            train(KbcTask(family, changed), folder / f"{name}-{tables}")
    train(paths_task(), folder / "paths")
    asked(folder)
    refused(folder)


def asked(folder: Path) -> None:
    """Ranks and answers of one run, by all processes."""
    run = KbcRun(folder / "exact-sharded")
    ranks = rank_split(run.scorer(), run.graph, "test", queries=world())
    answers = [
        found.message if not isinstance(found, list) else [[one.id, one.share] for one in found]
        for _, found in run.predict_many(QUESTIONS, top=5)
    ]
    evaluation = run.evaluate("test").headline()
    run.complete(folder / "missing.tsv", explained=0)
    if world().is_first:
        found = {"ranks": ranks.realistic.tolist(), "answers": answers, "evaluation": evaluation}
        write_json(folder / "asked.json", found)


def refused(folder: Path) -> None:
    """What is said of processes that do not fit each other."""
    family, settings, odd = made_family(), cases()["exact"], world().rank == 1
    few = replace(family, train=family.train[:1], entities=Vocabulary.plain(["a", "b"]))
    tries: dict[str, Callable[[], KbcTask]] = {
        "settings": lambda: KbcTask(family, settings.model_copy(update={"seed": int(odd)})),
        "data": lambda: KbcTask(replace(family, train=family.train[int(odd) :]), settings),
        "batch": lambda: KbcTask(family, settings.model_copy(update={"batch_size": 1})),
        "rows": lambda: KbcTask(few, settings.model_copy(update={"tables": "sharded"})),
    }
    tries["open"] = lambda: KbcTask.open("nowhere" if odd else "world", settings)
    tries["open by all"] = lambda: KbcTask.open("nowhere", settings)
    said = {}
    for name, task in tries.items():
        try:
            Trainer(task(), RunFolder(folder / "refused"))
        except EkgnError as error:
            said[name] = str(error)
    if world().is_first:
        write_json(folder / "refused.json", said)


def half(folder: Path) -> None:
    """The first part of a training that other numbers of processes go on with."""
    task = KbcTask(made_family(), moved_settings())
    train(task, folder / "moved", stop_at=9)


def moved_settings() -> KbcSettings:
    return cases()["exact"].model_copy(update={"tables": "sharded"})


def whole(folder: Path) -> None:
    """The last part of it."""
    trainer = api.reopen(folder / "moved")
    trainer.fit(resume=True)


def killed(folder: Path) -> None:
    """A training one of whose processes is killed after its first checkpoint."""

    def kill(progress: Progress, total: int, share: float) -> None:
        if progress.step == 17 and not is_restart():
            os.kill(os.getpid(), signal.SIGKILL)

    trainer = Trainer(KbcTask(made_family(), moved_settings()), RunFolder(folder / "killed"))
    trainer.listener = kill if trainer.group.rank == 1 else None
    trainer.fit()


def hosts(folder: Path) -> None:
    """Trainings on machines that share no folder: the first one writes, into its own."""
    for name, tables in (("exact", "sharded"), ("paper", "replicated")):
        changed = cases()[name].model_copy(update={"tables": tables})
        train(KbcTask(made_family(), changed), folder / str(world().rank) / name)


PLANS = {"hosts": hosts, "same": same, "half": half, "whole": whole, "killed": killed}


def left_threads() -> None:
    """End in an error if threads of the group are left at the very end: they may abort it."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    if left := [name for name in names if "gloo" in name]:
        print("Threads left at the end:", *left, file=sys.stderr, flush=True)
        os._exit(3)


if __name__ == "__main__":
    atexit.register(left_threads)  # the first is called last
    for plan in sys.argv[1].split(","):
        PLANS[plan](Path(sys.argv[2]))
