"""Compare the processor time of whole commands with that of bare Python processes.

    python -m benchmarks.start [--rounds 3]

``dla run`` with an imported network in the cache is compared with the imports of its libraries,
``dla --help`` with a Python process that does nothing. The processes take turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.inference import DLA, cold

PAIRS = (
    (("run", "mobilenet-v1"), "import numpy, onnx, onnxruntime"),
    (("--help",), "pass"),
)
"""Commands, and the Python statements that each is compared with."""


def ratios(rounds: int = 3) -> Iterator[measuring.RatioRow]:
    """Yield the processor time of each command over that of its bare statement."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLA_CACHE_DIR"] = os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        for command, statement in PAIRS:
            pair = (*DLA, *command), (sys.executable, "-c", statement)
            for arguments in pair:
                cold(*arguments)  # fill the caches
            taken = zip(*([cold(*words)[0] for words in pair] for _ in range(rounds)), strict=True)
            value, base = map(min, taken)
            name = f"`dla {' '.join(command)}`"
            yield measuring.RatioRow(name, f"`python -c '{statement}'`", value / base)


def main() -> None:
    """Print the ratio of each command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(measuring.settings())
    for one in ratios(rounds):
        print(f"{one.measured:22} {one.ratio:6.2f} x {one.reference}", flush=True)


if __name__ == "__main__":
    main()
