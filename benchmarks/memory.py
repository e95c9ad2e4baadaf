"""Measure the peak memory of ``dla run`` on large networks, without and with a cache.

Each run has its own process.

    python -m benchmarks.memory [NETWORK ...]

By default VGG-19 (144 M weights) and MobileNetV1 on an image of 1,792 x 1,792
(``mobilenet-v1-1792``), each once: first with an empty cache, which imports and quantises, then
with what that left there. The peak is what the system calls maximum resident set size: all pages of
the process that were in memory at a time, shared libraries included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import measuring
from benchmarks.inference import DLA, cold

BUILD = """
import onnx, sys
from experiments.models.builder import NetworkBuilder
from experiments.models.classifiers import mobilenet_v1_blocks
net = NetworkBuilder("mobilenet-v1-1792", "image", (1, 3, 1792, 1792), 0)
onnx.save(net.classifier(mobilenet_v1_blocks(net, "image")[-1], (1024, 1000)), sys.argv[1])
"""
LARGE = "mobilenet-v1-1792"


def measure(network: str, folder: Path) -> None:
    """Print the processor time and peak memory of a network without and with a cache.

    The model is built by another process, whose memory is not counted.
    """
    model = network
    if network == LARGE:
        model = str(folder / f"{LARGE}.onnx")
        subprocess.run([sys.executable, "-c", BUILD, model], check=True)
    for label in ("empty cache", "its cache"):
        processor, mebibytes = cold(*DLA, "run", model, "--max-memory", "64G")
        print(
            f"{network:20} {label:12} {mebibytes:6.0f} MiB peak, {processor:6.1f} s of processor "
            "time"
        )


def main() -> None:
    """Print the settings, then two lines per network: without and with a cache."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=["light-vgg19", LARGE], metavar="NETWORK")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLA_CACHE_DIR"] = folder
        for network in options.networks:
            measure(network, Path(folder))
    print(measuring.settings())
    print(
        "left out   nothing of the process; times are of one run each, and only to tell the runs "
        "apart"
    )


if __name__ == "__main__":
    main()
