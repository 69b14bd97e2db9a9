"""An approximate index over the answers' vectors, by faiss: answers among millions in milliseconds.

An inner product becomes a distance by one more coordinate: with x' = [x ; √(M² - |x|²)], M the
largest norm, and q' = [q ; 0] the nearest x' has the largest q · x. The x' are put into cells
around centres (IVF), and a query looks into the nearest few. What it finds is scored by the model.

How many cells is chosen, and the recall measured, on outputs of the run for questions of its own
graph; below LEAST_RECALL there is no index. It is kept beside the weights it was made of, with
their digest, and is not used with any others.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.files import read_json, replace_folder, write_json
from ekgn.kbc.answers import Ints
from ekgn.kbc.search import Asked, Best, ExactSearch, Hidden, Placed

if TYPE_CHECKING:
    from ekgn.kbc.run import KbcRun

log = logging.getLogger(__name__)

FOLDER = "index"
FORMAT = 1
LEAST_RECALL, WANTED_RECALL = (
    0.95,
    0.975,
)  # stored ones have the first; cells are added up to the second
MOST_CELLS, FEW_CELLS = 1 / 8, 32  # looked into, of all; of few cells, so many
DEPTH = 10  # answers whose recall is measured
QUESTIONS = 512  # half choose the cells, half measure
LEAST_FOUND = 100  # candidates of a query that the model scores
SAMPLE = 4096  # entities that stand for those not found, in the total of the softmax
TRAINED_ON = 64  # vectors for each centre
ADDED = 2**17  # vectors at a time

Floats32 = NDArray[np.float32]


@dataclass(frozen=True)
class About:
    """What an index is, and what was measured when it was made."""

    format: int
    weights: str  # the digest of the vectors
    norm: float  # of every indexed vector, its last coordinate included
    entities: int
    cells: int
    looked_into: int
    recall_at_10: float
    questions: int
    exact_ms: float  # a question, of a batch
    index_ms: float
    seconds: float


class IndexSearch:
    """Looks at what the index finds for a query; see ekgn.kbc.search."""

    def __init__(self, run: KbcRun, index: Any, about: About) -> None:
        self._model, self._index, self.about = run.model, index, about
        self._exact = ExactSearch(run.model)
        self._vectors_NK = run.model.answers.weight.detach()
        rng = np.random.default_rng(0)
        count = min(SAMPLE, len(self._vectors_NK))
        drawn = rng.choice(len(self._vectors_NK), count, replace=False, shuffle=False)
        self._sample = torch.from_numpy(np.sort(drawn))
        self._sample_MK = self._vectors_NK[self._sample]

    def best(self, asked: Asked, top: int, hidden: Hidden) -> Best:
        """The first places among the candidates; shares by an estimate of the softmax's total."""
        most = int(torch.bincount(hidden.rows).max()) if len(hidden.rows) else 0
        wanted = max(LEAST_FOUND, 4 * top + most)
        entity_BC, score_BC, log_total_SB = self._candidates(asked, wanted)
        _hide(score_BC, entity_BC, hidden)
        values, places = score_BC.topk(min(top, score_BC.shape[1]), dim=1)
        return Best(values, entity_BC.gather(1, places), log_total_SB)

    def places(self, asked: Asked, rows: Ints, answers: Ints, hidden: Hidden) -> Placed:
        """Ranks are exact among the candidates, and estimated by a sample beyond them."""
        most = int(torch.bincount(hidden.rows).max()) if len(hidden.rows) else 0
        entity_BC, score_BC, log_total_SB = self._candidates(asked, LEAST_FOUND + most)
        row_P, answer_P = torch.from_numpy(rows), torch.from_numpy(answers)
        value_P = self._scores(asked, log_total_SB, self._vectors_NK[answer_P][:, None], row_P)[
            :, 0
        ]
        _hide(score_BC, entity_BC, hidden)
        others_PC = (entity_BC[row_P] != answer_P[:, None]) & (entity_BC[row_P] >= 0)
        above_P = ((score_BC[row_P] > value_P[:, None]) & others_PC).sum(dim=1)
        sample_BC = self._scores(asked, log_total_SB, self._sample_MK)
        _hide(sample_BC, self._sample.expand(len(sample_BC), -1), hidden)
        share_P = (sample_BC[row_P] > value_P[:, None]).float().mean(dim=1)
        beyond_P = (share_P * len(self._vectors_NK)).long()
        lowest_P = score_BC.masked_fill(score_BC == -torch.inf, torch.inf).amin(dim=1)[row_P]
        above_P = torch.where(value_P >= lowest_P, above_P, torch.maximum(above_P, beyond_P))
        return Placed(value_P, above_P.numpy() + 1, score_BC.topk(2, dim=1).values)

    def _candidates(self, asked: Asked, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """What the index finds for each query: entities (-1: none), log shares; and log totals."""
        found = [self.nearest(outputs_BK, count) for outputs_BK in asked.outputs_SBK]
        entity_BC = _distinct(torch.cat(found, dim=1))
        rows_BCK = self._vectors_NK[entity_BC.clamp(min=0)]
        missing_BC = entity_BC < 0
        sampled_BM = self._in_sample(entity_BC)
        totals = []
        for outputs_BK in asked.outputs_SBK:
            scores_BC = torch.einsum("bk,bck->bc", outputs_BK, rows_BCK)
            rest_BM = (outputs_BK @ self._sample_MK.T).masked_fill_(sampled_BM, -torch.inf)
            weight = float(np.log(len(self._vectors_NK) / len(self._sample)))
            parts = scores_BC.masked_fill(missing_BC, -torch.inf), rest_BM + weight
            totals.append(torch.cat(parts, dim=1).logsumexp(dim=1))
        log_total_SB = torch.stack(totals)
        score_BC = self._scores(asked, log_total_SB, rows_BCK)
        return entity_BC, score_BC.masked_fill_(missing_BC, -torch.inf), log_total_SB

    def _in_sample(self, entity_BC: Tensor) -> Tensor:
        """Which of the sample were found, for each query."""
        place_BC = torch.searchsorted(self._sample, entity_BC).clamp_(max=len(self._sample) - 1)
        row_P, found_P = (self._sample[place_BC] == entity_BC).nonzero(as_tuple=True)
        sampled_BM = torch.zeros(len(entity_BC), len(self._sample), dtype=torch.bool)
        sampled_BM[row_P, place_BC[row_P, found_P]] = True
        return sampled_BM

    def _scores(
        self, asked: Asked, log_total_SB: Tensor, rows: Tensor, of_P: Tensor | None = None
    ) -> Tensor:
        """Log shares of some entities' vectors: (C, K) for all queries, or (B, C, K)."""
        shift_SB = asked.log_weights_SB - log_total_SB
        outputs_SBK = asked.outputs_SBK
        if of_P is not None:
            shift_SB, outputs_SBK = shift_SB[:, of_P], outputs_SBK[:, of_P]
        form = "sbk,ck->sbc" if rows.dim() == 2 else "sbk,bck->sbc"
        return (torch.einsum(form, outputs_SBK, rows) + shift_SB[:, :, None]).logsumexp(dim=0)

    def nearest(self, outputs_BK: Tensor, count: int) -> Tensor:
        """The entities that the index finds for each output, best first; -1: it has no more."""
        queries = lengthened(outputs_BK.numpy(), self.about.norm)
        return torch.from_numpy(self._index.search(queries, min(count, self.about.entities))[1])


def lengthened(outputs: Floats32, norm: float) -> Floats32:
    """Queries with a last coordinate of 0, and the norm of the vectors: only cells see it."""
    length = np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-12)
    return np.pad(outputs * (norm / length), [(0, 0), (0, 1)]).astype(np.float32)


