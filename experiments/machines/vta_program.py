"""Instructions of a convolution on VTA, in the order that TVM issues them, as tasks.

TVM's schedule is ``vta/python/vta/top/vta_conv2d.py`` of apache/tvm at commit 801c26d (June 2021);
its passes inject the copies, tokens and virtual threads. One convolution is one launch.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from experiments.machines.description import UnitTask
from experiments.machines.events import SharedPort, TaskTimes, simulate_tasks
from experiments.machines.vta_tiles import (
    INSTRUCTION_BYTES,
    PIPELINE,
    QUEUE,
    SUM_BYTES,
    SYNC,
    VECTOR_BYTES,
    WEIGHT_BYTES,
    VtaConvolution,
    VtaParameters,
    VtaTile,
    count_gemm,
    count_read,
    count_write,
    find_tile,
)

UNITS = ("fetch", "load", "compute", "store")


def list_instructions(
    shape: VtaConvolution, machine: VtaParameters, tile: VtaTile | None = None
) -> list[UnitTask]:
    """Return the tasks of a convolution; the first task fetches instructions."""
    return _Program(shape, tile or find_tile(shape, machine), machine).build()


class _Program:
    """Instructions of one convolution in the order that TVM issues them, as tasks.

    Each virtual thread has a part of the buffers. Its first load waits for the GEMM instruction
    that clears its sums; this instruction waits for the store of the thread's previous tile. Each
    later load waits for the previous GEMM instruction of the thread. Loads therefore overlap only
    with the GEMM of the other thread.
    """

    def __init__(self, shape: VtaConvolution, tile: VtaTile, machine: VtaParameters) -> None:
        self.shape = shape
        self.tile = tile
        self.machine = machine
        self.burst_bytes = machine.bus_bytes * machine.burst_beats
        self.threads = range(tile.output_threads * tile.row_threads)
        self.vectors = tile.outputs * tile.rows * tile.columns
        self.tasks: list[UnitTask] = []
        self.issued = 0
        self.fetch = 0
        self.kernels: set[tuple[str, int]] = set()
        self.stored: list[list[int]] = [[] for _ in self.threads]

    def build(self) -> list[UnitTask]:
        """Return the tasks of all tiles, with the final synchronisation."""
        shape, tile = self.shape, self.tile
        for strip, group, column in product(
            range(shape.rows // tile.rows // tile.row_threads),
            range(shape.outputs // tile.outputs // tile.output_threads),
            range(shape.columns // tile.columns),
        ):
            row, block = strip * tile.row_threads, group * tile.output_threads
            self._add_tiles(
                [
                    (row + thread % tile.row_threads, block + thread % tile.output_threads, column)
                    for thread in self.threads
                ]
            )
        self._add("compute", SYNC, [need for stored in self.stored for need in stored])
        self._add("compute", SYNC)
        return self.tasks

    def _add(
        self,
        unit: str,
        cycles: int,
        needs: Sequence[int] = (),
        port: tuple[int, int] = (0, 0),
        size: int = 0,
    ) -> int:
        """Append an instruction; append a fetch before the first instruction of a burst."""
        per_burst = self.burst_bytes // INSTRUCTION_BYTES
        if self.issued % per_burst == 0:
            self.fetch = len(self.tasks)
            slots, bursts = count_read(0, self.burst_bytes, self.machine)
            self.tasks.append(
                UnitTask("fetch", per_burst + bursts + 1, self.burst_bytes, port_cycles=slots)
            )
        self.issued += 1
        slots, bursts = port
        self.tasks.append(
            UnitTask(unit, cycles + bursts, size, (*needs, self.fetch), port_cycles=slots)
        )
        return len(self.tasks) - 1

    def _add_kernel(self, name: str, thread: int, *extents: int) -> None:
        """Load the micro-operations of an instruction that a thread issues for the first time.

        The instruction has the two outermost loops, micro-operations unroll the others.
        """
        if (name, thread) not in self.kernels:
            self.kernels.add((name, thread))
            size = -(-prod([extent for extent in extents if extent > 1][2:]) // 2) * 8
            self._add("compute", 1, (), count_read(0, size, self.machine), size)

    def _add_tiles(self, places: Sequence[tuple[int, int, int]]) -> None:
        """Append the instructions of one tile of each thread."""
        tile = self.tile
        kernel = self.shape.kernel
        ready = []
        for thread in self.threads:
            self._add_kernel("clear", thread, tile.columns, tile.outputs, tile.rows)
            cycles = count_gemm(self.vectors, self.machine, 2)
            ready.append(self._add("compute", cycles, self.stored[thread]))
        for step in range(self.shape.inputs // tile.inputs):
            loaded = [
                self._add_loads(place, step, ready[thread]) for thread, place in enumerate(places)
            ]
            for thread in self.threads:
                self._add_kernel(
                    "gemm",
                    thread,
                    tile.inputs,
                    tile.columns,
                    kernel,
                    kernel,
                    tile.outputs,
                    tile.rows,
                )
                steps = self.vectors * tile.inputs * kernel**2
                cycles = count_gemm(steps, self.machine, 5)
                ready[thread] = self._add("compute", cycles, [loaded[thread]])
        for thread in self.threads:
            ready[thread] = self._add_alu(thread)
        for thread, place in enumerate(places):
            self.stored[thread] = [self._add_store(place, ready[thread])]

    def _add_loads(self, place: tuple[int, int, int], step: int, ready: int) -> int:
        """Append the loads of inputs and weights of one step; return the last one."""
        shape, tile = self.shape, self.tile
        edges = []
        padded = []
        inside = []
        for start, size, whole in (
            (place[0] * tile.rows, tile.rows, shape.height),
            (place[2] * tile.columns, tile.columns, shape.width),
        ):
            first = start * shape.stride - shape.padding
            last = first + (size - 1) * shape.stride + shape.kernel
            edges.append(max(first, 0))
            padded.append(last - first)
            inside.append(min(last, whole) - max(first, 0))
        # a padding vector takes the cycles of its beats
        beats = max(VECTOR_BYTES // self.machine.bus_bytes, 1)
        padding = beats * (padded[0] * padded[1] - inside[0] * inside[1])
        blocks = range(step * tile.inputs, (step + 1) * tile.inputs)
        starts = [(block * shape.height + edges[0]) * shape.width + edges[1] for block in blocks]
        port = self._count_rows(
            count_read, starts, inside[0], inside[1], shape.width, bool(shape.padding)
        )
        size = prod(inside) * tile.inputs * VECTOR_BYTES
        self._add("load", 1 + padding, [ready], port, size)
        size = tile.outputs * tile.inputs * shape.kernel**2 * WEIGHT_BYTES
        return self._add("load", 1, [ready], count_read(0, size, self.machine), size)

    def _add_alu(self, thread: int) -> int:
        """Append bias, ReLU, rounding, shift and clip of a tile; return the last one."""
        size = self.tile.outputs * SUM_BYTES
        if self.shape.bias:
            self._add("compute", 1, (), count_read(0, size, self.machine), size)
            self._add_kernel("bias", thread)
            self._add("compute", 2 * self.vectors + PIPELINE)
        last = 0
        for name in ("relu", "round", "shift", "least", "most")[not self.shape.relu :]:
            self._add_kernel(name, thread)
            last = self._add("compute", self.vectors + PIPELINE)
        return last

    def _add_store(self, place: tuple[int, int, int], ready: int) -> int:
        """Append the store of a tile."""
        shape, tile = self.shape, self.tile
        blocks = range(place[1] * tile.outputs, (place[1] + 1) * tile.outputs)
        starts = [
            (block * shape.rows + place[0] * tile.rows) * shape.columns + place[2] * tile.columns
            for block in blocks
        ]
        port = self._count_rows(count_write, starts, tile.rows, tile.columns, shape.columns, False)
        return self._add("store", 1, [ready], port, self.vectors * VECTOR_BYTES)

    def _count_rows(
        self,
        count: Callable[[int, int, VtaParameters], tuple[int, int]],
        starts: Sequence[int],
        rows: int,
        columns: int,
        width: int,
        separate: bool,
    ) -> tuple[int, int]:
        """Return memory cycles and bursts of the rows of several planes; full rows are merged."""
        if columns == width and not separate:
            rows, columns = 1, rows * columns
        parts = [
            count(
                (start + row * width) * VECTOR_BYTES % self.burst_bytes,
                columns * VECTOR_BYTES,
                self.machine,
            )
            for start in starts
            for row in range(rows)
        ]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)


def simulate_instructions(tasks: Sequence[UnitTask]) -> TaskTimes:
    """Return the times of instructions; the memory serves its clients in turn."""
    return simulate_tasks(tasks, dict.fromkeys(UNITS, QUEUE), SharedPort(1))
