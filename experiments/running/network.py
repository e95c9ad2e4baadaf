"""What a command is given as MODEL: a built-in name, a model's file or a package, made into a package and its inputs.

A float model is quantised on the way, on samples of the user's own where there are any. What imports models is loaded
when one is imported: a package needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.helper import tensor_dtype_to_np_dtype

from byoc.forcing import keep_on_cpu
from byoc.frontend.tflite.file import is_tflite
from byoc.graph import Graph, Value
from byoc.interface import Interface, connect
from byoc.options import DEFAULTS, CompileOptions
from byoc.package.package import Package, load_package
from experiments.models import MODELS, BuiltinModel
from experiments.models.inputs import load_input
from experiments.running.given import (
    Batch,
    Feeds,
    Inputs,
    Model,
    Samples,
    Wanted,
    batch_of,
    in_onnx,
    model_name,
    samples_of,
)
from experiments.running.package_cache import PackageCache, key_of, sum_of
from isa.errors import InputError, meant
from isa.progress import Progress, silent
from isa.reading import read_npz

Shapes = Mapping[str, tuple[int, ...]]
Fixed = Mapping[str, float]
_ZIP_MAGIC = b"PK\x03\x04"


@dataclass(frozen=True, eq=False)
class Network:
    """A package, and what is known about it beside: the built-in network it is.

    Where accuracy is measured, the float model that it was made from.
    """

    name: str
    package: Package
    float_model: ModelProto | None = None
    builtin: BuiltinModel | None = None

    def keeping_on_cpu(self, patterns: Sequence[str]) -> Network:
        """The network with the nodes that ``patterns`` match on the CPU; raises as :func:`keep_on_cpu` does."""
        return replace(self, package=keep_on_cpu(self.package, patterns)) if patterns else self


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input name from texts such as ``image=1,3,224,224``; raises InputError for any other form."""
    shapes = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        try:
            shapes[name] = tuple(int(dim) for dim in dims.split(",")) if dims else ()
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"--shape {text}: write it as NAME=1,3,224,224")
    return shapes


def parse_fixed(texts: Iterable[str]) -> dict[str, float]:
    """Numbers by input name from texts such as ``rate=16000``; raises InputError for any other form."""
    fixed = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            fixed[name] = float(number)
        except ValueError:
            name = ""
        if not name or not isfinite(fixed[name]):
            raise InputError(f"--fix {text}: write it as NAME=16000")
    return fixed


def is_package(path: Path) -> bool:
    """Whether a file is a package by its suffix or its first bytes."""
    if path.suffix == ".dla":
        return True
    with path.open("rb") as stream:
        return stream.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC


def load_network(
    model: Model,
    shapes: Shapes | None = None,
    seed: int = 0,
    calibration: Samples | None = None,
    fixed: Fixed | None = None,
    cache: PackageCache | None = None,
    keep_float: bool = False,
    progress: Progress = silent,
) -> Network:
    """The network ``model`` names: a built-in network, an ONNX or TensorFlow Lite file, or a package (``.dla``).

    It may be in memory as well: an ONNX model, what PyTorch's exporter makes, or a package.
    ``shapes`` are those of inputs that a model leaves open; ``fixed`` makes inputs constants. Float models are
    quantised: on the samples ``calibration``, a file or arrays, else built-in networks on their own data and others on
    four standard-normal inputs drawn from ``seed``. What import makes of a file may come from a ``cache``.
    ``keep_float``: the float model is wanted, too, as it is of networks with labels. ``progress`` hears how far it is.
    Raises InputError for whatever is wrong with name, file or model.
    """
    given = in_onnx(model)
    if isinstance(given, Package):
        _refuse(given.source, *_OF_PACKAGES, shapes, calibration, fixed)
        return _of_package(given)
    if isinstance(given, ModelProto):
        return _build(given, None, shapes or {}, seed, calibration, fixed or {}, keep_float, progress)
    return _load(str(given), shapes, seed, _file_or_samples(calibration), fixed, cache, keep_float, progress)


