"""What the tests of the explorer share: a small readable graph with hostile names, and its run."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np

from ekgn import api
from ekgn.kbc.graph import KnowledgeGraph, Vocabulary
from ekgn.paths.graphs import make
from ekgn.paths.settings import PathsSettings
from tests.conftest import tiny_settings

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title="owned"</script>'
LONG, LEFTWARDS, UNTRAINED = "Donaudampfschifffahrts" * 5, "السنغال", "Atlantis"
CONTINENTS = ("Europe", "Asia", "Africa")
COUNTRIES = (
    *("France", "Germany", "Italy", "Spain", "Poland", "Portugal"),
    *("Japan", "China", "India", "Vietnam", "Thailand", "Nepal"),
    *("Kenya", LONG, "Egypt", "Morocco", LEFTWARDS, "Angola"),
)
ALSO = {"Germany": "FRG, Deutschland"}  # names that a file gives besides
IN_NO_SPLIT = ("Portugal", "Nepal", "Egypt", "Angola")  # their continent
RELATIONS = ("located_in", "in_continent", "city_in_continent", "borders")


def _graph() -> KnowledgeGraph:
    """Continents, countries with two cities each; some names are shared, some hostile."""
    names = [*CONTINENTS, *COUNTRIES]
    facts: list[tuple[int, int, int]] = []
    for place, country in enumerate(COUNTRIES):
        at, continent = len(CONTINENTS) + place, place // 6
        if country not in IN_NO_SPLIT:
            facts.append((at, 1, continent))
        facts.append((at, 3, len(CONTINENTS) + 6 * continent + (place + 1) % 6))
        for number in (1, 2):
            city = len(names)
            names.append("Springfield" if place in (2, 9) and number == 2 else f"{country} City")
            names[-1] += " II" if number == 2 and "Spring" not in names[-1] else ""
            facts += [(city, 0, at), (city, 2, continent)]
    names[-1] = HOSTILE
    names.append(UNTRAINED)
    triples = np.array(facts, np.int64)
    held_out = np.flatnonzero(triples[:, 1] == 2)[2::4]
    train = np.delete(triples, held_out, axis=0)
    ids = tuple(f"/m/{index:03d}" for index in range(len(names)))
    about = tuple(
        f"thing {index}" + (f"; also: {ALSO[name]}" if name in ALSO else "")
        for index, name in enumerate(names)
    )
    labels = tuple(label.replace("_", " ") for label in RELATIONS)
    return KnowledgeGraph(
        name="Atlas",
        entities=Vocabulary(ids, tuple(names), about),
        relations=Vocabulary(RELATIONS, labels, ("",) * len(RELATIONS)),
        train=train,
        valid=triples[held_out[::2]],
        test=triples[held_out[1::2]],
        source={},
    )


@functools.cache
def run_folders() -> tuple[Path, Path]:
    """The folders of a run on the small graph and of one on short paths, trained once."""
    folder = Path(tempfile.mkdtemp(prefix="ekgn-web-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run = api.train(_graph(), tiny_settings(epochs=60, valid_every=20), out=folder / "atlas")
    run.evaluate("test")
    options = {"embedding_dim": 16, "decoder_size": 16, "epochs": 2, "max_steps": 3, "num_slots": 8}
    settings = PathsSettings.build("base", None, {**options, "threads": 1})
    data = make(nodes=60, k=8, sizes=(120, 20, 20), seed=1)
    api.train(data, settings, task="paths", out=folder / "sphere")
    return folder / "atlas", folder / "sphere"
