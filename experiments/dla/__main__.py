"""The ``dla`` command, as it is installed and as ``python -m dla``: its packages are claimed before it begins."""

from __future__ import annotations

import sys

from experiments.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