def _file_or_samples(given: Samples | None) -> Samples | None:
    """The same; a file is a path."""
    return Path(given) if isinstance(given, str) else given


def _load(
    model: str,
    shapes: Shapes | None,
    seed: int,
    calibration: Samples | None,
    fixed: Fixed | None,
    cache: PackageCache | None,
    keep_float: bool,
    progress: Progress,
) -> Network:
    """The network of a name or a file."""
    builtin = MODELS.get(model)
    path = Path(model)
    if builtin is None and path.is_file() and is_package(path):
        _refuse(path, *_OF_PACKAGES, shapes, calibration, fixed)
        return _of_package(load_package(path))
    if builtin is None and path.is_file() and is_tflite(path):
        remedy = "leave {option} out, or convert the model otherwise"
        _refuse(path, "a TensorFlow Lite model", remedy, shapes, calibration, fixed)
    given = model, builtin, shapes or {}, seed, calibration, fixed or {}
    key = _key(*given) if cache is not None and not keep_float else None
    if cache is None or key is None:
        return _build(*given, keep_float, progress)
    package = cache.find(key)
    if package is not None:
        return Network(package.source, package, builtin=None if fixed else builtin)
    network = _build(*given, False, progress)
    if _key(*given) == key:  # nobody changed a file meanwhile
        cache.keep(key, network.package)
    return network


def _key(
    model: str, builtin: BuiltinModel | None, shapes: Shapes, seed: int, calibration: Samples | None, fixed: Fixed
) -> str | None:
    """The name of the network's package in a cache; None where it is not for one.

    That is a network with labels, of which more than the package is wanted, a file that is not there, samples that are
    in none, and a model whose weights may lie in files beside it: those say where.
    """
    if calibration is not None and not (isinstance(calibration, Path) and calibration.is_file()):
        return None
    if builtin is None and not Path(model).is_file():
        return None
    content = b"" if builtin else Path(model).read_bytes()
    if (builtin is not None and builtin.dataset() is not None) or b"location" in content:
        return None
    samples = None if calibration is None else (calibration.name, sum_of(calibration.read_bytes()))
    source = (builtin.name, "") if builtin else (Path(model).stem, sum_of(content))
    return key_of({
        "model": source, "shapes": {name: list(dims) for name, dims in shapes.items()}, "seed": seed,
        "calibration": samples, "fixed": {name: number.hex() for name, number in fixed.items()},
    })  # fmt: skip


_OF_PACKAGES = "a package", "give {option} to 'dla compile' instead"


def _refuse(
    source: str | Path,
    what: str,
    remedy: str,
    shapes: Shapes | None,
    calibration: Samples | None,
    fixed: Fixed | None,
) -> None:
    """Raises InputError for an option that ``what`` in ``source`` has no use for; ``remedy`` names it as {option}."""
    facts = {"--shape": "has fixed shapes", "--calibration": "is quantised already", "--fix": "has fixed inputs"}
    given = shapes or None, calibration, fixed or None
    for (option, fact), value in zip(facts.items(), given, strict=True):
        if value is not None:
            raise InputError(f"{source}: {what} {fact}; {remedy.format(option=option)}")


def _of_package(package: Package) -> Network:
    builtin = MODELS.get(package.source)
    if builtin is not None and not _fits(package.graph, builtin.sample_input()):
        builtin = None  # it goes by the name of a built-in network and is another
    return Network(package.source, package, builtin=builtin)


