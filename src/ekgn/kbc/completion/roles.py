"""Who stands where: the roles of entities in training, and those that their kind has.

A role is a relation asked from one side, 0 to 2R - 1: an entity has role r if it is the head of a
fact of r, and role r + R if it is the tail of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ekgn.errors import EkgnError
from ekgn.kbc.answers import Answers
from ekgn.kbc.graph import KnowledgeGraph

Bools = NDArray[np.bool_]
Floats32 = NDArray[np.float32]

_ENOUGH = 5  # entities of a role, before it tells about others
_SEVERAL = 0.05  # share of entities with several answers, below which a role is single-valued


@dataclass(frozen=True)
class Choice:
    """Which questions are asked, and which answers are considered."""

    depth: int = 20
    """How many places of each question's ranking are looked at."""
    ask_from: float = 0.5
    """Ask for a relation that an entity lacks if so many of its kind have it."""
    like_from: float = 0.1
    """Consider an answer that was never one if so many of its kind were."""
    single_valued: bool = True
    """A relation with one value in training is asked only where it has none."""
    everything: bool = False
    """Ask everything of every entity, and consider every answer."""

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise EkgnError(f"depth = {self.depth}: look at one place at least.")
        for name in ("ask_from", "like_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise EkgnError(f"{name} = {getattr(self, name)}: expected a share, 0 to 1.")


class Roles:
    """The roles of each entity in training, and how likely those are that it lacks."""

    def __init__(self, graph: KnowledgeGraph, train: Answers) -> None:
        self.count = 2 * graph.num_relations
        shape = (graph.num_entities, self.count)
        ones = np.ones(len(train), np.float32)
        self._roles_of = sparse.csr_matrix((ones, (train.heads, train.relations)), shape=shape)
        self._holders = self._roles_of.tocsc()
        self._together = (self._roles_of.T @ self._roles_of).tocsc()
        self._sizes = np.bincount(train.relations, minlength=self.count)
        several = np.bincount(train.relations, np.diff(train.offsets) > 1, minlength=self.count)
        self.is_single = (several + 1) / (self._sizes + 2) <= _SEVERAL

    def inverse(self, role: int) -> int:
        """The role at the other end."""
        return (role + self.count // 2) % self.count

    def holders(self, role: int) -> Bools:
        """Which entities have a role."""
        held = np.zeros(self._roles_of.shape[0], bool)
        starts = self._holders.indptr
        held[self._holders.indices[starts[role] : starts[role + 1]]] = True
        return held

    def likely(self, role: int) -> Floats32:
        """1 for entities that have the role; else the share of their kind that has it.

        An entity is of as many kinds as it has roles: the one with the largest share counts.
        """
        starts = self._together.indptr
        here = slice(starts[role], starts[role + 1])
        share = np.zeros(self.count, np.float32)
        others = self._together.indices[here]
        share[others] = self._together.data[here] / np.maximum(self._sizes[others], 1)
        share[self._sizes < _ENOUGH] = 0
        share[role] = 1
        values = np.append(share[self._roles_of.indices], np.float32(0))
        found: Floats32 = np.maximum.reduceat(values, self._roles_of.indptr[:-1])
        found[np.diff(self._roles_of.indptr) == 0] = 0
        return found

    def likely_of(self, entity: int) -> Floats32:
        """The same for one entity, by role."""
        starts = self._roles_of.indptr
        own = self._roles_of.indices[starts[entity] : starts[entity + 1]]
        telling = own[self._sizes[own] >= _ENOUGH]
        found = np.zeros(self.count, np.float32)
        if len(telling):
            shares = self._together[:, telling].toarray() / self._sizes[telling]
            found[:] = shares.max(axis=1)
        found[own] = 1
        return found

    def asked(self, role: int, choice: Choice) -> Bools:
        """Which entities are asked for the answers of a role."""
        if choice.everything:
            return np.ones(self._roles_of.shape[0], bool)
        return (self.likely(role) >= max(choice.ask_from, 1e-9)) & self._open(role, choice)

    def considered(self, role: int, choice: Choice) -> Bools:
        """Which entities may be answers to questions of a role."""
        if choice.everything:
            return np.ones(self._roles_of.shape[0], bool)
        back = self.inverse(role)
        return (self.likely(back) >= choice.like_from) & self._open(back, choice)

    def _open(self, role: int, choice: Choice) -> Bools:
        """Which entities may have (more) answers of a role."""
        held = self.holders(role)
        return ~held if choice.single_valued and self.is_single[role] else np.ones_like(held)
