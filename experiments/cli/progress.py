"""What a command is doing, shown while it does it: on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]


@contextmanager
def stages() -> Iterator[Progress]:
    """A function that names the current stage; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(stage)
