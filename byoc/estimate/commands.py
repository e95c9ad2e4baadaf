"""Cost of one command, and estimated completion times of the commands of LD, EX and ST.

Bus slots of a tile are estimated from its shape before commands exist; row addresses are then known
only up to a common pitch. Compute cycles come from the instructions' own formulas (:mod:`isa.ops`).
While a schedule is made, :class:`TileClock` estimates tile by tile whether the bus idles.
:func:`run` estimates a complete command stream.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from byoc.estimate.banks import BankUse, Passing, delay
from byoc.estimate.bus import MemoryBus
from byoc.estimate.constants import (
    COMMAND_OVERHEAD,
    DMA_SETUP,
    EX_DRAIN,
    EX_FILL,
    ISSUE_CYCLES,
    QUEUE_DEPTH,
)
from byoc.operators.geometry import Geometry
from byoc.operators.nest import Span, band_rows, make_tile
from byoc.operators.pieces import NO_PADDING, Runs, find_padded_runs, spread_of
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Command, Instruction, Unit, ceil_div
from isa.packing import compute_serving_cycles
from isa.registers import RESET

# Bus slots of tiles.


def constant_slots(
    bus: MemoryBus, geometry: Geometry, channels: int, depth: int, whole: bool
) -> int:
    """Return how many bus slots a tile's constants take.

    With ``whole``, the tile has all columns of a second operand.
    """
    nbytes = geometry.constant_bytes(channels, depth)
    nest = geometry.nest
    if geometry.second == "columns" and not whole:
        return _count_parted_slots(
            bus, nbytes, nest.input_channels, gcd(nest.channels, channels) * geometry.input_bytes
        )
    return bus.dense_slots(nbytes)


def input_slots(
    bus: MemoryBus, geometry: Geometry, channels: int, rows: int, index: int, depth: int
) -> int:
    """Return how many bus slots the load of input ``index`` of one tile takes."""
    nest = geometry.nest
    if geometry.dims:
        dims = [(dim.size, abs(dim.source)) for dim in geometry.tile_dims(channels, rows)]
        return _count_strided_slots(
            bus, dims, spread_of(geometry.dims), find_padded_runs(geometry.dims)
        )
    nbytes = geometry.input_tile_bytes(channels, rows, index, depth)
    if any(geometry.repeat(index)):
        return bus.dense_slots(nbytes)
    if nest.matrix:
        parted = nest.grouped and channels < nest.channels
        return _count_parted_slots(
            bus, nbytes, nest.rows if parted else rows if depth else 1, nest.input_channels
        )
    column = nest.input_columns * geometry.input_bytes
    if rows == nest.rows:
        return bus.dense_slots(nbytes)
    step = gcd(rows * nest.stride * column, nest.pad_top * column)
    return _count_parted_slots(
        bus, nbytes, nbytes // (band_rows(nest, rows) * column), gcd(nest.input_rows * column, step)
    )


def output_slots(bus: MemoryBus, geometry: Geometry, channels: int, rows: int) -> int:
    """Return how many bus slots the store of one tile's output takes."""
    nest = geometry.nest
    if geometry.dims:
        return _count_strided_slots(
            bus, [(dim.size, dim.target) for dim in geometry.tile_dims(channels, rows)], 1
        )
    nbytes = geometry.output_tile_bytes(channels, rows)
    row = nest.columns * geometry.output_bytes
    if nest.matrix:
        return _count_parted_slots(
            bus, nbytes, rows if channels < nest.channels else 1, nest.channels * row
        )
    if rows == nest.rows:
        return _count_parted_slots(bus, nbytes, 1, nbytes)
    return _count_parted_slots(bus, nbytes, channels, gcd(nest.rows, rows) * row)


def _count_strided_slots(
    bus: MemoryBus, dims: Sequence[tuple[int, int]], spread: int, runs: Runs = NO_PADDING
) -> int:
    """Return how many bus slots one side of a strided copy takes.

    ``dims`` are the dimensions of the copy, each (count, byte stride). The bytes between elements
    ``spread`` bytes apart are transferred too, and the padding of ``runs``. Dimensions that form
    contiguous runs are merged.
    """
    run = spread
    nbytes = 1
    rows = 1
    pitch = 0
    for size, stride in sorted(
        (dim for dim in dims if dim[0] > 1 and dim[1]), key=lambda dim: dim[1]
    ):
        if rows == 1 and (stride == run or (run, stride) == runs):
            run = size * stride
            nbytes = nbytes + (size - 1) * stride
        else:
            rows = rows * size
            pitch = gcd(pitch, stride)
    return bus.rows_slots(rows, nbytes, pitch)


