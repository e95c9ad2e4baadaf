"""Conversion of a command's MODEL into a package and its inputs.

MODEL is a built-in name, a model file or a package. A float model is quantised, on the user's
samples if there are any. The importers load when a model is imported, because a package does not
need them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.helper import tensor_dtype_to_np_dtype

from byoc.frontend.tflite import is_tflite
from byoc.graph import Graph, Value
from byoc.options import DEFAULTS, CompileOptions
from byoc.package.interface import Interface, connect
from byoc.package.package import Package, load_package
from byoc.partitioning.forcing import keep_on_cpu
from byoc.runtimes.protobuf import embed_constants, share_constants
from experiments.models import MODELS, BuiltinModel
from experiments.models.inputs import load_input
from experiments.running.declared import list_declared, list_given_options, spell_value
from experiments.running.door import door
from experiments.running.given import Given, Shapes
from experiments.running.in_memory import (
    Feeds,
    InputBatch,
    Inputs,
    Samples,
    Wanted,
    batch_of,
    check_sample,
    model_name,
    samples_of,
    split_samples,
    to_onnx,
)
from experiments.running.package_cache import key_of, sum_of, users_cache
from isa import memory
from isa.errors import InputError, suggest_name
from isa.progress import Progress, silent
from isa.reading import check_file, file_fault, first_bytes, read_npy, read_npz

if TYPE_CHECKING:
    from byoc.importing import ConvertedModel

_ZIP_MAGIC = b"PK\x03\x04"
_TORCH_SUFFIXES = (".pt", ".pth", ".pt2")
_EXPORT_RECIPE = """\
import torch
network = torch.load({file!r}, weights_only=False).eval()  # a state_dict: load it into its class
torch.onnx.export(network, (torch.randn(1, 3, 224, 224),), {name!r})"""


@dataclass(frozen=True, eq=False)
class Network:
    """Package of a network, with its built-in network and its float model.

    ``builtin`` is None for other networks. ``float_model``, from which the package was made, is
    kept if accuracy is measured.
    """

    name: str
    package: Package
    float_model: ModelProto | None = None
    builtin: BuiltinModel | None = None

    def __repr__(self) -> str:
        return f"<Network {self.name!r}: {self.package!r}>"


def is_package(path: Path) -> bool:
    """Return whether a file is a package, by its suffix or its first bytes."""
    return path.suffix == ".dla" or first_bytes(path, len(_ZIP_MAGIC)) == _ZIP_MAGIC


def load(given: Given, progress: Progress = silent, keep_float: bool = False) -> Network:
    """Load a network from a built-in name, a file, a package or a model in memory.

    A file is an ONNX model, a TensorFlow Lite model or a package (``.dla``).

    A model in memory is an ONNX model, the result of PyTorch's exporter, or a package. A float
    model is quantised on the given samples. Without samples, a built-in network is quantised on its
    own data, and another network on four standard-normal inputs drawn from the seed. The package of
    a file may come from the user's cache. ``keep_float`` keeps the float model, which networks with
    labels keep in any case. ``progress`` is called with each stage. Raises InputError for an
    invalid name, file or model.
    """
    model = to_onnx(given.model)
    progress(f"reading {spell_value(model)[0]}")
    if isinstance(given.calibration, str):
        given = replace(given, calibration=Path(given.calibration))
    if isinstance(model, Package):
        given.refuse(model.source, *_OF_PACKAGES)
        found = _from_package(model)
    elif isinstance(model, ModelProto):
        found = _build(model, None, given, keep_float, progress)
    else:
        found = _load(str(model), given, keep_float, progress)
    return replace(found, package=keep_on_cpu(found.package, given.cpu)) if given.cpu else found


load_network = door("load_network", Given, Given, load)


def _load(model: str, given: Given, keep_float: bool, progress: Progress) -> Network:
    builtin = MODELS.get(model)
    path = Path(model)
    if builtin is None and path.is_file() and path.suffix in _TORCH_SUFFIXES:
        error = InputError(
            f"{path}: a PyTorch file; dla reads ONNX: export the network with the three lines "
            "below, with the shape of your input (docs/inputs.md)"
        )
        error.add_note(_EXPORT_RECIPE.format(file=str(path), name=f"{path.stem}.onnx"))
        raise error
    if builtin is None and path.is_file() and is_package(path):
        given.refuse(path, *_OF_PACKAGES)
        return _from_package(load_package(path))
    if builtin is None and path.is_file() and is_tflite(path):
        asked = given.calibration is not None or given.state
        applies = asked and not _is_quantised_tflite(path)
        settled = replace(given, calibration=None, state=None) if applies else given
        settled.refuse(
            path, "a TensorFlow Lite model", "leave {option} out, or convert the model otherwise"
        )
    cache = users_cache() if given.cache else None
    key = _key(model, builtin, given) if cache is not None and not keep_float else None
    if cache is None or key is None:
        return _build(model, builtin, given, keep_float, progress)
    package = cache.find(key)
    if package is not None:
        return Network(package.source, package, builtin=None if given.fixed else builtin)
    network = _build(model, builtin, given, False, progress)
    if _key(model, builtin, given) == key:  # no file changed meanwhile
        cache.keep(key, network.package)
    return network


_IMPORTED = list_declared(Given).keys() - {"model", "cpu"}
"""Fields that import depends on, in addition to the model.

