"""Shortest path synthesis: the data's rules, the model against slow loops, runs, explanations."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from ekgn import api
from ekgn.checkpoint import RunFolder, load_tensors
from ekgn.errors import EkgnError
from ekgn.files import read_json
from ekgn.network.inference import step_weights
from ekgn.paths.baselines import dynamic_programming
from ekgn.paths.batches import Batches, lay_out, parts_of, training_paths
from ekgn.paths.decode import Emit, answer
from ekgn.paths.drawing import explanation_picture, sphere_picture
from ekgn.paths.evaluate import Count, ask, evaluate, judge, solver
from ekgn.paths.graphs import (
    PathsData,
    SphereGraph,
    independent_paths,
    make,
    plain_path,
    subpaths,
    verify,
    words,
)
from ekgn.paths.model import NEXT, PREVIOUS, PathsModel, like_size
from ekgn.paths.run import PathsRun
from ekgn.paths.settings import PathsSettings
from ekgn.paths.task import PathsTask
from ekgn.trainer import Progress, Trainer
from tests.conftest import THREADS

pytestmark = pytest.mark.numerical


def tiny(**changes: object) -> PathsSettings:
    options = {
        "embedding_dim": 16,
        "decoder_size": 24,
        "num_slots": 8,
        "max_steps": 3,
        "batch_size": 32,
        "epochs": 24,
        "valid_every": 12,
        "learning_rate": 0.02,
        "input_dropout": 0.0,
        "output_dropout": 0.1,
        "decoder_dropout": 0.0,
        "subpaths": True,
        "threads": THREADS,
    }
    return PathsSettings.build("base", None, {**options, **changes})


@pytest.fixture(scope="module")
def data() -> PathsData:
    return make(nodes=40, k=6, sizes=(120, 30, 30), seed=3)


@pytest.fixture(scope="module")
def run(data: PathsData, tmp_path_factory: pytest.TempPathFactory) -> PathsRun:
    path = tmp_path_factory.mktemp("runs") / "paths"
    api.train(data, tiny(), task="paths", out=path)
    return PathsRun(path)


# The graph and its paths.


def contains(longer: tuple[int, ...], shorter: tuple[int, ...]) -> bool:
    return any(
        longer[i : i + len(shorter)] == shorter for i in range(len(longer) - len(shorter) + 1)
    )


def test_the_rules_hold_by_brute_force(data: PathsData) -> None:
    everything = data.train + data.valid + data.test
    assert (len(data.train), len(data.valid), len(data.test)) == (120, 30, 30)
    assert not any(
        contains(a, b) or contains(b, a) for a, b in itertools.combinations(everything, 2)
    )
    assert all(len(path) >= 3 for path in everything)


def test_paths_are_shortest_by_floyd_warshall(data: PathsData) -> None:
    graph = data.graph
    best = np.where(
        graph.has_edge, np.linalg.norm(graph.points[:, None] - graph.points[None], axis=2), np.inf
    )
    np.fill_diagonal(best, 0)
    for middle in range(graph.num_nodes):
        best = np.minimum(best, best[:, middle, None] + best[middle])
    for path in data.train:
        cost = sum(math.dist(graph.points[a], graph.points[b]) for a, b in itertools.pairwise(path))
        assert cost == pytest.approx(best[path[0], path[-1]], abs=1e-12)


def test_edges_go_to_the_nearest_points_of_a_unit_sphere(data: PathsData) -> None:
    graph = data.graph
    assert np.allclose(np.linalg.norm(graph.points, axis=1), 1)
    distances = np.linalg.norm(graph.points[:, None] - graph.points[None], axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1:7]
    assert (np.sort(nearest) == np.sort(graph.neighbours)).all()


def test_the_draw_depends_on_the_seed_alone(data: PathsData) -> None:
    again = make(nodes=40, k=6, sizes=(120, 30, 30), seed=3)
    other = make(nodes=40, k=6, sizes=(120, 30, 30), seed=4)
    assert again.checksum == data.checksum != other.checksum


def test_the_draw_is_exhausted_only_when_no_path_is_left(data: PathsData) -> None:
    kept = list(independent_paths(data.graph, seed=3))
    n = data.graph.num_nodes
    for start, end in itertools.product(range(n), range(n)):
        if start != end and not data.graph.has_edge[start, end]:
            path = data.graph.shortest(start, end)
            assert any(contains(path, other) or contains(other, path) for other in kept)


def test_saved_data_come_back_and_pass_the_check(data: PathsData, tmp_path: Path) -> None:
    data.save(tmp_path)
    loaded = PathsData.load(tmp_path)
    assert loaded.train == data.train and loaded.checksum == data.checksum
    found = verify(loaded)
    assert sum(found["hops"].values()) == 180 and found["edges"] == 240


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.train[:1] + d.train, "occurs twice"),
        (lambda d: [next(p for p in d.train if len(p) > 3)[:3], *d.train], "contains path"),
        (lambda d: [d.train[0][:2], *d.train], "no intermediate node"),
        (lambda d: [d.train[0][::2], *d.train], "no intermediate node|not in the graph"),
        (lambda d: [(*d.train[0], *d.train[0][-2::-1]), *d.train], "costs|not in the graph"),
    ],
)
def test_the_check_finds_broken_rules(data: PathsData, change: object, message: str) -> None:
    broken = PathsData(data.graph, change(data), data.valid, data.test, 3)  # type: ignore[operator]
    with pytest.raises(EkgnError, match=message):
        verify(broken)


def test_the_check_finds_other_edges(data: PathsData) -> None:
    fewer = SphereGraph(data.graph.points, data.graph.neighbours.copy())
    fewer.neighbours[0, 0] = int(np.flatnonzero(~fewer.has_edge[0])[-1])
    with pytest.raises(EkgnError, match="not those to the 6 nearest"):
        verify(PathsData(fewer, data.train, data.valid, data.test, 3))


def test_a_changed_file_is_noticed(data: PathsData, tmp_path: Path) -> None:
    file = data.save(tmp_path)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(EkgnError, match="does not match its checksum"):
        PathsData.load(tmp_path)


def test_bad_graphs_are_answered_clearly(tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match="k = 10 neighbours: a graph of 10 nodes allows 1 to 9"):
        make(nodes=10, k=10)
    with pytest.raises(EkgnError, match="nodes = 2: a path needs at least 3"):
        make(nodes=2, k=1)
    with pytest.raises(EkgnError, match=r"k = 1 is not connected: it falls into \d+ parts"):
        make(nodes=50, k=1)
    with pytest.raises(EkgnError, match=r"Only \d+ paths .* 40000 were asked for"):
        make(nodes=30, k=5)
    with pytest.raises(EkgnError, match="each of train, valid and test needs at least one"):
        make(nodes=30, k=5, sizes=(10, 0, 10))
    with pytest.raises(EkgnError, match="Make one with: ekgn paths make"):
        PathsData.load(tmp_path / "nothing")


def test_bad_queries_are_answered_clearly(data: PathsData) -> None:
    graph = data.graph
    neighbour = int(graph.neighbours[0, 0])
    with pytest.raises(EkgnError, match="Node 40 is not in the graph: its 40 nodes are numbered 0"):
        graph.check_query(0, 40)
    with pytest.raises(EkgnError, match="Node -1 is not in the graph"):
        graph.check_query(-1, 3)
    with pytest.raises(EkgnError, match="both node 7"):
        graph.check_query(7, 7)
    with pytest.raises(EkgnError, match=f"a direct edge from 0 to {neighbour}"):
        graph.check_query(0, neighbour)
    with pytest.raises(EkgnError, match="Unknown split 'tset'"):
        data.split("tset")


# Batches.


def test_subpaths_are_contiguous_and_hold_an_inner_node() -> None:
    assert list(subpaths((1, 2, 3, 4))) == [(1, 2, 3), (1, 2, 3, 4), (2, 3, 4)]


def test_subpaths_of_training_paths_are_shortest_and_never_held_out(data: PathsData) -> None:
    parts = training_paths(data.train, with_subpaths=True)
    assert set(data.train) < set(parts) and len(set(parts)) == len(parts)
    assert not set(parts) & {*data.valid, *data.test}
    assert all(data.graph.shortest(part[0], part[-1]) == part for part in parts)


def test_an_epoch_holds_every_path_once_and_depends_on_its_place_alone(data: PathsData) -> None:
    batches = Batches(data.train, 40, tiny(subpaths=False))
    seen = []
    for index in range(len(batches)):
        batch = batches(2, index)
        assert batch.nodes_BL.shape == (batch.active[0], len(batch.active) + 1)
        for row in range(len(batch.starts_B)):
            hops = sum(count > row for count in batch.active)
            assert batch.targets_BL[row, hops - 1] == 40
            path = batch.nodes_BL[row, : hops + 1].tolist()
            assert batch.targets_BL[row, : hops - 1].tolist() == path[1:-1]
            assert (path[0], path[-1]) == (batch.starts_B[row], batch.ends_B[row])
            seen.append(tuple(path))
    assert sorted(seen) == sorted(data.train)
    again = Batches(data.train, 40, tiny(subpaths=False))(2, 1)
    assert all(torch.equal(a, b) for a, b in zip(again[:4], batches(2, 1)[:4], strict=True))


def test_the_parts_of_a_batch_are_those_of_its_paths() -> None:
    paths = [(1, 2, 3, 4), (7, 8, 9)]
    found = [tuple(part) for part in torch.stack(parts_of(lay_out(paths, 40), 40), 1).tolist()]
    edge = (40, 40)
    assert sorted(found) == [
        (1, 2, *edge, 0),
        (1, 3, 2, 2, 0),
        (1, 4, 2, 3, 0),
        (2, 3, *edge, 0),
        (2, 4, 3, 3, 0),
        (3, 4, *edge, 0),
        (7, 8, *edge, 1),
        (7, 9, 8, 8, 1),
        (8, 9, *edge, 1),
    ]


# The model.


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("changes", [{"lookups": "once"}, {"system": "seq2seq"}], ids=str)
def test_path_probabilities_match_a_slow_loop(
    data: PathsData, tied: bool, changes: dict[str, object]
) -> None:
    torch.manual_seed(0)
    model = PathsModel(40, tiny(tie_nodes=tied, **changes)).eval()
    paths = sorted(data.train[:9], key=len, reverse=True)
    nodes = model.symbols.nodes.weight
    assert model.decoder is not None
    with torch.no_grad():
        reading = model.read(lay_out(paths, 40))
        for row, path in enumerate(paths):
            for step in range(len(reading.log_p_TP)):
                query = torch.tensor([path[0]]), torch.tensor([path[-1]])
                total, vector = 0.0, model(*query).outputs_TBK[step]
                for node, symbol in zip(path[:-1], [*path[1:-1], 40], strict=True):
                    vector = model.decoder.cell.cell(nodes[[node]], vector)
                    total += model.symbols.logits(vector).log_softmax(dim=1)[0, symbol].item()
                assert reading.log_p_TP[step, row].item() == pytest.approx(total, abs=1e-4)


def part_log_p(model: PathsModel, part: tuple[int, ...], readout: str) -> float:
    """log p of both answers to one part."""
    inference = model(torch.tensor([part[0]]), torch.tensor([part[-1]]))
    weights_T = step_weights(inference, readout)[:, 0]
    inner = part[1:-1] or (model.num_nodes,)
    total = 0.0
    for side, symbol in ((NEXT, inner[0]), (PREVIOUS, inner[-1])):
        p_TS = model.symbols.logits(inference.outputs_TBK[:, 0], side).softmax(dim=1)
        total += math.log(float(weights_T @ p_TS[:, symbol]))
    return total


def parts(path: tuple[int, ...]) -> list[tuple[int, ...]]:
    places = itertools.combinations(range(len(path)), 2)
    return [path[first : last + 1] for first, last in places]


@pytest.mark.parametrize("tied", [True, False])
def test_part_probabilities_match_a_slow_loop(data: PathsData, tied: bool) -> None:
    torch.manual_seed(0)
    model = PathsModel(40, tiny(tie_nodes=tied)).eval()
    paths = sorted(data.train[:9], key=len, reverse=True)
    with torch.no_grad():
        reading = model.read(lay_out(paths, 40))
        found_TB = torch.zeros(3, 9).index_add_(1, reading.path_P, reading.log_p_TP)
        for row, path in enumerate(paths):
            for step in (1, 2, 3):
                wanted = sum(part_log_p(model, part, f"step:{step}") for part in parts(path))
                assert found_TB[step - 1, row].item() == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("objective", ["log", "expected"])
def test_the_reward_is_for_whole_paths(data: PathsData, objective: str) -> None:
    model = PathsModel(40, tiny(objective=objective, step_loss=0.0)).eval()
    batch = lay_out(data.train[:8], 40)
    with torch.no_grad():
        reading, loss = model.read(batch), model.loss(batch)
    rewards = [1.0] * 8
    for place, path in enumerate(reading.path_P.tolist()):
        q_T = reading.inference.log_stop_weights_TB[:, place].exp()
        rewards[path] *= float((q_T * reading.log_p_TP[:, place].exp()).sum())
    wanted = rewards if objective == "expected" else [math.log(reward) for reward in rewards]
    assert loss.total.item() == pytest.approx(-sum(wanted) / 8, rel=1e-4)
    assert loss.expected_reward.item() == pytest.approx(sum(rewards) / 8, rel=1e-4)


def test_the_baseline_has_about_as_many_parameters() -> None:
    for settings in (PathsSettings.build("base"), PathsSettings.build("paper")):
        network = PathsModel(500, settings).num_parameters()
        other = settings.model_copy(update={"system": "seq2seq"})
        assert PathsModel(500, other).num_parameters() == pytest.approx(network, rel=0.01)
        assert like_size(500, other) > 64


# Decoding.


@pytest.mark.parametrize("lookups", ["once", "parts"])
@pytest.mark.parametrize("readout", ["argmax", "mixture", "step:2"])
def test_beam_search_finds_the_best_path_of_all(readout: str, lookups: str) -> None:
    """On 5 nodes with at most 3 in between, every path can be scored."""
    torch.manual_seed(2)
    model = PathsModel(5, tiny(stop_bias=-0.5, lookups=lookups)).eval()
    emit = Emit(torch.ones(5, 5, dtype=torch.bool), False, most_nodes=4)
    with torch.inference_mode():
        found = answer(model, torch.tensor([0]), torch.tensor([4]), emit, readout, 100)
        chances = {}
        for count in (1, 2, 3):
            for inner in itertools.permutations((1, 2, 3), count):
                path = (0, *inner, 4)
                if lookups == "parts":
                    each = [part_log_p(model, part, readout) for part in parts(path)]
                    chances[path] = sum(each) / len(each)
                    continue
                reading = model.read(lay_out([path], 5))
                log_weights_TB = step_weights(reading.inference, readout).log()
                chances[path] = float(torch.logsumexp(log_weights_TB + reading.log_p_TP, dim=0))
    best = max(chances.values())
    path = tuple(n for n in found.paths_BL[0].tolist() if n >= 0)
    assert chances[path] == pytest.approx(best, abs=1e-4)
    assert float(found.log_p_B[0]) == pytest.approx(best, abs=1e-4)
    if readout == "step:2":
        assert found.step_B.tolist() == [2]


def test_decoding_keeps_the_rules_of_the_task(data: PathsData) -> None:
    model = PathsModel(40, tiny()).eval()
    starts = torch.tensor([path[0] for path in data.test])
    ends = torch.tensor([path[-1] for path in data.test])
    for width in (1, 3):
        with torch.inference_mode():
            found = answer(model, starts, ends, Emit.of(data, "any"), "argmax", width)
        for row, start, end in zip(found.paths_BL.tolist(), starts, ends, strict=True):
            path = [node for node in row if node >= 0]
            assert path[0] == start and path[-1] == end and len(path) >= 3
            assert len(set(path)) == len(path)


def test_decoding_can_be_kept_to_what_was_seen(data: PathsData) -> None:
    unseen = 11
    train = [path for path in data.train if unseen not in path]
    part = PathsData(data.graph, train, data.valid, data.test, 3)
    model = PathsModel(40, tiny()).eval()
    with torch.no_grad():
        model.symbols.bias_GS[:, unseen] = 50.0
    queries = [p for p in data.valid + data.test if unseen not in (p[0], p[-1])]
    starts, ends = (np.array([path[place] for path in queries]) for place in (0, -1))
    loose = solver(model, Emit.of(part, "any"), "argmax", 1)(starts, ends)[0]
    tight = solver(model, Emit.of(part, "seen_nodes"), "argmax", 1)(starts, ends)[0]
    assert (loose == unseen).any(axis=1).all() and not (tight == unseen).any()
    along = solver(model, Emit.of(part, "seen_edges"), "argmax", 8)(starts, ends)[0]
    hops = [hop for row in along.tolist() for hop in itertools.pairwise(n for n in row if n >= 0)]
    assert np.mean([part.seen_edges[hop] for hop in hops]) > 0.8


@pytest.mark.parametrize("lookups", ["once", "parts"])
def test_the_only_path_that_is_allowed_is_the_answer(lookups: str) -> None:
    allowed = torch.zeros(5, 5, dtype=torch.bool)
    for hop in ((0, 2), (2, 1), (1, 4), (3, 4)):
        allowed[hop] = True
    emit = Emit(allowed, True, most_nodes=4)
    for seed in range(5):
        torch.manual_seed(seed)
        model = PathsModel(5, tiny(lookups=lookups)).eval()
        with torch.inference_mode():
            found = answer(model, torch.tensor([0]), torch.tensor([4]), emit, "argmax", 60)
        assert [node for node in found.paths_BL[0].tolist() if node >= 0] == [0, 2, 1, 4]


def test_search_ends_when_everything_is_forbidden(data: PathsData) -> None:
    model = PathsModel(40, tiny()).eval()
    nothing = Emit(torch.zeros(40, 40, dtype=torch.bool), True, most_nodes=4)
    start, end = torch.tensor([0]), torch.tensor([9])
    with torch.inference_mode():
        found = answer(model, start, end, nothing, "argmax", 1)
    assert found.paths_BL.shape[1] <= 6


# Evaluation.


def test_judging_by_cost_and_connection(data: PathsData) -> None:
    graph, path = data.graph, next(p for p in data.test if len(p) == 4)
    broken = (path[0], path[-1], -1, -1)
    correct, valid = judge(graph, np.array([path, broken]))
    assert correct.tolist() == [True, False] and valid.tolist() == [True, False]


def test_a_detour_is_valid_but_not_correct(data: PathsData) -> None:
    graph = data.graph
    for path in data.test:
        for node in range(graph.num_nodes):
            detour = (path[0], node, *path[1:])
            if node not in path and graph.cost(detour) is not None:
                correct, valid = judge(graph, np.array([detour]))
                assert valid[0] and not correct[0]
                return
    pytest.fail("no detour in this graph")


def test_counts_add_up(data: PathsData) -> None:
    def oracle(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.full((len(starts), 12), -1)
        for row, start, end in zip(rows, starts.tolist(), ends.tolist(), strict=True):
            path = data.graph.shortest(start, end)
            row[: len(path)] = path
        return rows, np.arange(len(starts)) % 2 + 1

    result = evaluate(oracle, data.graph, data.test, "test")
    assert result.all == Count(30, 30, 30)
    assert sum(count.total for count in result.by_hops.values()) == 30
    assert result.by_step[1].total == result.by_step[2].total == 15


def test_dynamic_programming_uses_only_seen_edges_and_fewest_hops(data: PathsData) -> None:
    starts, ends = (np.array([path[place] for path in data.test]) for place in (0, -1))
    rows, _ = dynamic_programming(data)(starts, ends)
    for row, truth in zip(rows.tolist(), data.test, strict=True):
        path = [node for node in row if node >= 0]
        if len(path) > 2:
            assert all(data.seen_edges[hop] for hop in itertools.pairwise(path))
            known = all(data.seen_edges[hop] for hop in itertools.pairwise(truth))
            assert not known or len(path) <= len(truth)


# Runs.


def test_training_learns(run: PathsRun, data: PathsData) -> None:
    counts = run.evaluate("train").all
    assert counts.correct > counts.total / 3  # of 120; chance is far below one
    assert run.record["data"]["instances"] == len(training_paths(data.train, True))
    assert run.record["task"] == "paths"


def test_a_resumed_training_is_the_uninterrupted_one(
    run: PathsRun, data: PathsData, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def stop_half_way(progress: Progress, total: int, share: float) -> None:
        if progress.step == total // 2 + 3:
            raise Stop

    with pytest.raises(Stop):
        Trainer(PathsTask(data, tiny()), RunFolder(tmp_path / "half"), stop_half_way).fit()
    resumed = api.resume(tmp_path / "half")
    whole, again = (load_tensors(r.folder.state)[0] for r in (run, resumed))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    "changes", [{"system": "seq2seq"}, {"controller": "mlp", "max_steps": 2}, {"max_steps": 1}]
)
def test_the_other_systems_use_the_same_trainer(
    data: PathsData, tmp_path: Path, changes: dict[str, object]
) -> None:
    trained = api.train(data, tiny(epochs=2, **changes), task="paths", out=tmp_path / "run")
    steps = 2 if "controller" in changes else 1
    result = trained.evaluate("valid")
    assert set(result.by_step) == {steps} and trained.steps == steps
    assert "valid: argmax, beam 4, any" in read_json(trained.folder.record)["evaluations"]
    with pytest.raises(EkgnError, match=f"with N from 1 to {steps}"):
        trained.decoding(f"step:{steps + 1}")


def test_answers_and_evaluation_agree(run: PathsRun) -> None:
    result = run.evaluate("test")
    how = run.decoding()
    starts, ends = (np.array([path[place] for path in run.data.test]) for place in (0, -1))
    together = ask(run.model, run.emit(how), how.readout, how.beam, starts, ends)
    alone = [run.answer(path[0], path[-1]) for path in run.data.test]
    # Alone, a question may get another path than among others only if both are as likely.
    others = 0
    for row, log_p, found in zip(together.paths_BL, together.log_p_B, alone, strict=True):
        assert found.probability == pytest.approx(float(log_p.exp()), rel=1e-3)
        others += plain_path(row.tolist()) != found.route.path
    assert abs(sum(found.route.correct for found in alone) - result.all.correct) <= others
    valid = sum(found.route.cost is not None for found in alone)
    assert abs(valid - result.all.valid) <= others < len(alone) / 3
    assert run.record["evaluations"]["test: argmax, beam 4, any"]["all"]["total"] == 30


def test_an_explanation_tells_every_step(run: PathsRun) -> None:
    path = run.data.test[0]
    told = run.explain(path[0], path[-1])
    assert [step.step for step in told.steps] == [1, 2, 3]
    assert sum(step.stop_weight for step in told.steps) == pytest.approx(1, abs=1e-5)
    assert told.steps[-1].stop_probability == 1
    assert told.answer == run.answer(path[0], path[-1]).route
    assert told.shortest.path == path and told.shortest.correct
    for step in told.steps:
        assert (step.route.cost is None) == bool(step.route.reason)
        assert str(step.route) == words(step.route.path)
        for node in step.route.nodes:
            assert (node.x, node.y, node.z) == tuple(run.data.graph.points[node.node])
    assert told.as_dict()["steps"][0]["route"]["nodes"][0]["node"] == path[0]


def test_a_missing_edge_is_named(run: PathsRun) -> None:
    from ekgn.paths.explain import route

    path = next(p for p in run.data.test if len(p) == 4)
    broken = route(run.data.graph, (path[0], path[-1]))
    assert broken.cost is None and broken.reason == f"no edge {path[0]} → {path[-1]}"


def test_bad_requests_to_a_run_are_answered_clearly(run: PathsRun, family_run: Path) -> None:
    with pytest.raises(EkgnError, match="both node 3"):
        run.explain(3, 3)
    with pytest.raises(EkgnError, match="Node 99 is not in the graph"):
        run.answer(99, 3)
    with pytest.raises(EkgnError, match="beam = 0: expected 1"):
        run.decoding(beam=0)
    with pytest.raises(EkgnError, match="emit = 'edges': expected any, seen_nodes, seen_edges"):
        run.decoding(emit="edges")
    with pytest.raises(EkgnError, match="run of task 'kbc', and this needs one of 'paths'"):
        PathsRun.load(family_run)


def test_pictures_show_the_graph_and_each_step(run: PathsRun) -> None:
    path = run.data.test[0]
    figure = explanation_picture(run.explain(path[0], path[-1]), run.data.graph)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0].startswith("shortest path") and titles[1].startswith("step 1: stop")
    assert any("answered" in title for title in titles)
    picture = sphere_picture(run.data.graph, run.data.train)
    assert "40 nodes, k = 6" in picture.axes[0].get_title()
