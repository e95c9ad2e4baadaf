"""Which copy of the project runs: an installed one knows nothing of what somebody edits in a checkout."""

from __future__ import annotations

from pathlib import Path

import isa

HOME = Path(isa.__file__).resolve().parents[1]
"""The folder of the packages that run."""
_MARKS = ("pyproject.toml", "isa/__init__.py", "byoc/__init__.py", "dla_sim/__init__.py", "experiments/dla/__init__.py")


def other_checkout(folder: Path) -> Path | None:
    """The checkout of this project around ``folder``, if it is another copy than the one that runs."""
    for place in (folder, *folder.parents):
        if all((place / mark).is_file() for mark in _MARKS):
            return None if place == HOME else place
    return None
