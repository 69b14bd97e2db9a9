"""The JSON API: every page of the site has its twin here, at its address with /api before it."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response

import ekgn
from ekgn.web import schema
from ekgn.web.about import about_entity
from ekgn.web.curation import Filters, Sort
from ekgn.web.neighbourhood import neighbourhood
from ekgn.web.problems import Problem, shown
from ekgn.web.served import ServedRun
from ekgn.web.served_kbc import Asked, Read, ServedKbc
from ekgn.web.served_paths import ServedPaths
from ekgn.web.site import Site

ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": schema.ErrorReply, "description": meaning}
    for status, meaning in (
        (400, "The request cannot be read."),
        (401, "A token is needed."),
        (403, "The request comes from another site."),
        (404, "No such run, entity, relation or page."),
        (405, "This address does not take this method."),
        (409, "Several have this name; suggestions hold their ids."),
        (413, "The body is too large."),
        (414, "The address is too long."),
        (421, "The server does not answer to this host name."),
        (422, "The request is well formed but wrong."),
        (503, "Too busy, or it took too long."),
    )
}
EXPORT_KINDS: dict[str, str] = {
    "tsv": "text/tab-separated-values",
    "csv": "text/csv",
    "nt": "application/n-triples",
}
api = APIRouter(prefix="/api", responses=ERRORS)
service = APIRouter(responses={code: ERRORS[code] for code in (401, 405, 414, 421)})


def site_of(request: Request) -> Site:
    """The site that a request came to."""
    site: Site = request.app.state.site
    return site


RunName = Annotated[str, Path(description="The name of a served run.")]


# Asynchronous, though nothing is awaited: others would each be sent through a thread.
async def _run(request: Request, run: RunName) -> ServedRun:
    return site_of(request).run(run)


async def _kbc(request: Request, run: RunName) -> ServedKbc:
    found = site_of(request).run(run)
    if not isinstance(found, ServedKbc):
        raise _wrong_task(found, "of facts")
    return found


async def _paths(request: Request, run: RunName) -> ServedPaths:
    found = site_of(request).run(run)
    if not isinstance(found, ServedPaths):
        raise _wrong_task(found, "of paths")
    return found


def _wrong_task(found: ServedRun, wanted: str) -> Problem:
    message = f"{found.name} is a run of task '{found.summary.task}', not {wanted}."
    return Problem(404, "wrong_task", message)


AnyRun = Annotated[ServedRun, Depends(_run)]
Kbc = Annotated[ServedKbc, Depends(_kbc)]
Paths = Annotated[ServedPaths, Depends(_paths)]
Node = Annotated[int | None, Query(ge=0, le=10**9, description="The number of a node.")]
Text = Annotated[str | None, Query(max_length=schema.MAX_NAME, description="An id or a name.")]


class Parts(NamedTuple):
    """What is given of a fact, in words; what is not is asked for."""

    head: str | None
    relation: str | None
    tail: str | None


async def _parts(head: Text = None, relation: Text = None, tail: Text = None) -> Parts:
    return Parts(head, relation, tail)


Given = Annotated[Parts, Depends(_parts)]
EntityName = Annotated[str, Query(max_length=schema.MAX_NAME, description="An id or a name.")]
Top = Annotated[int, Query(ge=1, le=schema.MAX_TOP, description="How many answers.")]
Readout = Annotated[
    str | None,
    Query(
        max_length=20, description="argmax, mixture, last, sample or step:N; else the run's own."
    ),
]
Facts = Annotated[tuple[schema.LongName, ...], Query(max_length=20)]
Typed = Annotated[str, Query(max_length=schema.MAX_NAME, description="What was typed so far.")]
Limit = Annotated[int, Query(ge=1, le=50, description="How many names.")]


@service.get("/healthz", tags=["service"])
async def health(request: Request) -> schema.HealthReply:
    """Whether the server is up."""
    return schema.HealthReply(version=ekgn.__version__, runs=len(site_of(request).runs))


@service.get("/metrics", tags=["service"], response_class=PlainTextResponse)
async def server_metrics(request: Request) -> PlainTextResponse:
    """Counters and times in the Prometheus text format."""
    return PlainTextResponse(
        site_of(request).monitor.text(), media_type="text/plain; version=0.0.4"
    )


@api.get("/runs", tags=["runs"])
async def runs(request: Request) -> schema.RunsReply:
    """The runs that are served."""
    return schema.RunsReply(
        version=ekgn.__version__, runs=[run.summary for run in site_of(request).runs.values()]
    )


@api.get("/runs/{run}", tags=["runs"])
async def one_run(request: Request, run: AnyRun) -> schema.RunReply:
    """One run, with questions to start from."""
    return await site_of(request).long(run.reply)


@api.get("/runs/{run}/metrics", tags=["runs"])
async def run_metrics(request: Request, run: AnyRun) -> schema.MetricsReply:
    """The record of a run: data, settings, curve, evaluations."""
    return await site_of(request).long(run.metrics)


@api.get("/runs/{run}/results", tags=["runs"])
async def results(
    request: Request,
    run: Kbc,
    split: Annotated[Literal["valid", "test"], Query(description="Which facts.")] = "test",
) -> schema.ResultsReply:
    """Held-out facts ranked now: results of each relation, and the worst misses."""
    return await site_of(request).results(run, split)


@api.get("/runs/{run}/entities", tags=["search"])
async def search_entities(run: Kbc, q: Typed = "", limit: Limit = 10) -> schema.SearchReply:
    """Entities by name, prefix or with typos."""
    return schema.SearchReply(query=q, hits=run.search_entities(q, limit))


@api.get("/runs/{run}/relations", tags=["search"])
async def search_relations(
    run: Kbc,
    q: Typed = "",
    limit: Limit = 10,
    entity: Text = None,
    side: Annotated[
        Literal["head", "tail"], Query(description="Where the entity stands in the fact.")
    ] = "head",
) -> schema.SearchReply:
    """Relations by name, prefix or with typos; of an entity, first those it lacks."""
    of = None if entity is None else run.entity(entity)
    return schema.SearchReply(query=q, hits=run.search_relations(q, limit, of, side))


@api.get("/runs/{run}/entity", tags=["search"])
async def one_entity(run: Kbc, entity: EntityName) -> schema.EntityReply:
    """One entity: its training facts by relation, and what its kind has and it lacks."""
    return about_entity(run, run.entity(entity))


@api.get("/runs/{run}/missing", tags=["completion"])
async def missing(
    request: Request,
    run: Kbc,
    entity: EntityName,
    most: Annotated[int, Query(ge=1, le=50, description="Most facts.")] = 10,
) -> schema.MissingReply:
    """The facts that an entity most likely lacks."""
    site = site_of(request)
    return await site.long(site.curation(run).missing, run.entity(entity), most)


@api.get("/runs/{run}/curate", tags=["completion"])
async def curate(
    request: Request,
    run: Kbc,
    relation: Text = None,
    kind: Annotated[
        str | None,
        Query(
            max_length=schema.MAX_NAME,
            description="Only facts of things that have this relation; ^ for its other end.",
        ),
    ] = None,
    least: Annotated[float, Query(ge=0, le=1, description="Least confidence.")] = 0.0,
    held_out: Annotated[bool, Query(description="Also facts of validation and test.")] = False,
    sort: Annotated[
        Sort, Query(description="The surest first, the most doubtful, or by name.")
    ] = "surest",
    limit: Annotated[int, Query(ge=1, le=200, description="Most facts.")] = 50,
    skip: Annotated[int, Query(ge=0, le=10**6, description="Facts left out first.")] = 0,
) -> schema.CurateReply:
    """Undecided candidates: of `completed.tsv` beside the run if there is one, or of a relation."""
    site = site_of(request)
    index = None if relation is None else run.relation(relation) % run.run.graph.num_relations
    filters = Filters(None if kind is None else run.relation(kind), least, held_out, sort)
    return await site.long(site.curation(run).curate, index, filters, limit, skip)


@api.get("/runs/{run}/evidence", tags=["completion"])
async def evidence(
    request: Request, run: Kbc, head: EntityName, relation: EntityName, tail: EntityName
) -> schema.EvidenceReply:
    """Why a fact is proposed: rules and their training facts, or the most similar head."""
    site = site_of(request)
    return await site.long(site.curation(run).evidence, (head, relation, tail))


@api.get("/runs/{run}/decisions", tags=["completion"])
async def decisions(request: Request, run: Kbc) -> schema.DecisionsReply:
    """What was decided so far."""
    return await site_of(request).long(site_of(request).curation(run).decided)


@api.post("/runs/{run}/decisions", tags=["completion"])
async def decide(request: Request, run: Kbc, body: schema.DecisionRequest) -> schema.DecisionReply:
    """Accept or reject a fact, or take that back; kept in `decisions.jsonl` beside the run."""
    _from_here(request)
    site = site_of(request)
    fact = body.head, body.relation, body.tail
    return await site.long(site.curation(run).decide, fact, body.verdict, body.who.strip())


def _from_here(request: Request) -> None:
    """Raise if another site made the browser send this: it must not change anything."""
    origin = request.headers.get("origin")
    if origin and urlsplit(origin).netloc != request.headers.get("host"):
        raise Problem(403, "other_site", "Decisions are only taken from this server's own page.")


@api.get(
    "/runs/{run}/decisions/export",
    tags=["completion"],
    response_class=Response,
    responses={200: {"content": {kind: {} for kind in EXPORT_KINDS.values()}}},
)
async def export(
    request: Request,
    run: Kbc,
    verdict: Annotated[Literal["accepted", "rejected", "all"], Query()] = "accepted",
    form: Annotated[Literal["tsv", "csv", "nt"], Query()] = "tsv",
) -> Response:
    """Decided facts as a file; `ekgn extend` takes the accepted ones."""
    site = site_of(request)
    body = await site.long(site.curation(run).export, verdict, form)
    headers = {"content-disposition": f'attachment; filename="{verdict}.{form}"'}
    return Response(body, 200, headers, EXPORT_KINDS[form])


@api.get("/runs/{run}/predict", tags=["answers"])
async def predict(
    request: Request,
    run: Kbc,
    given: Given,
    top: Top = 10,
    hide_known: bool = False,
    readout: Readout = None,
) -> schema.PredictReply:
    """The most probable tail, head or relation: give the other two parts of the fact."""
    question = run.question(*given)
    return (await _answers(site_of(request), run, [question], top, hide_known, readout))[0]


@api.post("/runs/{run}/predict", tags=["answers"])
async def predict_many(
    request: Request, run: Kbc, body: schema.PredictRequest
) -> schema.PredictManyReply:
    """Answers to many questions at once; a bad one gets its error, the others their answers."""
    run.check_readout(body.readout)
    read = [_read(run, query) for query in body.queries]
    good = [question for question in read if not isinstance(question, schema.ErrorReply)]
    found = iter(
        await _answers(site_of(request), run, good, body.top, body.hide_known, body.readout)
    )
    return schema.PredictManyReply(
        replies=[each if isinstance(each, schema.ErrorReply) else next(found) for each in read]
    )


def _read(run: ServedKbc, query: schema.Query) -> Read | schema.ErrorReply:
    try:
        return run.question(query.head, query.relation, query.tail)
    except Problem as problem:
        return problem.body


async def _answers(
    site: Site,
    run: ServedKbc,
    questions: list[Read],
    top: int,
    hide_known: bool,
    readout: str | None,
) -> list[schema.PredictReply]:
    chosen = run.check_readout(readout)
    asked = [
        Asked(head, relation, top) for _, head, relation, _ in questions if relation is not None
    ]
    found = iter(await site.predict(run, hide_known, chosen, asked) if asked else [])
    replies = []
    for question, head, relation, tail in questions:
        if relation is not None:
            answers = next(found)
        else:
            assert tail is not None
            answers = await site.long(run.relations_between, head, tail, top, hide_known)
        replies.append(schema.PredictReply(question=question, readout=chosen, answers=answers))
    return replies


@api.get("/runs/{run}/explain", tags=["answers"])
async def explain(
    request: Request,
    run: Kbc,
    given: Given,
    target: Text = None,
    top: Top = 10,
    nearest: Annotated[int, Query(ge=1, le=20, description="Observed pairs per step.")] = 3,
    readout: Readout = None,
) -> schema.ExplainReply:
    """Every step of answering: stop probability, attention, nearest observed pairs, answers.

    Give the relation and the head or the tail; with all three, the tail is asked for and the given
    one is followed. `target` is an answer to follow through the steps.
    """
    return await _explained(request, run, given, target, top, nearest, readout)


async def _explained(
    request: Request,
    run: ServedKbc,
    given: Parts,
    target: str | None = None,
    top: int = 10,
    nearest: int = 3,
    readout: str | None = None,
) -> schema.ExplainReply:
    if target is None and None not in given:
        given, target = given._replace(tail=None), given.tail
    question, first, index, _ = run.question(*given)
    if index is None:
        message = "A question without relation has no steps to explain: ask /predict instead."
        raise Problem(422, "incomplete_question", message)
    chosen = run.check_readout(readout)
    goal = None if target is None else run.entity(target)
    return await site_of(request).long(
        run.explain, question, first, index, goal, top, nearest, chosen
    )


@api.get("/runs/{run}/compare", tags=["answers"])
async def compare(
    request: Request,
    run: Kbc,
    given: Given,
    other: Annotated[str | None, Query(max_length=200, description="Another run.")] = None,
    other_head: Text = None,
    other_relation: Text = None,
    other_tail: Text = None,
) -> schema.CompareReply:
    """Two questions side by side, of one run or of two; without another question, the same."""
    second = Parts(other_head, other_relation, other_tail)
    against = run if other is None else await _kbc(request, other)
    asked = [(run, given), (against, second if any(second) else given)]
    return schema.CompareReply(
        sides=[
            schema.Side(run=side.summary, reply=await _explained(request, side, parts))
            for side, parts in asked
        ]
    )


@api.get("/runs/{run}/states", tags=["inside"])
async def states(request: Request, run: Kbc, given: Given) -> schema.StatesReply:
    """The states of a question by step, among those of observed questions, in a plane (PCA)."""
    question, first, index, _ = run.question(*given)
    if index is None:
        raise Problem(422, "incomplete_question", "A way needs a relation, and a head or tail.")
    return await site_of(request).long(run.states, question, first, index)


@api.get("/runs/{run}/what-if", tags=["answers"])
async def what_if(
    request: Request,
    run: Kbc,
    given: Given,
    target: Text = None,
    without: Annotated[Facts, Query(description="To take away: head | relation | tail.")] = (),
    added: Annotated[
        Facts, Query(alias="with", description="To add: head | relation | tail.")
    ] = (),
) -> schema.WhatIfReply:
    """An answer without and with some training facts, or without each that counts most."""
    question, first, index, _ = run.question(*given)
    if index is None:
        raise Problem(422, "incomplete_question", "A what-if needs a relation, and a head or tail.")
    goal = None if target is None else run.entity(target)
    gone, more = (tuple(_fact(run, text) for text in texts) for texts in (without, added))
    return await site_of(request).long(run.what_if, question, first, index, goal, gone, more)


def _fact(run: ServedKbc, text: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(" | ")]
    if len(parts) != 3:
        raise Problem(422, "unreadable_fact", f"'{shown(text)}': expected head | relation | tail.")
    return run.entity(parts[0]), run.relation(parts[1]), run.entity(parts[2])


@api.get("/runs/{run}/memory", tags=["inside"])
async def memory(
    request: Request,
    run: Kbc,
    top: Annotated[int, Query(ge=1, le=50, description="Relations per memory vector.")] = 8,
    relation: Text = None,
) -> schema.MemoryReply:
    """What each memory vector is used for, and what a relation attends to."""
    return await site_of(request).long(run.memory, top, relation)


@api.get("/runs/{run}/neighbourhood", tags=["inside"])
async def neighbours(
    request: Request,
    run: Kbc,
    entity: EntityName,
    facts: Annotated[int, Query(ge=1, le=200, description="Most training facts.")] = 30,
    predicted: Annotated[int, Query(ge=0, le=50, description="Most predicted links.")] = 8,
) -> schema.NeighbourhoodReply:
    """An entity in the training graph, with links that are predicted."""
    site = site_of(request)
    return await site.long(neighbourhood, site.curation(run), run.entity(entity), facts, predicted)


@api.get("/runs/{run}/paths", tags=["paths"])
async def paths(
    request: Request, run: Paths, start: Node = None, end: Node = None
) -> schema.PathsReply:
    """The sphere of the shortest-path task and, for two nodes, every step from one to the other."""
    if (start is None) != (end is None):
        raise Problem(422, "incomplete_question", "A path has two ends: give both start and end.")
    return await site_of(request).long(run.paths, start, end)