def _hide(score_BC: Tensor, entity_BC: Tensor, hidden: Hidden) -> None:
    """Set the scores of hidden pairs to -inf."""
    if not len(hidden.rows):
        return
    size = int(max(int(entity_BC.max()), int(hidden.entities.max()))) + 2
    row_B = torch.arange(len(entity_BC))[:, None]
    keys = hidden.rows * size + hidden.entities
    score_BC[torch.isin(row_B * size + entity_BC, keys)] = -torch.inf


def _distinct(entity_BC: Tensor) -> Tensor:
    """Each entity of a row once; -1 in place of the others."""
    ordered, order = entity_BC.sort(dim=1, stable=True)
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return entity_BC.masked_fill(torch.zeros_like(again).scatter(1, order, again), -1)


def weights_digest(vectors_NK: Tensor) -> str:
    """The SHA-256 of the vectors."""
    array = vectors_NK.detach().cpu().contiguous().numpy()
    digest = hashlib.sha256(json.dumps([list(array.shape), str(array.dtype)]).encode())
    digest.update(array.data)
    return digest.hexdigest()


def load_index(run: KbcRun) -> IndexSearch | None:
    """The index of a run; None if it has none, or if it was made of other weights."""
    folder = run.path / FOLDER
    if not folder.is_dir():
        return None
    try:
        about = About(**read_json(folder / "about.json"))
    except (TypeError, EkgnError) as error:
        raise EkgnError(f"{folder} is damaged ({error}). Delete it, or: ekgn index RUN") from None
    if about.format != FORMAT or about.weights != weights_digest(run.model.answers.weight):
        log.warning(
            "%s was made of other weights and is not used: every entity is looked at. "
            "Make it anew with: ekgn index %s",
            *(folder, run.path),
        )
        return None
    try:
        index = faiss().read_index(str(folder / "vectors.faiss"), faiss().IO_FLAG_MMAP)
    except RuntimeError as error:
        raise EkgnError(f"{folder} is damaged ({error}). Delete it, or: ekgn index RUN") from None
    index.nprobe = about.looked_into
    # Starting its 32 threads for each question takes longer than what they fetch in advance.
    faiss().downcast_InvertedLists(index.invlists).prefetch_nthread = 0
    return IndexSearch(run, index, about)


