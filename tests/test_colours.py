"""The explorer's series colours can be told apart, with any common kind of colour vision.

A deficiency is simulated by its matrix in linear RGB (Machado, Oliveira and Fernandes 2009, full
severity); colours are as far apart as CIE 1976 says (ΔE in L*a*b*).
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import ekgn.web

Floats = NDArray[np.float64]
CSS = (Path(ekgn.web.__file__).parent / "static/css/base.css").read_text()
VISIONS = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
APART = 20.0  # several times what one just notices, side by side


def linear(colour: str) -> Floats:
    """A colour like #1f6a6e in linear RGB."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    """L*a*b* of linear RGB, by the white of a screen."""
    x, y, z = TO_XYZ @ rgb.clip(0, 1) / TO_XYZ.sum(axis=1)
    f, g, h = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z))
    return np.array([116 * g - 16, 500 * (f - g), 200 * (g - h)])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG defines it."""
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def themes() -> list[dict[str, str]]:
    """The colours of each theme by name."""
    blocks = [block for block in CSS.split("}") if "--c1:" in block]
    return [dict(re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", block)) for block in blocks]


def test_white_is_white_and_black_is_black() -> None:
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=0.02)
    assert lab(linear("#000000")) == pytest.approx([0, 0, 0], abs=0.02)
    assert contrast("#ffffff", "#000000") == pytest.approx(21)


@pytest.mark.parametrize("vision", VISIONS)
def test_series_can_be_told_apart(vision: str) -> None:
    assert len(themes()) == 3, "light, dark, dark by the system"
    for theme in themes():
        seen = {
            name: lab(np.array(VISIONS[vision]) @ linear(colour))
            for name, colour in theme.items()
            if re.fullmatch(r"c\d", name)
        }
        assert len(seen) == 6
        for one, other in itertools.combinations(seen, 2):
            apart = float(np.linalg.norm(seen[one] - seen[other]))
            assert apart >= APART, f"{one} and {other} are {apart:.1f} apart"


def test_series_stand_out_from_what_is_behind() -> None:
    for theme in themes():
        for name in (f"c{number}" for number in range(1, 7)):
            assert contrast(theme[name], theme["card"]) >= 3, name
