"""The compiler's back end: the operations of one region become a Program for one Arch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from byoc.emission.constants import ConstantPool
from byoc.emission.emit import emit
from byoc.emission.memplan import peak_bytes
from byoc.emission.report import CompileReport, tiles_by_layer
from byoc.graph import Value
from byoc.layers.layer import make_layer
from byoc.lowering.lower import Buffer, Lowered, lower
from byoc.lowering.split import split_operation, split_requantise
from byoc.operations import Operation, is_free
from byoc.options import Schedule
from byoc.partition import Region
from byoc.scheduling.default import schedule_default
from byoc.scheduling.pool import SearchPool
from byoc.scheduling.seed import schedule_seed, smallest_seed_tiling
from byoc.scheduling.stream import Memory
from byoc.tiling.search import smallest_tiling
from byoc.tiling.shortage import shortage_message
from isa.arch import Arch
from isa.program import Program, Segment, Tensor, TensorType

_ALIGNMENT = 64


def compile_region(
    region: Region,
    values: Mapping[str, Value],
    arch: Arch,
    schedule: Schedule = "default",
    emulate_depthwise: bool = False,
    *,
    data: bool = True,
    pool: SearchPool | None = None,
) -> tuple[Program, CompileReport]:
    """The program of a region and its report. ``values`` holds at least the region's inputs and outputs.

    Without ``data`` the weights are not looked at and the program's constants are zeros that take no memory: its cycles
    are the same. A ``pool`` that is kept remembers tilings, and programs for larger scratchpads, for next time.

    System memory: inputs, outputs, intermediates, constants, commands, each at a multiple of 64 bytes. Raises
    InputError for an operation that does not fit or that the ISA lacks (partitioning prevents both).
    """
    lowered = lower(region.operations, values, region.inputs, region.outputs)
    if schedule == "seed":
        lowered = split_requantise(lowered)
    layers = tuple(make_layer(operation, arch, emulate_depthwise) for operation in lowered.operations)
    dram, end = _layout(lowered.buffers)
    stored = frozenset(buffer.name for buffer in lowered.buffers if buffer.role == "output")

    def fresh() -> Memory:
        return Memory(arch, lowered, dram, ConstantPool(end, arch, data=data), stored=stored)

    if schedule == "seed":
        scheduled = schedule_seed(layers, fresh())
    else:
        subject = (region, emulate_depthwise, data) if pool is not None else None
        scheduled = schedule_default(layers, fresh, pool or SearchPool(), subject)
    known = pool.program(scheduled) if pool is not None else None
    if known is not None:
        return replace(known[0], arch=arch), known[1]
    emission = emit(scheduled.steps, scheduled.addresses, arch, strict=schedule == "seed")
    image = scheduled.memory.constants.image()
    command_address = _up(end + image.size)
    program = Program(
        name=region.name,
        arch=arch,
        words=emission.words,
        tensors=_tensors(region, lowered, values, dram),
        segments=(Segment(end, image),) if image.size else (),
        provenance=emission.provenance,
        dram_bytes=command_address + 8 * len(emission.words),
        command_address=command_address,
    )
    peak = peak_bytes(scheduled.requests, scheduled.addresses)
    report = CompileReport(emission.words_before_elision, len(emission.words), peak, tiles_by_layer(scheduled.steps))
    if pool is not None:
        pool.add_program(scheduled, program, report)
    return program, report


def shortage(operation: Operation, arch: Arch, schedule: Schedule, emulate_depthwise: bool) -> str | None:
    """None where the operation can be tiled into the scratchpad, else the buffers of the smallest working set."""
    if is_free(operation):
        return None
    for part in split_operation(operation) if schedule == "seed" else (operation,):
        layer = make_layer(part, arch, emulate_depthwise)
        smallest = smallest_seed_tiling(layer) if schedule == "seed" else smallest_tiling(layer)
        message = shortage_message(layer, smallest, arch)
        if message is not None:
            return message
    return None


def _up(address: int) -> int:
    return -(-address // _ALIGNMENT) * _ALIGNMENT


def _layout(buffers: tuple[Buffer, ...]) -> tuple[dict[str, int], int]:
    """The address of every buffer and the first free address behind them."""
    addresses, end = {}, 0
    for role in ("input", "output", "intermediate"):
        for buffer in buffers:
            if buffer.role == role:
                addresses[buffer.name] = end
                end = _up(end + buffer.nbytes)
    return addresses, end


def _tensors(
    region: Region, lowered: Lowered, values: Mapping[str, Value], dram: Mapping[str, int]
) -> tuple[Tensor, ...]:
    def tensor(name: str, role: Literal["input", "output"]) -> Tensor:
        value, place = values[name], lowered.places[name]
        dtype: TensorType = "int32" if value.dtype == "int32" else "int8"
        return Tensor(name, role, dtype, value.shape, dram[place.buffer] + place.offset)

    return (
        *(tensor(name, "input") for name in region.inputs),
        *(tensor(name, "output") for name in region.outputs),
    )