def faiss() -> Any:
    """The library, which is an extra."""
    try:
        import faiss as library
    except ImportError:
        raise EkgnError(
            "faiss is not installed. Install it with: pip install 'ekgn[index]'"
        ) from None
    return library


def build_index(run: KbcRun, cells: int = 0) -> About:
    """Make the index of a run, measure it, and keep it; raises if it finds too little."""
    if not run.settings.has_product:
        raise EkgnError(
            "An index finds large inner products, and this run compares by L1 distance (the "
            "paper's form): its answers are found by a look at every entity."
        )
    started = time.monotonic()
    vectors = run.model.answers.weight.detach().cpu().numpy()
    cells = cells or max(1, int(4 * len(vectors) ** 0.5))
    norm = float(np.linalg.norm(vectors, axis=1).max()) or 1.0
    index = _filled(vectors, norm, cells)
    outputs_QK = _own_outputs(run, QUESTIONS)
    chosen, measured = outputs_QK[::2], outputs_QK[1::2]
    digest = weights_digest(run.model.answers.weight)
    about = About(FORMAT, digest, norm, len(vectors), cells, 1, 0.0, len(measured), 0.0, 0.0, 0.0)
    search = IndexSearch(run, index, about)
    right = {id(part): _exact(run, part) for part in (chosen, measured)}
    most = max(FEW_CELLS, int(MOST_CELLS * cells))
    looked = 1
    while looked < most:
        index.nprobe = looked
        if _recall(search, chosen, right[id(chosen)]) >= WANTED_RECALL:
            break
        looked += looked // 2 + 1
    index.nprobe = looked = min(looked, most)
    recall = _recall(search, measured, right[id(measured)])
    if recall < LEAST_RECALL:
        raise EkgnError(
            f"The index would find {recall:.1%} of the first {DEPTH} answers in {looked} of its "
            f"{cells} cells, at least {LEAST_RECALL:.0%} are expected: none was written. Looking "
            f"into more takes as long as a look at every entity. A longer training or other cells "
            f"may do: --cells."
        )
    about = replace(
        about,
        looked_into=looked,
        recall_at_10=recall,
        exact_ms=_milliseconds(ExactSearch(run.model), measured),
        index_ms=_milliseconds(search, measured),
        seconds=round(time.monotonic() - started, 1),
    )
    replace_folder(run.path / FOLDER, lambda aside: _write(aside, index, about))
    return about


