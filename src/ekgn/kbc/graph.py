"""A knowledge graph as numbers: vocabularies, three index arrays, and where they came from.

`load_graph` takes a benchmark's name, a directory or a file, numbers entities and relations in
the order in which they first appear (train, then valid, then test), and keeps the result in a
cache keyed by the content of the files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from ekgn.errors import EkgnError, did_you_mean
from ekgn.files import read_json, replace_file, replace_folder, write_json
from ekgn.kbc import datasets
from ekgn.kbc.columns import Names, TripleFile
from ekgn.kbc.datasets import SPLITS, DataFiles
from ekgn.kbc.frames import names_of, triples_of
from ekgn.kbc.mapped import mapped
from ekgn.kbc.texts import Texts
from ekgn.kbc.triples import gather_names, read_names, read_triples
from ekgn.kbc.vocabulary import Vocabulary as Vocabulary

logger = logging.getLogger(__name__)

Triples = NDArray[np.int64]
_FORMAT = 2  # 1 had all names in vocabulary.json; it is still read
_READERS = 2  # raised when the same files are read otherwise than before
_KINDS = ("entities", "relations")
_CACHED_GRAPHS = 24


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Vocabularies and the three splits as rows of head, relation, tail; no inverse relations."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: Triples
    valid: Triples
    test: Triples
    source: dict[str, Any]

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @cached_property
    def has_loops(self) -> NDArray[np.bool_]:
        """Which roles, relations and then their inverses, join an entity to itself in training."""
        loops = self.train[self.train[:, 0] == self.train[:, 2], 1]
        return np.isin(np.arange(2 * self.num_relations) % self.num_relations, loops)

    def split(self, name: str) -> Triples:
        """The triples of train, valid or test."""
        if name not in SPLITS:
            hint = did_you_mean(name, SPLITS)
            raise EkgnError(f"Unknown split '{name}': expected {', '.join(SPLITS)}. {hint}".strip())
        triples: Triples = getattr(self, name)
        return triples

    def describe(self) -> dict[str, Any]:
        """Name, sizes and source, as JSON-able values."""
        return {
            "name": self.name,
            "entities": self.num_entities,
            "relations": self.num_relations,
            **{split: len(self.split(split)) for split in SPLITS},
            "source": self.source,
        }

    def triples_factory(self, split: str = "train") -> Any:
        """A split as a triples factory of PyKEEN, with the same indices."""
        try:
            from pykeen.triples import TriplesFactory
        except ImportError:
            raise EkgnError(
                "PyKEEN is not installed. Install it with: pip install 'ekgn[peers]'"
            ) from None
        import torch

        names = {"entity": self.entities.ids, "relation": self.relations.ids}
        numbers = {f"{kind}_to_id": {i: at for at, i in enumerate(n)} for kind, n in names.items()}
        return TriplesFactory(torch.from_numpy(self.split(split)), **numbers)

    def save(self, folder: Path) -> None:
        """Write graph.safetensors and vocabulary.json, each aside first and then renamed."""
        about = {"format": _FORMAT, "name": self.name, "source": self.source}
        words = json.dumps(about, ensure_ascii=False).encode()
        arrays = {name: np.ascontiguousarray(self.split(name)) for name in SPLITS}
        for kind in _KINDS:
            arrays |= getattr(self, kind).arrays(kind)
        note = {"sha256": _digest(words, arrays)}
        replace_file(folder / "vocabulary.json", lambda aside: aside.write_bytes(words))
        replace_file(
            folder / "graph.safetensors",
            lambda aside: safetensors.numpy.save_file(arrays, aside, note),
        )

    @classmethod
    def load(cls, folder: Path) -> KnowledgeGraph:
        """Map what `save` wrote into memory; anything missing, torn or changed raises."""
        try:
            words = (folder / "vocabulary.json").read_bytes()
            arrays, note = mapped(folder / "graph.safetensors")
            about = json.loads(words)
            digest = _digest(words, arrays)
        except FileNotFoundError as error:
            missing = Path(error.filename or folder / "graph.safetensors").name
            raise EkgnError(f"No graph in {folder}: {missing} is missing.") from None
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise EkgnError(f"The graph in {folder} cannot be read: {error}.") from None
        if note != {"sha256": digest}:
            raise EkgnError(
                f"The graph in {folder} was changed or only half written: "
                "vocabulary.json and graph.safetensors do not belong together."
            )
        if about["format"] not in (1, _FORMAT):
            raise EkgnError(f"The graph in {folder} was written by another version of ekgn.")
        entities, relations = (
            Vocabulary(**about[kind]) if kind in about else Vocabulary.of_arrays(kind, arrays)
            for kind in _KINDS
        )
        train, valid, test = (arrays[name].astype(np.int64, copy=False) for name in SPLITS)
        graph = cls(about["name"], entities, relations, train, valid, test, about["source"])
        return graph.with_names(_added_names(folder))

    def with_names(self, names: Names) -> KnowledgeGraph:
        """The same graph with other labels and descriptions for some ids."""
        if not names:
            return self
        return dataclasses.replace(
            self,
            entities=self.entities.with_names(names),
            relations=self.relations.with_names(names),
        )


def add_names(folder: Path, file: Path) -> int:
    """Give ids of the graph in `folder` the names in `file`; returns how many there were.

    They are kept in a file of their own, names.json, so that the graph stays what was trained on.
    """
    graph = KnowledgeGraph.load(folder)
    known = {*graph.entities.ids, *graph.relations.ids}
    found = {key: words for key, words in read_names(file).items() if key in known}
    if not found:
        raise EkgnError(f"{file} names none of the {len(known):,} ids of {graph.name}.")
    write_json(folder / "names.json", {**_added_names(folder), **found})
    return len(found)


def _added_names(folder: Path) -> Names:
    """What `add_names` has kept."""
    path = folder / "names.json"
    if not path.exists():
        return {}
    names = read_json(path)
    try:
        return {key: (str(label), str(about)) for key, (label, about) in names.items()}
    except (AttributeError, TypeError, ValueError):
        raise EkgnError(
            f"{path} is damaged: expected a label and a description by id. "
            "Delete it, and add the names again with: ekgn names RUN FILE"
        ) from None


def _digest(words: bytes, arrays: dict[str, NDArray[Any]]) -> str:
    """One checksum over both files, so that a torn or changed pair is noticed."""
    digest = hashlib.sha256(words)
    more = sorted(arrays.keys() - set(SPLITS))
    for name in (*SPLITS, *more):
        if more:  # format 1 had only the splits, and no word about them
            digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].data)
    return digest.hexdigest()


def load_graph(
    data: Any,
    *,
    data_dir: Path | None = None,
    names: Sequence[Path] | Mapping[str, Any] = (),
    seed: int = 0,
    valid_share: float = 0.05,
    test_share: float = 0.05,
    cache_dir: Path | None = None,
) -> KnowledgeGraph:
    """The graph behind DATA: a benchmark's name, a directory with train/valid/test, or one file.

    Splits that have no file are held out from train with `seed`, so that every entity and every
    relation stays in train. Later `names` files win over earlier ones and over the data's own.

    DATA may also be in memory: a polars or pandas frame, an array, a NetworkX graph, rows of head,
    relation, tail, or a dict with those for train, valid and test. `names` may be a dict.
    """
    given, paths = ({}, names) if not isinstance(names, Mapping) else (names_of(names), ())
    if not isinstance(data, str | Path):
        return _from_memory(data, given, seed, {"valid": valid_share, "test": test_share})
    found = datasets.find_data(data, data_dir)
    found = dataclasses.replace(found, names=(*found.names, *map(Path, paths)))
    sums = {split: datasets.sha256_of(path) for split, path in found.files.items()}
    if found.benchmark is not None:
        found.benchmark.check_sums(found.files["train"].parent, sums)
    shares = {"valid": valid_share, "test": test_share}
    missing = {split: shares[split] for split in shares if split not in found.files}
    split = {"seed": seed, "shares": missing} if missing else None
    cached = _cache_folder(found, sums, split, cache_dir)
    graph = _load_cached(cached)
    if graph is None:
        graph = _build(found, sums, split)
        _store(graph, cached)
    _report(graph)
    return graph.with_names(given)


def _from_memory(data: Any, names: Names, seed: int, shares: dict[str, float]) -> KnowledgeGraph:
    """A graph from what is already in Python: one thing to split, or one for each split."""
    parts = data if isinstance(data, dict) else {"train": data}
    if "train" not in parts or not parts.keys() <= set(SPLITS):
        raise EkgnError(f"Data for {', '.join(map(str, parts))}: expected train, valid, test.")
    files = {name: triples_of(parts[name]) for name in SPLITS if name in parts}
    sums = {
        name: hashlib.sha256(file.frame.write_csv().encode()).hexdigest()
        for name, file in files.items()
    }
    missing = {name: share for name, share in shares.items() if name not in files}
    split = {"seed": seed, "shares": missing} if missing else None
    found = DataFiles("data", {name: Path(f"{name} in memory") for name in files})
    graph = _assemble(found, files, sums, split)
    _report(graph)
    return graph.with_names(names)


def _build(found: DataFiles, sums: dict[str, str], split: dict[str, Any] | None) -> KnowledgeGraph:
    """Read the files and put them together."""
    files = {name: read_triples(path) for name, path in found.files.items()}
    return _assemble(found, files, sums, split)


def _assemble(
    found: DataFiles,
    files: dict[str, TripleFile],
    sums: dict[str, str],
    split: dict[str, Any] | None,
) -> KnowledgeGraph:
    """Number, hold out where asked, and note what a reader of results should know."""
    coded, entity_ids, relation_ids = _encode({name: file.frame for name, file in files.items()})
    if found.benchmark is not None:
        lines = tuple(len(coded[name]) for name in SPLITS)
        found.benchmark.check_counts(lines, len(entity_ids), len(relation_ids))
    splits = {name: _distinct(rows, len(entity_ids)) for name, rows in coded.items()}
    dropped = {name: len(coded[name]) - len(splits[name]) for name in coded}
    if split is not None:
        splits |= hold_out(splits["train"], split["shares"], split["seed"], found.files["train"])
        split = {**split, "held_out": {name: len(splits[name]) for name in split["shares"]}}
    splits, entity_codes, relation_codes = _number(splits)
    entities = Texts.of_series(entity_ids.gather(entity_codes))
    relations = Texts.of_series(relation_ids.gather(relation_codes))
    names, used = gather_names(files.values(), found.names, (entities, relations))
    source = {
        "files": [
            {"name": path.name, "sha256": sums[name], "triples": len(coded[name])}
            for name, path in found.files.items()
        ],
        "names": [
            {"name": path.name, "sha256": datasets.sha256_of(path), "used": count}
            for path, count in used.items()
        ],
        "duplicates_dropped": dropped,
        "literals_skipped": sum(file.literals_skipped for file in files.values()),
        "headers_skipped": {
            name: file.header_skipped for name, file in files.items() if file.header_skipped
        },
        "overlaps": _overlaps(splits, len(relations), len(entities)),
        "split": split,
        "unseen": {name: unseen_names(splits["train"], splits[name]) for name in ("valid", "test")},
    }
    return KnowledgeGraph(
        found.name,
        entities=Vocabulary.plain(entities).with_names(names),
        relations=Vocabulary.plain(relations).with_names(names),
        train=splits["train"],
        valid=splits["valid"],
        test=splits["test"],
        source=source,
    )


def _encode(frames: dict[str, pl.DataFrame]) -> tuple[dict[str, Triples], pl.Series, pl.Series]:
    """The triples with a code for each name (in no particular order), and the names by code."""
    every = pl.concat(frames.values())
    entities = pl.concat([every["head"], every["tail"].rename("head")]).unique()
    relations = every["relation"].unique()
    kinds = {"head": entities, "relation": relations, "tail": entities}
    codes = [pl.col(name).cast(pl.Enum(known)).to_physical() for name, known in kinds.items()]
    coded = {
        name: np.ascontiguousarray(frame.select(codes).to_numpy(), np.int64)
        for name, frame in frames.items()
    }
    return coded, entities, relations


def triple_keys(triples: Triples, num_relations: int, num_entities: int) -> Triples:
    """One number for each triple."""
    if num_entities * num_entities * num_relations >= 2**63:
        raise EkgnError(
            f"{num_entities:,} entities and {num_relations:,} relations are too many: the product "
            "of relations and squared entities must be below 2^63."
        )
    keys: Triples = (triples[:, 0] * num_relations + triples[:, 1]) * num_entities + triples[:, 2]
    return keys


def _distinct(triples: Triples, num_entities: int) -> Triples:
    """Each triple once, in order."""
    keys = triple_keys(triples, int(triples[:, 1].max(initial=0)) + 1, num_entities)
    kept: Triples = triples[pl.Series(keys).is_first_distinct().to_numpy()]
    return kept


def hold_out(
    triples: Triples, shares: dict[str, float], seed: int, path: Path
) -> dict[str, Triples]:
    """What stays in train, and the splits drawn from it; rows keep the order of the file."""
    if seed < 0 or min(shares.values()) < 0 or sum(shares.values()) >= 1:
        given = " and ".join(f"{share:g} for {name}" for name, share in shares.items())
        raise EkgnError(
            f"Cannot hold out {given} with seed {seed}: "
            "neither may be negative, and the shares together must be below 1."
        )
    free = spare_rows(triples, seed)
    wanted = {name: max(1, round(share * len(triples))) for name, share in shares.items() if share}
    if len(free) < len(wanted):
        raise EkgnError(
            f"{path} is too small to split: of its {len(triples):,} triples {len(free):,} can be "
            "held out if every entity and relation is to stay in train. "
            "Give more triples, or a directory with train, valid and test files."
        )
    possible = min(1.0, len(free) / max(1, sum(wanted.values())))
    rows: dict[str, NDArray[np.int64]] = {}
    for name in shares:
        count = max(1, int(wanted[name] * possible)) if name in wanted else 0
        rows[name], free = np.sort(free[:count]), free[count:]
    train = np.delete(triples, np.concatenate(list(rows.values())), axis=0)
    return {"train": train, **{name: triples[chosen] for name, chosen in rows.items()}}


def spare_rows(triples: Triples, seed: int) -> NDArray[np.int64]:
    """Rows in random order that train can spare.

    The first row of every entity and of every relation in that order is not among them, so
    whatever is taken from the others, train still knows every name.
    """
    order = np.random.default_rng(seed).permutation(len(triples))
    shuffled = triples[order]
    stays = np.zeros(len(triples), bool)
    stays[_first_places(shuffled[:, [0, 2]].ravel())[1] // 2] = True
    stays[_first_places(shuffled[:, 1])[1]] = True
    return order[~stays]


def _number(splits: dict[str, Triples]) -> tuple[dict[str, Triples], Triples, Triples]:
    """The splits with indices by first appearance, and the old code of each new index."""
    entities = _by_appearance([splits[name][:, [0, 2]].ravel() for name in SPLITS])
    relations = _by_appearance([splits[name][:, 1] for name in SPLITS])
    new_entity, new_relation = np.argsort(entities), np.argsort(relations)
    numbered = {
        name: np.stack(
            [new_entity[rows[:, 0]], new_relation[rows[:, 1]], new_entity[rows[:, 2]]], axis=1
        )
        for name, rows in splits.items()
    }
    return numbered, entities, relations


def _by_appearance(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The distinct codes in the order in which they first appear."""
    codes, first = _first_places(np.concatenate(parts))
    return codes[np.argsort(first)]


