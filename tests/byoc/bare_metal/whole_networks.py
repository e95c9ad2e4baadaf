"""Run whole networks from their bundles on the host and on emulated microcontrollers.

``python -m tests.byoc.bare_metal.whole_networks [NAME ...]`` prints a line for each network and
processor. The exit status is 1 if an output or a cycle differs from ``dla run``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from experiments.cli.main import main as run_dla
from tests.byoc.bare_metal.images import MACHINES, build_bundle, build_image
from tests.byoc.bare_metal.served import REGISTERS, Served

NETWORKS = {
    "digits-cnn": (), "autoencoder": (), "keyword-spotting": (), "resnet-8": (),
    "visual-wake-words": (), "mobilenet-v1": (),
    "shufflenet-v2": ("--cpu", "stage2_0_shuffle"),  # a transposition on the CPU
    "gpt2-1": (),
}  # fmt: skip
"""Networks of the list of issue 49, with further options of the export."""
PRINT = f"-DDLA_PRINT={REGISTERS + 0x1000:#x}u"


def run_network(name: str, processors: list[str]) -> bool:
    """Export a network once and run it on every processor; return whether all are equal."""
    equal = True
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = ["export", "--bare-metal", name, *NETWORKS[name], "-o", place, "--quiet"]
        if run_dla(words) != 0:
            return False
        for processor in processors:
            if processor == "host":
                found = Served().run_library(build_bundle(folder))
            else:
                found = Served().run_image(processor, build_image(processor, folder, PRINT))
            print(f"{processor:10} {found.text.strip()}", flush=True)
            equal &= found.status == 0
    return equal


def main() -> int:
    """Run the networks that the command line names, by default all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--processors", nargs="+", default=["host", *MACHINES])
    given = parser.parse_args()
    equal = [run_network(name, given.processors) for name in given.names]
    return int(not all(equal))


if __name__ == "__main__":
    raise SystemExit(main())