Nodes are kept on the CPU after import.
"""


def _has_external_data(content: bytes, model: str) -> bool:
    if b"location" not in content:  # key of an external file's name
        return False
    from byoc.frontend.onnx.file import has_external_data

    return has_external_data(content, model)


def _key(model: str, builtin: BuiltinModel | None, given: Given) -> str | None:
    """Return the cache key of a network's package; None if it must not be cached.

    A package is not cached in four cases: the network has labels, so that a run needs more than the
    package; the model file is missing; the samples are not in a file; the weights may be in further
    files, which the key does not cover.
    """
    samples = given.calibration
    if samples is not None and (not isinstance(samples, Path) or file_fault(samples)):
        return None
    if builtin is None and file_fault(Path(model)):
        return None
    content = b"" if builtin else Path(model).read_bytes()
    external = builtin is None and not is_tflite(Path(model)) and _has_external_data(content, model)
    if external or (builtin is not None and builtin.dataset() is not None):
        return None
    source = (builtin.name, "") if builtin else (Path(model).stem, sum_of(content))
    facts = {
        name: (value.name, sum_of(value.read_bytes()))
        if isinstance(value, Path)
        else one.texts(value)
        for name, one, value in list_given_options(given)
        if one.repeats and name in _IMPORTED
    }
    return key_of({**facts, "model": source})


_OF_PACKAGES = "a package", "give {option} to 'dla compile' instead"


def _from_package(package: Package) -> Network:
    builtin = MODELS.get(package.source)
    if builtin is not None and not _is_matching(package.graph, builtin.sample_input()):
        builtin = None  # another network with the name of a built-in one
    return Network(package.source, package, builtin=builtin)


@share_constants()
def _build(
    model: str | ModelProto,
    builtin: BuiltinModel | None,
    given: Given,
    keep_float: bool,
    progress: Progress,
) -> Network:
    from byoc.frontend.onnx.rewriting.constants import fix_inputs
    from byoc.frontend.onnx.rewriting.shapes import set_batch
    from byoc.importing import NamedSamples, import_model

    if isinstance(model, str) and builtin is None and _is_quantised_tflite(Path(model)):
        return Network(Path(model).stem, import_model(model))
    fixed = given.fixed or {}
    name, opened, converted = open_model(model, builtin, given.seed)
    if converted is not None:
        given = replace(given, state={**converted.state, **(given.state or {})})
    source = fix_inputs(opened, fixed, given.shapes or {})
    del opened
    shapes = {name: dims for name, dims in (given.shapes or {}).items() if name not in fixed}
    whole = set_batch(source, shapes)
    samples = _samples(source, builtin, whole, given)
    origin = "" if samples is None else _origin(given.calibration)
    kept = builtin if not fixed else None  # the built-in samples and labels need all inputs
    wanted = keep_float or (kept is not None and kept.dataset() is not None)
    keeps = wanted and not _has_fixed_scales(source)
    float_model = embed_constants(_float32(source, whole)) if keeps else None
    handed = [source if converted is None else converted._replace(model=source)]
    del source  # frees what may be hundreds of megabytes of weights
    package = import_model(
        handed.pop(),
        name,
        shapes=shapes,
        state=given.state or {},
        calibration=NamedSamples(
            samples, origin, given.quantise or "minmax", given.weight_bits or {}
        ),
        seed=given.seed,
        progress=progress,
    )
    return Network(name, package, float_model, kept)


def _is_quantised_tflite(path: Path) -> bool:
    """Return True if ``path`` is a TensorFlow Lite file with 8-bit operators."""
    from byoc.frontend.tflite.file import load_tflite
    from byoc.frontend.tflite.floating import is_float

    return path.is_file() and is_tflite(path) and not is_float(load_tflite(path))


def open_model(
    model: str | ModelProto, builtin: BuiltinModel | None, seed: int
) -> tuple[str, ModelProto, ConvertedModel | None]:
    """Return a model's name, its ONNX form, and the record of a file's conversion.

    The record is None if the model needed no conversion.

    Raises InputError for an unknown name, a built-in decoder, and an invalid file or model.
    """
    from byoc.frontend.onnx.file import check_model, load_model, open_dimensions

    if isinstance(model, ModelProto):
        check_model(model, model_name(model))
        return model_name(model), open_dimensions(model), None
    if builtin is not None:
        return builtin.name, builtin.build(seed), None
    if is_tflite(Path(model)) and Path(model).is_file():
        from byoc.frontend.tflite.file import load_tflite
        from byoc.importing import convert_float

        converted = convert_float(load_tflite(model), model)
        return Path(model).stem, converted.model, converted
    if "." not in model and "/" not in model and not Path(model).exists():
        from experiments.models.decoders import DECODERS

        if model in DECODERS:
            raise InputError(
                f"'{model}' has a cache that grows by position; 'dla generate {model}' runs it"
            )
        close = suggest_name(model, MODELS)
        raise InputError(
            f"unknown model '{model}'; {close}give a file, or a name that 'dla models' lists"
        )
    return Path(model).stem, load_model(model), None


def _origin(calibration: Samples | None) -> str:
    """Return the source of the calibration samples, as text for reports."""
    if calibration is None:
        return "the network's own samples"
    return calibration.name if isinstance(calibration, Path) else "the arrays given"


def _float32(source: ModelProto, shapes: Shapes) -> ModelProto:
    """Convert a float model to float32 numbers and fixed shapes.

    Its inputs are only those that a run must give.
    """
    from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs
    from byoc.frontend.onnx.rewriting.form import widen
    from byoc.frontend.onnx.rewriting.shapes import fix_shapes

    return fix_shapes(drop_initializer_inputs(widen(source)), shapes)


def _has_fixed_scales(model: ModelProto) -> bool:
    from byoc.frontend.onnx.rewriting.dynamic import DYNAMIC_OPERATORS
    from byoc.frontend.onnx.units import is_quantised
    from byoc.runtimes.protobuf import count_of

    return is_quantised(model) and not count_of(model.graph, DYNAMIC_OPERATORS)


def _samples(
    source: ModelProto, builtin: BuiltinModel | None, shapes: Shapes, given: Given
) -> Iterable[Feeds] | None:
    """Return a model's calibration samples; None leaves the choice to the quantiser."""
    from byoc.frontend.onnx.state import find_state

    calibration = given.calibration
    if calibration is None:
        own = builtin.calibration(given.seed) if builtin else ()
        fixed = given.fixed or {}
        return (
            [{key: feed[key] for key in feed if key not in fixed} for feed in own]
            if builtin
            else None
        )
    model = _float32(source, shapes)
    wanted = _list_wanted(model)
    state = find_state(model, given.state or {})
    if isinstance(calibration, Path):
        option = f"--calibration {calibration}"
        return read_samples(calibration, option, wanted, optional=state)[0]
    return samples_of(calibration, wanted, state)


