"""Run a model piece by piece on ONNX Runtime; each piece reads tensors of previous pieces.

All tensors of a large model can then be inspected, some at a time, without running it from the
start each time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, helper

from byoc.runtimes.protobuf import types_of, use_counts_of
from byoc.runtimes.session import OnnxRuntimeSession

Tensors = Mapping[str, NDArray[Any]]


def stretches(
    model: ModelProto, parts: Sequence[Sequence[str]], feed: Tensors
) -> Iterator[dict[str, NDArray[Any]]]:
    """Run a model piece by piece and yield the computed tensors that each of ``parts`` names.

    The last also has the outputs. Nothing is optimised. Raises InputError if ONNX Runtime cannot
    run the model.
    """
    nodes = model.graph.node
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    reads = [set(use_counts_of(node)) for node in nodes]
    outputs = list(dict.fromkeys(value.name for value in model.graph.output))
    waiting = Counter(name for read in reads for name in read)
    waiting.update(outputs)  # the outputs are needed after all parts
    known = {value.name: feed[value.name] for value in model.graph.input if value.name in feed}
    types = types_of(model.graph)
    done: set[int] = set()
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        wanted = [name for name in part if name in makers] + (outputs if last else [])
        now = _list_dependencies(wanted, makers, reads, done)
        read_now = Counter(name for index in now for name in reads[index])
        made_now = {name for index in now for name in nodes[index].output}
        left = {name for name in made_now - {*wanted} if waiting[name] > read_now[name]}
        further = [*wanted, *([] if last else sorted(left))]
        piece = _piece(model, sorted(now), types, {*wanted, *read_now}, known)
        session = OnnxRuntimeSession(model, optimised=False, further=further, part=piece)
        made = session.run(further, {value.name: known[value.name] for value in piece.input})
        del session
        # A piece with sequences, which cannot be inputs, is computed again by the next piece.
        if all(isinstance(array, np.ndarray) for array in made.values()):
            done |= now
            waiting.subtract(read_now)
            known = {name: array for name, array in (known | made).items() if waiting[name]}
        # drops the last reference to tensors that no later piece reads
        yield {name: made.pop(name) for name in wanted}


def _list_dependencies(
    wanted: Sequence[str], makers: Mapping[str, int], reads: Sequence[set[str]], done: set[int]
) -> set[int]:
    """Return the nodes on which the tensors ``wanted`` depend, without nodes already ``done``."""
    found: set[int] = set()
    waiting = [makers[name] for name in wanted if name in makers]
    while waiting:
        index = waiting.pop()
        if index not in found and index not in done:
            found.add(index)
            waiting += [makers[name] for name in reads[index] if name in makers]
    return found


def _piece(
    model: ModelProto,
    taken: Sequence[int],
    types: Mapping[str, int],
    used: set[str],
    known: Tensors,
) -> GraphProto:
    """Return a graph that contains only the nodes ``taken`` of a model with tensor ``types``.

    The ``known`` tensors that are ``used`` are its inputs.
    """
    result = GraphProto(name=model.graph.name)
    result.node.extend(model.graph.node[index] for index in taken)
    made = {name for node in result.node for name in node.output}
    result.value_info.extend(  # ONNX Runtime cannot infer every type
        helper.make_tensor_value_info(name, types[name], None)
        for name in sorted(made)
        if types.get(name)
    )
    result.input.extend(
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in known.items()
        if name in used - made
    )
    return result