def _first_places(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct codes, and where each is first: np.unique without its sort."""
    first = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of equal ones the last counts
    distinct = np.flatnonzero(first >= 0)
    return distinct, first[distinct]


def _overlaps(splits: dict[str, Triples], relations: int, entities: int) -> dict[str, int]:
    """How many triples of a later split are in an earlier one; they are kept."""
    keys = {name: np.sort(triple_keys(splits[name], relations, entities)) for name in SPLITS}

    def in_both(later: str, earlier: str) -> int:
        place = np.searchsorted(keys[earlier], keys[later])
        inside = place < len(keys[earlier])
        return int((keys[earlier][place[inside]] == keys[later][inside]).sum())

    pairs = (("valid", "train"), ("test", "train"), ("test", "valid"))
    return {f"{later}_in_{earlier}": in_both(later, earlier) for later, earlier in pairs}


def unseen_names(train: Triples, rows: Triples) -> dict[str, int]:
    """Entities and relations of a split that train does not have, and the triples they are in."""
    entities, relations = (
        ~np.isin(rows[:, at], train[:, at], kind="table" if len(train) else None)
        for at in ([0, 2], 1)
    )
    return {
        "entities": len(np.unique(rows[:, [0, 2]][entities])),
        "relations": len(np.unique(rows[:, 1][relations])),
        "triples": int((entities.any(axis=1) | relations).sum()),
    }


def _report(graph: KnowledgeGraph) -> None:
    """Log what a user should know about the data; warn where something was dropped or useless."""
    source = graph.source
    for split, count in source["duplicates_dropped"].items():
        if count:
            logger.warning("%s: dropped %d duplicate triples from %s", graph.name, count, split)
    for file in source["names"]:
        if not file["used"]:
            logger.warning("%s: %s names none of its ids", graph.name, file["name"])
    if source["literals_skipped"]:
        logger.warning("%s: skipped %d literals", graph.name, source["literals_skipped"])
    for split, words in source["headers_skipped"].items():
        logger.warning(
            "%s: the first line of %s is taken for a header, not for a fact: %s. "
            "If it is a fact, move it further down.",
            *(graph.name, split, words),
        )
    if source["split"]:
        logger.info("%s: held out from train: %s", graph.name, source["split"]["held_out"])
    for overlap, count in source["overlaps"].items():
        if count:
            later, _, earlier = overlap.partition("_in_")
            logger.warning("%s: %d %s triples are in %s too", graph.name, count, later, earlier)
    for split, unseen in source["unseen"].items():
        if unseen["triples"]:
            logger.info("%s: %s has names that train has not: %s", graph.name, split, unseen)


def _cache_folder(
    found: DataFiles, sums: dict[str, str], split: dict[str, Any] | None, cache_dir: Path | None
) -> Path:
    """Where this graph is cached: a folder named after everything that went into it."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ekgn"
    recipe = [
        [_FORMAT, _READERS, found.name, split],
        [[name, path.name, sums[name]] for name, path in found.files.items()],
        [[path.name, datasets.sha256_of(path)] for path in found.names],
    ]
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()
    return (cache_dir or own) / "graphs" / key[:24]


def _load_cached(folder: Path) -> KnowledgeGraph | None:
    """The cached graph; None if there is none or it is damaged."""
    if not folder.exists():
        return None
    try:
        return KnowledgeGraph.load(folder)
    except EkgnError as error:
        logger.info("Ignored a damaged cache entry: %s", error)
        return None


def _store(graph: KnowledgeGraph, folder: Path) -> None:
    """Cache a graph, as a whole or not at all, and drop the oldest beyond a few dozen."""
    try:
        replace_folder(folder, graph.save)
        entries = sorted(folder.parent.iterdir(), key=lambda entry: entry.stat().st_mtime)
        for entry in entries[:-_CACHED_GRAPHS]:
            shutil.rmtree(entry, ignore_errors=True)
    except (OSError, EkgnError) as error:
        logger.info("%s was not cached: %s", graph.name, error)
