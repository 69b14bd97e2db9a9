"""Settings: one definition, its presets, files and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ekgn.config import Settings
from ekgn.errors import EkgnError
from ekgn.kbc.settings import KbcSettings


def test_the_defaults_are_the_paper() -> None:
    paper = KbcSettings.build("paper")
    assert paper == KbcSettings()
    assert (paper.embedding_dim, paper.num_slots, paper.max_steps) == (100, 64, 5)
    assert (paper.sharpness, paper.distance_scale, paper.negatives) == (10.0, 5.0, 20)
    assert (paper.optimizer, paper.learning_rate, paper.batch_size) == ("sgd", 0.01, 64)
    assert paper.objective == "expected" and paper.first_answer == "concatenation"
    assert not (paper.step_loss or paper.penalty or paper.has_product)
    assert KbcSettings.build("paper-log").changes_of("paper") == {"objective": "log"}


@pytest.mark.parametrize("preset", KbcSettings.PRESETS)
def test_every_preset_is_valid_and_documented(preset: str) -> None:
    KbcSettings.build(preset)
    assert all(field.description for field in KbcSettings.model_fields.values())


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('preset = "paper"\nnum_slots = 32\nmax_steps = 3\n')
    settings = KbcSettings.build(None, file, {"max_steps": 2})
    assert (settings.num_slots, settings.max_steps, settings.negatives) == (32, 2, 20)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_slot": 3}, r"Unknown setting 'num_slot'. Did you mean 'num_slots'\?"),
        ({"num_slots": 0}, r"num_slots = 0: Input should be greater than or equal to 1"),
        ({"num_slots": "many"}, r"num_slots = 'many': .*valid integer"),
        ({"first_answer": "sum"}, r"first_answer = 'sum': Input should be 'concatenation', 'dist"),
        ({"readout": "best"}, r"Unknown readout 'best': expected argmax, mixture"),
        ({"readout": "step:9"}, r"step:N with N from 1 to 5"),
    ],
)
def test_a_bad_setting_is_one_clear_error(values: dict[str, object], message: str) -> None:
    with pytest.raises(EkgnError, match=message):
        KbcSettings.build("paper", None, values)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(EkgnError, match=r"Unknown preset 'papers'. Did you mean 'paper'.*auto"):
        KbcSettings.build("papers")


def test_a_missing_or_broken_settings_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(EkgnError, match=r"No settings file .*gone.toml"):
        Settings.build(file=tmp_path / "gone.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("num_slots = = 3")
    with pytest.raises(EkgnError, match=r"broken.toml is not valid TOML"):
        Settings.build(file=broken)
