"""Growth: new facts, entities and names for a trained run, without training it again.

An extended run is a run folder of its own, written aside and renamed: RUN/extended/1, then 2, ...
RUN/extended.json says which of them is the present one (ekgn.run.current), so that a run is never
half extended, and taking the last extension back is one rename.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ekgn.checkpoint import RunFolder, load_weights, save_tensors
from ekgn.errors import EkgnError, did_you_mean
from ekgn.files import locked, read_text, replace_file, replace_folder, write_json
from ekgn.kbc.answers import Ints, with_inverses
from ekgn.kbc.columns import TripleFile
from ekgn.kbc.datasets import sha256_of
from ekgn.kbc.graph import KnowledgeGraph
from ekgn.kbc.model import KbcModel, scorer
from ekgn.kbc.ranking import Metrics, rank_split
from ekgn.kbc.refit import NEW, Case, Refit
from ekgn.kbc.task import CHOICES, KbcTask
from ekgn.kbc.triples import gather_names, read_triples
from ekgn.kbc.vocabulary import Vocabulary
from ekgn.machine import outline
from ekgn.optimizers import Optimizers
from ekgn.records import environment
from ekgn.run import EXTENDED, POINTER, current, root_of
from ekgn.state import has_state, read_state

CHECKED = 1000  # old validation facts that are ranked before and after
ROUNDS = 2  # over new entities that have facts with each other
# What the record of a training says that is still so of the extended run.
KEPT = (
    *("format", "ekgn", "task", "preset", "overrides", "settings", "wall_seconds", "steps"),
    *("epochs", "ended_by", "best", "curve"),
)


@dataclass(frozen=True)
class Extension:
    """What was added to a run."""

    file: str
    sha256: str
    facts: int
    entities: int
    names: int
    already_known: int  # facts of the file that training has
    held_out: int  # facts of the file that stay in valid or test
    refitted: int  # old entities with new facts between them
    refresh: int  # epochs
    old_facts: dict[str, float]  # hits@10 of old validation facts, before and after
    seconds: float
    date: str

    @property
    def adds_nothing(self) -> bool:
        """Whether the run has all of it already."""
        return not (self.facts or self.names or self.refresh)


@dataclass(frozen=True)
class _Grown:
    """A graph with new facts, and what became of the facts that were given."""

    graph: KnowledgeGraph
    new_facts: Ints
    already_known: int
    held_out: int
    names: int


def extend(
    path: Path, file: Path, names: Sequence[Path] = (), out: Path | None = None, refresh: int = 0
) -> Extension:
    """Add the facts of a file to a run, in place or (`out`) as a new run.

    A run that has them all already stays as it is.
    """
    began, root = time.monotonic(), root_of(path)
    if out and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise EkgnError(f"{out} exists already: give --out a folder that is not there yet.")
    with locked(root):
        folder = RunFolder.existing(current(root))
        before = KbcTask.load(folder.path, folder.read_settings(KbcTask.settings_class))
        weights, checkpoint = load_weights(folder.model, outline(before))
        old = before.new_model()
        old.load_state_dict(weights)
        old.eval()
        given = read_triples(file)
        grown = grow(before.graph, given, names)
        task = KbcTask(grown.graph, before.settings, before.choices)
        model, refitted = fitted(old, before.graph, task, grown.new_facts)
        if refresh:
            _refresh(task, model, _sums(RunFolder(root)), refresh)
        extension = Extension(
            file=file.name,
            sha256=sha256_of(file),
            facts=len(grown.new_facts),
            entities=grown.graph.num_entities - before.graph.num_entities,
            names=grown.names,
            already_known=grown.already_known,
            held_out=grown.held_out,
            refitted=refitted,
            refresh=refresh,
            old_facts=_old_facts(before.graph, old, grown.graph, model),
            seconds=round(time.monotonic() - began, 2),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        written = _Written(folder, task, model, checkpoint, extension)
        if out:
            replace_folder(out, written.write)
        elif not extension.adds_nothing:  # else all is there: as after a kill at the very end
            number = int(folder.path.name) + 1 if folder.path != root else 1
            replace_folder(root / EXTENDED / str(number), written.write)
            write_json(root / POINTER, {"current": number})
    return extension


def undo(path: Path) -> Extension:
    """Take the last extension of a run back; returns what it was."""
    root = root_of(path)
    with locked(root):
        last = current(root)
        if last == root:
            raise EkgnError(f"{root} has no extension that could be taken back.")
        extension = Extension(**RunFolder(last).read_config()["extended"][-1])
        write_json(root / POINTER, {"current": int(last.name) - 1})
        shutil.rmtree(last, ignore_errors=True)
    return extension


def grow(graph: KnowledgeGraph, given: TripleFile, names: Sequence[Path]) -> _Grown:
    """The graph with new facts in train, and the entities they bring at the end."""
    relations = _indices(graph.relations, given.frame["relation"].unique(maintain_order=True))
    unknown = [text for text, index in relations.items() if index is None]
    if unknown:
        hint = did_you_mean(unknown[0], graph.relations.ids)
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise EkgnError(
            f"Unknown relation '{unknown[0]}'{more}: {graph.name} has {graph.num_relations}. "
            f"{hint} A relation is learned from many facts: leave it out, or train "
            f"a new run on all facts."
        )
    mentioned = given.frame.select("head", "tail").to_numpy().ravel().tolist()
    places = _indices(graph.entities, dict.fromkeys(mentioned))
    new = [text for text, index in places.items() if index is None]
    places |= {text: graph.num_entities + place for place, text in enumerate(new)}
    rows = [(places[h], relations[r], places[t]) for h, r, t in given.frame.iter_rows()]
    facts = np.unique(np.array(rows, np.int64), axis=0)
    in_train, held_out = _known(graph, facts)
    added = facts[~in_train & ~held_out]
    ids = (*graph.entities.ids, *new)
    found, _ = gather_names([given], names, ({*ids}, graph.relations.ids))
    entities = Vocabulary(
        ids, (*graph.entities.labels, *new), (*graph.entities.descriptions, *("",) * len(new))
    )
    grown = dataclasses.replace(
        graph, entities=entities, train=np.concatenate([graph.train, added])
    ).with_names(found)
    return _Grown(grown, added, int(in_train.sum()), int(held_out.sum()), len(found))


def _indices(known: Vocabulary, texts: Any) -> dict[str, Any]:
    """The index of each text, by id or else by label; None for what is new."""
    found: dict[str, Any] = {}
    for text in texts:
        called = known.called(text)
        if text not in known.index_of and len(called) > 1:
            ids = ", ".join(known.ids[index] for index in called[:5])
            raise EkgnError(f"Several are called '{text}': {ids}. Give the id of the one you mean.")
        found[text] = known.index_of.get(text, called[0] if called else None)
    return found


def _known(graph: KnowledgeGraph, facts: Ints) -> tuple[Any, Any]:
    """Which facts training has, and which others valid or test have."""
    size = int(max(facts.max(initial=0) + 1, graph.num_entities))

    def keys(triples: Ints) -> Ints:
        return (triples[:, 0] * graph.num_relations + triples[:, 1]) * size + triples[:, 2]

    in_train = np.isin(keys(facts), keys(graph.train))
    held_out = np.isin(keys(facts), keys(np.concatenate([graph.valid, graph.test])))
    return in_train, held_out & ~in_train


def fitted(
    old: KbcModel, before: KnowledgeGraph, task: KbcTask, new_facts: Ints
) -> tuple[KbcModel, int]:
    """A model of the grown graph: new rows fitted, and old ones with new facts among themselves."""
    count, relations = before.num_entities, before.num_relations
    refit = Refit(old, before.train)
    among_old = (new_facts[:, [0, 2]] < count).all(axis=1)
    changed = np.unique(new_facts[among_old][:, [0, 2]])
    by_entity = _by_entity(new_facts, relations, task.graph.num_entities)
    known = [facts[facts[:, 1] < count] for facts in by_entity[count:]]
    rows = refit.rows([Case(NEW, facts) for facts in known])
    model = _grown_model(old, task, rows)
    together = any((facts[:, 1] >= count).any() for facts in by_entity[count:])
    for _ in range(ROUNDS * together):
        again = Refit(model, task.graph.train)
        cases = [Case(count + place, facts) for place, facts in enumerate(by_entity[count:])]
        model.entities.weight[count:] = again.rows(cases, model.entities.weight[count:])
    if len(changed):
        again = Refit(model, task.graph.train)
        every = _by_entity(task.graph.train, relations, task.graph.num_entities)
        cases = [Case(entity, every[entity]) for entity in changed.tolist()]
        places = torch.from_numpy(changed)
        model.entities.weight[places] = again.rows(cases, model.entities.weight[places])
    return model, len(changed)


def _by_entity(facts: Ints, num_relations: int, num_entities: int) -> list[Ints]:
    """The facts of each entity, seen from it: rows of relation, other entity."""
    both = with_inverses(facts, num_relations)
    both = both[np.argsort(both[:, 0], kind="stable")]
    ends = np.searchsorted(both[:, 0], np.arange(1, num_entities))
    return np.split(both[:, 1:], ends)


def _grown_model(old: KbcModel, task: KbcTask, rows: Tensor) -> KbcModel:
    """The model with more entities, the rest as it was."""
    weights = old.state_dict()
    weights["entities.weight"] = torch.cat([old.entities.weight, rows])
    model = task.new_model()
    model.load_state_dict(weights)
    return model.eval()


def _sums(trained: RunFolder) -> list[Tensor]:
    """How far Adagrad has come with each table: sums of squared gradients."""
    if not has_state(trained):
        raise EkgnError(
            f"{trained.state} is missing: --refresh goes on from the training's last state. "
            f"Extend without it."
        )
    tensors, _ = read_state(trained)
    return [tensors[name] for name in ("tables.0.sum", "tables.1.sum") if name in tensors]


def _refresh(task: KbcTask, model: KbcModel, sums: list[Tensor], epochs: int) -> None:
    """Train the tables on all facts for a few epochs, the rate falling from where it was to 0."""
    optimizers = Optimizers(model, task.settings)
    for table, before in zip(optimizers.tables, sums, strict=False):
        state = optimizers.parts["tables"].state[table.weight]["sum"]
        state[:] = before.mean(dim=0)
        state[: len(before)] = before
    model.train()
    torch.manual_seed(task.settings.seed)
    total = epochs * len(task.batches)
    for step in range(total):
        batch = task.batches(*divmod(step, len(task.batches)), done=1.0)
        optimizers.update(model.loss(batch, done=0.0).total, 1 - step / total)
    model.eval()


def _old_facts(
    before: KnowledgeGraph, old: KbcModel, after: KnowledgeGraph, model: KbcModel
) -> dict[str, float]:
    """Hits@10 of old validation facts, before and among the new candidates."""
    if not len(before.valid):
        return {}
    return {"before": _hits(before, old), "after": _hits(after, model)}


def _hits(graph: KnowledgeGraph, model: KbcModel) -> float:
    ranks = rank_split(scorer(model), graph, "valid", limit=CHECKED)
    return Metrics.over(ranks.realistic, ranks.candidates).hits_at_10


@dataclass(frozen=True)
class _Written:
    """A run folder to be: what it holds, and how it is written."""

    folder: RunFolder  # of the run that was extended
    task: KbcTask
    model: KbcModel
    checkpoint: Any
    extension: Extension

    def write(self, aside: Path) -> None:
        """All files of the extended run; the config last: with it the folder is a run."""
        run, config = RunFolder(aside), self.folder.read_config()
        history = [*config.get("extended", []), asdict(self.extension)]
        self.task.graph.save(aside)
        save_tensors(run.model, self.model.state_dict(), self.checkpoint)
        for name in (CHOICES, "metrics.jsonl"):
            if (self.folder.path / name).exists():
                text = read_text(self.folder.path / name)
                replace_file(aside / name, _writer(text))
        record = self.folder.read_record()
        if record:
            kept = {name: record[name] for name in KEPT if name in record}
            about = {
                "data": self.task.describe(),
                "environment": environment(torch.device("cpu")),
                "parameters": self.model.num_parameters(),
                "evaluations": {},
                "extended": history,
            }
            write_json(run.record, {**kept, **about})
        write_json(run.config, {**config, "extended": history})


def _writer(text: str) -> Any:
    return lambda aside: aside.write_text(text, encoding="utf-8")
