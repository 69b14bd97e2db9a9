"""Facts that are likely missing, as a queue to decide about, and what was decided."""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from ekgn.errors import EkgnError
from ekgn.kbc.completion import Choice
from ekgn.kbc.completion.facts import given
from ekgn.kbc.completion.shown import named, reason
from ekgn.kbc.completion.work import Wanted, ask_all, held_out, pieces
from ekgn.kbc.completion.writers import write_table
from ekgn.kbc.decisions import Decision, Decisions, Key, Verdict, chosen, table, tally
from ekgn.kbc.rules import evidence
from ekgn.run import root_of
from ekgn.web.problems import Problem
from ekgn.web.schema import (
    Candidate,
    CurateReply,
    DecisionReply,
    DecisionsReply,
    EvidenceReply,
    Fact,
    MissingReply,
    Thing,
)
from ekgn.web.served_kbc import ServedKbc, thing

DEPTH = 5  # places of each question looked at
MOST_SCORES = 10_000_000  # of entities, by the questions that one relation is asked at most
KEPT_QUEUES = 64
LEAST = 0.005  # confidence, or share where there is none, of a fact worth showing
COMPLETED = ("completed.tsv", "completed.csv", "completed.parquet")  # by `ekgn complete`
_KEY = ["head", "relation", "tail"]


Sort = Literal["surest", "doubtful", "relation", "type", "head"]


class Queue(NamedTuple):
    """Candidates by ids, the surest first, and how many questions they come from."""

    facts: pl.DataFrame
    questions: int | None
    questions_left_out: int = 0


class Filters(NamedTuple):
    """Which facts of a queue are shown."""

    kind: int | None = None  # a role (relation, or + R for its inverse) that one of its ends has
    least: float = 0.0  # confidence
    held_out: bool = False  # also facts of validation and test
    sort: Sort = "surest"


