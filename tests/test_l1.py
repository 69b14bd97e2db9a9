"""The fused L1 distances agree with slow loops, with torch, and with themselves."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from ekgn.errors import EkgnError
from ekgn.network import l1
from ekgn.network.l1 import l1_distances, l1_pairs

pytestmark = pytest.mark.numerical


@pytest.fixture
def numba_kernels() -> None:
    pytest.importorskip("numba", reason="numba is optional; without it torch.cdist is used")


@pytest.fixture
def two_threads(numba_kernels: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Even small inputs go through numba's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(l1, "_SMALL", 0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)
    l1._numba.cache_clear()
    yield
    l1._numba.cache_clear()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def gradients(distances: Tensor, sides: list[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(distances, sides, weights)


def broadcast(outputs: Tensor, rows: Tensor) -> Tensor:
    return (outputs - rows).abs().sum(-1)


def test_distances_match_a_slow_loop() -> None:
    outputs, table = random(3, 4), random(5, 4, seed=1)
    distances = l1_distances(outputs, table)
    for b, output in enumerate(outputs.tolist()):
        for n, row in enumerate(table.tolist()):
            by_hand = sum(abs(x - y) for x, y in zip(output, row, strict=True))
            assert distances[b, n].item() == pytest.approx(by_hand, rel=1e-6)


def test_a_distance_and_its_gradient_by_hand() -> None:
    sides = leaves(torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.0, 3.0, 0.5]]))
    distances = l1_distances(*sides)
    assert distances.item() == 6.0
    of_outputs, of_table = gradients(distances, sides, torch.tensor([[2.0]]))
    assert of_outputs.tolist() == [[2.0, -2.0, 0.0]]
    assert of_table.tolist() == [[-2.0, 2.0, 0.0]]


# 37 and 16 cross and meet the edge of a block of rows; 7 and 100 leave a vector's remainder.
@pytest.mark.parametrize("shape", [(37, 23, 100), (16, 1, 7), (1, 40, 1), (64, 64, 8)])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_and_gradients_match_cdist(
    shape: tuple[int, int, int], threads: int, request: pytest.FixtureRequest
) -> None:
    if threads == 2:
        request.getfixturevalue("two_threads")
    batch, candidates, width = shape
    outputs, table = random(batch, width), random(candidates, width, seed=1)
    weights = random(batch, candidates, seed=2)
    ours, theirs = leaves(outputs, table), leaves(outputs, table)
    distances, expected = l1_distances(*ours), torch.cdist(theirs[0], theirs[1], p=1.0)
    torch.testing.assert_close(distances, expected)
    assert_same_gradients(gradients(distances, ours, weights), gradients(expected, theirs, weights))


def assert_same_gradients(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    """Equal but for the order of the sums."""
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


def test_leading_dimensions_are_kept() -> None:
    outputs, table = random(5, 3, 2, 10), random(7, 10, seed=1)
    distances = l1_distances(outputs, table)
    assert distances.shape == (5, 3, 2, 7)
    torch.testing.assert_close(distances, broadcast(outputs.unsqueeze(-2), table))
    torch.testing.assert_close(l1_distances(outputs[0, 0, 0], table), distances[0, 0, 0])


@pytest.mark.parametrize("shape", [(0, 5, 4), (3, 0, 4), (0, 0, 4), (3, 5, 0)])
@pytest.mark.parametrize("fallback", [False, True])
def test_empty_sides_give_empty_or_zero_distances(
    shape: tuple[int, int, int], fallback: bool, request: pytest.FixtureRequest
) -> None:
    if fallback:
        request.getfixturevalue("without_numba")
    batch, candidates, width = shape
    sides = leaves(torch.ones(batch, width), torch.ones(candidates, width))
    distances = l1_distances(*sides)
    assert torch.equal(distances, torch.zeros(batch, candidates))
    for side, gradient in zip(
        sides, gradients(distances, sides, torch.ones_like(distances)), strict=True
    ):
        assert torch.equal(gradient, torch.zeros_like(side))


def test_non_contiguous_inputs_and_incoming_gradient() -> None:
    outputs, table = random(10, 6), random(10, 8, seed=1)
    weights = random(4, 6, seed=2)
    ours, theirs = leaves(outputs, table), leaves(outputs, table)
    distances = l1_distances(ours[0].t(), ours[1].t()[::2]).t()
    expected = torch.cdist(theirs[0].t(), theirs[1].t()[::2], p=1.0).t()
    torch.testing.assert_close(distances, expected)
    assert_same_gradients(gradients(distances, ours, weights), gradients(expected, theirs, weights))


def test_an_expanded_incoming_gradient() -> None:
    outputs, table = leaves(random(6, 5), random(4, 5, seed=1))
    ours = gradients(l1_distances(outputs, table), [outputs, table], torch.ones(()).expand(6, 4))
    signs = (outputs[:, None] - table).sign()
    assert_same_gradients(ours, (signs.sum(1), -signs.sum(0)))


def test_equal_coordinates_pass_no_gradient() -> None:
    same = random(6, 9)
    sides = leaves(same, same)
    distances = l1_distances(*sides)
    assert torch.equal(distances.diagonal(), torch.zeros(6))
    for gradient in gradients(distances, sides, torch.eye(6)):
        assert torch.equal(gradient, torch.zeros(6, 9))


@pytest.mark.parametrize("side", [0, 1])
def test_either_side_may_be_fixed(side: int) -> None:
    both = leaves(random(6, 5), random(4, 5, seed=1))
    weights = random(6, 4, seed=2)
    expected = gradients(l1_distances(*both), both, weights)[side]
    one = [both[0].detach(), both[1].detach()]
    one[side].requires_grad_()
    torch.testing.assert_close(gradients(l1_distances(*one), [one[side]], weights)[0], expected)


def test_not_a_number_stays_visible() -> None:
    outputs, table = random(20, 100), random(5, 100, seed=1)
    outputs[3, 50], outputs[4, 99] = float("nan"), float("inf")
    distances = l1_distances(outputs, table)
    assert distances[3].isnan().all()
    assert distances[4].isinf().all()
    assert distances[5:].isfinite().all()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_input_gives_the_same_bits(threads: int, request: pytest.FixtureRequest) -> None:
    if threads == 2:
        request.getfixturevalue("two_threads")
    weights = random(200, 150, seed=2)
    runs = []
    for _ in range(5):
        sides = leaves(random(200, 100), random(150, 100, seed=1))
        distances = l1_distances(*sides)
        runs.append((distances, *gradients(distances, sides, weights)))
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[0], run, strict=True))


def test_several_callers_at_once(two_threads: None) -> None:
    outputs, table = random(100, 100), random(80, 100, seed=1)
    expected = l1_distances(outputs, table)
    with ThreadPoolExecutor(4) as callers:
        answers = list(callers.map(lambda _: l1_distances(outputs, table), range(40)))
    assert all(torch.equal(answer, expected) for answer in answers)


def test_pairs_of_steps_with_one_row_each() -> None:
    check_pairs(random(5, 30, 100), random(30, 100, seed=1), fused=True)


def test_pairs_of_steps_with_the_negatives_of_each_example() -> None:
    check_pairs(random(5, 9, 1, 100), random(9, 20, 100, seed=1), fused=True)


@pytest.mark.parametrize(
    ("outputs", "rows", "fused"),
    [
        ((4, 3, 2, 6), (3, 2, 6), True),  # two shared dimensions
        ((5, 1, 6), (1, 6), True),  # one pair: a single row reads as a single candidate
        ((1, 6), (4, 6), True),
        ((3, 1, 6), (0, 6), True),
        ((5, 0, 6), (0, 6), True),
        ((3, 6), (6,), True),
        ((6,), (6,), True),
        ((6,), (4, 6), False),
        ((5, 3, 6), (1, 3, 6), False),
        ((3, 6), (5, 3, 6), False),
        ((5, 3, 1, 6), (1, 4, 6), False),
        ((1, 3, 1, 6), (5, 3, 4, 6), False),
    ],
)
def test_pairs_of_any_shape_broadcast_as_torch_does(
    outputs: tuple[int, ...], rows: tuple[int, ...], fused: bool
) -> None:
    check_pairs(random(*outputs), random(*rows, seed=1), fused)


def check_pairs(outputs: Tensor, rows: Tensor, fused: bool) -> None:
    ours, theirs = leaves(outputs, rows), leaves(outputs, rows)
    distances, expected = l1_pairs(*ours), broadcast(*theirs)
    torch.testing.assert_close(distances, expected)
    weights = random(*expected.shape, seed=2)
    assert_same_gradients(gradients(distances, ours, weights), gradients(expected, theirs, weights))
    if l1._numba() is not None:
        went_through_kernels = "_Distances" in graph_names(l1_pairs(*ours))
        assert went_through_kernels == fused


def graph_names(tensor: Tensor) -> str:
    """The names of the last two operations that made a tensor."""
    last = tensor.grad_fn
    assert last is not None
    return " ".join([last.name(), *(node.name() for node, _ in last.next_functions if node)])


def test_pairs_that_do_not_broadcast_are_refused_by_torch() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        l1_pairs(random(5, 3, 6), random(4, 6))


def test_double_precision_gradients_by_finite_differences() -> None:
    outputs, table = leaves(random(3, 4).double(), random(5, 4, seed=1).double())
    assert torch.autograd.gradcheck(l1_distances, (outputs, table))
    assert torch.autograd.gradcheck(l1_pairs, (outputs.unsqueeze(-2), table))


def test_without_numba_torch_answers_and_the_log_says_so(
    without_numba: None, caplog: pytest.LogCaptureFixture
) -> None:
    outputs, table = random(2, 3, 10), random(4, 10, seed=1)
    with caplog.at_level(logging.INFO, logger=l1.__name__):
        distances, pairs = l1_distances(outputs, table), l1_pairs(outputs, table[:3])
    torch.testing.assert_close(distances, torch.cdist(outputs, table, p=1.0))
    torch.testing.assert_close(pairs, broadcast(outputs, table[:3]))
    assert "fall back to torch.cdist" in caplog.text


def test_numba_is_not_imported_before_the_first_call() -> None:
    code = "import sys, ekgn.network.l1; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_second_compilation_comes_from_disk(numba_kernels: None) -> None:
    l1_distances(random(2, 3), random(2, 3))
    again = l1._compile(l1._distance_block, on_disk=True)
    assert sum(again.stats.cache_hits.values()) == 1


def test_a_machine_without_a_place_for_the_kernel_compiles_in_memory(
    numba_kernels: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def compile_in_memory_only(block: object, on_disk: bool) -> str:
        tried.append(on_disk)
        if on_disk:
            raise RuntimeError("cannot cache function: no locator available")
        return "in memory"

    monkeypatch.setattr(l1, "_compile", compile_in_memory_only)
    assert l1._kernel.__wrapped__(l1._distance_block) == "in memory"
    assert tried == [True, False]


@pytest.mark.parametrize("distance", [l1_distances, l1_pairs])
def test_different_widths_are_refused(distance: object) -> None:
    assert callable(distance)
    with pytest.raises(EkgnError) as caught:
        distance(random(2, 100), random(5, 64))
    assert str(caught.value) == (
        "Cannot take distances from outputs of shape (2, 100) to rows of shape (5, 64): "
        "the last dimensions must be equal. "
        "Give the decoder's output and the entity table the same width."
    )


def test_a_table_that_is_not_a_matrix_is_refused() -> None:
    with pytest.raises(EkgnError) as caught:
        l1_distances(random(2, 4), random(2, 5, 4))
    assert str(caught.value) == (
        "The table has shape (2, 5, 4), expected (rows, width); "
        "use l1_pairs for rows that differ from example to example."
    )
