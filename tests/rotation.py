"""Rotation of drawn cases between the quick set and the slow set.

The quick set runs some cases of a test, the slow set all others. Each change of CHANGELOG.md
rotates the cases, so that quick runs of many versions together run all of them. Slow tests that
take long also run only some of their cases for a version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
TURN = crc32(CHANGELOG.read_bytes())
"""Number that chooses the quick cases; the same for one version of the project."""


def rotate(cases: Sequence[Any], share: int, turn: int = TURN) -> list[Any]:
    """Return test parameters of which one in ``share`` is quick and the others are slow.

    A case that is a tuple has several parameters.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.slow] * ((index - turn) % share != 0),
        )
        for index, case in enumerate(cases)
    ]


def rotate_parts(cases: Sequence[Any], share: int, turn: int = TURN) -> list[Any]:
    """Return test parameters of which one in ``share`` is quick and one is slow.

    The other cases wait for their turn. Quick cases of ``share`` turns are all cases. If ``share``
    has no factor in common with the lengths of a product, each turn has all kinds of cases.
    """
    parts = rotate(cases, share, turn)
    return [part for index, part in enumerate(parts) if (index - turn) % share in (0, share // 2)]


def choose_cases(cases: Sequence[Any], share: int, turn: int = TURN) -> list[Any]:
    """Return one case in ``share``, for slow tests that take minutes if they run all."""
    return [case for index, case in enumerate(cases) if (index - turn) % share == 0]
