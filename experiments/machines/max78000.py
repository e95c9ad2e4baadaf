"""MAX78000 of Analog Devices: 64 processors with their own weights, layer after layer.

The limits are those of the vendor's guide (``README.md`` of analogdevicesinc/ai8x-synthesis).
``max78002`` is the same machine with other parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.machines.description import (
    CyclePart,
    LayerWork,
    MachineDescription,
    MachineMemory,
    MachineOperation,
    MachineParameters,
    MachineUnit,
    OperationLimit,
)
from experiments.machines.max78000_arithmetic import compute_network
from experiments.machines.max78000_figures import publish_figures
from experiments.machines.max78000_passes import (
    PROCESSORS,
    SHARED,
    count_cycles,
    count_kernels,
    count_passes,
    count_processors,
    is_sequence,
    plan_layer,
    to_plane,
)
from isa.arch import declare_key

START_CYCLES = 340
"""Cycles from the end of the formula to the interrupt, 6.8 us: mean of mnist and cifar-10."""


class Max78000Parameters(MachineParameters):
    """Parameters of the family; the defaults are MAX78000."""

    clock_hz: int = declare_key(50_000_000, "Hz", "CNN clock", "clock of the accelerator", 1)
    start_cycles: int = declare_key(
        START_CYCLES, "cycles", "start-up", "fitted to the times of mnist and cifar-10", 0
    )
    data_bytes: int = declare_key(32_768, "bytes", "data memory", "memory of 4 processors", 4)
    kernels: int = declare_key(768, "kernels", "weight memory", "9-byte kernels a processor", 1)
    max_channels: int = declare_key(1024, "channels", "channels", "channels of a layer", 1)
    max_side: int = declare_key(1023, "pixels", "side", "rows or columns of a plane", 1)
    max_pool_passes: int = declare_key(1, "passes", "pool passes", "passes of a pool alone", 1)


def count_layer(layer: LayerWork, _: Max78000Parameters) -> Sequence[CyclePart]:
    """Return the parts of a layer's cycles."""
    read, written = count_cycles(plan_layer(layer))
    return (
        CyclePart("read and pool", "processors", read),
        CyclePart("write", "processors", written),
    )


