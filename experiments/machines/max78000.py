"""MAX78000 of Analog Devices: 64 processors with their own weights, layer after layer.

The limits are those of the vendor's guide (``README.md`` of analogdevicesinc/ai8x-synthesis).
``max78002`` is the same machine with other parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from experiments.machines.description import (
    CyclePart,
    LayerWork,
    MachineDescription,
    MachineMemory,
    MachineOperation,
    MachineParameters,
    MachineUnit,
    NetworkLimit,
    OperationLimit,
)
from experiments.machines.max78000_arithmetic import compute_nodes
from experiments.machines.max78000_figures import publish_figures
from experiments.machines.max78000_passes import (
    KERNEL_BYTES,
    PROCESSORS,
    SHARED,
    count_cycles,
    count_kernels,
    count_passes,
    count_processors,
    is_sequence,
    place_weights,
    plan_layer,
    to_plane,
)
from isa.arch import declare_key

START_CYCLES = 340
"""Cycles that the formula lacks until the interrupt, 6.8 us: mean of mnist and cifar-10."""


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


def _find_reason(*conditions: tuple[bool, str]) -> str | None:
    """Return the reason of the first condition that holds."""
    return next((reason for broken, reason in conditions if broken), None)


def _spell(sides: Sequence[int]) -> str:
    return " x ".join(f"{side:,}" for side in sides)


def _check_sizes(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    planes = (to_plane(layer.inputs[0]), to_plane(layer.output))
    channels = max(plane[0] for plane in planes)
    side = max(max(plane[1:]) for plane in planes)
    axes = max(map(len, (*layer.inputs, layer.output)))
    return _find_reason(
        (axes > 3, f"a tensor of {axes} axes; the hardware has channels, rows and columns"),
        (channels > machine.max_channels, f"{channels:,} channels exceed {machine.max_channels:,}"),
        (side > machine.max_side, f"{side:,} rows or columns exceed {machine.max_side:,}"),
    )


def _check_kernel(layer: LayerWork, _: Max78000Parameters) -> str | None:
    flat = is_sequence(layer)
    length, step = layer.kernel[1], layer.dilation[1]
    return _find_reason(
        (layer.stride != (1, 1), f"stride {_spell(layer.stride)} is not 1"),
        (layer.groups > 1, f"{layer.groups} groups are not 1"),
        (flat and length > 9, f"kernel {length} exceeds 9"),
        (flat and step > 1 and length > 3, f"dilation {step} with kernel {length} exceeds 3"),
        (
            not flat and layer.kernel not in ((1, 1), (3, 3)),
            f"kernel {_spell(layer.kernel)} is not 1 x 1 or 3 x 3",
        ),
        (not flat and layer.dilation != (1, 1), f"dilation {_spell(layer.dilation)} is not 1"),
    )


def _check_padding(layer: LayerWork, _: Max78000Parameters) -> str | None:
    folded = is_sequence(layer) and plan_layer(layer).kernel == (3, 3)
    padding = ", ".join(map(str, layer.padding))
    return _find_reason(
        (layer.padding[:2] != layer.padding[2:], f"padding {padding} is not equal on both sides"),
        (max(layer.padding) > 2, f"padding {padding} exceeds 2"),
        (folded and max(layer.padding) > 0, f"dilation {layer.dilation[1]} has no padding"),
        (folded and layer.pool is not None, f"dilation {layer.dilation[1]} has no pool"),
    )


def _check_transposed(layer: LayerWork, _: Max78000Parameters) -> str | None:
    doubled = tuple(2 * side for side in layer.inputs[0][1:])
    fits = layer.kernel == (2, 2) and layer.padding == (0, 0, 1, 1) and layer.output[1:] == doubled
    return None if fits else "the kernel is not 3 x 3 with stride 2, padding 1, output padding 1"


def _check_pool(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    pool = layer.pool
    if pool is None:
        return None
    channels, *pooled = to_plane(pool.output)
    passes = count_passes(channels)
    alone = layer.op_types[-1] == pool.op_type and max(pooled) > 1
    return _find_reason(
        (max(pool.kernel) > 16, f"window {_spell(pool.kernel)} exceeds 16"),
        (max(pool.stride) > 16 and max(pooled) > 1, f"stride {_spell(pool.stride)} exceeds 16"),
        (max(pool.padding) > 0, "pools have no padding"),
        (
            not is_sequence(layer) and max(pooled) > 1 and pool.stride[0] != pool.stride[1],
            f"stride {_spell(pool.stride)} is not equal in rows and columns",
        ),
        (
            alone and passes > machine.max_pool_passes,
            f"{channels:,} channels without a convolution exceed {PROCESSORS}",
        ),
    )


def _check_operands(layer: LayerWork, _: Max78000Parameters) -> str | None:
    combined = bool({"Add", "Sub"} & set(layer.op_types))
    in_flight = combined and layer.op_types[-1] == "Conv"
    shapes = " and ".join(map(str, layer.inputs))
    channels = to_plane(layer.inputs[0])[0]
    kinds = [str(node.attributes.get("activation", "none")) for node in layer.nodes]
    other = [kind for kind in kinds if kind not in ("none", "Relu")]
    return _find_reason(
        (len(layer.inputs) != 1 + combined, f"{len(layer.inputs)} operands {shapes}"),
        (len(set(layer.inputs)) > 1, f"operands {shapes} have different shapes"),
        (in_flight and channels > 128, f"{channels:,} channels before a convolution exceed 128"),
        (bool(other), f"activation {', '.join(other)} is not Relu"),
        (combined and "Relu" in kinds[:1], "an element-wise operation has no activation"),
    )


def _check_data(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    for name, shape in (("input", layer.inputs[0]), ("output", layer.output)):
        channels, rows, columns = to_plane(shape)
        by_channel = name == "input" and channels <= PROCESSORS // SHARED
        size = rows * columns * (1 if by_channel else SHARED * count_passes(channels))
        size *= len(layer.inputs) if name == "input" else 1
        if size > machine.data_bytes:
            return (
                f"{name} of {_spell((rows, columns))} pixels takes {size:,} bytes of the data "
                f"memory of processors 0 to 3, which has {machine.data_bytes:,}"
            )
    return None


def _check_weights(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    kernels = count_kernels(layer)
    last = count_processors(to_plane(layer.inputs[0])[0]) - 1
    reason = f"{kernels:,} kernels of 9 bytes exceed the {machine.kernels:,} of processor {last}"
    return _find_reason(
        (layer.weight_bits > 8, f"weights of {layer.weight_bits} bits exceed 8"),
        (kernels > machine.kernels, reason),
    )


def _check_flattened(layer: LayerWork, machine: Max78000Parameters) -> str | None:
    channels, rows, columns = plane = to_plane(layer.inputs[0])
    return _find_reason(
        (
            layer.op_types == ("MatMul",) and len(layer.inputs[0]) > 1,
            f"{channels:,} rows of a product; a fully connected layer has one",
        ),
        (prod(plane) > 16_384, f"{_spell(plane)} inputs exceed 16,384"),
        (rows * columns > 256, f"{_spell((rows, columns))} pixels exceed 256"),
        (channels > machine.max_channels, f"{channels:,} inputs exceed {machine.max_channels:,}"),
    )


def _check_placement(layer: LayerWork, _: Max78000Parameters) -> str | None:
    shapes = layer.inputs
    joined = layer.op_types == ("Concat",)
    spelled = " and ".join(map(str, shapes))
    planes = {shape[1:] for shape in (*shapes, layer.output)}
    return _find_reason(
        (joined and len(planes) > 1, f"{spelled} are not joined along channels"),
        (
            joined and any(shape[0] % SHARED for shape in shapes[:-1]),
            f"channels of {spelled} are not multiples of four",
        ),
        (shapes[0][0] != layer.output[0] and not joined, f"{spelled} changes its channels"),
    )


SIZES = OperationLimit("sizes", "1,024 channels and 1,023 rows and columns at most", _check_sizes)
KERNEL = OperationLimit("kernel", "1 x 1, 3 x 3 or a length of 1 to 9; stride 1", _check_kernel)
PADDING = OperationLimit("padding", "0, 1 or 2, equal on both sides", _check_padding)
TRANSPOSED = OperationLimit("transposed", "3 x 3, stride 2, padding 1", _check_transposed)
POOL = OperationLimit("pool", "windows and strides up to 16, no padding", _check_pool)
OPERANDS = OperationLimit("operands", "two tensors of one shape; only ReLU", _check_operands)
DATA = OperationLimit("data memory", "a plane fits into an instance of data memory", _check_data)
WEIGHTS = OperationLimit("weight memory", "a processor stores its kernels", _check_weights)
FLATTENED = OperationLimit("flattened", "a vector of at most 16,384 inputs", _check_flattened)
PLACEMENT = OperationLimit("placement", "multiples of four channels", _check_placement)
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
    network_limits=(
        NetworkLimit(
            "weight memory",
            "the processors store the weights of all layers",
            lambda layers, machine: place_weights(layers, machine.kernels),
        ),
    ),
    peak_macs=lambda _: PROCESSORS * KERNEL_BYTES,
    layouts=("HWC in words of four channels", "the network's input: HWC or CHW"),
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
    arithmetic=compute_nodes,
    sources=(LATENCY, "github.com/analogdevicesinc/ai8x-synthesis, README.md"),
    published=publish_figures(START_CYCLES),
    fitted=("start_cycles", "FIFO_US_PER_WORD"),
    validated=True,
)
