"""The ``dla`` command, as it is installed and as ``python -m dla``: its packages are claimed before it begins."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.cli import main as command
from experiments.interruption import ending


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own), as the process that this is; the exit status."""
    with ending():
        return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
