"""ONNX Runtime sessions that run quantised groups as exact integer operators on one thread."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from byoc.runtimes.protobuf import array_of, copy_fields, is_sharable, use_counts
from byoc.runtimes.runtime_faults import avoid_saturation, consumers_against_fusion, has_ending_pool
from isa.errors import InputError
from isa.reading import first_line

Feeds = Mapping[str, NDArray[Any]]


class NotRunError(InputError):
    """Error for a model that ONNX Runtime does not run; ``detail`` is ONNX Runtime's message.

    ``inconsistent`` is True if the model violates the declarations of its operators, ``starved`` if
    memory ran out. :func:`byoc.checking.file_check.assign_blame` decides whether the user's file or
    a pass causes the error.
    """

    def __init__(self, error: Exception) -> None:
        text = first_line(error)
        self.detail = text.rpartition(" : ")[2].strip()
        self.inconsistent = any(
            kind in text for kind in ("InferenceError", "This is an invalid model", "Type Error")
        )
        self.starved = any(
            words in text for words in ("std::bad_alloc", "Failed to allocate memory")
        )
        super().__init__(
            f"ONNX Runtime cannot run a part of the model ({self.detail}); other inputs may help, "
            "or importing it again"
        )


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn ONNX Runtime's exceptions in the block into an InputError.

    It has the first line of the message.
    """
    try:
        yield
    except Exception as error:  # its exception classes share no base class of their own
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        refused = NotRunError(error)
        if refused.starved:
            raise InputError(
                f"ONNX Runtime has too little memory for the model ({refused.detail}); give a "
                "smaller one or smaller inputs (--shape)"
            ) from error
        raise refused from error


DISABLED = ("DoubleQDQPairsRemover",)
"""Optimisers that change values: this one merges two consecutive quantisations into a third."""


NEWEST_IR_VERSION = 13
"""Newest IR version that ONNX Runtime 1.31 reads.

Exporters often declare newer ones without need.
"""
_FOLDER = "session.model_external_initializers_file_folder_path"
_EMPTY = Path(__file__).parents[1] / "py.typed"
"""Existing file that contains no constant."""


def lean_session(
    model: onnx.ModelProto,
    options: Any,
    outputs: Sequence[onnx.ValueInfoProto],
    further: Sequence[onnx.NodeProto] = (),
    part: onnx.GraphProto | None = None,
    every: bool = False,
    **settings: Any,
) -> tuple[Any, Any]:
    """Create a session that shares the model's large constants instead of copying them.

    ``further`` nodes are added, and ``outputs`` replace the model's own. Serialising, parsing and
    conversion to tensors would otherwise hold the constants four times. The second result owns them
    and must outlive the session. With a ``part`` of the model's graph the session runs only that
    part. Products that saturate on some processors are rewritten
    (:func:`byoc.runtimes.runtime_faults.avoid_saturation`, with ``every``).
    """
    import onnxruntime

    lean = onnx.ModelProto()
    copy_fields(model, lean, "graph")
    lean.ir_version = min(lean.ir_version, NEWEST_IR_VERSION)
    copy_fields(model.graph if part is None else part, lean.graph, "initializer", "output")
    lean.graph.output.extend(outputs)
    _place(lean.graph, further)
    read = _read(lean.graph)
    constants = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in read}
    added = avoid_saturation(lean.graph, constants, every=every)
    read = _read(lean.graph) if added else read
    shared: dict[str, Any] = {}
    for tensor in (*(tensor for name, tensor in constants.items() if name in read), *added):
        if not is_sharable(tensor):
            lean.graph.initializer.append(tensor)
            continue
        elsewhere = lean.graph.initializer.add(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims
        )
        elsewhere.data_location = onnx.TensorProto.EXTERNAL
        elsewhere.external_data.add(key="location", value=_EMPTY.name)
        shared[tensor.name] = onnxruntime.OrtValue.ortvalue_from_numpy(array_of(tensor))
    if shared:
        if options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
            # Constants are not read while the graph is parsed: the declared file only has to exist.
            options.add_session_config_entry(_FOLDER, str(_EMPTY.parent))
        else:  # the graph has a copy while it is parsed, and the session must not keep one
            options.add_external_initializers(list(shared), list(shared.values()))
        for name, value in shared.items():
            options.add_initializer(name, value)
    return onnxruntime.InferenceSession(
        lean.SerializeToString(), options, ["CPUExecutionProvider"], **settings
    ), shared


def _read(graph: onnx.GraphProto) -> set[str]:
    """Return the names of a graph's inputs and of all tensors that its nodes read.

    A constant may be the default of an input.
    """
    return {*use_counts(graph), *(value.name for value in graph.input)}


