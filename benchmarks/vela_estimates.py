"""Run Arm's Vela on TensorFlow Lite files and read its estimates."""

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.vela_records import DEDICATED, SHARED, Estimate, Estimates, Setting


@dataclass(frozen=True)
class Public:
    """TensorFlow Lite file in a GitHub repository, and whether it ends with a softmax."""

    repository: str
    path: str
    digest: str
    softmax: bool = True


_TINY = ("mlcommons/tiny", "benchmark/training")
_MICRO = ("tensorflow/tflite-micro", "tensorflow/lite/micro")


def _public(place: tuple[str, str], path: str, digest: str, softmax: bool = True) -> Public:
    return Public(place[0], f"{place[1]}/{path}", digest, softmax)


NETWORKS: Mapping[str, Public] = {
    "keyword-spotting": _public(
        _TINY,
        "keyword_spotting/trained_models/kws_ref_model.tflite",
        "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae",
    ),
    "visual-wake-words": _public(
        _TINY,
        "visual_wake_words/trained_models/vww_96_int8.tflite",
        "597a384c8c2c8a1276f04702f25013b7838f2f814f1ca7c174d295b73e3d6b7b",
    ),
    "person-detection": _public(
        _MICRO,
        "models/person_detect.tflite",
        "808cfdfc0cf3a6fa6f6fa26bfa379ea97c16d5db7334637766e39c3408502e9d",
    ),
    "streaming-wake-word": _public(
        _TINY,
        "streaming_wakeword/trained_models/str_ww_ref_model.tflite",
        "3af8550895ba7d5c584277102b5075c52dcfa63ba9d2b2240f37c4e6abd5dd2b",
    ),
    "micro-speech": _public(
        _MICRO,
        "examples/micro_speech/models/micro_speech_quantized.tflite",
        "09e5e2a9dfb2d8ed78802bf18ce297bff54281a66ca18e0c23d69ca14f822a83",
    ),
    "resnet-8": _public(
        _TINY,
        "image_classification/trained_models/pretrainedResnet_quant.tflite",
        "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
    ),
    "resnet-8-large": _public(
        _TINY,
        "image_classification/trained_models/pretrainedResnet_large_int8.tflite",
        "dc27dcd823f5665533352f7da516b0c9bc6f089914b8283782e55961b3423fcf",
    ),
    "autoencoder": _public(
        _TINY,
        "anomaly_detection/trained_models/ad01_int8.tflite",
        "87cf24194ef93d1d9b11a591d805526b98008e351655d29883c825c9c106ba24",
        softmax=False,
    ),
}

ACCELERATORS = {
    "ethos-u55-64": 64, "ethos-u55-128": 128, "ethos-u55-256": 256,
    "ethos-u85-128": 128, "ethos-u85-256": 256, "ethos-u85-1024": 1024,
}  # fmt: skip
"""Vela's configurations and their MACs a cycle."""
CONFIGURATION = """
[System_Config.machine]
core_clock=1e9
axi0_port=Sram
axi1_port=Dram
Sram_clock_scale=1.0
Sram_ports_used={ports}
Sram_burst_length={sram_burst}
Sram_read_latency=32
Sram_write_latency=32
Sram_max_reads=8
Sram_max_writes=8
Dram_clock_scale={scale}
Dram_ports_used=1
Dram_burst_length=64
Dram_read_latency=100
Dram_write_latency=100
Dram_max_reads=16
Dram_max_writes=16
[Memory_Mode.dedicated]
const_mem_area=Axi1
arena_mem_area=Axi1
cache_mem_area=Axi0
[Memory_Mode.shared]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
"""
"""The default timing in Vela's form: 8 bytes a cycle, bursts of 64, 16 in flight, latency 100.

The scratchpad has Arm's own figures.
"""


def find_files(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Find the networks' model files in a folder by their contents.

    Exits with a line that names the first missing.
    """
    digests = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path
        for path in sorted(folder.rglob("*.tflite"))
    }
    for name in names:
        public = NETWORKS[name]
        if public.digest not in digests:
            refuse(
                f"{folder} has no file of {name}: {public.path} of github.com/{public.repository}"
            )
    return {name: digests[NETWORKS[name].digest] for name in names}


def estimate(
    name: str, file: Path, accelerator: str, kib: int, folder: Path
) -> Iterator[tuple[Setting, Estimate]]:
    """Run Vela on a network in both memory modes and yield its estimates.

    Its outputs go to folders of their own below ``folder``.
    """
    configuration = folder / f"{accelerator}.ini"
    small = "u55" in accelerator
    ports = 1 if small else 4 if ACCELERATORS[accelerator] == 1024 else 2
    text = CONFIGURATION.format(
        ports=ports, sram_burst=32 if small else 64, scale=1.0 if small else 0.5
    )
    configuration.write_text(text)
    rows = {}
    for mode in (DEDICATED, SHARED):
        output = folder / f"{name}-{accelerator}-{kib}-{mode}"
        words = [
            "--config", str(configuration), "--system-config", "machine", "--memory-mode", mode,
            "--accelerator-config", accelerator, "--arena-cache-size", str(kib * 1024),
            "--verbose-performance",
            "--output-dir", str(output), str(file),
        ]  # fmt: skip
        run = subprocess.run(
            [sys.executable, "-m", "ethosu.vela", *words], capture_output=True, text=True
        )
        if run.returncode:
            refuse(
                f"Vela failed with {name} on {accelerator}: "
                f"{(run.stderr or run.stdout).strip().splitlines()[-1]}"
            )
        rows[mode] = read_summary(next(output.glob("*_summary_machine.csv")))
    # in this mode system memory has only the constants
    stored = round(1024 * float(rows[SHARED]["dram_memory_used"]))
    for mode, row in rows.items():
        yield Setting(name, accelerator, kib, mode), parse_summary(row, stored)


def read_summary(path: Path) -> dict[str, str]:
    """Read the only row of the CSV summary that Vela writes."""
    with path.open(newline="") as file:
        return next(csv.DictReader(file))


def parse_summary(row: Mapping[str, str], stored_bytes: int) -> Estimate:
    """Return the estimate in a row of Vela's summary.

    Of constants Vela's total has more than it lists as weights: scales and tables.
    """
    maps = int(row["dram_feature_map_read_bytes"]) + int(row["dram_feature_map_write_bytes"])
    return Estimate(
        sram_bytes=round(1024 * float(row["sram_memory_used"])),
        cycles=int(row["cycles_total"]),
        map_bytes=maps,
        constant_bytes=int(row["dram_total_bytes"]) - maps,
        stored_bytes=stored_bytes,
        weights=int(row["total_original_weights"]),
        encoded_weights=int(row["total_npu_encoded_weights"]),
    )


def run_vela(files: Mapping[str, Path], sizes: Sequence[int], keep: Path | None) -> Estimates:
    """Run Vela on all networks, accelerators and scratchpad sizes, and return its estimates."""
    found: Estimates = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            for accelerator in ACCELERATORS:
                for kib in sizes:
                    found |= dict(estimate(name, file, accelerator, kib, folder))
            print(f"Vela: {name}", flush=True)
    return found


def refuse(message: str) -> NoReturn:
    """Print an error message and exit with status 2."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)
