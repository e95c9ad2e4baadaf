"""The package (``.dla``): a portable file for every ISA variant, memory size and schedule.

It is an uncompressed zip file. ``model.onnx`` (quantised) or ``model.tflite`` (as given) is the
model for host parts and the oracle. ``graph.json`` has the canonical graph and the annotation of
every node, ``weights.bin`` its constants, and ``manifest.json`` the format version and the SHA-256
of the others. Packages are untrusted: nothing is unpickled, extracted or written, and no member can
expand, since members are stored uncompressed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import onnx
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from byoc.graph import Annotation, Graph
from byoc.package.archive import (
    MANIFEST,
    MODELS,
    ArrayWriter,
    decode_graph,
    encode_graph,
    members,
    read_archive,
    view_constants,
)
from byoc.runtimes.protobuf import embed_constants, hold_constants, parse_model
from isa.errors import InputError
from isa.files import archive_bytes, write_atomically
from isa.installation import NAME, version_of
from isa.reading import json_of

if TYPE_CHECKING:
    from byoc.frontend.tflite.file import TfliteModel


# Records of a package's origin, repeated in every run: calibration and comparison with the file.
# Both come from untrusted files: pydantic checks them and rejects unknown keys.

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
KNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class QuantisedTensors:
    """Numbers of quantised tensors: computed ones, and constants of at least two dimensions."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    activations: Count = 0
    weights: Count = 0

    def __str__(self) -> str:
        return f"{self.activations} activations and {self.weights} weights"


@dataclass(frozen=True)
class QuantisationTrial:
    """A way to quantise a float model, judged on held-out samples.

    ``decibels`` is the signal-to-noise ratio of the worst output, ``agreement`` the least share of
    equal classes. ``in_float`` counts the operators left in float. The package has the ``chosen``
    one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    method: Annotated[str, Field(max_length=1 << 8)]
    decibels: float
    agreement: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    in_float: Count = 0
    chosen: bool = False

    def __str__(self) -> str:
        classes = "" if self.agreement is None else f", same top-1 in {self.agreement:.1%}"
        kept = f", {self.in_float} operators in float" if self.in_float else ""
        return f"{self.method}: {self.decibels:.1f} dB{classes}{kept}{' (chosen)' * self.chosen}"


@dataclass(frozen=True)
class Calibration:
    """Samples from which the quantiser computed the scales.

    They were drawn at ``random``, or given with an ``origin``. ``agreement`` is, for outputs with
    class scores, the share of the first samples on which int8 and float choose the same class.
    ``given`` counts the tensors that the file quantises, ``added`` those that the importer
    quantised in addition. No samples were used if the file quantises all of them.
    ``trials`` are the ways to quantise that were compared, in order. ``lossy`` are the activations
    that lose the most: the signal-to-noise ratio in decibels if int8 rounds only this activation.
    """

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    samples: Count
    random: bool
    origin: Annotated[str, Field(max_length=1 << 16)] = ""
    agreement: Mapping[str, Annotated[float, Field(ge=0.0, le=1.0)]] = field(default_factory=dict)
    given: QuantisedTensors | None = None
    added: QuantisedTensors | None = None
    method: Annotated[str, Field(max_length=1 << 8)] = "minmax"
    trials: tuple[QuantisationTrial, ...] = ()
    lossy: Mapping[str, float] = field(default_factory=dict)

    def list_trials(self) -> list[str]:
        """Return a line for each trial, and one for the activations that lose the most."""
        noisy = sorted(self.lossy.items(), key=lambda each: each[1])
        worst = [f"{name} {level:.1f} dB" for name, level in noisy[:3]]
        alone = [f"alone in int8: {', '.join(worst)}"] if worst else []
        return [*map(str, self.trials), *alone]


@dataclass(frozen=True)
class FileCheck:
    """Difference between the outputs of the integer model and of the user's model file.

    Computed by :mod:`byoc.checking.file_check`. The file runs unoptimised. Of ``elements`` on
    ``samples`` inputs, ``beyond`` differ by more than a step of their output's scale. The worst is
    at ``coordinates`` of output ``tensor``; it differs by ``steps``, and ``file`` and ``ours`` are
    the two values. ``optimiser`` names the optimiser of ONNX Runtime that gives the same result as
    ours. ``fused`` counts elements that differ by more than a step if ONNX Runtime optimises the
    file, for files that are quantised or in half precision. ``ties`` is True if all differing
    elements come from numbers halfway between two steps, which both models may round either way.
    ``replaced`` names operators of the file that its runtime lacks, and what it ran instead.
    """

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    samples: Count
    elements: Count
    beyond: Count
    tensor: Annotated[str, Field(max_length=1 << 13)] = ""
    coordinates: tuple[Count, ...] = ()
    file: Annotated[str, Field(max_length=1 << 8)] = ""
    ours: Annotated[str, Field(max_length=1 << 8)] = ""
    steps: Annotated[float, Field(ge=0.0)] = 0.0
    optimiser: Annotated[str, Field(max_length=1 << 8)] = ""
    fused: Count = 0
    ties: bool = False
    replaced: Annotated[str, Field(max_length=1 << 8)] = ""

    def message(self) -> str:
        """Return one line on how many outputs differ from the user's file by more than a step."""
        drawn = (
            f"the file without optimiser ({self.elements:,} elements, {self.samples} random inputs)"
        )
        drawn += f", with {self.replaced}" if self.replaced else ""
        theirs = (
            f"; ONNX Runtime's optimisers change {self.fused:,} of them"
            if self.fused and not self.optimiser
            else ""
        )
        if not self.beyond:
            return f"within one step of {drawn}{theirs}"
        cause = f", by ONNX Runtime's {self.optimiser}" if self.optimiser else ""
        cause += ", explained by ties in rounding" if self.ties else ""
        where = (
            f"largest: '{self.tensor}' at {list(self.coordinates)}: {self.ours}, the file has "
            f"{self.file}"
        )
        return (
            f"{self.beyond:,} elements differ by more than one step from {drawn}{cause}; "
            f"{where}{theirs}"
        )


