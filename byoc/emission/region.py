"""Back end of the compiler: the operations of one region become a Program for one Arch.

It also computes the schedule-independent demand of a region: bytes to move and cycles to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal

import numpy as np

from byoc.compiled import CompileReport, Demand, Region
from byoc.emission.dataflow import dataflow_of
from byoc.emission.emit import ALIGNMENT, emit
from byoc.estimate.account import price_cycles
from byoc.estimate.bus import MemoryBus
from byoc.estimate.commands import Compute
from byoc.graph import Value
from byoc.layout.boundary import compute_stored_shape
from byoc.layout.region import finer_parts, has_stated_layouts
from byoc.operators.geometry import Geometry
from byoc.operators.layer import (
    OperatorLayer,
    Resident,
    Shortage,
    Tiling,
    align,
    compute_working_set,
    find_shortage,
    make_layer,
    make_streamed,
)
from byoc.operators.operator import Operator
from byoc.operators.products import separate_requantisation
from byoc.operators.window import column
from byoc.options import NOTHING, Choices, Schedule
from byoc.scheduling.default import schedule_default
from byoc.scheduling.fusing import fuse, order_by_image
from byoc.scheduling.lowering import Buffer, Lowered, lower, order_copies, split, value_bytes
from byoc.scheduling.memplan import peak_bytes
from byoc.scheduling.region_context import share_constants
from byoc.scheduling.residency import NoTilingError
from byoc.scheduling.search_pool import SearchPool, sizeless
from byoc.scheduling.seed import schedule_seed, smallest_seed_tiling
from byoc.scheduling.stream import CommandStep, ConstantPool, Memory, Scheduled
from byoc.scheduling.tiling import Budget, smallest_tiling
from isa.arch import Arch
from isa.errors import InputError
from isa.program import Program, Segment, Tensor, TensorType


def tiles_by_layer(steps: tuple[CommandStep, ...]) -> dict[str, int]:
    """Return the number of tiles of each layer of a schedule."""
    found: dict[str, int] = {}
    for step in steps:
        source = step.source
        found[source.layer] = max(found.get(source.layer, 0), source.tile + 1)
    return found


Compiled = tuple[Program, CompileReport]


def compile_region(
    region: Region,
    values: Mapping[str, Value],
    arch: Arch,
    schedule: Schedule = "default",
    *,
    data: bool = True,
    pool: SearchPool[Compiled] | None = None,
    choices: Choices = NOTHING,
) -> Compiled:
    """Compile a region and return its program and report.

    ``values`` contains the region's tensors (:func:`values_of`), because their shapes determine the
    layouts. ``choices`` fix parts of the schedule; they may include choices for layers of other
    regions.

    Without ``data`` the weights are not read and the program's constants are zeros that take no
    memory; its cycles are the same. A ``pool`` remembers tilings, and programs for larger
    scratchpads, for later calls. Schedules are chosen for the bus of the pool, or the default bus
    without one.

    System memory contains, in this order: inputs, outputs, intermediates, constants and commands,
    each at a multiple of 64 bytes. Intermediates share bytes that are free. Raises InputError for
    an operation that does not fit or that the ISA lacks; partitioning prevents both.
    """
    shared = pool or SearchPool[Compiled]()
    if schedule == "seed":
        lowered, layers = layers_of(region, values, arch, schedule)
        scheduled = schedule_seed(layers, empty_memory(lowered, arch, shared.bus, data=data)())
    else:
        contexts = [
            shared.context(
                (region, data, number), arch, partial(_layers_within, order, values, arch)
            )
            for number, order in enumerate(_orders(region, values))
        ]
        found: list[Scheduled] = []
        refused: NoTilingError | None = None
        for number in choices.orders_of([[layer.name for layer in one.layers] for one in contexts]):
            fresh = empty_memory(contexts[number].lowered, arch, shared.bus, data=data)
            subject = (region, data, number, choices) if pool is not None else None
            try:
                found.append(schedule_default(contexts[number], fresh, shared, subject, choices))
            except NoTilingError as error:
                refused = error  # another order of the layers may fit
        if not found:
            raise refused or InputError(
                f"{choices.source}: made for other layers; tune this network again"
            )
        scheduled = min(found, key=_price) if len(found) > 1 else found[0]
    known = shared.get_compiled(scheduled)
    if known is not None:
        return replace(known[0], arch=arch), known[1]
    lowered, sized = scheduled.memory.lowered, sizeless(arch)
    asked = shared.get_or_make(
        (region, lowered, sized), lambda: _compute_demand(region, values, lowered, sized)
    )
    compiled = _emit_region(region, values, scheduled, arch, asked, strict=schedule == "seed")
    shared.add_compiled(scheduled, compiled)
    return compiled


def values_of(region: Region, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the tensors of the model that a region reads, computes or stores."""
    operands = (
        one.value
        for operation in region.operations
        for one in (*operation.inputs, operation.output)
    )
    return {
        name: values[name]
        for name in dict.fromkeys((*region.inputs, *operands, *region.outputs))
        if name in values
    }


