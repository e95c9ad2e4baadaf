"""ONNX Runtime sessions set up so that quantised groups run as integer operators, exactly and on one thread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from byoc.runtimes.protobuf import copy_fields, use_counts
from byoc.runtimes.runtime_faults import avoid_saturation, consumers_against_fusion, has_ending_pool
from isa.errors import InputError
from isa.reading import first_line

Feeds = Mapping[str, NDArray[Any]]


class NotRunError(InputError):
    """ONNX Runtime does not run a model: ``detail``; ``inconsistent`` where that is not what its operators declare,
    ``starved`` where it got no memory.

    Whose model that is, and so what helps, knows who has the user's file (:func:`byoc.checking.file_check.blamed`).
    """

    def __init__(self, error: Exception) -> None:
        text = first_line(error)
        self.detail = text.rpartition(" : ")[2].strip()
        self.inconsistent = any(kind in text for kind in ("InferenceError", "This is an invalid model", "Type Error"))
        self.starved = any(words in text for words in ("std::bad_alloc", "Failed to allocate memory"))
        super().__init__(
            f"ONNX Runtime cannot run a part of the model ({self.detail}); other inputs may help, or importing it again"
        )


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns any exception of ONNX Runtime's own within the block into an InputError with its first line."""
    try:
        yield
    except Exception as error:  # its classes share no base of their own
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        refused = NotRunError(error)
        if refused.starved:
            raise InputError(
                f"ONNX Runtime has too little memory for the model ({refused.detail}); give a smaller one or smaller "
                "inputs (--shape)"
            ) from error
        raise refused from error


DISABLED = ("DoubleQDQPairsRemover",)
"""Optimisers that change values: this one merges two quantisations that follow each other into a third."""


NEWEST_IR_VERSION = 13
"""What ONNX Runtime 1.31 reads. Writers name newer ones for models that have nothing of them."""
LARGE_BYTES = 1 << 20
"""Bytes of a constant from which on a session reads it where it is."""
_FOLDER = "session.model_external_initializers_file_folder_path"
_EMPTY = Path(__file__).parents[1] / "py.typed"
"""A file from which no constant can be read, however small."""


def lean_session(
    model: onnx.ModelProto,
    options: Any,
    outputs: Sequence[onnx.ValueInfoProto],
    further: Sequence[onnx.NodeProto] = (),
    part: onnx.GraphProto | None = None,
    every: bool = False,
    **settings: Any,
) -> tuple[Any, Any]:
    """A session of ``model`` with ``further`` nodes and these ``outputs`` in place of its own, on one copy of its large
    constants.

    Serialised, parsed, and made tensors of, they would be there four times. The second result must outlive the session.
    With a ``part`` of the model's graph it is a session of that. Products that saturate on some processors are
    rewritten (:func:`byoc.runtimes.runtime_faults.avoid_saturation`, with ``every``).
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
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if kind.name not in ("float32", "int8", "uint8") or math.prod(tensor.dims) * kind.itemsize < LARGE_BYTES:
            lean.graph.initializer.append(tensor)
            continue
        elsewhere = lean.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        elsewhere.data_location = onnx.TensorProto.EXTERNAL
        elsewhere.external_data.add(key="location", value=_EMPTY.name)
        shared[tensor.name] = onnxruntime.OrtValue.ortvalue_from_numpy(onnx.numpy_helper.to_array(tensor))
    if shared:
        if options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
            # Nobody looks into constants while the graph is read: where they are said to be is only to exist.
            options.add_session_config_entry(_FOLDER, str(_EMPTY.parent))
        else:  # the graph has a copy while it is read; the session shall keep none
            options.add_external_initializers(list(shared), list(shared.values()))
        for name, value in shared.items():
            options.add_initializer(name, value)
    return onnxruntime.InferenceSession(lean.SerializeToString(), options, ["CPUExecutionProvider"], **settings), shared


def _read(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the tensors that a graph reads, and of its inputs: a constant is the default of one."""
    return {*use_counts(graph), *(value.name for value in graph.input)}