class Curation:
    """The queue of one run. Its methods are called by one thread."""

    def __init__(self, served: ServedKbc) -> None:
        self.served, self.run = served, served.run
        self.decisions = Decisions(self.run.path)
        self._asked: dict[Wanted, Queue] = {}
        self._read: tuple[tuple[str, int], Queue] | None = None

    def curate(self, relation: int | None, filters: Filters, limit: int, skip: int) -> CurateReply:
        """The facts of a relation, or of all, that nobody decided about yet."""
        queue = self._queue(relation)
        decided = self.decisions.all()
        facts = self._filtered(queue.facts, relation, filters)
        is_open = [key not in decided for key in facts.select(_KEY).iter_rows()]
        facts = self._sorted(facts.filter(pl.Series(is_open, dtype=pl.Boolean)), filters.sort)
        name = None if relation is None else self.served.relation_thing(relation)
        own = [one for one in decided.values() if name is None or one.relation == name.id]
        return CurateReply(
            run=self.served.summary,
            relation=name,
            kind=None if filters.kind is None else self.served.relation_thing(filters.kind),
            facts=self._candidates(facts[skip : skip + limit]),
            open=len(facts),
            questions=queue.questions,
            questions_left_out=queue.questions_left_out,
            has_file=self._file is not None,
            has_confidence=queue.facts["confidence"].count() > 0 or self.run.confidence is not None,
            tally=tally(own),
        )

    def _filtered(
        self, facts: pl.DataFrame, relation: int | None, filters: Filters
    ) -> pl.DataFrame:
        graph, train = self.run.graph, self.run.known["train"]
        if relation is not None:
            facts = facts.filter(pl.col("relation") == graph.relations.ids[relation])
        if filters.kind is not None:
            owners = train.heads[train.relations == filters.kind].tolist()
            kind = pl.Series([graph.entities.ids[one] for one in owners], dtype=pl.String).implode()
            facts = facts.filter(pl.col("head").is_in(kind) | pl.col("tail").is_in(kind))
        if filters.least:
            facts = facts.filter(pl.col("confidence").fill_null(0.0) >= filters.least)
        return facts if filters.held_out else facts.filter(pl.col("held_out") == "none")

    def _sorted(self, facts: pl.DataFrame, sort: Sort) -> pl.DataFrame:
        """Facts in another order than the surest first, which is kept among equals."""
        if sort == "surest":
            return facts
        if sort == "doubtful":  # those that tell most about the confidence
            sure = pl.coalesce("confidence", "tail_share")
            return facts.sort((sure - 0.5).abs(), nulls_last=True, maintain_order=True)
        names, graph = self.served, self.run.graph
        if sort == "relation":
            keys = [graph.relations.labels[graph.relations.index_of[r]] for r in facts["relation"]]
        else:
            heads = [graph.entities.index_of[head] for head in facts["head"]]
            words = names.type_of if sort == "type" else graph.entities.labels.__getitem__
            keys = [words(head) for head in heads]
        order = sorted(range(len(keys)), key=lambda place: keys[place].casefold())
        return facts[order]

    def decided(self) -> DecisionsReply:
        """What was decided so far, oldest first, and the same facts in words."""
        kept = list(self.decisions.all().values())
        return DecisionsReply(
            decisions=kept, facts=[self._in_words(one) for one in kept], tally=tally(kept)
        )

    def _in_words(self, one: Decision) -> Fact:
        """A decided fact; names that this graph does not know stay ids."""
        entities, relations = self.run.graph.entities, self.run.graph.relations
        parts = ((one.head, entities), (one.relation, relations), (one.tail, entities))
        head, relation, tail = (
            thing(known, known.index_of[name])
            if name in known.index_of
            else Thing(id=name, label=name)
            for name, known in parts
        )
        return Fact(head=head, relation=relation, tail=tail)

    def missing(self, entity: int, most: int) -> MissingReply:
        """The surest facts of an entity that training lacks; a held-out split may have them."""
        facts = self._proposed(Wanted(entities=(entity,))).facts
        sure = pl.coalesce("confidence", "tail_share")
        found = self._candidates(facts.filter(sure >= LEAST).head(most))
        return MissingReply(entity=self.served.entity_thing(entity), facts=found)

    def decide(self, fact: Key, verdict: Verdict, who: str) -> DecisionReply:
        """Keep a decision about a fact, given by ids or names."""
        head, relation, tail = self._index(fact)
        graph = self.run.graph
        if tail in self.run.known["train"].of(head, relation):
            message = "This is a training fact already: there is nothing to decide."
            raise Problem(422, "known_fact", message)
        ids = graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail]
        if verdict == "undone" and ids not in self.decisions.all():
            raise Problem(422, "undecided", "Nothing was decided about this fact.")
        made = self.decisions.add(Decision(*ids, verdict, self._sure(head, relation, tail), who))
        kept = list(self.decisions.all().values())
        own = tally(one for one in kept if one.relation == made.relation)
        return DecisionReply(decision=made, tally=own, overall=tally(kept))

    def evidence(self, fact: Key) -> EvidenceReply:
        """Why a fact is proposed: rules with their training facts, or the most similar head."""
        head, relation, tail = self._index(fact)
        row = given(self.run.asker, np.array([[head, relation, tail]], np.int64)).row(0, named=True)
        rules = evidence(self.run.rules, head, relation, tail, top=3) if self.run.rules else []
        alike = None if rules else reason(self.run, head, relation, tail)
        return EvidenceReply(
            head=self.served.entity_thing(head),
            relation=self.served.relation_thing(relation),
            tail=self.served.entity_thing(tail),
            rules=rules,
            paths=self.served.paths(rules),
            alike=alike,
            confidence=self._sure(head, relation, tail),
            **{name: row[name] for name in ("tail_share", "tail_rank", "head_share", "head_rank")},
        )

    def export(self, verdict: str, form: str) -> bytes:
        """The decisions as a file: .tsv, .csv or .nt."""
        frame = table(chosen(self.decisions.all().values(), verdict), self.run.graph)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"facts.{form}"
            write_table(frame, path)
            return path.read_bytes()

    def _index(self, fact: Key) -> tuple[int, int, int]:
        head, relation, tail = fact
        index = self.served.relation(relation)
        ends = self.served.entity(head), self.served.entity(tail)
        if index >= self.run.graph.num_relations:
            raise Problem(422, "inverse_relation", "A fact has its relation without ^.")
        return ends[0], index, ends[1]

    def _sure(self, head: int, relation: int, tail: int) -> float | None:
        """The confidence of one fact, where one is fitted."""
        if self.run.confidence is None:
            return None
        facts = np.array([[head, relation, tail]], np.int64)
        return float(self.run.confidence.of(given(self.run.asker, facts))[0])

    @cached_property
    def _file(self) -> Path | None:
        """What `ekgn complete` wrote beside the run, if it did before the server was started."""
        folder = root_of(self.run.path)
        return next((folder / name for name in COMPLETED if (folder / name).is_file()), None)

    def _queue(self, relation: int | None) -> Queue:
        if self._file is not None:
            return self._from_file(self._file)
        if relation is None:
            return Queue(pl.DataFrame(schema=_SCHEMA), None)
        return self._of_relation(relation)

    def _of_relation(self, relation: int) -> Queue:
        """The facts of a relation, by as many questions as the work of one visit allows."""
        parts = list(pieces(self.run.asker, Choice(depth=DEPTH), Wanted(relations=(relation,))))
        asked = np.concatenate([np.empty(0, np.int64), *(entities for _, _, entities in parts)])
        most = max(1, MOST_SCORES // (DEPTH * self.run.graph.num_entities))
        if len(asked) <= most:
            return self._proposed(Wanted(relations=(relation,)))
        entities = np.unique(asked)
        known_best = entities[np.argsort(-self.served.facts[entities], kind="stable")]
        some = tuple(known_best[: max(1, most * len(entities) // len(asked))].tolist())
        found = self._proposed(Wanted(relations=(relation,), entities=some))
        return found._replace(questions_left_out=len(asked) - (found.questions or 0))

    def _proposed(self, wanted: Wanted) -> Queue:
        """What the run proposes, and which split has it; kept for a while."""
        if wanted not in self._asked:
            if len(self._asked) >= KEPT_QUEUES:
                self._asked.pop(next(iter(self._asked)))
            self._asked[wanted] = self._ask(wanted)
        return self._asked[wanted]

    def _ask(self, wanted: Wanted) -> Queue:
        run = self.run
        facts, asked = ask_all(run, Choice(depth=DEPTH), wanted, run.confidence)
        if run.confidence is None:
            facts = facts.filter(pl.col("tail_share") >= LEAST)
            facts = facts.sort("tail_share", descending=True, maintain_order=True)
        columns = [named(run, facts), facts.select(_NUMBERS), held_out(run, facts).to_frame()]
        return Queue(pl.concat(columns, how="horizontal"), asked)

    def _from_file(self, path: Path) -> Queue:
        stamp = str(path), path.stat().st_mtime_ns
        if self._read is None or self._read[0] != stamp:
            self._read = stamp, Queue(self._known_only(_read(path)), None)
        return self._read[1]

    def _known_only(self, facts: pl.DataFrame) -> pl.DataFrame:
        """The facts that this graph has the names for, less those that training has by now."""
        graph = self.run.graph
        entities, relations = pl.Series(graph.entities.ids), pl.Series(graph.relations.ids)
        facts = facts.filter(
            pl.col("head").is_in(entities.implode()),
            pl.col("relation").is_in(relations.implode()),
            pl.col("tail").is_in(entities.implode()),
        )
        heads, names, tails = graph.train.T
        known = pl.DataFrame(
            {
                "head": entities.gather(heads),
                "relation": relations.gather(names),
                "tail": entities.gather(tails),
            }
        )
        return facts.join(known, on=_KEY, how="anti", maintain_order="left")

    def _candidates(self, facts: pl.DataFrame) -> list[Candidate]:
        """Facts in words, with what was decided about them."""
        entities, relations = self.run.graph.entities, self.run.graph.relations
        decided = self.decisions.all()
        return [
            Candidate(
                head=self.served.entity_thing(entities.index_of[row["head"]]),
                relation=self.served.relation_thing(relations.index_of[row["relation"]]),
                tail=self.served.entity_thing(entities.index_of[row["tail"]]),
                **{name: row[name] for name in _NUMBERS},
                verdict=was.verdict if was else None,
                held_out=row["held_out"],
            )
            for row in facts.iter_rows(named=True)
            for was in [decided.get((row["head"], row["relation"], row["tail"]))]
        ]


_NUMBERS = ("confidence", "tail_share", "head_share", "tail_rank", "head_rank")
_SCHEMA = {
    **dict.fromkeys(_KEY, pl.String),
    **dict.fromkeys(_NUMBERS[:3], pl.Float64),
    **dict.fromkeys(_NUMBERS[3:], pl.Int64),
    "held_out": pl.String,
}


def _read(path: Path) -> pl.DataFrame:
    """The columns of a completion's file that a queue needs."""
    try:
        if path.suffix == ".parquet":
            frame = pl.read_parquet(path, columns=list(_SCHEMA))
        else:
            quote = None if path.suffix == ".tsv" else '"'
            separator = "\t" if path.suffix == ".tsv" else ","
            frame = pl.read_csv(
                path, separator=separator, quote_char=quote, schema_overrides=_SCHEMA
            )
        return frame.select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise EkgnError(
            f"{path.name} beside the run is not what `ekgn complete` writes ({error}). "
            f"Make it again or delete it."
        ) from None