@dataclass(frozen=True)
class Fidelity:
    """Comparison of the imported model with the user's model (:mod:`byoc.checking.fidelity`).

    Both run one inference. ``tensors`` and ``elements`` count what was compared; ``difference`` is
    the largest one, as a share of its tensor's range. ``integer`` is the difference of the outputs
    with integer operators, for models that came quantised; 0 means bit-equal. For models that the
    importer quantised, ``noise`` is the signal-to-noise ratio of every float output over the
    calibration samples, in decibels, and ``calibration`` describes the samples.

    ``left_out`` names passes that would have changed rounding too much. ``widened`` is True if a
    half-precision model is computed in float32. ``laws`` counts the applications of each rewrite
    rule (docs/compiler.md). ``made_static`` counts operators that quantised activations at run time
    and now have calibrated scales. ``opened`` names the inputs whose first dimension was open and
    became 1. ``file`` compares the outputs with those of the unoptimised
    file; None if that does not run.
    """

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN

    tensors: Count
    elements: Count
    difference: float
    integer: float | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    laws: Mapping[Annotated[str, Field(max_length=1 << 8)], Count] = field(default_factory=dict)
    widened: bool = False
    made_static: Count = 0
    opened: tuple[str, ...] = ()
    calibration: Calibration | None = None
    file: FileCheck | None = None

    def describe_noise(self, compared: str) -> str:
        """Return the end of a line with the noise of the first outputs; empty if none is known."""
        several = len(self.noise) > 1
        levels = list(self.noise.items())[:4]
        noise = ", ".join(f"{level:.1f} dB" + f" ({name})" * several for name, level in levels)
        return f"; {compared}: {noise} signal to noise" if noise else ""


FORMAT_VERSION = 1
Model: TypeAlias = "onnx.ModelProto | TfliteModel"
"""An embedded model, in the format of the user's file."""
_NEEDED_AT_LOAD = ("graph.json", "weights.bin")