def _orders(region: Region, values: Mapping[str, Value]) -> tuple[Region, ...]:
    """Return a region with the orders to try: image by image if that differs, then as given."""
    operations = order_by_image(region.operations, values, (*region.inputs, *region.outputs))
    return (
        (region,)
        if operations == region.operations
        else (replace(region, operations=operations), region)
    )


def _price(scheduled: Scheduled) -> float:
    """Return the estimated cycles plus the price of bus slots.

    Slots cost something even if no unit waits.
    """
    return price_cycles(scheduled.cycles, sum([step.slots for step in scheduled.steps]))


def empty_memory(
    lowered: Lowered, arch: Arch, bus: MemoryBus, *, data: bool
) -> Callable[[], Memory]:
    """Return a function that makes a Memory without scratchpad buffers or constants.

    Without ``data`` constants have no contents.
    """
    dram, end = _layout(lowered.buffers)
    stored = frozenset(buffer.name for buffer in lowered.buffers if buffer.role == "output")
    return lambda: Memory(
        arch, bus, lowered, dram, ConstantPool(end, arch, data=data), stored=stored
    )


def order_layers(
    region: Region, values: Mapping[str, Value], arch: Arch, choices: Choices
) -> tuple[Lowered, tuple[OperatorLayer, ...]]:
    """Return a region's lowered form and layers in the order that ``choices`` apply to."""
    orders = [layers_of(order, values, arch) for order in _orders(region, values)]
    return orders[choices.orders_of([[layer.name for layer in layers] for _, layers in orders])[0]]


def layers_of(
    region: Region, values: Mapping[str, Value], arch: Arch, schedule: Schedule = "default"
) -> tuple[Lowered, tuple[OperatorLayer, ...]]:
    """Return a region's operations with their buffers, and their layers on a machine, in order.

    Element-wise consumers are fused into their producers; the published schedule fuses nothing.
    """
    if schedule == "default":
        return _layers_within(region, values, arch, Budget(arch.sram_bytes))

    def has_tiling(operation: Operator) -> bool:
        return shortage(operation, arch, "default") is None

    lowered = split(
        lower(region.operations, values, region.inputs, region.outputs, arch.memory, has_tiling),
        arch,
    )
    return lowered, tuple(make_layer(operation, arch) for operation in lowered.operations)


def _layers_within(
    region: Region, values: Mapping[str, Value], arch: Arch, budget: Budget
) -> tuple[Lowered, tuple[OperatorLayer, ...]]:
    """Return :func:`layers_of` a region for a scratchpad of ``budget`` bytes.

    The result depends on the scratchpad size only through ``budget``.
    """

    @cache
    def layer_of(operation: Operator) -> OperatorLayer:
        return make_layer(operation, arch)

    @cache
    def least_bytes(operation: Operator) -> int:
        """Return the size in bytes of a layer's smallest tiles if every operand is streamed."""
        geometry = layer_of(operation).geometry
        return compute_working_set(
            geometry, smallest_tiling(geometry, arch), make_streamed(geometry), arch.granule
        )

    def has_tiling(operation: Operator) -> bool:
        return bool(operation.slices) or budget.has_room_for(least_bytes(operation))

    fused = fuse(region.operations, region.outputs, arch, has_tiling)
    lowered = lower(fused, values, region.inputs, region.outputs, arch.memory, has_tiling)
    layers = tuple(map(layer_of, lowered.operations))
    if share_constants(layers):
        lowered = order_copies(lowered, budget.has_room_for)
        layers = tuple(map(layer_of, lowered.operations))
    return lowered, layers


def _compute_demand(
    region: Region, values: Mapping[str, Value], lowered: Lowered, arch: Arch
) -> tuple[int, Demand]:
    """Return the input and output bytes moved, and the lower bounds of any program."""
    moved = count_moved_bytes(lowered, [values[name] for name in region.outputs])
    return moved, demand(region.operations, region.outputs, moved, arch)


