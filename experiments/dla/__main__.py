"""Entry point of the ``dla`` command, installed or as ``python -m dla``.

Python imports the package ``dla`` first, which loads the project's packages from their own folder.
"""

import sys
from collections.abc import Sequence

from experiments.cli import main as command
from experiments.interruption import end_on_interrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    The default is the process's own command line. Ctrl-C ends the process.
    """
    with end_on_interrupt():
        return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