def _write(aside: Path, index: Any, about: About) -> None:
    aside.mkdir(parents=True)
    faiss().write_index(index, str(aside / "vectors.faiss"))
    write_json(aside / "about.json", asdict(about))


def _filled(vectors: Floats32, norm: float, cells: int) -> Any:
    """The vectors with their last coordinate, in cells around trained centres."""

    def longer(part: slice | Ints) -> Floats32:
        squares = np.square(vectors[part], dtype=np.float64).sum(axis=1)
        last = np.sqrt(np.maximum(norm**2 - squares, 0))
        return np.ascontiguousarray(np.column_stack([vectors[part], last]), np.float32)

    library = faiss()
    size = vectors.shape[1] + 1
    index = library.IndexIVFFlat(library.IndexFlatL2(size), size, cells, library.METRIC_L2)
    index.cp.min_points_per_centroid = 1
    count = min(len(vectors), TRAINED_ON * cells)
    drawn = np.random.default_rng(0).choice(len(vectors), count, replace=False, shuffle=False)
    index.train(longer(np.sort(drawn)))
    for start in range(0, len(vectors), ADDED):
        index.add(longer(slice(start, start + ADDED)))
    return index


def _own_outputs(run: KbcRun, count: int) -> Tensor:
    """What the run answers questions of its own graph with, held-out ones where there are."""
    facts = run.graph.valid if len(run.graph.valid) else run.graph.train
    rng = np.random.default_rng(0)
    drawn = facts[rng.choice(len(facts), count, replace=len(facts) < count)]
    both = rng.random(count) < 0.5  # either side
    heads = np.where(both, drawn[:, 0], drawn[:, 2])
    relations = drawn[:, 1] + np.where(both, 0, run.graph.num_relations)
    return Asked.of(run.model, heads, relations).outputs_SBK[-1]


def _asked(outputs_BK: Tensor) -> Asked:
    return Asked(outputs_BK[None], torch.zeros(1, len(outputs_BK)))


def _nothing() -> Hidden:
    none = torch.empty(0, dtype=torch.long)
    return Hidden(none, none)


def _exact(run: KbcRun, outputs_QK: Tensor) -> Tensor:
    parts = torch.split(outputs_QK, 64)
    exact = ExactSearch(run.model)
    return torch.cat([exact.best(_asked(part), DEPTH, _nothing()).entity_BP for part in parts])


def _recall(search: IndexSearch, outputs_QK: Tensor, right_QD: Tensor) -> float:
    """The share of the first answers that the index finds."""
    found_QC = search.nearest(outputs_QK, LEAST_FOUND)
    return float((right_QD[:, :, None] == found_QC[:, None, :]).any(dim=2).float().mean())


def _milliseconds(search: ExactSearch | IndexSearch, outputs_QK: Tensor) -> float:
    """The time of a question among 32 asked together."""
    asked = _asked(outputs_QK[:32])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        search.best(asked, DEPTH, _nothing())
        times.append(time.perf_counter() - start)
    return round(1000 * min(times) / len(outputs_QK[:32]), 4)