def _count_parted_slots(bus: MemoryBus, nbytes: int, count: int, pitch: int) -> int:
    """Return how many bus slots ``nbytes`` bytes take as ``count`` equal rows."""
    return bus.rows_slots(count, nbytes // count, pitch)


class Demanded(NamedTuple):
    """Compute cycles of commands, without fill and drain, and the number of commands."""

    cycles: int
    commands: int


class _UnknownNumberError(LookupError):
    """A cycle formula reads a register or field whose value no estimate may depend on."""


class _Known(dict[str, int]):
    """Register or field values of a command for the evaluation of cycle formulas.

    Reading one of the operator's ``numbers`` raises an error.
    """

    def __missing__(self, name: str) -> int:
        raise _UnknownNumberError(name)


class Compute:
    """Compute cycles of the tiles of one layer, cached."""

    def __init__(self, geometry: Geometry, arch: Arch) -> None:
        self._geometry = geometry
        self._arch = arch
        self._fields = _Known(geometry.fields)
        self._known: dict[tuple[int, int, int], int] = {}
        read = () if geometry.instruction is None else geometry.instruction.registers
        plain = {
            name: RESET[name]
            for name in read
            if name in RESET and name not in geometry.operator.numbers
        }
        added = () if geometry.instruction is None else geometry.instruction.adds_registers
        self._base = {**{one.name: one.reset for one in added}, **plain, **dict(geometry.registers)}

    def tile(self, channels: int, rows: int, depth: int = 0) -> int:
        """Return the cycles of all commands of a tile with ``depth`` input channels.

        A ``depth`` of 0 means all input channels.
        """
        if self._geometry.single:
            return channels * (COMMAND_OVERHEAD + self._command_cycles(1, rows))
        return COMMAND_OVERHEAD + self._command_cycles(channels, rows, depth)

    def least(self) -> Demanded:
        """Return lower bounds of the layer's cycles and commands for any tiling.

        The bound of the cycles is the instruction's formula ``least_cycles``.
        """
        geometry = self._geometry
        nest = self._geometry.nest
        instruction = geometry.instruction
        if instruction is None:
            return Demanded(0, 0)
        many, channels = (nest.channels, 1) if geometry.single else (1, nest.channels)
        command = self._command(instruction, channels, nest.rows)
        return Demanded(many * self._evaluate_formula(instruction.least_cycles, command), many)

    def _command_cycles(self, channels: int, rows: int, depth: int = 0) -> int:
        """Return the cycles of one compute command, by the instruction's formula."""
        instruction = self._geometry.instruction
        if instruction is None:
            return 0
        key = channels, rows, depth
        if key not in self._known:
            self._known[key] = self._evaluate_formula(
                compute_serving_cycles, self._command(instruction, channels, rows, depth)
            )
        return self._known[key]

    def _command(
        self, instruction: Instruction, channels: int, rows: int, depth: int = 0
    ) -> Command:
        """Return the command that computes a tile, for the evaluation of cycle formulas.

        It has only the values that cycle formulas may read.
        """
        geometry = self._geometry
        tile = make_tile(
            geometry.nest, Span(0, channels), Span(0, rows), Span(0, depth) if depth else None
        )
        registers = _Known({**self._base, **geometry.tile_registers(tile)})
        return Command(0, instruction, Unit.EX, False, False, False, False, self._fields, registers)

    def _evaluate_formula(self, formula: Callable[[Command, Arch], int], command: Command) -> int:
        """Evaluate an instruction's cycle formula for a command.

        Raises InputError if it reads one of the operator's ``numbers``.
        """
        try:
            found = formula(command, self._arch)
            if not isinstance(found, int | np.integer):
                raise TypeError(f"cycles returned {found!r}, which is no integer")
            return int(found)
        except _UnknownNumberError as error:
            raise InputError(
                f"the cycle formula of {command.instruction.mnemonic} reads {error.args[0]}, which "
                "is among the "
                f"numbers of operator {self._geometry.operator.__name__}; take it off there"
            ) from error


def copy_cycles(planes: int, nbytes: int, arch: Arch) -> int:
    """Return the cycles of an OP_PERMUTE copy of ``planes`` planes of ``nbytes`` dense bytes each.

    A machine without OP_PERMUTE copies with one command per plane in as many cycles.
    """
    return COMMAND_OVERHEAD + planes * ceil_div(nbytes, arch.lanes)


def compute_repeat_cycles(commands: int) -> int:
    """Return the overhead cycles of ``commands`` additional commands of a tile."""
    return commands * COMMAND_OVERHEAD


_LD, _EX, _ST = _UNITS = tuple(unit.value for unit in (Unit.LD, Unit.EX, Unit.ST))
_UNKNOWN = sys.maxsize


class Stored(NamedTuple):
    """Bus slots of a store, and the scratchpad buffers that the store empties."""

    slots: int
    buffers: tuple[int, ...]


class TileClock:
    """Estimated completion times of EX and LD, tile by tile.

    Stores delay loads on the bus.
    """

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._start = self._ex = self._ld = 0
        self._readable: list[int] = []
        self._stored: dict[int, int] = {}

    @property
    def idle(self) -> bool:
        """True if LD would idle before the computation ends."""
        return self._ld < self._ex

    @property
    def end(self) -> int:
        """Estimated cycle at which all computations and transfers added so far end."""
        return max(self._ex, self._ld)

    def load(self, cycles: int, release: int, *, late: bool = False) -> int:
        """Add a load during the computation of the current tile and return its arrival cycle.

        With ``late``, the load may begin before this computation. ``release`` is the first tile
        during which the loaded data is available in system memory.
        """
        source = self._readable[release - 1] if release else 0
        self._ld = max(self._ld, source, 0 if late else self._start) + cycles
        return self._ld

    def wait(self, arrival: int) -> None:
        """Make EX wait until the cycle ``arrival`` of a load."""
        self._ex = max(self._ex, arrival)

    def compute(self, cycles: int, stores: Iterable[Stored]) -> None:
        """Add a tile's computation, which writes the scratchpad buffers of ``stores``.

        EX waits until earlier stores have emptied these buffers.
        """
        busy = (self._stored.get(buffer, 0) for store in stores for buffer in store.buffers)
        self._start = max(self._ex, *busy, 0)
        self._ex = self._start + cycles

    def store(self, stores: Iterable[Stored]) -> None:
        """Add the stores of the tile that was computed last."""
        for slots, buffers in stores:
            self._ld = max(self._ld, self._ex) + slots
            self._stored.update(dict.fromkeys(buffers, self._bus.transfer_cycles(self._ld)))
        self._readable.append(self._bus.transfer_cycles(self.end))


class CommandTask(NamedTuple):
    """Command with its unit, its work, and the commands that must end before it begins.

    ``work`` is the number of bus slots, or the cycles of EX. ``banks`` lists the bank accesses if
    transferred words may delay EX.
    """

    unit: int
    work: int
    needs: tuple[int, ...]
    banks: tuple[BankUse, ...] = ()


class CommandClockTimes(NamedTuple):
    """EX cycles or bus slots of each command, and the cycle at which each ends."""

    work: Sequence[int]
    ends: Sequence[int]


def run(tasks: Sequence[CommandTask], begin: int, bus: MemoryBus) -> CommandClockTimes:
    """Return the estimated end cycle of each command in stream order.

    The first one is issued in cycle ``begin``.

    A command waits for room in its unit's queue and for the commands in ``needs``; later commands
    are not issued before it. Loads and stores share the bus. If transferred words delay EX, the
    estimate is repeated with these delays.
    """
    work = [task.work for task in tasks]
    clock = _CommandClock(tasks, work, begin, bus)
    clock.run()
    delays = clock.delays()
    if any(delays):
        work = [cycles + late for cycles, late in zip(work, delays, strict=True)]
        clock = _CommandClock(tasks, work, begin, bus)
        clock.run()
    return CommandClockTimes(work, clock.ends[:-1])


class _CommandClock:
    """Simulation of LD, EX and ST that finds the cycle in which each command ends.

    ``ends`` contains the cycles that are known so far. The other commands wait for a transfer that
    is still in progress.
    """

    def __init__(
        self, tasks: Sequence[CommandTask], work: Sequence[int], begin: int, bus: MemoryBus
    ) -> None:
        self._tasks = tasks
        self._work = work
        self._moved: dict[int, list[Passing]] = {_LD: [], _ST: []}  # finished transfers
        self._moved_by: dict[int, list[int]] = {_LD: [], _ST: []}  # their end cycles
        self._units = [task.unit for task in tasks]
        self._needs = [task.needs for task in tasks]
        self.ends = [_UNKNOWN] * len(tasks) + [0]  # the last entry stands for an empty queue place
        # (command, arrival cycle) by unit
        self._waiting: tuple[list[tuple[int, int]], ...] = ([], [], [])
        self._queues = [[-1] * QUEUE_DEPTH for _ in _UNITS]
        self._issued = 0
        self._time = begin - ISSUE_CYCLES
        self.free = [0, 0, 0]
        # cycles of a transfer before its bytes move, and after them
        self._lead = {_LD: bus.transfer_lead, _ST: DMA_SETUP}
        self._overhead = bus.transfer_cycles(0)
        self._began = [0, 0, 0]  # when the bytes of the last transfer of each unit began to move
        # by unit: first cycle of its bytes, slots left, command
        self._moving: dict[int, tuple[int, int, int]] = {}

    def run(self) -> None:
        """Advance the clock until no transfer is left and all commands have run."""
        while self._proceed():
            pass

    def delays(self) -> list[int]:
        """Return the cycles by which transferred words would delay each EX command."""
        return [
            self._delay(number) if task.unit == _EX and task.banks else 0
            for number, task in enumerate(self._tasks)
        ]

    def _delay(self, number: int) -> int:
        """Return the cycles by which transferred words delay an EX command."""
        task = self._tasks[number]
        end = self.ends[number] - EX_DRAIN
        begin = self.ends[number] - self._work[number] + EX_FILL
        passing = list[Passing]()
        for unit, moved in self._moved.items():
            for index in range(bisect_right(self._moved_by[unit], begin), len(moved)):
                if moved[index].begin >= end:
                    break
                passing.append(moved[index])
        return delay(task.banks, begin, end, passing) if passing else 0

    def _proceed(self) -> bool:
        """Advance the clock to the end of a transfer; return False if none is running."""
        moving = True
        while moving:
            moving = self._issue()
            for unit in _UNITS:
                waiting = self._waiting[unit]
                while waiting and unit not in self._moving and self._try_begin(unit, *waiting[0]):
                    del waiting[0]
                    moving = True
        return self._grant()

    def _issue(self) -> bool:
        """Issue commands until a queue is full and return whether any was issued."""
        ends = self.ends
        number = self._issued
        time = self._time
        first = number
        count = len(self._units)
        while number < count:
            unit = self._units[number]
            queue = self._queues[unit]
            room = ends[queue[-QUEUE_DEPTH]]
            if room == _UNKNOWN:
                break
            time = max(time + ISSUE_CYCLES, room)
            self._waiting[unit].append((number, time))
            queue.append(number)
            number += 1
        self._issued = number
        self._time = time
        return number > first

    def _try_begin(self, unit: int, number: int, begin: int) -> bool:
        """Start a unit's next command if its start cycle is known; return whether it began."""
        ends = self.ends
        free = self.free
        if free[unit] > begin:
            begin = free[unit]
        for other in self._needs[number]:
            end = ends[other]
            if end > begin:
                if end == _UNKNOWN:
                    return False
                begin = end
        if unit == _EX:
            ends[number] = free[_EX] = begin + self._work[number]
        else:
            self._began[unit] = begin + self._lead[unit]
            self._moving[unit] = self._began[unit], self._work[number], number
        return True

    def _grant(self) -> bool:
        """Advance the running transfers until one of them ends.

        Two concurrent transfers share the bus equally.
        """
        if not self._moving:
            return False
        if len(self._moving) == 1:
            ((unit, (start, slots, _)),) = self._moving.items()
            self._handle_end(unit, start + slots)
            return True
        one, two = sorted(self._moving, key=lambda unit: self._moving[unit])
        start, slots, first = self._moving[one]
        later, more, second = self._moving[two]
        if start + slots <= later:
            self._handle_end(one, start + slots)
            return True
        slots -= later - start
        end = later + 2 * min(slots, more)
        if slots <= more:
            self._moving[two] = end, more - slots, second
            self._handle_end(one, end)
        else:
            self._moving[one] = end, slots - more, first
            self._handle_end(two, end)
        return True

    def _handle_end(self, unit: int, end: int) -> None:
        number = self._moving.pop(unit)[2]
        for use in self._tasks[number].banks:
            self._moved[unit].append(Passing(self._began[unit], end, use))
            self._moved_by[unit].append(end)
        self.ends[number] = self.free[unit] = end + self._overhead - self._lead[unit]