def _check_sizes(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    channels = max(to_plane(shape)[0] for shape in (layer.inputs[0], layer.output))
    side = max(side for shape in (layer.inputs[0], layer.output) for side in to_plane(shape)[1:])
    if channels > machine.max_channels:
        return f"{channels:,} channels are more than {machine.max_channels:,}"
    if side > machine.max_side:
        return f"{side:,} rows or columns are more than {machine.max_side:,}"
    return None


def _check_kernel(layer: LayerWork, _: Max78000Parameters) -> str | None:
    rows, columns = layer.kernel
    if layer.stride != (1, 1) or layer.groups > 1:
        return f"stride {layer.stride[0]} x {layer.stride[1]} and {layer.groups} groups"
    if is_sequence(layer):
        fits = columns <= 9 and (layer.dilation[1] == 1 or columns <= 3)
    else:
        fits = layer.kernel in ((1, 1), (3, 3)) and layer.dilation == (1, 1)
    return None if fits else f"kernel {rows} x {columns}, dilation {layer.dilation[1]}"


def _check_padding(layer: LayerWork, _: Max78000Parameters) -> str | None:
    folded = is_sequence(layer) and plan_layer(layer).kernel == (3, 3)
    if folded and (layer.pool or max(layer.padding)):
        return f"kernel {layer.kernel[1]}, dilation {layer.dilation[1]} with padding or a pool"
    if layer.padding[:2] != layer.padding[2:] or max(layer.padding) > 2:
        return "padding " + ", ".join(map(str, layer.padding))
    return None


def _check_transposed(layer: LayerWork, _: Max78000Parameters) -> str | None:
    doubled = tuple(2 * side for side in layer.inputs[0][1:])
    fits = layer.kernel == (2, 2) and layer.padding == (0, 0, 1, 1) and layer.output[1:] == doubled
    return None if fits else "not a 3 x 3 kernel of stride 2 and padding 1 with a doubled plane"


def _check_pool(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    pool = layer.pool
    if pool is None:
        return None
    rows, columns = to_plane(pool.output)[1:]
    if max(pool.kernel) > 16 or max(pool.stride) > 16 or max(pool.padding):
        return f"window {pool.kernel}, stride {pool.stride}, padding {pool.padding}"
    if len(set(pool.stride)) > 1 and not is_sequence(layer) and rows * columns > 1:
        return f"stride {pool.stride[0]} x {pool.stride[1]}"
    passes = count_passes(to_plane(pool.output)[0])
    alone = layer.op_types[-1] == pool.op_type
    if alone and passes > machine.max_pool_passes and rows * columns > 1:
        return f"{passes} passes without a convolution are more than {machine.max_pool_passes}"
    return None


def _check_operands(layer: LayerWork, _: Max78000Parameters) -> str | None:
    kinds = {"Add", "Sub"} & set(layer.op_types)
    if len(layer.inputs) != 1 + len(kinds) or len(set(layer.inputs)) > 1:
        return f"operands of shapes {' and '.join(map(str, layer.inputs))}"
    activations = {str(node.attributes.get("activation", "Relu")) for node in layer.nodes}
    if activations - {"Relu"}:
        return f"activation {max(activations)}"
    if kinds and any("activation" in node.attributes for node in layer.nodes[:1]):
        return "activation after an element-wise operation"
    return None


def _check_data(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    for name, shape in (("input", layer.inputs[0]), ("output", layer.output)):
        channels, rows, columns = to_plane(shape)
        by_channel = name == "input" and channels <= PROCESSORS // SHARED
        size = rows * columns * (1 if by_channel else SHARED * count_passes(channels))
        size *= len(layer.inputs) if name == "input" else 1
        if size > machine.data_bytes:
            return (
                f"{name} of {rows} x {columns} pixels takes {size:,} bytes of the data memory of "
                f"processors 0 to 3, which has {machine.data_bytes:,}"
            )
    return None


def _check_weights(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    kernels = count_kernels(layer)
    if kernels <= machine.kernels:
        return None
    last = count_processors(to_plane(layer.inputs[0])[0]) - 1
    return f"{kernels:,} kernels of 9 bytes for processor {last}, which stores {machine.kernels:,}"


def _check_flattened(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    channels, rows, columns = to_plane(layer.inputs[0])
    if layer.op_types == ("MatMul",) and len(layer.inputs[0]) > 1:
        return f"{channels} rows of one product"
    if (
        channels * rows * columns > 16_384
        or rows * columns > 256
        or channels > machine.max_channels
    ):
        return f"{channels} x {rows} x {columns} inputs"
    return None


def _check_placement(layer: LayerWork, _: Max78000Parameters) -> str | None:
    if layer.op_types == ("Concat",):
        shapes = layer.inputs
        sides = {shape[1:] for shape in (*shapes, layer.output)}
        fits = len(sides) == 1 and not any(shape[0] % SHARED for shape in shapes[:-1])
        return None if fits else "operands of " + ", ".join(map(str, shapes))
    fits = layer.inputs[0][0] == layer.output[0]
    return None if fits else f"{layer.inputs[0]} to {layer.output} moves channels"


SIZES = OperationLimit("sizes", "1,024 channels and 1,023 rows and columns at most", _check_sizes)
KERNEL = OperationLimit(
    "kernel", "1 x 1, 3 x 3 or, in one dimension, 1 to 9; stride 1", _check_kernel
)
PADDING = OperationLimit("padding", "0, 1 or 2, equal on both sides", _check_padding)
TRANSPOSED = OperationLimit(
    "transposed", "3 x 3, stride 2, padding 1, doubled plane", _check_transposed
)
POOL = OperationLimit("pool", "windows and strides up to 16, no padding", _check_pool)
OPERANDS = OperationLimit(
    "operands", "two tensors of one shape; ReLU after convolutions", _check_operands
)
DATA = OperationLimit("data memory", "a plane fits into an instance of data memory", _check_data)
WEIGHTS = OperationLimit("weight memory", "a processor stores its kernels", _check_weights)
FLATTENED = OperationLimit(
    "flattened", "16,384 inputs of 256 pixels at most, one vector", _check_flattened
)
PLACEMENT = OperationLimit(
    "placement", "joined tensors have multiples of four channels", _check_placement
)
COMMON = (SIZES, POOL, OPERANDS, DATA)

CONVOLUTIONS = tuple(
    (*before, "Conv")
    for before in ((), ("MaxPool",), ("AveragePool",), ("Add",), ("Sub",), ("Add", "MaxPool"))
)
POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
LATENCY = "github.com/analogdevicesinc/ai8x-synthesis, izer/latency.py"
OPERATIONS = (
    MachineOperation(
        "convolution",
        CONVOLUTIONS,
        (*COMMON, KERNEL, PADDING, WEIGHTS),
        count_layer,
        source=LATENCY,
    ),
    MachineOperation(
        "transposed convolution",
        (("Conv", "DepthToSpace"),),
        (*COMMON, TRANSPOSED, WEIGHTS),
        count_layer,
        source=LATENCY,
    ),
    MachineOperation(
        "fully connected",
        (("Flatten", "MatMul"), ("Reshape", "MatMul"), ("MatMul",)),
        (FLATTENED, OPERANDS, DATA, WEIGHTS),
        count_layer,
        source=LATENCY,
    ),
    MachineOperation(
        "pass-through",
        (*((pool,) for pool in POOLS), ("Add",), ("Sub",), ("Add", "MaxPool"), ("Sub", "MaxPool")),
        COMMON,
        count_layer,
        source=LATENCY,
    ),
    MachineOperation(
        "placement", (("Concat",), ("Flatten",), ("Reshape",)), (PLACEMENT,), lambda *_: ()
    ),
)

MACHINE = MachineDescription(
    name="max78000",
    summary="Analog Devices MAX78000: 64 processors, vendor's cycle formula",
    kind="closed form",
    parameters=Max78000Parameters,
    units=(MachineUnit("processors", "64 processors in 4 groups, one output channel a cycle"),),
    memories=(
        MachineMemory("data", 16 * 32_768, 64, "processors"),
        MachineMemory("weights", 64 * 768 * 9, 576, "processors"),
    ),
    operations=OPERATIONS,
    layouts=(
        "HWC in words of four channels; channels beyond 64 follow in the next words",
        "the network's input may be CHW, one channel in an instance of data memory",
    ),
    quantisation=(
        "activations int8, scale 1/128, zero point 0",
        "weights of 1, 2, 4 or 8 bits, biases int8 times 128",
        "result: floor(sum * 2**shift / 128 + 1/2), saturated",
        "average pool: quotient towards zero",
    ),
    after_network=lambda machine: (
        CyclePart("start of the state machine", "processors", 1),
        CyclePart("start-up until the interrupt", "processors", machine.start_cycles),
    ),
    arithmetic=compute_network,
    sources=(LATENCY, "github.com/analogdevicesinc/ai8x-synthesis, README.md"),
    published=publish_figures(START_CYCLES),
    validated=True,
)
