"""VTA, Apache TVM's accelerator, as the RTL simulation of tvm-vta counts its cycles.

Load, compute and store units execute instructions from queues and wait for each other's tokens. The
memory serves one burst at a time. As published, only convolutions run on VTA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.machines.description import (
    LayerWork,
    MachineDescription,
    MachineMemory,
    MachineOperation,
    MachineUnit,
    OperationLimit,
    UnitTask,
)
from experiments.machines.events import TaskTimes
from experiments.machines.vta_figures import publish_figures
from experiments.machines.vta_program import list_instructions, simulate_instructions
from experiments.machines.vta_tiles import (
    BLOCK,
    VtaConvolution,
    VtaParameters,
    VtaTile,
    can_run_tile,
)

RTL = "github.com/apache/tvm-vta, hardware/chisel, commit c18a224 (pull request 30)"
SCHEDULE = "github.com/apache/tvm, vta/python/vta/top/vta_conv2d.py, commit 801c26d"
TOPHUB = "github.com/tlc-pack/tophub, tophub/vta_v0.10.log"


def describe_convolution(layer: LayerWork) -> VtaConvolution:
    """Return a layer in blocks of 16 channels."""
    (node,) = layer.nodes
    channels, height, width = layer.inputs[0]
    return VtaConvolution(
        channels // BLOCK,
        height,
        width,
        layer.output[0] // BLOCK,
        layer.kernel[0],
        layer.stride[0],
        layer.padding[0],
        bias=len(node.inputs) > 2,
        relu="activation" in node.attributes,
    )


def list_tasks(layer: LayerWork, machine: VtaParameters) -> Sequence[UnitTask]:
    """Return the instructions of a convolution."""
    first, *others = list_instructions(describe_convolution(layer), machine)
    # the launch waits for the end of the layer before
    return (replace(first, needs=(-1,)), *others)


def _check_channels(layer: LayerWork, _: VtaParameters) -> str | None:
    for name, shape in (("input", layer.inputs[0]), ("output", layer.output)):
        if shape[0] % BLOCK:
            return f"{shape[0]} {name} channels are not a multiple of {BLOCK}"
    return None


def _check_window(layer: LayerWork, _: VtaParameters) -> str | None:
    if len(layer.output) != 3:
        return f"an output of {len(layer.output)} dimensions"
    for name in ("kernel", "stride", "padding"):
        sizes = getattr(layer, name)
        if len(set(sizes)) > 1:
            return f"{name} {' x '.join(map(str, sizes))} has different sides"
    if layer.dilation != (1, 1):
        return f"dilation {layer.dilation[0]}"
    return f"{layer.groups} groups" if layer.groups > 1 else None


def _check_buffers(layer: LayerWork, machine: VtaParameters) -> str | None:
    shape = describe_convolution(layer)
    if can_run_tile(shape, VtaTile(1, 1, 1, 1, 1, 1), machine):
        return None
    return f"a kernel of {shape.kernel} x {shape.kernel} is larger than the buffers"


def _check_activation(layer: LayerWork, _: VtaParameters) -> str | None:
    kind = layer.nodes[0].attributes.get("activation", "Relu")
    return None if kind == "Relu" else f"activation {kind}"


def simulate(tasks: Sequence[UnitTask], _: VtaParameters) -> TaskTimes:
    """Return the times of the instructions of all layers."""
    return simulate_instructions(tasks)


MACHINE = MachineDescription(
    name="vta",
    summary="Apache TVM's VTA: 16 x 16 GEMM core, load, compute and store units",
    kind="event-driven",
    parameters=VtaParameters,
    units=(
        MachineUnit("fetch", "one burst of instructions at a time"),
        MachineUnit("load", "inputs and weights"),
        MachineUnit("compute", "16 x 16 multiply-accumulates or a vector of 16 sums a cycle"),
        MachineUnit("store", "results"),
    ),
    memories=(
        MachineMemory("inputs", "input_bytes", BLOCK, "compute"),
        MachineMemory("weights", "weight_bytes", BLOCK * BLOCK, "compute"),
        MachineMemory("accumulators", "sum_bytes", 4 * BLOCK, "compute"),
        MachineMemory("system memory", None, "bus_bytes"),
    ),
    operations=(
        MachineOperation(
            "convolution",
            (("Conv",),),
            (
                OperationLimit("window", "2-D, equal sides, no dilation or groups", _check_window),
                OperationLimit("channels", "multiples of 16 channels", _check_channels),
                OperationLimit("activation", "ReLU or none", _check_activation),
                OperationLimit("buffers", "they hold one output vector", _check_buffers),
            ),
            tasks=list_tasks,
            source=f"{SCHEDULE}; tiles: {TOPHUB}; cycles: {RTL}",
        ),
    ),
    simulate=simulate,
    peak_macs=lambda _: BLOCK * BLOCK,
    layouts=("NCHW1n16c: vectors of 16 channels, rows of a plane of vectors",),
    quantisation=("int8, scales are powers of two, sums int32", "rounding: add, shift, clip"),
    sources=(RTL, SCHEDULE, TOPHUB),
    published=publish_figures(),
    validated=True,
)
