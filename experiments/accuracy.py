"""Accuracy over a labelled data set: the float model and the int8 model on ONNX Runtime, and the accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.host.oracle import Oracle
from byoc.host.runtime import Runtime
from byoc.pipeline import CompiledNetwork
from experiments.network import Network
from experiments.report.schema import Accuracy

Outputs = NDArray[Any]


def measure(network: Network, compiled: CompiledNetwork, runtime: Runtime[Any]) -> Accuracy | None:
    """Top-1 accuracy over the network's data set, one image at a time; None where no labels are known.

    ``runtime`` runs ``compiled`` on the accelerator. ``differences`` counts images whose outputs differ in any bit
    between int8 on ONNX Runtime and the accelerator.
    """
    dataset = network.builtin.dataset() if network.builtin else None
    if dataset is None:
        return None
    images, labels = dataset
    (name,), output = compiled.graph.inputs, compiled.graph.outputs[0]
    oracle = Oracle(compiled.package.model, compiled.graph, [output])
    feeds = [{name: images[index : index + 1]} for index in range(len(images))]
    integer = [oracle.values(feed)[output] for feed in feeds]
    accelerator = [runtime.run(feed).outputs[output] for feed in feeds]
    return Accuracy(
        float_=None if network.float_model is None else _share(_float_outputs(network.float_model, feeds), labels),
        int8=_share(integer, labels),
        dla=_share(accelerator, labels),
        images=len(labels),
        differences=sum(not np.array_equal(a, b) for a, b in zip(integer, accelerator, strict=True)),
    )


def _float_outputs(model: ModelProto, feeds: Sequence[dict[str, Outputs]]) -> list[Outputs]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed)[0] for feed in feeds]


def _share(outputs: Sequence[Outputs], labels: NDArray[np.int64]) -> float:
    """Share of images whose largest output is the label's; the first of equal ones counts."""
    predicted = np.array([int(np.argmax(output)) for output in outputs])
    return float(np.count_nonzero(predicted == labels) / len(labels))