def _place(graph: onnx.GraphProto, further: Sequence[onnx.NodeProto]) -> None:
    """Adds nodes that read results of others, each behind the one that makes what it reads."""
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
    """Let a session give back each tensor's memory at once: what it keeps for the next can be as much again."""
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False


def value_bytes(value: onnx.ValueInfoProto) -> int:
    """Bytes of a tensor of known shape, 4 an element."""
    return 4 * math.prod(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim)


class OnnxRuntimeSession:
    """One model on ONNX Runtime: optimisations EXTENDED, int8 QDQ groups allowed, one thread, no log output.

    Not ``optimised``, every operator computes by itself, and quantised groups stay in float; so it is where ONNX
    Runtime does not run what its optimisers make. ``without``: an optimiser that is left out. Tensors named in
    ``further`` are outputs, too. Of a ``part`` of the model (:func:`lean_session`) those are all outputs. ``quick``:
    int8 activations are computed as uint8, which is many times faster, and may move ties. Raises InputError where ONNX
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
            left_out = [*_disabled(model.graph), without]
            self._session, self._shared = _session(model, outputs, part, left_out, optimized_path, quick)
        except NotRunError as error:
            self._fall_back(error)

    def run(self, outputs: Sequence[str], feeds: Feeds) -> dict[str, NDArray[Any]]:
        """The named outputs for ``feeds`` (exact shapes and element types)."""
        try:
            found = self._run(outputs, feeds)
        except NotRunError as error:
            self._fall_back(error)
            found = self._run(outputs, feeds)
        self._plain = None
        return found

    def _run(self, outputs: Sequence[str], feeds: Feeds, first: NotRunError | None = None) -> dict[str, NDArray[Any]]:
        wanted = list(outputs)
        try:
            with readable_errors():
                return dict(zip(wanted, self._session.run(wanted, dict(feeds)), strict=True))
        except NotRunError:
            if first is not None:
                raise first from None
            raise

    def _fall_back(self, error: NotRunError) -> None:
        """Go on with nothing optimised; raises ``error`` where that does not run either."""
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
    """A session without the ``disabled`` optimisers, None: without any, as :class:`OnnxRuntimeSession` has it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if disabled is None else levels.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdqisint8allowed", "0" if quick else "1")
    # Products of float32 and dequantised weights stay such: by default ONNX Runtime rounds the former to 8 bits.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    keep_no_memory(options)
    if disabled is None:  # for a few inferences: no second copy of the weights in another order
        options.add_session_config_entry("session.disable_prepacking", "1")
    if optimized_path is not None:
        options.optimized_model_filepath = optimized_path
    left_out = (
        _disabled(model.graph if part is None else part) if disabled is None else [name for name in disabled if name]
    )
    further = [] if disabled is None else list(consumers_against_fusion(model.graph))
    outputs = [*outputs, *(onnx.ValueInfoProto(name=node.output[0]) for node in further)]
    with readable_errors():
        return lean_session(model, options, outputs, further, part=part, every=quick, disabled_optimizers=left_out)


_TRANSPOSING = ["TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"]
"""Optimisers that make channels last of channels first between two Transposes."""


def _disabled(graph: onnx.GraphProto) -> list[str]:
    """Optimisers that must not run on ``graph``.

    Moving a DequantizeLinear down to what the body of control flow reads from outside ends the process by an assertion
    (ONNX Runtime 1.31): bodies read beside a node's inputs, where the optimiser looks for it. Pools whose channels are
    first (:mod:`byoc.runtimes.runtime_faults`) stay so.
    """
    has_body = any(item.type == onnx.AttributeProto.GRAPH for node in graph.node for item in node.attribute)
    return [*DISABLED, *["QDQPropagationTransformer"] * has_body, *_TRANSPOSING * has_ending_pool(graph)]
