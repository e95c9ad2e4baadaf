"""The seed system's split: convolutions and matrix products write int32, requantising is an operation of its own."""

from __future__ import annotations

from dataclasses import replace

from byoc.lowering.lower import Buffer, Lowered, Place
from byoc.operations import ConvOperation, MatMulOperation, Operand, Operation, RequantiseOperation


def split_operation(operation: Operation) -> tuple[Operation, ...]:
    """A fused operation as accumulation into an int32 value of its own and its requantising; others as they are."""
    if not isinstance(operation, ConvOperation | MatMulOperation) or operation.requantise is None:
        return (operation,)
    # Every byte is written once, so the slice that a convolution writes names its accumulator.
    name = f"{operation.output.value}@{operation.output.offset}:accumulator"
    middle = Operand(name, operation.output.shape, 0, "int32")
    second = RequantiseOperation(
        name=f"{operation.name}:requantise",
        kind="REQUANT",
        inputs=(middle,),
        output=operation.output,
        onnx_nodes=operation.onnx_nodes,
        requantise=operation.requantise,
    )
    return replace(operation, output=middle, requantise=None), second


def split_requantise(lowered: Lowered) -> Lowered:
    """``lowered`` with every fused requantisation split off; each accumulator gets an intermediate buffer."""
    operations = tuple(part for operation in lowered.operations for part in split_operation(operation))
    places, buffers = dict(lowered.places), list(lowered.buffers)
    for operation in operations:
        if operation.output.value not in places:
            name = operation.output.value
            places[name] = Place(name, 0)
            buffers.append(Buffer(name, operation.output.nbytes, "intermediate"))
    return Lowered(operations, places, tuple(buffers))