def _list_wanted(model: ModelProto) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shape and type of each input of an ONNX model, by name."""
    return {
        value.name: (
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            np.dtype(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in model.graph.input
    }


def network_batch(
    network: Network,
    inputs: Inputs | None,
    seed: int,
    options: CompileOptions,
    steps: int | None = None,
) -> InputBatch:
    """Return the inputs of one inference or of several.

    They come from arrays, or from :func:`network_feeds`. With ``steps``, they are the inputs of one
    step, or of several steps along a first axis; inputs of one step are repeated, and inputs that
    are not given are drawn for each step. State that is not given has its initial value.
    """
    state = network.package.graph.initial_state
    if steps is not None and not state:
        raise InputError(
            f"{network.name}: it has no state that passes between inferences; name inputs and "
            "outputs that are state with --state INPUT=OUTPUT, or leave --steps out"
        )
    if steps is not None:
        nbytes = steps * sum(array.nbytes for array in state.values())
        memory.require(nbytes, f"the state of {steps:,} steps of {network.name}")
    file = Path(inputs) if isinstance(inputs, str | Path) else None
    if steps is not None and file is not None and file.suffix.lower() in (".npy", ".npz"):
        inputs, file = _read_steps(file), None
    if inputs is None or file is not None:
        if steps is not None and file is None and network.builtin is None:
            return InputBatch(tuple(islice(_draw_feeds(network, seed), steps)), many=True)
        first = network_feeds(network, file, seed, options)
        return InputBatch((first,) * (steps or 1), many=steps is not None)
    ports = connect(network.package, options).inputs
    wanted = {port.name: port.value.shape for port in ports}
    if steps is not None and isinstance(inputs, Mapping):
        state |= {name: np.asarray(inputs[name]) for name in inputs if name in state}
        inputs = {name: array for name, array in inputs.items() if name not in state}
    if not isinstance(inputs, Mapping):
        wanted = {name: shape for name, shape in wanted.items() if name not in state}
    batch = batch_of(inputs, wanted)
    feeds = tuple({**state, **feed} for feed in batch.feeds)
    if steps is None:
        return replace(batch, feeds=feeds)
    return InputBatch(_repeat_steps(feeds, steps), many=True)


def _repeat_steps(feeds: tuple[Feeds, ...], steps: int) -> tuple[Feeds, ...]:
    """Return the inputs of ``steps`` steps from those given: one for all, or one for each."""
    if len(feeds) == 1:
        return feeds * steps
    if len(feeds) < steps:
        raise InputError(
            f"inputs: they have {len(feeds)} steps along their first axis, and {steps} are asked "
            f"for; give --steps {len(feeds)} or fewer, or inputs of more steps"
        )
    return feeds[:steps]


def _read_steps(file: Path) -> Inputs:
    """Return the arrays of a file: by name of a ``.npz`` file, one of a ``.npy`` file."""
    check_file(file, named=f"input {file}")
    read = read_npz if file.suffix.lower() == ".npz" else read_npy
    return read(file, f"input {file}")


def network_feeds(
    network: Network, file: Path | None = None, seed: int = 0, options: CompileOptions = DEFAULTS
) -> Feeds:
    """Return the inputs of one inference.

    They come from ``file``, else from the built-in network, else they are drawn from ``seed``. They
    have the model's types; a file may contain integers for inputs that are integer with
    ``options``. State that the file does not contain has its initial value. Raises InputError if
    the file does not contain the network's inputs.
    """
    graph = network.package.graph
    if file is not None:
        return _read_feeds(connect(network.package, options), graph, file)
    if network.builtin is not None:
        return dict(network.builtin.sample_input())
    return next(_draw_feeds(network, seed))


def _draw_feeds(network: Network, seed: int) -> Iterator[Feeds]:
    """Yield inputs of one inference after another, drawn from ``seed``; the state is initial."""
    graph = network.package.graph
    generator = np.random.default_rng(seed)
    state = graph.initial_state
    values = [graph.values[name].in_model for name in graph.inputs]
    while True:
        yield {
            value.name: state[value.name] if value.name in state else _draw_input(value, generator)
            for value in values
        }


def _read_feeds(interface: Interface, graph: Graph, file: Path) -> Feeds:
    state = graph.initial_state
    ports = [port for port in interface.inputs if port.name not in state]
    if len(ports) == 1 and (not state or file.suffix.lower() != ".npz"):
        (port,) = ports
        value = graph.values[port.name].in_model
        return {**state, value.name: load_input(file, value.shape, value.dtype, port.value.dtype)}
    if file.suffix.lower() != ".npz":
        raise InputError(
            f"input {file}: the network has {len(ports)} inputs; give a .npz with an array each"
        )
    check_file(file, named=f"input {file}")
    return {**state, **read_npz(file, f"input {file}")}


def _is_matching(graph: Graph, feeds: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a built-in network's feeds match the inputs of a graph."""
    return tuple(feeds) == graph.inputs and all(
        array.shape == graph.values[name].in_model.shape
        and array.dtype.name == graph.values[name].dtype
        for name, array in feeds.items()
    )


