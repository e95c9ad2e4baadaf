"""Measure how the time to import, compile and run a network grows with its number of operators.

Compares the time per link of a chain with that of a chain a thirtieth as long.

``python -m benchmarks.importing [KIND ...]`` prints processor time, of an import also what is not
ONNX Runtime's: opening its sessions is not quite linear (0.7 ms a link of 100 convolutions, 1.0 of
3,000). Networks are compiled for ISA v4 and v5.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from byoc.compiler import compile
from byoc.importing import import_model
from experiments import run
from isa.arch import Arch

SHAPE = (1, 4, 6, 6)
Weights = dict[str, Any]


def _convolutions(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
    generator = np.random.default_rng(number)
    weights[f"w{number}"] = (generator.normal(size=(4, 4, 3, 3)) * (2 / 36) ** 0.5).astype(
        np.float32
    )
    weights[f"b{number}"] = (generator.normal(size=4) * 0.1).astype(np.float32)
    operands = [source, f"w{number}", f"b{number}"]
    pads = [1, 1, 1, 1]
    conv = helper.make_node("Conv", operands, [f"c{number}"], f"conv{number}", pads=pads)
    return [
        conv,
        helper.make_node("Relu", [f"c{number}"], [f"t{number}"], f"relu{number}"),
    ], f"t{number}"


def _alternating(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
    if number % 2:
        return _chain_of("Relu")(number, source, weights)
    weights[f"w{number}"] = np.full((1, SHAPE[1], 1, 1), 0.01 * (number % 7 - 3), np.float32)
    return _chain_of("Add", f"w{number}")(number, source, weights)


def _outputs(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
    nodes, _ = _convolutions(number, "x", weights)
    return nodes, "x"


def _chain_of(
    op_type: str, *others: str
) -> Callable[[int, str, Weights], tuple[list[NodeProto], str]]:
    def link(number: int, source: str, weights: Weights) -> tuple[list[NodeProto], str]:
        node = helper.make_node(op_type, [source, *others], [f"t{number}"], f"n{number}")
        return [node], f"t{number}"

    return link


CHAINS: Mapping[str, Callable[[int, str, Weights], tuple[list[NodeProto], str]]] = {
    "convolutions": _convolutions,
    "outputs": _outputs,
    "additions": _chain_of("Add", "x"),
    "activations": _chain_of("Relu"),
    "alternating": _alternating,
}
"""What a link of each kind of chain is.

Those of ``outputs`` all read the input, and each makes an output.
"""


def chain(kind: str, length: int) -> ModelProto:
    """Return a float ONNX model that repeats a block of operators ``length`` times."""
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


def recurrent(steps: int) -> ModelProto:
    """Return a float LSTM model of ``steps`` time steps with 4 inputs and 8 hidden values."""
    generator = np.random.default_rng(0)
    shapes = {"w": (1, 32, 4), "r": (1, 32, 8), "b": (1, 64)}
    weights = {
        name: (generator.normal(size=shape) * 0.3).astype(np.float32)
        for name, shape in shapes.items()
    }
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], "lstm", hidden_size=8)],
        f"steps-{steps}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (steps, 1, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (steps, 1, 1, 8))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


LENGTHS = {
    "convolutions": 3000,
    "outputs": 3000,
    "additions": 10000,
    "activations": 5000,
    "alternating": 4000,
    "steps": 256,
}


class _Timed(onnxruntime.InferenceSession):  # type: ignore[misc]
    """ONNX Runtime session that adds up the processor time spent in all such sessions."""

    spent = 0.0

    def __init__(self, *args: Any, **settings: Any) -> None:
        begin = process_time()
        super().__init__(*args, **settings)
        _Timed.spent += process_time() - begin

    def run(self, *args: Any) -> Any:
        begin = process_time()
        found = super().run(*args)
        _Timed.spent += process_time() - begin
        return found


def _took(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of ``work`` and its processor seconds, also without ONNX Runtime's."""
    begin = process_time()
    theirs = _Timed.spent
    result = work()
    seconds = process_time() - begin
    return result, seconds, seconds - (_Timed.spent - theirs)


def main(kinds: list[str]) -> None:
    """Print the seconds to import, compile and run networks of three lengths of each kind.

    Of the import, the part outside ONNX Runtime is printed too.
    """
    onnxruntime.InferenceSession = _Timed
    import_model(chain("activations", 10))  # loads what is loaded once
    for kind in kinds:
        first: list[float] = []
        for length in (LENGTHS[kind] // 30, LENGTHS[kind] // 3, LENGTHS[kind]):
            model = recurrent(length) if kind == "steps" else chain(kind, length)
            package, *seconds = _took(partial(import_model, model))
            compiling = [partial(compile, package, Arch(isa=isa)) for isa in ("v4", "v5")]
            seconds += [_took(work)[1] for work in compiling]
            seconds.append(_took(partial(run, model))[1])
            found = [1000 * each / length for each in seconds]
            first = first or found
            whole, ours, v4, v5, all_of_it = (
                f"{now:.2f} ms ({now / then:.2f} of the first line)"
                for now, then in zip(found, first, strict=True)
            )
            print(
                f"{kind} {length}: a link is imported in {whole}, of which ours {ours}, compiled "
                f"for v4 in {v4}, for v5 in {v5}, run in {all_of_it}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:] or list(LENGTHS))