def _emit_region(
    region: Region,
    values: Mapping[str, Value],
    scheduled: Scheduled,
    arch: Arch,
    asked: tuple[int, Demand],
    *,
    strict: bool,
) -> Compiled:
    """Emit the program of a scheduled region and its report.

    ``asked`` is the result of :func:`_compute_demand`.
    """
    memory = scheduled.memory
    intermediates = [
        (memory.dram[one.name], memory.dram[one.name] + one.nbytes)
        for one in memory.lowered.buffers
        if one.role == "intermediate"
    ]
    emission = emit(
        scheduled.steps, scheduled.addresses, arch, strict, scheduled.store_waits, intermediates
    )
    image = memory.constants.image()
    start = memory.constants.address
    command_address = align(start + image.size, ALIGNMENT)
    tensors = _tensors(region, memory.lowered, values, memory)
    stated = has_stated_layouts(arch.memory) and memory.constants.has_data
    program = Program(
        name=region.name,
        arch=arch,
        words=emission.words,
        tensors=tensors,
        segments=(Segment(start, image),) if image.size else (),
        provenance=emission.provenance,
        dram_bytes=command_address + 8 * len(emission.words),
        command_address=command_address,
        dataflow=dataflow_of(emission.steps, memory, tensors) if stated else None,
    )
    moved, demanded = asked
    report = CompileReport(
        words_before_elision=emission.words_before_elision,
        words=len(emission.words),
        sram_peak_bytes=peak_bytes(scheduled.requests, scheduled.addresses),
        tiles=tiles_by_layer(scheduled.steps),
        compulsory_bytes=moved + image.size,
        demand=demanded,
        choices=scheduled.choices,
        estimates=scheduled.layers,
    )
    return program, report


def shortage(
    operation: Operator, arch: Arch, schedule: Schedule, pool: SearchPool[Compiled] | None = None
) -> Shortage | None:
    """Return the buffers of an operation's smallest tiling if they do not fit, else None.

    A ``pool`` remembers the smallest tilings, which do not depend on the scratchpad's size.
    """
    if operation.slices:
        return None
    smallest = partial(_list_smallest, operation, arch, schedule)
    shared = pool or SearchPool[Compiled]()
    known = shared.get_or_make((operation, schedule, sizeless(arch)), smallest)
    found = (find_shortage(geometry, tiling, arch) for geometry, tiling in known)
    return next((one for one in found if one is not None), None)


def _list_smallest(
    operation: Operator, arch: Arch, schedule: Schedule
) -> list[tuple[Geometry, Tiling]]:
    """Return the smallest tiling of each layer that an operation becomes."""
    seed = schedule == "seed"
    parts = separate_requantisation(operation, arch) if seed else (operation,)
    geometries = [make_layer(part, arch).geometry for part in parts]
    return [
        (one, smallest_seed_tiling(one) if seed else smallest_tiling(one, arch))
        for one in geometries
    ]


def fit_operations(
    operations: tuple[Operator, ...], arch: Arch, schedule: Schedule, pool: SearchPool[Compiled]
) -> tuple[Operator, ...] | Shortage:
    """Return operations that fit the scratchpad, or the buffers of one that does not.

    Operations on a single row become columns if that is faster, and an operation that does not fit
    is split into finer ones. The shortage belongs to the first operation without a fitting form.
    The published schedule takes operations unchanged.
    """
    found: list[Operator] = []
    for written in operations:
        operation = written if schedule == "seed" else _upright(written, arch, pool)
        missing = shortage(operation, arch, schedule, pool)
        if missing is None:
            found.append(operation)
            continue
        others = () if schedule == "seed" else finer_parts(operation, arch)
        finer = fit_operations(others, arch, schedule, pool)
        if not finer or isinstance(finer, Shortage):
            return missing
        found += finer
    return tuple(found)


def _upright(operation: Operator, arch: Arch, pool: SearchPool[Compiled]) -> Operator:
    """Turn an operation on one row into one on a column if that may be faster.

    The rows of the column can be tiled. The row stays if it takes fewer cycles than the column
    computes. Transfers of the column do not count, because bands stay in the scratchpad between
    consecutive columns.
    """
    turned = pool.get_or_make((column, operation), partial(column, operation))
    if turned is None:
        return operation
    standing, line = (make_layer(one, arch).geometry for one in (turned, operation))
    computed = Compute(standing, arch).tile(standing.nest.channels, standing.nest.rows)
    whole = pool.search(line, arch).best(Resident((False,) * line.inputs), arch.sram_bytes)
    return operation if whole is not None and whole.cycles < computed else turned


def _layout(buffers: tuple[Buffer, ...]) -> tuple[dict[str, int], int]:
    """Assign addresses to buffers and return them with the first free address."""
    addresses = {}
    end = 0
    for role in ("input", "output", "intermediate"):
        for buffer in buffers:
            if buffer.role == role:
                addresses[buffer.name] = end
                end = align(end + buffer.nbytes, ALIGNMENT)
    return addresses, end


