"""The shapes of what the API takes and gives. The explanation's shapes are those of ekgn.kbc."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ekgn.kbc.decisions import Decision, Tally, Verdict
from ekgn.kbc.explain import Explanation
from ekgn.kbc.memory_map import RelationUse, SlotUse
from ekgn.kbc.rules import Evidence
from ekgn.kbc.run import Prediction
from ekgn.kbc.what_if import WhatIf
from ekgn.paths.explain import Explanation as PathExplanation

MAX_NAME = 500
MAX_TOP = 100
MAX_QUERIES = 256

Name = Annotated[str, StringConstraints(max_length=MAX_NAME)]
LongName = Annotated[str, StringConstraints(max_length=3 * MAX_NAME)]
Part = Literal["head", "relation", "tail"]


class Thing(BaseModel):
    """An entity or a relation: its identifier, and what people call it."""

    id: str
    label: str
    description: str = ""


class ErrorBody(BaseModel):
    """What went wrong, for programs (code) and for people (message)."""

    code: str = Field(examples=["unknown_entity"])
    message: str
    suggestions: list[Thing] = Field(default=[], description="What may have been meant.")


class ErrorReply(BaseModel):
    """The one shape of every error."""

    error: ErrorBody


class Question(BaseModel):
    """A fact with one part missing."""

    head: Thing | None
    relation: Thing | None
    tail: Thing | None
    missing: Part


class RunSummary(BaseModel):
    """One of the runs that are served."""

    name: str
    task: str = Field(examples=["kbc", "paths"])
    graph: str
    sizes: dict[str, int] = Field(examples=[{"entities": 14541, "relations": 237}])
    max_steps: int
    num_slots: int
    readout: str
    metrics: dict[str, float] = Field(description="The latest test metrics, or validation ones.")
    measured_on: str = Field(description="The split of the metrics; empty if none was measured.")


class RunsReply(BaseModel):
    """All runs that are served."""

    version: str
    runs: list[RunSummary]


class Example(BaseModel):
    """A question from the held-out facts, and the answer they hold."""

    question: Question
    answer: Thing


class PathPair(BaseModel):
    """Two nodes that are not neighbours."""

    start: int
    end: int


class RunReply(BaseModel):
    """One run, with questions to start from."""

    run: RunSummary
    examples: list[Example] = []
    pairs: list[PathPair] = Field(default=[], description="For the shortest-path task.")


class MetricsReply(BaseModel):
    """The record of a run: what was trained on what, its curve, and its evaluations."""

    run: RunSummary
    data: dict[str, Any]
    preset: str | None = Field(description="What the settings started from.")
    overrides: dict[str, Any] = Field(description="What was changed of the preset.")
    settings: dict[str, Any]
    environment: dict[str, Any]
    summary: dict[str, Any] = Field(
        description="Parameters, updates, epochs, what ended it, seconds, the best."
    )
    curve: list[dict[str, float | None]]
    evaluations: dict[str, Any]
    rule_baseline: dict[str, Any]
    with_rules: dict[str, Any]
    confidence: dict[str, Any] = Field(
        default={}, description="How far confidences hold: calibration error, reliability."
    )


class Miss(BaseModel):
    """A held-out fact as a question, the rank of its answer, and what was said instead."""

    question: Question
    answer: Thing
    rank: float = Field(description="Among what is not known; ties count half.")
    said: Thing = Field(description="The first answer that is in no split.")


class RelationResult(BaseModel):
    """The results of one relation, both sides missing in turn."""

    relation: Thing
    facts: int
    mrr: float
    hits_at_1: float
    hits_at_10: float
    mean_rank: float
    worst: Miss


class ResultsReply(BaseModel):
    """Held-out facts ranked: by relation, the most frequent first, and the worst misses."""

    run: RunSummary
    split: str
    facts: int = Field(description="That were ranked.")
    of: int = Field(description="That the split has.")
    relations: list[RelationResult]
    misses: list[Miss]


class Hit(Thing):
    """A name that was found."""

    facts: int = Field(description="Training facts with it.")
    match: Literal["exact", "prefix", "word", "similar"]


class SearchReply(BaseModel):
    """What a search found, best first."""

    query: str
    hits: list[Hit]


class Group(BaseModel):
    """The training facts of an entity by one relation, from one side."""

    relation: Thing
    side: Literal["head", "tail"] = Field(description="Where the entity stands.")
    others: list[Thing] = Field(description="What it is joined with, the best known first.")
    facts: int


class Gap(BaseModel):
    """A relation that an entity lacks and many of its kind have."""

    relation: Thing
    side: Literal["head", "tail"]
    usual: float = Field(description="The share of its kind that has it.")


class EntityReply(BaseModel):
    """An entity: its training facts by relation, and the relations it lacks."""

    entity: Thing
    facts: int
    as_head: list[Hit] = Field(description="Relations it is head of, most facts first.")
    as_tail: list[Hit]
    known: list[Group]
    gaps: list[Gap]


class Candidate(BaseModel):
    """A fact that may be missing. Shares and ranks are those of either end asked for."""

    head: Thing
    relation: Thing
    tail: Thing
    confidence: float | None
    tail_share: float | None
    head_share: float | None
    tail_rank: int | None
    head_rank: int | None
    verdict: Verdict | None = None
    held_out: str = Field(description="The split that has it: valid, test or none.")


class MissingReply(BaseModel):
    """The facts that an entity most likely lacks, the surest first."""

    entity: Thing
    facts: list[Candidate]


class CurateReply(BaseModel):
    """Candidates that nobody decided about yet, the surest first."""

    run: RunSummary
    relation: Thing | None
    kind: Thing | None = Field(description="The relation that one end of each fact has.")
    facts: list[Candidate]
    open: int = Field(description="How many there are in all.")
    questions: int | None = Field(description="That were asked for them; null if from a file.")
    questions_left_out: int = Field(description="That were too many for one visit.")
    has_file: bool = Field(description="Whether `ekgn complete` wrote a file beside the run.")
    has_confidence: bool = Field(description="Whether its facts have confidences.")
    tally: Tally


class DecisionRequest(BaseModel):
    """What is decided about a fact, given by ids or names."""

    model_config = ConfigDict(extra="forbid")
    head: Name
    relation: Name
    tail: Name
    verdict: Verdict
    who: Annotated[str, StringConstraints(max_length=80)] = ""


class DecisionReply(BaseModel):
    """The decision as it was kept, and the counts of its relation and of all."""

    decision: Decision
    tally: Tally
    overall: Tally


class DecisionsReply(BaseModel):
    """What was decided so far, oldest first."""

    decisions: list[Decision]
    facts: list[Fact] = Field(description="The same facts in words, in the same order.")
    tally: Tally


class Fact(BaseModel):
    """A fact in words."""

    head: Thing
    relation: Thing
    tail: Thing


class EvidenceReply(BaseModel):
    """Why a fact is proposed."""

    head: Thing
    relation: Thing
    tail: Thing
    confidence: float | None
    tail_share: float
    tail_rank: int
    head_share: float
    head_rank: int
    rules: list[Evidence] = Field(description="Rules that lead to it, with their training facts.")
    paths: list[list[Fact]] = Field(description="The training facts of each rule, in words.")
    alike: str | None = Field(description="Without rules: the most similar head with this tail.")


class WhatIfReply(BaseModel):
    """What an answer would be without some facts, or with some more."""

    question: Question
    answer: Thing
    what_if: WhatIf


class PredictReply(BaseModel):
    """The best answers to a question."""

    question: Question
    readout: str
    answers: list[Prediction]


class Query(BaseModel):
    """Two of the three parts of a fact, each by id or name."""

    model_config = ConfigDict(extra="forbid")
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None


class PredictRequest(BaseModel):
    """Many questions at once."""

    model_config = ConfigDict(extra="forbid")
    queries: Annotated[list[Query], Field(min_length=1, max_length=MAX_QUERIES)]
    top: Annotated[int, Field(ge=1, le=MAX_TOP)] = 10
    hide_known: bool = False
    readout: Annotated[str, StringConstraints(max_length=20)] | None = None


class PredictManyReply(BaseModel):
    """The answers to many questions, or what is wrong with one, in their order."""

    replies: list[PredictReply | ErrorReply]


class Move(BaseModel):
    """One answer on its way through the steps."""

    id: str
    label: str
    known: str | None
    ranks: list[int | None] = Field(description="By step; null beyond the ranks looked at.")
    shares: list[float | None]


class ExplainReply(BaseModel):
    """Every step from the question to the answer."""

    question: Question
    explanation: Explanation
    followed: str | None = Field(description="The split that has the answer asked about, if any.")
    paths: list[list[Fact]] = Field(description="The training facts of each rule, in words.")
    untrained: list[Thing] = Field(description="Parts of the question without a training fact.")
    moves: list[Move] = Field(description="Answers among the best at some step, and the followed.")
    themes: list[str] = Field(description="What each memory vector stands for.")


class Side(BaseModel):
    """One side of a comparison: a run, and its explanation of a question."""

    run: RunSummary
    reply: ExplainReply


class CompareReply(BaseModel):
    """Two questions, or one question asked of two runs."""

    sides: list[Side]


class StatePoint(BaseModel):
    """The state of an observed question in the plane: its first, or that of the step it is near."""

    x: float
    y: float
    head: Thing
    relation: str = Field(description="Inverse relations are marked with a leading ^.")
    near: int = Field(description="The step at which it is among the nearest; 0 for none.")


class StatesReply(BaseModel):
    """States in the plane in which those of observed questions differ most."""

    question: Question
    variance: list[float] = Field(description="The share that each direction has of it.")
    path: list[tuple[float, float]] = Field(description="The question's state at each step.")
    points: list[StatePoint]


class HeatMap(BaseModel):
    """Average attention of relations (columns) to memory vectors (rows), alike ones together."""

    slots: list[int]
    relations: list[str]
    values: list[list[float]]


class MemoryReply(BaseModel):
    """What the memory holds."""

    run: RunSummary
    slots: list[SlotUse]
    heat_map: HeatMap
    relations_left_out: int = Field(description="Relations beyond the most frequent ones.")
    relation: RelationUse | None = Field(description="What the relation asked for attends to.")


class Node(Thing):
    """An entity in a neighbourhood."""

    facts: int


class Edge(BaseModel):
    """A training fact, or one that is predicted."""

    source: str
    target: str
    relation: Thing
    kind: Literal["train", "predicted"]
    share: float | None = None
    confidence: float | None = None


class NeighbourhoodReply(BaseModel):
    """An entity, its training facts, and links that the model predicts."""

    centre: Thing
    nodes: list[Node]
    edges: list[Edge]
    facts_left_out: int


class PathsReply(BaseModel):
    """The sphere and, for two nodes, every step of finding the way from one to the other."""

    run: RunSummary
    points: list[list[float]] = Field(description="x, y, z of each node.")
    examples: list[PathPair]
    explanation: PathExplanation | None


class HealthReply(BaseModel):
    """The server is up."""

    status: Literal["ok"] = "ok"
    version: str
    runs: int