def _build(
    model: str | ModelProto,
    builtin: BuiltinModel | None,
    shapes: Shapes,
    seed: int,
    calibration: Samples | None,
    fixed: Fixed,
    keep_float: bool,
    progress: Progress,
) -> Network:
    from byoc.frontend.onnx.rewriting.branches import fix_inputs
    from byoc.importing import import_model

    if isinstance(model, str) and builtin is None and Path(model).is_file() and is_tflite(Path(model)):
        return Network(Path(model).stem, import_model(model))
    name, given = _opened(model, builtin, seed)
    source = fix_inputs(given, fixed, shapes)
    del given
    shapes = {name: dims for name, dims in shapes.items() if name not in fixed}
    samples = _samples(source, builtin, shapes, seed, calibration, fixed)
    origin = _origin(calibration) if samples is not None else ""
    kept = builtin if not fixed else None  # its samples and labels are those of all inputs
    wanted = keep_float or (kept is not None and kept.dataset() is not None)
    float_model = _float32(source, shapes) if wanted and not _fixed_scales(source) else None
    handed = [source]
    del source  # hundreds of megabytes of weights, perhaps
    package = import_model(
        handed.pop(), name, shapes=shapes, calibration=samples, seed=seed, origin=origin, progress=progress
    )
    return Network(name, package, float_model, kept)


def _opened(model: str | ModelProto, builtin: BuiltinModel | None, seed: int) -> tuple[str, ModelProto]:
    """The name that a model goes by, and the model."""
    from byoc.frontend.onnx.file import check_model, load_model

    if isinstance(model, ModelProto):
        check_model(model, model_name(model))
        return model_name(model), model
    if builtin is not None:
        return builtin.name, builtin.build(seed)
    if "." not in model and "/" not in model and not Path(model).exists():
        close = meant(model, MODELS)
        raise InputError(f"unknown model '{model}'; {close}give a file, or a name that 'dla models' lists")
    return Path(model).stem, load_model(model)


def _origin(calibration: Samples | None) -> str:
    """Where the samples are from, for reports."""
    if calibration is None:
        return "the network's own samples"
    return calibration.name if isinstance(calibration, Path) else "the arrays given"


def _float32(source: ModelProto, shapes: Shapes) -> ModelProto:
    """A float model of float32 numbers and fixed shapes, whose inputs are those that have to be given."""
    from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs
    from byoc.frontend.onnx.rewriting.shapes import fix_shapes
    from byoc.frontend.onnx.rewriting.widening import widen

    return fix_shapes(drop_initializer_inputs(widen(source)), shapes)


def _fixed_scales(model: ModelProto) -> bool:
    """Whether a model came with scales, so that there is nothing to calibrate."""
    from byoc.frontend.onnx.rewriting.dynamic import dynamic_operators
    from byoc.frontend.onnx.units import is_quantised

    return is_quantised(model) and not dynamic_operators(model)


def _samples(
    source: ModelProto,
    builtin: BuiltinModel | None,
    shapes: Shapes,
    seed: int,
    calibration: Samples | None,
    fixed: Fixed,
) -> Iterable[Feeds] | None:
    """What to calibrate on; None leaves it to the quantiser."""
    if calibration is None:
        own = builtin.calibration(seed) if builtin else ()
        return [{key: feed[key] for key in feed if key not in fixed} for feed in own] if builtin else None
    if _fixed_scales(source):
        given = f"--calibration {calibration}" if isinstance(calibration, Path) else "calibration"
        raise InputError(f"{given}: the model is quantised already; leave the option out")
    wanted = _wanted(_float32(source, shapes))
    if isinstance(calibration, Path):
        return read_samples(calibration, f"--calibration {calibration}", wanted)[0]
    return samples_of(calibration, wanted)


