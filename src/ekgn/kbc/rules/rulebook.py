"""A table of rules, and the book that keeps it with the run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray

from ekgn.errors import EkgnError
from ekgn.files import replace_file
from ekgn.kbc.graph import KnowledgeGraph

if TYPE_CHECKING:
    from ekgn.kbc.rules.mining import Mining

Ints32 = NDArray[np.int32]
NONE = -1
PRIOR = 5.0  # predictions added to every rule's: what was seen rarely is trusted less
_FORMAT = 2


@dataclass(frozen=True, eq=False)
class RuleTable:
    """One rule a row, all columns of equal length; relation r + R is the inverse of r.

    A closed rule is relation(x, y) <- body[0](x, a), body[1](a, b), body[2](b, y), unused places
    -1, and has no constants (-1). A rule with a constant is relation(x, constant) <-
    body[0](x, body_constant), where a body constant of -1 stands for anything.
    """

    relation: Ints32
    constant: Ints32
    body: Ints32  # (rules, 3)
    body_constant: Ints32
    support: Ints32
    predictions: Ints32

    def __len__(self) -> int:
        return len(self.relation)

    @property
    def confidence(self) -> NDArray[np.float32]:
        """support / (predictions + 5)."""
        return self.confidence_at(PRIOR)

    def confidence_at(self, prior: float) -> NDArray[np.float32]:
        """support / (predictions + prior)."""
        counted = np.maximum(self.predictions + prior, 1.0)
        return np.asarray(self.support / counted, np.float32)

    @property
    def closed(self) -> NDArray[np.bool_]:
        """Which rules have no constant."""
        return np.asarray(self.constant == NONE)

    @property
    def length(self) -> NDArray[np.int64]:
        """How many facts the body of each rule has."""
        return np.asarray((self.body != NONE).sum(axis=1))

    def take(self, rows: ArrayLike) -> RuleTable:
        """Some of the rules, by mask or by row."""
        return RuleTable(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def search(self, num_relations: int, relation: int | None, top: int) -> NDArray[np.int64]:
        """The rows of the most confident rules, of one relation (in either direction) or of all."""
        mine = np.arange(len(self))
        if relation is not None:
            mine = np.flatnonzero(self.relation % num_relations == relation % num_relations)
        order = np.lexsort((-self.support[mine], -self.confidence[mine]))
        return np.asarray(mine[order[:top]])


def as_int32(values: ArrayLike) -> Ints32:
    """Contiguous 32-bit integers."""
    return np.ascontiguousarray(values, np.int32)


def joined(parts: list[RuleTable]) -> RuleTable:
    """The rules of several tables, one after the other."""
    names = [field.name for field in fields(RuleTable)]
    return RuleTable(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def no_rules() -> RuleTable:
    """An empty table."""
    none = np.empty(0, np.int32)
    return RuleTable(none, none, np.empty((0, 3), np.int32), none, none, none)


@dataclass(frozen=True, eq=False)
class Rulebook:
    """Rules with how they were mined, and how far the mining has come."""

    rules: RuleTable
    mining: Mining
    rounds: int  # done
    seconds: float  # spent in them
    graph: dict[str, Any]  # whose rules these are

    def __len__(self) -> int:
        return len(self.rules)

    @classmethod
    def new(cls, graph: KnowledgeGraph, mining: Mining) -> Rulebook:
        """No rules yet."""
        return cls(no_rules(), mining, 0, 0.0, _identity(graph))

    def extended(self, found: RuleTable, seconds: float) -> Rulebook:
        """After one more round."""
        rules = joined([self.rules, found])
        return Rulebook(rules, self.mining, self.rounds + 1, self.seconds + seconds, self.graph)

    def save(self, path: Path) -> None:
        """Write one file, aside first and then renamed."""
        about = {
            "format": _FORMAT,
            "mining": asdict(self.mining),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "graph": self.graph,
        }
        tensors = {field.name: getattr(self.rules, field.name) for field in fields(RuleTable)}
        note = {"json": json.dumps(about)}
        replace_file(path, lambda aside: safetensors.numpy.save_file(tensors, aside, note))

    @classmethod
    def load(cls, path: Path, graph: KnowledgeGraph) -> Rulebook:
        """What `save` wrote for the same graph; anything torn, changed or of another raises."""
        from ekgn.kbc.rules.mining import Mining

        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["json"])
                rules = RuleTable(
                    **{field.name: file.get_tensor(field.name) for field in fields(RuleTable)}
                )
        except FileNotFoundError:
            raise EkgnError(f"{path} is missing: mine the rules with `ekgn rules RUN`.") from None
        except (KeyError, ValueError, OSError, safetensors.SafetensorError) as error:
            raise EkgnError(f"{path} is damaged ({error}). Delete it and mine again.") from None
        again = "Delete it and mine again: ekgn rules RUN"
        if about["format"] != _FORMAT:
            raise EkgnError(f"{path} was written by another version of ekgn. {again}")
        then, now = about["graph"], _identity(graph)
        if then["digest"] != now["digest"]:
            raise EkgnError(
                f"{path} holds rules mined from other facts than this run has: "
                f"{_said(then)} then, {_said(now)} now. {again}"
            )
        mining = Mining(**about["mining"])
        return cls(rules, mining, about["rounds"], about["seconds"], about["graph"])


def _identity(graph: KnowledgeGraph) -> dict[str, Any]:
    """A graph, and the digest of the facts that its rules are mined from."""
    about = {
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "train": len(graph.train),
    }
    digest = hashlib.blake2b(str(about).encode(), digest_size=16)
    digest.update(graph.train.astype(np.int64).tobytes())
    return {"name": graph.name, **about, "digest": digest.hexdigest()}


def _said(graph: dict[str, Any]) -> str:
    """A graph for a message."""
    digest = graph["digest"][:8]
    return f"{graph['name']} with {graph['train']:,} training facts (digest {digest})"
