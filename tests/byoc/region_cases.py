"""Hand-made regions for the back end, and execution of programs by instruction semantics.

Programs run in stream order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from byoc.compiled import Region
from byoc.emission.region import compile_region
from byoc.graph import Graph, Value
from byoc.operators.activation import Activation
from byoc.operators.arithmetic import Add
from byoc.operators.convolution import Convolution
from byoc.operators.matmul import MatMul
from byoc.operators.minmax import MinMax
from byoc.operators.movement import Alias
from byoc.operators.operator import Operator
from byoc.operators.pooling import AveragePool, MaxPool, PoolOperator
from byoc.operators.products import RequantiseConstants
from byoc.operators.records import Operand
from byoc.options import Schedule
from isa.arch import Arch
from isa.instruction import Machine
from isa.ops.requant import ChannelScales
from isa.program import Program
from tests.byoc.reference_execution import run_operations

Array = NDArray[Any]
Random = np.random.Generator


def operand(name: str, *shape: int, offset: int = 0, dtype: str = "int8") -> Operand:
    return Operand(name, shape, offset, "int32" if dtype == "int32" else "int8")


def requantise(random: Random, channels: int, *, relu: bool = False) -> RequantiseConstants:
    zero_point = int(random.integers(-100, 100))
    scale = random.uniform(1e-4, 4e-3, channels).astype(np.float32)
    return RequantiseConstants(
        ChannelScales.make_exact(scale), zero_point, zero_point if relu else -128, 127
    )


def convolution(
    random: Random,
    source: Operand,
    target: str,
    channels: int,
    *,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    depthwise: bool = False,
    emulated: bool = False,
    wide: bool = False,
) -> Convolution:
    """A convolution with random weights; ``wide`` leaves int32."""
    depth, height, width = source.shape
    rows = (height + pads[0] + pads[2] - (kernel[0] - 1) * dilations[0] - 1) // strides[0] + 1
    columns = (width + pads[1] + pads[3] - (kernel[1] - 1) * dilations[1] - 1) // strides[1] + 1
    weights = random.integers(-128, 128, (channels, 1 if depthwise else depth, *kernel)).astype(
        np.int8
    )
    return Convolution(
        name=target,
        kind="DEPTH" if depthwise else "CONV",
        inputs=(source,),
        output=operand(target, channels, rows, columns, dtype="int32" if wide else "int8"),
        onnx_nodes=(f"node_{target}",),
        weights=weights,
        bias=random.integers(-5000, 5000, channels).astype(np.int32),
        requantise=None if wide else requantise(random, channels, relu=bool(random.integers(2))),
        input_zero_point=int(random.integers(-128, 128)),
        strides=strides,
        dilations=dilations,
        pads=pads,
        groups=depth if depthwise else 1,
        emulated=emulated,
    )


def matmul(
    random: Random, source: Operand, target: str, columns: int, *, wide: bool = False
) -> MatMul:
    rows, depth = source.shape
    return MatMul(
        name=target,
        kind="MATMUL",
        inputs=(source,),
        output=operand(target, rows, columns, dtype="int32" if wide else "int8"),
        weights=random.integers(-128, 128, (depth, columns)).astype(np.int8),
        bias=random.integers(-5000, 5000, columns).astype(np.int32),
        requantise=None if wide else requantise(random, columns),
    )


def pool(
    source: Operand,
    target: str,
    mode: Literal["max", "average", "global_average"],
    *,
    kernel: tuple[int, int] = (2, 2),
    strides: tuple[int, int] = (2, 2),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    count_include_pad: bool = False,
    offset: int = 0,
) -> PoolOperator:
    channels, height, width = source.shape
    if mode == "global_average":
        kernel = height, width
    rows = (height + pads[0] + pads[2] - kernel[0]) // strides[0] + 1
    columns = (width + pads[1] + pads[3] - kernel[1]) // strides[1] + 1
    output = operand(target, channels, rows, columns)
    window: dict[str, Any] = {"mode": mode, "kernel": kernel, "strides": strides, "pads": pads}
    if mode == "max":
        return MaxPool(name=target, kind="POOL", inputs=(source,), output=output, **window)
    return AveragePool(
        name=target,
        kind="POOL",
        inputs=(source,),
        output=output,
        **window,
        count_include_pad=count_include_pad,
        input_scale=0.05,
        output_scale=0.04,
        input_zero_point=3 + offset,
        output_zero_point=-7 + offset,
        offset=offset,
    )


def add(a: Operand, b: Operand, target: str, *, offset: int = 0) -> Add:
    return Add(
        name=target,
        kind="ELTWISE",
        inputs=(a, b),
        output=operand(target, *a.shape),
        scales=(0.05, 0.03, 0.06),
        zero_points=(3 + offset, -5 + offset, 9 + offset),
        offset=offset,
        low=-100,
        high=120,
    )


def unary(
    source: Operand, target: str, function: Literal["relu", "leaky_relu", "abs"]
) -> Activation:
    return Activation(
        name=target,
        kind="ACT",
        inputs=(source,),
        output=operand(target, *source.shape),
        function=function,
        input_scale=0.05,
        output_scale=0.03,
        input_zero_point=4,
        output_zero_point=-11,
        alpha=0.1,
    )


def minmax(a: Operand, b: Operand, target: str, function: Literal["min", "max"]) -> MinMax:
    output = operand(target, *a.shape)
    return MinMax(name=target, kind="ELTWISE", inputs=(a, b), output=output, function=function)


def alias(sources: tuple[Operand, ...], target: Operand, offsets: tuple[int, ...] = (0,)) -> Alias:
    return Alias(
        name=f"alias_{target.value}", kind="DMA", inputs=sources, output=target, offsets=offsets
    )


def region(
    operations: tuple[Operator, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> tuple[Region, dict[str, Value]]:
    """The region and the values of all operands, with the shape that reaches furthest."""
    values: dict[str, Value] = {}
    for operation in operations:
        for item in (*operation.inputs, operation.output):
            elements = item.offset + item.elements
            shape = item.shape if not item.offset else (elements,)
            if item.value not in values or values[item.value].elements < elements:
                values[item.value] = Value(item.value, shape, item.dtype)
    return Region(0, "region", (), inputs, outputs, operations), values


def random_inputs(made: Region, values: Mapping[str, Value], seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        name: random.integers(-128, 128, values[name].shape).astype(values[name].dtype)
        for name in made.inputs
    }


def expected(
    made: Region, values: Mapping[str, Value], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Results straight from the records, no tiles and no memory."""
    graph = Graph("region", made.inputs, made.outputs, values, ())
    memory = {name: array.reshape(-1) for name, array in inputs.items()}
    run_operations(graph, made.operations, memory)
    return {name: memory[name].reshape(values[name].shape) for name in made.outputs}


def execute(program: Program, inputs: Mapping[str, Array], seed: int = 7) -> dict[str, Array]:
    """Execute a program in stream order on memories full of random bytes.

    The result cannot depend on bytes that the program never wrote.
    """
    random = np.random.default_rng(seed)
    sram = random.integers(0, 256, program.arch.sram_bytes, dtype=np.uint8)
    dram = random.integers(0, 256, program.dram_bytes, dtype=np.uint8)
    for segment in program.segments:
        dram[segment.address : segment.address + segment.data.size] = segment.data
    for tensor in program.inputs:
        raw = np.ascontiguousarray(inputs[tensor.name]).view(np.uint8).reshape(-1)
        dram[tensor.address : tensor.address + tensor.nbytes] = raw
    machine = Machine(program.arch, sram, dram)
    for command in program.commands:
        command.instruction.semantics(command, machine)
    return {
        tensor.name: dram[tensor.address : tensor.address + tensor.nbytes]
        .view(tensor.dtype)
        .reshape(tensor.shape)
        for tensor in program.outputs
    }


def compile_case(
    made: Region, values: Mapping[str, Value], arch: Arch, schedule: Schedule
) -> Program:
    return compile_region(made, values, arch, schedule)[0]
