"""Small float networks for the tests of the ONNX passes and the quantiser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[np.generic]


def make_model(
    nodes: Sequence[NodeProto],
    shape: Sequence[int | str | None],
    constants: Mapping[str, Array],
    *,
    opset: int = 21,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
) -> ModelProto:
    """A float32 model whose inputs all have ``shape``; outputs without a recorded shape."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def random_arrays(seed: int, **shapes: Sequence[int]) -> dict[str, Array]:
    """Seeded standard-normal float32 arrays by name."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }


def run(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """All outputs, by ONNX Runtime without graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def operators(model: ModelProto) -> Counter[str]:
    """Count the nodes of each operator type."""
    return Counter(node.op_type for node in model.graph.node)


def fused_operators(model: ModelProto, folder: Path) -> Counter[str]:
    """Operator types after ONNX Runtime has fused the quantised groups of ``model``."""
    path = folder / "optimised.onnx"
    integer_session(model, path)
    return operators(onnx.load(path))


def integer_session(
    model: ModelProto, optimised: Path | None = None
) -> onnxruntime.InferenceSession:
    """A session in which every quantised group runs as one integer operator."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
