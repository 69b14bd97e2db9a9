"""How a run does on held-out facts: relation by relation, and where it is most wrong.

Facts are ranked in pieces, between which other work has its turn; what was ranked is kept. Of a
large split some facts are drawn by seed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ekgn.kbc.answers import Ints
from ekgn.kbc.ranking import Floats, Metrics, filter_answers, rank_split
from ekgn.web.schema import Miss, Question, RelationResult, ResultsReply
from ekgn.web.served_kbc import ServedKbc

MOST_SCORES = 60_000_000  # of entities, by the questions of all facts
PIECE = 64  # facts
WORST = 50  # misses that are listed


class Results:
    """The ranks of one split of a run."""

    def __init__(self, served: ServedKbc, split: str) -> None:
        self.served, self.split = served, split
        graph = served.run.graph
        self._all = graph.split(split)
        most = max(1, MOST_SCORES // (2 * graph.num_entities))
        drawn = np.random.default_rng(0).permutation(len(self._all))[:most]
        self._facts: Ints = self._all[np.sort(drawn)]
        self._known = filter_answers(graph, split)
        self._pieces: list[tuple[Floats, Ints]] = []  # (2, facts): tails, heads

    @property
    def is_done(self) -> bool:
        """Whether all facts are ranked."""
        return len(self._pieces) * PIECE >= len(self._facts)

    def advance(self) -> None:
        """Rank some more facts."""
        if self.is_done:  # another request has had them ranked meanwhile
            return
        run, start = self.served.run, len(self._pieces) * PIECE
        piece: dict[str, Any] = {self.split: self._facts[start : start + PIECE]}
        some = replace(run.graph, **piece)
        ranks = rank_split(run.scorer(), some, self.split, known=self._known)
        self._pieces.append((ranks.realistic.reshape(2, -1), ranks.candidates.reshape(2, -1)))

    def reply(self) -> ResultsReply:
        """The results of each relation, the most frequent first, and the worst misses."""
        size = len(self._facts)
        ranks = np.concatenate([np.empty((2, 0)), *(ranks for ranks, _ in self._pieces)], axis=1)
        candidates = np.concatenate(
            [np.empty((2, 0), np.int64), *(counts for _, counts in self._pieces)], axis=1
        )
        groups = [np.flatnonzero(self._facts[:, 1] == r) for r in np.unique(self._facts[:, 1])]
        groups.sort(key=len, reverse=True)
        worst = [self._worst(ranks, group) for group in groups]
        order = np.argsort(-ranks, axis=None, kind="stable")[:WORST]
        wrong = [(int(at // size), int(at % size)) for at in order if ranks.flat[at] > 1]
        misses = self._misses(ranks, [*worst, *wrong])
        return ResultsReply(
            run=self.served.summary,
            split=self.split,
            facts=size,
            of=len(self._all),
            relations=[
                self._relation(group, Metrics.over(ranks[:, group], candidates[:, group]), miss)
                for group, miss in zip(groups, misses, strict=False)
            ],
            misses=misses[len(groups) :],
        )

    @staticmethod
    def _worst(ranks: Floats, group: Ints) -> tuple[int, int]:
        """The side and the place of the fact that is ranked lowest."""
        side, at = np.unravel_index(ranks[:, group].argmax(), (2, len(group)))
        return int(side), int(group[at])

    def _relation(self, group: Ints, found: Metrics, worst: Miss) -> RelationResult:
        return RelationResult(
            relation=self.served.relation_thing(int(self._facts[group[0], 1])),
            facts=len(group),
            mrr=found.mrr,
            hits_at_1=found.hits_at_1,
            hits_at_10=found.hits_at_10,
            mean_rank=found.mean_rank,
            worst=worst,
        )

    def _misses(self, ranks: Floats, places: list[tuple[int, int]]) -> list[Miss]:
        """Facts with their question, and the first answer that is in no split."""
        width = self.served.run.graph.num_relations
        asked = []
        for side, at in places:
            head, relation, tail = self._facts[at].tolist()
            asked.append((tail, relation + width) if side else (head, relation))
        size = self.served.batch_size
        parts = [asked[start : start + size] for start in range(0, len(asked), size)]
        run = self.served.run
        said = [one[0] for part in parts for one in run.answers(part, top=1, hide_known=True)]
        return [
            self._miss(side, at, float(ranks[side, at]), first.id)
            for (side, at), first in zip(places, said, strict=True)
        ]

    def _miss(self, side: int, at: int, rank: float, said: str) -> Miss:
        served = self.served
        head, relation, tail = self._facts[at].tolist()
        ends = served.entity_thing(head), served.entity_thing(tail)
        return Miss(
            question=Question(
                head=None if side else ends[0],
                relation=served.relation_thing(relation),
                tail=ends[1] if side else None,
                missing="head" if side else "tail",
            ),
            answer=ends[0] if side else ends[1],
            rank=rank,
            said=served.entity_thing(served.run.graph.entities.index_of[said]),
        )
