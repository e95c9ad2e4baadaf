"""How many of held-out samples a network gets right: float, int8 on the model's runtime, and on the accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.compiler import CompiledNetwork
from byoc.host.runtime import Runtime
from byoc.host.sessions import Oracle
from experiments.report.schema import Accuracy
from experiments.running.in_memory import Feeds
from experiments.running.network import Network, read_samples
from isa.errors import InputError
from isa.progress import Progress, followed, silent

LABELS = "labels"
"""The array of a file that says which class each sample is of."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Held-out samples, a feed each, and their classes: int64 (samples,)."""

    feeds: Sequence[Feeds]
    labels: NDArray[np.int64]


def labelled_samples(network: Network, file: Path | None) -> Labelled | None:
    """The samples of a ``.npz`` file, else those that a built-in network brings; None where there are none.

    The file has an array for every input, samples along an extra first axis, and ``labels``. Raises InputError.
    """
    if file is None:
        dataset = network.builtin.dataset() if network.builtin else None
        if dataset is None:
            return None
        (name,) = network.package.graph.inputs
        images, labels = dataset
        return Labelled([{name: images[place : place + 1]} for place in range(len(images))], labels)
    graph = network.package.graph
    values = [graph.values[name].in_model for name in graph.inputs]
    wanted = {value.name: (value.shape, np.dtype(value.dtype)) for value in values}
    option = f"--accuracy {file}"
    feeds, (labels,) = read_samples(file, option, wanted, beside=(LABELS,))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        what = f"is of shape {list(labels.shape)} and type {labels.dtype}"
        raise InputError(f"{option}: '{LABELS}' {what}; give the class of each sample, an integer")
    return Labelled(feeds, labels.astype(np.int64))


def measure_accuracy(
    network: Network, compiled: CompiledNetwork, runtime: Runtime[Any], labelled: Labelled, progress: Progress = silent
) -> Accuracy:
    """Top-1 accuracy of the first output over all samples, one at a time; ``progress`` hears how many.

    ``runtime`` runs ``compiled`` on the accelerator. ``differences`` counts images whose outputs differ in any bit
    between int8 on the model's runtime and the accelerator.
    """
    feeds, labels = labelled.feeds, labelled.labels
    graph, interface = compiled.package.graph, compiled.interface
    output = graph.outputs[0]
    oracle = Oracle(compiled.package.model, graph, [output], numerics=compiled.arch.numerics)
    integer = [oracle.values(feed)[output] for feed in followed(feeds, "measuring accuracy of int8", progress)]
    accelerator = [
        interface.real(runtime.run(feed).outputs)[output]
        for feed in followed(feeds, "measuring accuracy of the accelerator", progress)
    ]
    return Accuracy(
        float_=None if network.float_model is None else _share(_float_outputs(network.float_model, feeds), labels),
        int8=_share(integer, labels),
        dla=_share(accelerator, labels),
        images=len(labels),
        differences=sum(not np.array_equal(a, b) for a, b in zip(integer, accelerator, strict=True)),
    )


def _float_outputs(model: ModelProto, feeds: Sequence[dict[str, NDArray[Any]]]) -> list[NDArray[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed)[0] for feed in feeds]


def _share(outputs: Sequence[NDArray[Any]], labels: NDArray[np.int64]) -> float:
    """Share of images whose largest output is the label's; the first of equal ones counts."""
    predicted = np.array([int(np.argmax(output)) for output in outputs])
    return float(np.count_nonzero(predicted == labels) / len(labels))