def _draw_input(value: Value, generator: np.random.Generator) -> NDArray[Any]:
    """Create values for one input of a network, random for most types.

    Floats are standard-normal, 8-bit integers and Booleans uniform; other types are zeros.
    """
    try:
        dtype = np.dtype(value.dtype)
    except TypeError as error:  # text, sequences, and invalid types of a package
        remedy = "for which no numbers can be drawn; give it with --input"
        raise InputError(f"input '{value.name}' is of type {value.dtype}, {remedy}") from error
    if np.issubdtype(dtype, np.floating):
        return np.asarray(generator.standard_normal(value.shape), dtype)
    if dtype.itemsize == 1 and np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.asarray(generator.integers(limits.min, limits.max + 1, value.shape), dtype)
    if dtype == np.bool_:
        return generator.integers(2, size=value.shape).astype(dtype)
    return np.full(value.shape, "0" if dtype.kind == "O" else 0, dtype)


def read_samples(
    path: Path,
    option: str,
    wanted: Wanted,
    beside: Sequence[str] = (),
    optional: Collection[str] = (),
) -> tuple[list[Feeds], list[NDArray[Any]]]:
    """Return a feed per sample of a ``.npz`` file, and the additional arrays of the file.

    ``wanted`` has the inputs, ``beside`` the names of the additional arrays, and ``optional`` those
    of inputs that the file may lack. Samples are along
    an extra first axis. Raises InputError, which names the ``option``, if the file is missing or
    not a .npz, an array is missing or unknown, the numbers of samples differ, or a shape or type is
    wrong.
    """
    check_file(path, named=option)
    arrays = read_npz(path, option)
    wanted = {name: form for name, form in wanted.items() if name in arrays or name not in optional}
    for name in sorted(arrays.keys() ^ {*wanted, *beside}):
        if name in beside:
            raise InputError(
                f"{option}: it has no array '{name}'; add one, with an entry for each sample"
            )
        state = (
            "has no array for" if name in wanted else "has an array for something that is no input:"
        )
        raise InputError(f"{option}: it {state} '{name}'; the inputs are {', '.join(wanted)}")
    feeds = [
        check_sample({name: np.asarray(row[name]) for name in wanted}, wanted, option)
        for row in split_samples(arrays, option)
    ]
    return feeds, [arrays[name] for name in beside]
