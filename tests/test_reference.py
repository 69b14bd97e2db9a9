"""The yardstick for speed computes what the package computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ekgn.kbc.batches import Batch
from ekgn.kbc.model import KbcModel, Output
from ekgn.kbc.settings import KbcSettings

pytestmark = pytest.mark.numerical

FILE = Path(__file__).parent.parent / "benchmarks" / "reference.py"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("preset", ["paper", "paper-log"])
def test_the_plain_transcription_has_the_loss_and_gradients_of_the_package(
    reference: ModuleType, preset: str
) -> None:
    torch.manual_seed(0)
    settings = KbcSettings.build(preset, overrides={"embedding_dim": 6, "num_slots": 5})
    model = KbcModel(30, 3, settings)
    plain = reference.ReferenceModel(30, 3, settings)
    network = model.network
    assert isinstance(network.decoder, Output)
    pairs = [
        (plain.entities.weight, model.entities.weight),
        (plain.relations.weight, model.relations.weight),
        (plain.answers.weight, model.answers.weight),
        (plain.memory, network.memory.slots_MH),
        (plain.key.weight, network.memory.key.weight),
        (plain.query.weight, network.memory.query.weight),
        *zip(plain.cell.parameters(), network.controller.cell.parameters(), strict=True),
        *zip(plain.stop.parameters(), network.termination.gate.parameters(), strict=True),
        *zip(plain.output.parameters(), network.decoder.output.parameters(), strict=True),
    ]
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.copy_(ours)
    heads, relations = torch.randint(30, (8,)), torch.randint(6, (8,))
    tails, negatives = torch.randint(15, (8,)), torch.randint(15, 30, (8, 4))
    none = torch.empty(0, dtype=torch.int64)
    batch = Batch(heads, relations, tails, torch.arange(8), negatives, (none, none))
    here, there = model.loss(batch).total, plain.loss(heads, relations, tails, negatives)
    assert here.item() == pytest.approx(there.item(), rel=1e-5)
    here.backward()  # type: ignore[no-untyped-call]
    there.backward()
    for table in (model.entities, model.relations, model.answers):
        table.gather()
    for theirs, ours in pairs:
        assert ours.grad is not None and theirs.grad.any()
        assert torch.allclose(theirs.grad, ours.grad.to_dense(), atol=1e-6, rtol=1e-3)