def _tensors(
    region: Region, lowered: Lowered, values: Mapping[str, Value], memory: Memory
) -> tuple[Tensor, ...]:
    """Return the region's input and output tensors.

    On banked memory their shape is (surfaces, positions, channels of an atom).
    """

    def tensor(name: str, role: Literal["input", "output"]) -> Tensor:
        value = values[name]
        place = lowered.places[name]
        dtype: TensorType = "int32" if value.dtype == "int32" else "int8"
        shape = compute_stored_shape(value.shape, lowered.layouts[name], memory.arch.memory)
        return Tensor(name, role, dtype, shape, memory.dram[place.buffer] + place.offset)

    return (
        *(tensor(name, "input") for name in region.inputs),
        *(tensor(name, "output") for name in region.outputs),
    )


def demand(operations: Iterable[Operator], stored: Iterable[str], moved: int, arch: Arch) -> Demand:
    """Return lower bounds of the cycles, commands and bytes of ``operations``.

    They store the values ``stored`` and move ``moved`` bytes of inputs and outputs.
    """
    original, stored = tuple(operations), tuple(stored)
    # Fuse all that can be fused, ignoring scratchpad size: a schedule that fuses less computes
    # more.
    fused = fuse(original, stored, arch, lambda one: True)
    work = [
        Compute(make_layer(one, arch).geometry, arch).least()
        for one in _omit_joined(fused, stored)
        if not one.slices
    ]
    constants = _constants(original, fused, arch)
    return Demand(
        compute_cycles=sum(item.cycles for item in work),
        commands=sum(item.commands for item in work),
        nbytes=moved + constants,
        constants=constants,
    )


def _omit_joined(operations: Sequence[Operator], stored: Iterable[str]) -> Iterator[Operator]:
    """Yield the operations without copies that lowering may join with others.

    These are copies of copied bytes, and copies that only other copies read.
    """
    copies = [one for one in operations if one.traits.moves]
    copied = {one.output.value for one in copies}
    needed = {
        operand.value for one in operations if not one.traits.moves for operand in one.inputs
    }.union(stored)
    joined = {
        one.output.value for one in copies if any(each.value in copied for each in one.inputs)
    }
    for one in operations:
        name = one.output.value
        if name not in copied or (name in needed and name not in joined):
            yield one


def _constants(original: Iterable[Operator], fused: Iterable[Operator], arch: Arch) -> int:
    """Return the number of bytes of weights, channel records and constant operands.

    Tables that fusion merged are not counted, because a schedule that fuses less may not need them.
    """
    kept = {id(operation) for operation in original}
    found: dict[Hashable, int] = {}
    for number, operation in enumerate(fused):
        if operation.slices or (id(operation) not in kept and operation.tables is None):
            continue
        constants = operation.constants()
        if constants is not None:
            records = (
                0 if constants.bias is None else constants.bias.size * arch.channel_record_bytes
            )
            weights = 0 if constants.weights is None else constants.weights.size
            found[number if constants.shared is None else (constants.shared,)] = records + weights
        for operand in operation.inputs:
            if operand.value in operation.constant_operands and operation.rows_read() is None:
                found[operand.value] = max(operand.nbytes, found.get(operand.value, 0))
    return sum(found.values())


def count_moved_bytes(lowered: Lowered, outputs: Iterable[Value]) -> int:
    """Return how many bytes ``outputs`` and the inputs that operations read have in total.

    Each byte is counted once.
    """
    # An output may be a slice of a buffer that it shares with other values.
    moved = {
        buffer.name: np.zeros(buffer.nbytes, np.bool_)
        for buffer in lowered.buffers
        if buffer.role != "intermediate"
    }
    for value in outputs:
        place = lowered.places[value.name]
        moved[place.buffer][
            place.offset : place.offset + value_bytes(value, lowered.layouts[value.name])
        ] = True
    read = {buffer.name: moved[buffer.name] for buffer in lowered.buffers if buffer.role == "input"}
    for operation in lowered.operations:
        rows = operation.rows_read()
        for operand in operation.inputs:
            place = lowered.place(operand)
            if place.buffer in read:
                slice_ = read[place.buffer][place.offset : place.offset + operand.nbytes]
                if rows is None:
                    slice_[:] = True
                else:
                    slice_.reshape(operand.layout.surfaces, rows.size, -1)[:, rows] = True
    return sum(int(np.count_nonzero(mask)) for mask in moved.values())