def _place(graph: onnx.GraphProto, further: Sequence[onnx.NodeProto]) -> None:
    """Insert the nodes ``further`` into a graph, each directly after its operand's producer.

    The operand is the node's first one.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in further:
        readers.setdefault(node.input[0], []).append(node)
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        graph.node.append(node)
        for name in node.output:
            graph.node.extend(readers.get(name, ()))


def keep_no_memory(options: Any) -> None:
    """Make a session free each tensor's memory at once; its cache could double the memory use."""
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False


def value_bytes(value: onnx.ValueInfoProto) -> int:
    """Return the size in bytes of a tensor of known shape with 4-byte elements."""
    return 4 * math.prod(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim)


class OnnxRuntimeSession:
    """One model on ONNX Runtime, one thread, no log output.

    Optimisations are at level EXTENDED, and int8 QDQ groups are allowed. If not ``optimised``,
    every operator computes by itself and quantised groups stay in float. The session also falls
    back to that if ONNX Runtime does not run its own optimised graph. ``without`` names an
    optimiser to disable. Tensors named in ``further`` are additional outputs; for a ``part`` of the
    model (:func:`lean_session`) they are the only outputs. ``quick`` computes int8 activations as
    uint8, which is many times faster but may round ties differently. Raises InputError if ONNX
    Runtime cannot run the model.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        optimized_path: str | None = None,
        *,
        optimised: bool = True,
        further: Sequence[str] = (),
        part: onnx.GraphProto | None = None,
        without: str = "",
        quick: bool = False,
    ) -> None:
        own = model.graph.output if part is None else ()
        outputs = [*own, *(onnx.ValueInfoProto(name=name) for name in further)]
        plain = partial(_session, model, outputs, part, None)
        alone = not optimised or optimized_path is not None or without
        self._plain = None if alone else plain
        self.optimised = optimised
        if not optimised:
            self._session, self._shared = plain()
            return
        try:
            left_out = [*_list_disabled(model.graph), without]
            self._session, self._shared = _session(
                model, outputs, part, left_out, optimized_path, quick
            )
        except NotRunError as error:
            self._fall_back(error)

    def run(self, outputs: Sequence[str], feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Return the named outputs for ``feeds`` of exact shapes and element types."""
        try:
            found = self._run(outputs, feeds)
        except NotRunError as error:
            self._fall_back(error)
            found = self._run(outputs, feeds)
        self._plain = None
        return found

    def _run(self, outputs: Sequence[str], feeds: Feeds) -> dict[str, NDArray[Any]]:
        wanted = list(outputs)
        with readable_errors():
            return dict(zip(wanted, self._session.run(wanted, dict(feeds)), strict=True))

    def _fall_back(self, error: NotRunError) -> None:
        """Switch to a session without optimisation; raise ``error`` if that session fails too."""
        if self._plain is None:
            raise error
        try:
            (self._session, self._shared), self._plain, self.optimised = self._plain(), None, False
        except NotRunError:
            raise error from None


def _session(
    model: onnx.ModelProto,
    outputs: Sequence[onnx.ValueInfoProto],
    part: onnx.GraphProto | None,
    disabled: Sequence[str] | None,
    optimized_path: str | None = None,
    quick: bool = False,
) -> tuple[Any, Any]:
    """Create a session without the ``disabled`` optimisers; None disables all of them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_DISABLE_ALL if disabled is None else levels.ORT_ENABLE_EXTENDED
    )
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "0" if quick else "1")
    # Keep products of float32 with dequantised weights exact: by default ONNX Runtime rounds the
    # former to 8 bits.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    keep_no_memory(options)
    if disabled is None:  # with few inferences, reordering a copy of the weights does not pay
        options.add_session_config_entry("session.disable_prepacking", "1")
    if optimized_path is not None:
        options.optimized_model_filepath = optimized_path
    left_out = (
        _list_disabled(model.graph if part is None else part)
        if disabled is None
        else [name for name in disabled if name]
    )
    further = [] if disabled is None else list(consumers_against_fusion(model.graph))
    outputs = [*outputs, *(onnx.ValueInfoProto(name=node.output[0]) for node in further)]
    with readable_errors():
        return lean_session(
            model, options, outputs, further, part=part, every=quick, disabled_optimizers=left_out
        )


_TRANSPOSING = ["TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"]
"""Optimisers that convert channels first to channels last between two Transposes."""


def _list_disabled(graph: onnx.GraphProto) -> list[str]:
    """Return the names of ONNX Runtime's optimisers that must not run on ``graph``.

    Moving a DequantizeLinear to a tensor that a control-flow body reads from outside ends the
    process by an assertion (ONNX Runtime 1.31), because the optimiser searches the node's inputs
    for the tensor. Pools with channels first (:mod:`byoc.runtimes.runtime_faults`) must keep that
    layout.
    """
    has_body = any(
        item.type == onnx.AttributeProto.GRAPH for node in graph.node for item in node.attribute
    )
    return [
        *DISABLED,
        *["QDQPropagationTransformer"] * has_body,
        *_TRANSPOSING * has_ending_pool(graph),
    ]
