"""Time to import a network beside its length: what a layer takes in a long chain, against one of 100.

``python -m benchmarks.importing [LENGTH ...]`` prints processor time; the lengths are 100, 1,000 and 3,000 by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from time import process_time
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.importing import import_model

SHAPE = (1, 4, 6, 6)
Weights = dict[str, Any]


def _convolutions(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
    generator = np.random.default_rng(number)
    weights[f"w{number}"] = (generator.normal(size=(4, 4, 3, 3)) * (2 / 36) ** 0.5).astype(np.float32)
    weights[f"b{number}"] = (generator.normal(size=4) * 0.1).astype(np.float32)
    operands, pads = [source, f"w{number}", f"b{number}"], [1, 1, 1, 1]
    conv = helper.make_node("Conv", operands, [f"c{number}"], f"conv{number}", pads=pads)
    return [conv, helper.make_node("Relu", [f"c{number}"], [f"t{number}"], f"relu{number}")], f"t{number}"


def _outputs(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
    nodes, _ = _convolutions(number, "x", weights)
    return nodes, "x"


def _chain_of(op_type: str, *others: str) -> Callable[[int, str, Weights], tuple[list[NodeProto], str]]:
    def link(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
        node = helper.make_node(op_type, [source, *others], [f"t{number}"], f"n{number}")
        return [node], f"t{number}"

    return link


CHAINS: Mapping[str, Callable[[int, str, Weights], tuple[list[NodeProto], str]]] = {
    "convolutions": _convolutions,
    "outputs": _outputs,
    "additions": _chain_of("Add", "x"),
    "activations": _chain_of("Relu"),
}
"""What a link of each kind of chain is; those of ``outputs`` all read the input, and each makes an output."""


def chain(kind: str, length: int) -> ModelProto:
    """A float network of so many links."""
    weights: Weights = {}
    nodes: list[NodeProto] = []
    source = "x"
    for number in range(length):
        link, source = CHAINS[kind](number, source, weights)
        nodes += link
    read = {name for node in nodes for name in node.input}
    ends = [node.output[0] for node in nodes if node.output[0] not in read]
    graph = helper.make_graph(
        nodes,
        f"{kind}-{length}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ends],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main(lengths: list[int]) -> None:
    """Print a line a chain."""
    for kind in CHAINS:
        import_model(chain(kind, 10))
        first = 0.0
        for length in lengths:
            model, begin = chain(kind, length), process_time()
            import_model(model)
            layer = 1000 * (process_time() - begin) / length
            first = first or layer
            print(f"{kind} {length}: {layer:.2f} ms a layer, {layer / first:.2f} of the first", flush=True)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [100, 1000, 3000])
