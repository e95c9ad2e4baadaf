"""Time of the sanitizer on programs of v5: all checks, and the checks without layouts.

    python -m benchmarks.sanitizer [NETWORK ...] [--runs N]

Prints the commands, the milliseconds of processor time with and without layouts, and their ratio,
for all regions of each network. Decoding is included in both. The times are the shortest of the
runs, which alternate.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from benchmarks import measuring
from byoc.compiler import compile
from experiments.running.network import load_network
from isa.arch import Arch, PeArray
from isa.program import Program
from isa.sanitizer import sanitize

NETWORKS = (
    "mobilenet-v1",
    "visual-wake-words",
    "lstm-small",
    "resnet-8",
    "vit-tiny",
    "keyword-spotting",
)
ARCH = Arch(isa="v5", pe=PeArray(ic=16, oc=16), sram_bytes=1 << 19)


def sanitize_all(programs: list[Program], stated: bool) -> None:
    """Sanitize copies of programs with undecoded words, with or without their data flow."""
    for one in programs:
        sanitize(replace(one, dataflow=one.dataflow if stated else None))


def main() -> None:
    """Print the sanitizer's times for each network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    print(measuring.settings())
    for name in options.networks:
        programs = list(compile(load_network(name).package, ARCH).programs.values())
        works = [partial(sanitize_all, programs, stated) for stated in (True, False)]
        whole, plain = measuring.in_turns(works, options.runs)
        count = sum(len(program.words) for program in programs)
        print(
            f"{name:20} {count:6} words {1e3 * whole:8.1f} ms, without layouts "
            f"{1e3 * plain:8.1f} ms, ratio {whole / plain:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
