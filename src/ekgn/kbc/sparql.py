"""Triples from a SPARQL endpoint, kept as a file: data that is trained on should stay the same."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ekgn
from ekgn.errors import EkgnError
from ekgn.files import replace_file
from ekgn.kbc.triples import read_triples
from ekgn.kbc.unpack import MOST, most_bytes

if TYPE_CHECKING:
    import httpx

SILENT_SECONDS = 60.0  # without a byte
MOST_SECONDS = 1800.0  # for the whole answer
_ENDINGS = {
    "application/n-triples": ".nt",
    "text/turtle": ".ttl",
    "application/rdf+xml": ".rdf",
    "application/ld+json": ".jsonld",
    "application/sparql-results+json": ".srj",
    "application/sparql-results+xml": ".srx",
}


def fetch(
    endpoint: str,
    query: str,
    out: Path,
    *,
    silent_seconds: float = SILENT_SECONDS,
    most_seconds: float = MOST_SECONDS,
) -> Path:
    """Ask the endpoint a CONSTRUCT or SELECT query, and keep its answer beside or as `out`.

    The file gets the ending of the form that the endpoint chose; it is there only if it was read
    to its end and holds triples.
    """
    try:
        import httpx
    except ImportError:
        raise EkgnError(
            "Asking an endpoint needs httpx. Install it with: pip install 'ekgn[sparql]'"
        ) from None
    if not endpoint.startswith(("http://", "https://")):
        raise EkgnError(f"'{endpoint}' is no address of an endpoint: expected http:// or https://.")
    try:
        with httpx.Client(timeout=silent_seconds, follow_redirects=True) as client:
            kind, body = _answer(client, endpoint, query, time.monotonic() + most_seconds)
    except httpx.TimeoutException:
        raise EkgnError(
            f"{endpoint} was silent for {silent_seconds:g} s. Ask for less (LIMIT), or later."
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EkgnError(f"{endpoint} could not be asked: {error or type(error).__name__}") from None
    return _keep(endpoint, kind, body, out)


def _answer(client: httpx.Client, endpoint: str, query: str, deadline: float) -> tuple[str, bytes]:
    """The kind and the bytes of the answer, within the limits of time and size."""
    headers = {"accept": ", ".join(_ENDINGS), "user-agent": f"ekgn/{ekgn.__version__}"}
    most, pieces, total = most_bytes(), [], 0
    with client.stream("POST", endpoint, data={"query": query}, headers=headers) as reply:
        for piece in reply.iter_bytes():
            pieces.append(piece)
            total += len(piece)
            if total > most:
                limit = f"{most / 2**30:g} GB"
                raise EkgnError(f"{endpoint} sends more than {limit}: ask for less, or set {MOST}.")
            if time.monotonic() > deadline:
                raise EkgnError(f"{endpoint} is too slow: {total:,} bytes so far. Ask for less.")
    body = b"".join(pieces)
    if reply.status_code >= 400:
        said = body.decode(errors="replace").strip()[:200]
        raise EkgnError(f"{endpoint} refused the query ({reply.status_code}): {said}")
    return reply.headers.get("content-type", "").partition(";")[0].strip().casefold(), body


def _keep(endpoint: str, kind: str, body: bytes, out: Path) -> Path:
    """Write the answer, once it has been read as triples."""
    ending = _ENDINGS.get(kind)
    if ending is None:
        raise EkgnError(
            f"{endpoint} answered with {kind or 'an unnamed kind of data'}, not with triples. "
            "Is it the address of the endpoint itself, not of its web page?"
        )
    path = out if out.suffix == ending else out.with_name(out.name + ending)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / f"answer{ending}"
        trial.write_bytes(body)
        try:
            read_triples(trial)
        except EkgnError as error:
            reason = str(error).replace(str(trial), "The answer")
            raise EkgnError(f"{endpoint} sent no usable triples. {reason}") from None
    replace_file(path, lambda aside: aside.write_bytes(body))
    return path