def _wanted(model: ModelProto) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types of a model's inputs."""
    return {
        value.name: (
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            np.dtype(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in model.graph.input
    }


def network_batch(network: Network, inputs: Inputs | None, seed: int, options: CompileOptions) -> Batch:
    """The inputs of one inference or of several: arrays, or those of :func:`network_feeds`."""
    if inputs is None or isinstance(inputs, str | Path):
        return Batch((network_feeds(network, None if inputs is None else Path(inputs), seed, options),))
    ports = connect(network.package, options).inputs
    return batch_of(inputs, {port.name: port.value.shape for port in ports})


def network_feeds(
    network: Network, file: Path | None = None, seed: int = 0, options: CompileOptions = DEFAULTS
) -> Feeds:
    """Inputs of one inference: from ``file``, else the built-in network's own, else numbers drawn from ``seed``.

    They are as the model has them; a file may hold integers for inputs that are integer with ``options``. Raises
    InputError when the file does not hold what the network wants.
    """
    graph = network.package.graph
    if file is not None:
        return _feeds_from_file(connect(network.package, options), graph, file)
    if network.builtin is not None:
        return dict(network.builtin.sample_input())
    generator = np.random.default_rng(seed)
    return {name: _drawn(graph.values[name].in_model, generator) for name in graph.inputs}


def _feeds_from_file(interface: Interface, graph: Graph, file: Path) -> Feeds:
    if len(graph.inputs) == 1:
        value, (port,) = graph.values[graph.inputs[0]].in_model, interface.inputs
        return {value.name: load_input(file, value.shape, value.dtype, port.value.dtype)}
    if file.suffix.lower() != ".npz":
        raise InputError(f"input {file}: the network has {len(graph.inputs)} inputs; give a .npz with an array each")
    if not file.is_file():
        raise InputError(f"input {file}: no such file")
    return read_npz(file, f"input {file}")


def _fits(graph: Graph, feeds: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a built-in network's feeds are inputs of this graph."""
    return tuple(feeds) == graph.inputs and all(
        array.shape == graph.values[name].in_model.shape and array.dtype.name == graph.values[name].dtype
        for name, array in feeds.items()
    )


def _drawn(value: Value, generator: np.random.Generator) -> NDArray[Any]:
    """Standard-normal numbers for float inputs, the whole range of 8-bit integers, zeros for everything else."""
    try:
        dtype = np.dtype(value.dtype)
    except TypeError as error:  # text, sequences, and whatever a package may say
        remedy = "for which no numbers can be drawn; give it with --input"
        raise InputError(f"input '{value.name}' is of type {value.dtype}, {remedy}") from error
    if np.issubdtype(dtype, np.floating):
        return np.asarray(generator.standard_normal(value.shape), dtype)
    if dtype.itemsize == 1 and np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.asarray(generator.integers(limits.min, limits.max + 1, value.shape), dtype)
    return np.zeros(value.shape, dtype)


def read_samples(
    path: Path, option: str, wanted: Wanted, beside: Sequence[str] = ()
) -> tuple[list[Feeds], list[NDArray[Any]]]:
    """One feed a sample from a ``.npz`` with arrays of the ``wanted`` inputs, and the arrays ``beside`` them.

    Samples are along an extra first axis. Raises InputError, which names the ``option``: no such file, not a .npz, an
    array missing or unknown, sample counts that differ, wrong shapes or types.
    """
    if not path.is_file():
        raise InputError(f"{option}: no such file")
    arrays = read_npz(path, option)
    for name in sorted(arrays.keys() ^ {*wanted, *beside}):
        if name in beside:
            raise InputError(f"{option}: it has no array '{name}'; add one, with an entry for each sample")
        state = "has no array for" if name in wanted else "has an array for something that is no input:"
        raise InputError(f"{option}: it {state} '{name}'; the inputs are {', '.join(wanted)}")
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if min(counts.values(), default=0) < 1 or len(set(counts.values())) != 1:
        raise InputError(f"{option}: the arrays have {counts} samples; give all of them the same number")
    for name, (shape, dtype) in wanted.items():
        array = arrays[name]
        if array.shape[1:] != shape or array.dtype != dtype:
            raise InputError(
                f"{option}: '{name}' has samples of shape {list(array.shape[1:])} and type {array.dtype}; "
                f"the model wants shape {list(shape)} and type {dtype}"
            )
    samples = range(next(iter(counts.values())))
    feeds = [{name: np.asarray(arrays[name][sample]) for name in wanted} for sample in samples]
    return feeds, [arrays[name] for name in beside]