@dataclass(frozen=True, eq=False)
class Package:
    """Imported network, before anything that depends on a machine.

    ``rewritten_activations`` counts the groups that were rewritten in the embedded model
    (:func:`byoc.frontend.onnx.rewriting.definitions.integer_clamps`). ``sha256`` has the checksum
    of every member; ``read_member`` returns the bytes of one after verifying it. ``fidelity`` is
    None if the model was not compared. The model of a ``trusted`` package is not checked again.
    """

    source: str
    graph: Graph
    annotations: tuple[Annotation, ...]
    rewritten_activations: int
    tool: str
    sha256: Mapping[str, str]
    read_member: Callable[[str], bytes] = field(repr=False)
    fidelity: Fidelity | None = None
    trusted: bool = False

    @cached_property
    def model(self) -> Model:
        """Embedded quantised model, read and parsed on first use."""
        return self._read_model()

    @property
    def shared_model(self) -> Model:
        """The embedded model for host parts and the oracle, without the data of large constants.

        Its sessions share them (:func:`byoc.runtimes.protobuf.hold_constants`). It must not outlive
        the package.
        """
        return self._shared[0]

    @cached_property
    def _shared(self) -> tuple[Model, Sequence[NDArray[Any]]]:
        model: Model = self.__dict__.get("model") or self._read_model()
        return hold_constants(model) if isinstance(model, onnx.ModelProto) else (model, ())

    def _read_model(self) -> Model:
        (name,) = set(MODELS) & self.sha256.keys()
        source = f"{self.source}: {name}"
        if name == "model.tflite":
            from byoc.frontend.tflite.file import read_tflite
            from byoc.frontend.tflite.folding import fold_shapes
            from byoc.frontend.tflite.variables import remove_variables

            file = read_tflite(self.read_member(name), source, "compile the model again")
            return fold_shapes(remove_variables(file))
        model = parse_model(self.read_member(name), source, "compile the model again")
        if not self.trusted:
            from byoc.frontend.onnx.file import check_model

            check_model(model, source)
        return model

    def __repr__(self) -> str:
        return (
            f"<Package {self.source!r}: {len(self.graph.nodes)} nodes, SHA-256 {self.digest[:16]}>"
        )

    def _repr_html_(self) -> str:
        kinds = Counter(node.op_type for node in self.graph.nodes).most_common()
        ports = {"inputs": self.graph.inputs, "outputs": self.graph.outputs}
        values = {
            role: [self.graph.values[name].in_model for name in names]
            for role, names in ports.items()
        }
        rows = {"nodes": ", ".join(f"{count} {kind}" for kind, count in kinds)}
        rows |= {
            role: ", ".join(f"{value.name} {value.dtype} {list(value.shape)}" for value in found)
            for role, found in values.items()
        }
        return summary_html(repr(self), rows)

    def __reduce__(self) -> tuple[Callable[[str, bytes], Package], tuple[str, bytes]]:
        """Pickle the content of the package's file."""
        return load_package, (self.source, package_bytes(self))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the manifest, which covers everything in the package."""
        return hashlib.sha256(_manifest(self)).hexdigest()


def summary_html(said: str, rows: Mapping[str, str]) -> str:
    """Return the HTML that notebooks show of a large object: a line, and facts by name."""
    facts = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items()
    )
    return f"<div><p>{escape(said)}</p><table><tbody>{facts}</tbody></table></div>"


def build_package(
    graph: Graph,
    annotations: tuple[Annotation, ...],
    model: Model,
    rewritten: int,
    source: str,
    fidelity: Fidelity | None = None,
) -> Package:
    """Build the package of a canonical graph and the quantised ``model`` that it was read from.

    ``rewritten`` is the number of rewritten activation groups, ``source`` the name in reports. The
    result is deterministic.
    """
    arrays = ArrayWriter()
    document = encode_graph(graph, annotations, arrays)
    graph_text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    if isinstance(model, onnx.ModelProto):
        name = "model.onnx"
        content = embed_constants(model).SerializeToString(deterministic=True)
    else:
        name = "model.tflite"
        content = model.file.content
    block = arrays.block()
    graph = view_constants(graph, document, memoryview(block))
    contents = dict(zip(members(name), (graph_text, content, block), strict=True))
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    tool = f"{NAME} {version_of(NAME)}".strip()
    return Package(
        source, graph, annotations, rewritten, tool, sums, contents.__getitem__, fidelity
    )


def _manifest(package: Package) -> bytes:
    document = {
        "format": "dla-package",
        "version": FORMAT_VERSION,
        "source": package.source,
        "tool": package.tool,
        "rewritten_activations": package.rewritten_activations,
        "sha256": dict(package.sha256),
    }
    if package.fidelity is not None:
        document["fidelity"] = asdict(package.fidelity)
    return json.dumps(document, sort_keys=True, indent=1).encode()


def save_package(package: Package, path: str | Path) -> None:
    """Write ``package`` atomically; equal packages give equal bytes."""
    write_atomically(Path(path), package_bytes(package))


def package_bytes(package: Package) -> bytes:
    """Return the content of the file of ``package``."""
    contents = {
        MANIFEST: _manifest(package),
        **{name: package.read_member(name) for name in package.sha256},
    }
    return archive_bytes(contents, mode=0o644)


def load_package(
    path: str | Path, content: bytes | None = None, *, trusted: bool = False
) -> Package:
    """Read a package; raise :class:`InputError` with one line if the file is invalid.

    ``content`` is the file's content if the caller has it; ``path`` then only names it in messages.
    The embedded model is read and checked on first use, by host parts or the oracle. ``trusted``
    content is what :func:`package_bytes` returned; its graph, model and sums are not checked.
    """
    file = Path(path)
    try:
        needed = read_archive(file if content is None else content, (MANIFEST, *_NEEDED_AT_LOAD))
        manifest = _read_manifest(needed[MANIFEST])
        if content is not None:  # later reads must not keep all of it
            needed |= read_archive(content, manifest["sha256"].keys() - needed.keys())
        for name in () if trusted else _NEEDED_AT_LOAD:
            _check_sum(name, needed[name], manifest["sha256"])
        document = json_of(needed["graph.json"], "graph.json", "the graph of a package")
        block = memoryview(needed["weights.bin"])
        graph, annotations = decode_graph(document, block, trusted=trusted)
        fidelity = _fidelity(manifest)
    except InputError as error:
        raise _make_error(file, error) from error
    sums = {name: manifest["sha256"][name] for name in sorted(manifest["sha256"])}
    rewritten = manifest["rewritten_activations"]

    def read_member(name: str) -> bytes:
        try:
            data = needed[name] if name in needed else read_archive(file, (name,))[name]
            if not trusted:
                _check_sum(name, data, sums)
        except InputError as error:
            raise _make_error(file, error) from error
        return data

    return Package(
        manifest["source"],
        graph,
        annotations,
        rewritten,
        manifest["tool"],
        sums,
        read_member,
        fidelity,
        trusted,
    )


def _make_error(file: Path, error: InputError) -> InputError:
    return InputError(f"{file}: {error}; compile the model again")


def _check_sum(name: str, data: bytes, sums: Mapping[str, str]) -> None:
    if hashlib.sha256(data).hexdigest() != sums[name]:
        raise InputError(f"{name} is damaged (its SHA-256 differs from the manifest's)")


def _read_manifest(data: bytes) -> dict[str, Any]:
    manifest = json_of(data, MANIFEST, "that of a package")
    if not isinstance(manifest, dict) or manifest.get("format") != "dla-package":
        raise InputError("its manifest is not that of a package")
    if manifest.get("version") != FORMAT_VERSION:
        raise InputError(
            f"it has format version {manifest.get('version')}, this tool reads "
            f"version {FORMAT_VERSION}"
        )
    sums = manifest.get("sha256")
    texts = isinstance(manifest.get("source"), str) and isinstance(manifest.get("tool"), str)
    complete = isinstance(sums, dict) and set(sums) in [set(members(model)) for model in MODELS]
    if not texts or not complete or type(manifest.get("rewritten_activations")) is not int:
        raise InputError("its manifest is incomplete")
    return manifest


@cache
def _fidelity_form() -> TypeAdapter[Fidelity]:
    return TypeAdapter(Fidelity)


def _fidelity(manifest: Mapping[str, Any]) -> Fidelity | None:
    found = manifest.get("fidelity")
    if found is None:
        return None
    try:
        return _fidelity_form().validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"its manifest says in a wrong form how the model was compared ({place})"
        ) from error
