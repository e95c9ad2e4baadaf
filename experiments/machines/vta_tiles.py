"""Tiles of convolutions on VTA, with the cycles of its GEMM core and of its memory.

Constants are counted in the state machines of the Chisel sources of tvm-vta at commit c18a224
(June 2021, tvm-vta#30).
"""

from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from experiments.machines.description import MachineParameters
from isa.arch import declare_key

BLOCK = 16
"""Channels of a vector, and rows and columns of the GEMM core (core/Configs.scala)."""
VECTOR_BYTES = BLOCK
WEIGHT_BYTES = BLOCK * BLOCK
SUM_BYTES = 4 * BLOCK
INSTRUCTION_BYTES = 16
QUEUE = 512
"""instQueueEntries of core/Configs.scala."""
PIPELINE = 7
"""Start, index generator and pipeline of TensorGemm and TensorAlu until the next instruction."""
SYNC = 2
READ_BURST = 4
"""Memory cycles of a read burst besides its beats: two for the address, two until the first beat
(dpi/VTAMemDPI.scala, VTAMemDPI.v). The client needs one more cycle, its next command."""
WRITE_BURST = 2
"""Memory cycles of a write burst besides its beats and the reads of its vectors
(TensorStore.scala): address and response. The client needs one more cycle, its next command."""


class VtaParameters(MachineParameters):
    """Parameters of VTA; the defaults are tsim_sample.json and the De10 shell."""

    clock_hz: int = declare_key(100_000_000, "Hz", "clock", "clock of the DE10-Nano build", 1)
    bus_bytes: int = declare_key(8, "bytes", "AXI width", "bytes of an AXI beat", 8, 64)
    burst_beats: int = declare_key(16, "beats", "burst", "beats of a burst (lenBits 4)", 2, 256)
    input_bytes: int = declare_key(1 << 15, "bytes", "input buffer", "buffer of inputs", 1024)
    weight_bytes: int = declare_key(1 << 18, "bytes", "weight buffer", "buffer of weights", 8192)
    sum_bytes: int = declare_key(1 << 17, "bytes", "accumulators", "buffer of sums", 4096)
    threads: int = declare_key(2, "threads", "virtual threads", "virtual threads of TVM", 1, 2)
    tophub: int = declare_key(
        1, "", "TopHub", "1: TopHub's tiles where there are any; 0: tiles by an estimate", 0, 1
    )
    pipelined: int = declare_key(
        1, "", "pipelined GEMM", "0: core of four cycles a step, before tvm-vta#30", 0, 1
    )


class VtaConvolution(NamedTuple):
    """Convolution in blocks of 16 channels, with the operations fused into it."""

    inputs: int
    height: int
    width: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    bias: bool
    relu: bool

    @property
    def rows(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def columns(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1


class VtaTile(NamedTuple):
    """Tile of a virtual thread: output rows and columns, blocks of channels, threads by axis."""

    rows: int
    columns: int
    inputs: int
    outputs: int
    output_threads: int
    row_threads: int


def count_gemm(steps: int, machine: VtaParameters, pipeline: int) -> int:
    """Return cycles of a GEMM instruction; ``pipeline`` applies to the core of four cycles."""
    return steps + PIPELINE if machine.pipelined else 4 * steps + pipeline


@lru_cache(maxsize=65536)
def count_read(offset: int, size: int, machine: VtaParameters) -> tuple[int, int]:
    """Return memory cycles and bursts of a read of ``size`` bytes at ``offset`` in a burst."""
    bursts = -(-(offset + size) // (machine.bus_bytes * machine.burst_beats))
    beats = -(-(offset + size) // machine.bus_bytes) - offset // machine.bus_bytes
    return beats + READ_BURST * bursts, bursts


def count_write(offset: int, size: int, machine: VtaParameters) -> tuple[int, int]:
    """Return memory cycles and bursts of a write; the store unit reads its buffer per vector."""
    cycles, bursts = count_read(offset, size, machine)
    return cycles - (READ_BURST - WRITE_BURST) * bursts + size // VECTOR_BYTES, bursts


# (input blocks, height and width, output blocks, kernel, stride): tile. Records of TopHub,
# tlc-pack/tophub, vta_v0.10.log, target pynq_1x16_i8w8a32_15_15_18_17; the fastest of each shape.
TOPHUB = {
    (4, 56, 4, 1, 1): VtaTile(8, 56, 2, 2, 2, 1),
    (4, 56, 4, 3, 1): VtaTile(8, 56, 1, 2, 2, 1),
    (4, 56, 8, 1, 2): VtaTile(7, 28, 1, 4, 1, 2),
    (4, 56, 8, 3, 2): VtaTile(7, 28, 1, 4, 2, 1),
    (4, 56, 16, 1, 1): VtaTile(8, 56, 2, 2, 2, 1),
    (8, 28, 8, 3, 1): VtaTile(14, 28, 1, 2, 1, 2),
    (8, 28, 16, 1, 2): VtaTile(7, 14, 1, 8, 2, 1),
    (8, 28, 16, 3, 2): VtaTile(14, 14, 1, 4, 2, 1),
    (8, 28, 32, 1, 1): VtaTile(14, 28, 2, 2, 2, 1),
    (8, 56, 8, 3, 2): VtaTile(28, 7, 1, 4, 2, 1),
    (16, 14, 16, 3, 1): VtaTile(14, 14, 1, 4, 2, 1),
    (16, 14, 32, 1, 2): VtaTile(7, 7, 1, 16, 2, 1),
    (16, 14, 32, 3, 2): VtaTile(7, 7, 1, 16, 2, 1),
    (16, 14, 64, 1, 1): VtaTile(14, 14, 2, 4, 2, 1),
    (16, 28, 16, 3, 2): VtaTile(14, 7, 1, 8, 2, 1),
    (16, 56, 4, 1, 1): VtaTile(4, 56, 2, 4, 1, 2),
    (16, 56, 8, 1, 1): VtaTile(4, 56, 4, 4, 1, 2),
    (16, 56, 32, 1, 2): VtaTile(1, 28, 8, 32, 1, 2),
    (32, 7, 32, 3, 1): VtaTile(7, 7, 1, 16, 2, 1),
    (32, 7, 128, 1, 1): VtaTile(7, 7, 8, 16, 2, 1),
    (32, 14, 32, 3, 2): VtaTile(7, 7, 1, 16, 2, 1),
    (32, 28, 8, 1, 1): VtaTile(7, 28, 4, 4, 1, 2),
    (32, 28, 16, 1, 1): VtaTile(4, 28, 4, 8, 2, 1),
    (32, 28, 64, 1, 2): VtaTile(7, 14, 1, 8, 2, 1),
    (64, 14, 16, 1, 1): VtaTile(14, 14, 4, 4, 2, 1),
    (64, 14, 32, 1, 1): VtaTile(14, 14, 4, 4, 2, 1),
    (64, 14, 128, 1, 2): VtaTile(7, 7, 1, 16, 2, 1),
    (128, 7, 32, 1, 1): VtaTile(7, 7, 16, 16, 2, 1),
}


@lru_cache(maxsize=4096)
def find_tile(shape: VtaConvolution, machine: VtaParameters) -> VtaTile:
    """Return TopHub's tile, or the tile with the fewest estimated cycles if there is none.

    The buffers must hold at least one output vector.
    """
    key = (shape.inputs, shape.height, shape.outputs, shape.kernel, shape.stride)
    tile = TOPHUB.get(key)
    tuned = machine.tophub and machine.threads == 2 and shape.padding == shape.kernel // 2
    if tile and tuned and shape.width == shape.height and can_run_tile(shape, tile, machine):
        return tile
    axes = [
        [size for size in range(1, whole + 1) if whole % size == 0]
        for whole in (shape.rows, shape.columns, shape.inputs, shape.outputs)
    ]
    threads = [range(1, machine.threads + 1)] * 2
    tiles = (VtaTile(*sizes) for sizes in product(*axes, *threads))
    return min(
        (_estimate(shape, one, machine), one) for one in tiles if can_run_tile(shape, one, machine)
    )[1]


def can_run_tile(shape: VtaConvolution, tile: VtaTile, machine: VtaParameters) -> bool:
    """Return True if TVM can use a tile.

    Tiles are whole, loads and stores have two dimensions, there are at most two threads, and the
    buffers hold the tiles of the threads.
    """
    threads = tile.output_threads * tile.row_threads
    if (
        threads > 2
        or shape.outputs // tile.outputs % tile.output_threads
        or (shape.rows // tile.rows % tile.row_threads)
    ):
        return False
    whole_rows = tile.columns == shape.columns
    if tile.inputs > 1 and (shape.padding or not (whole_rows or tile.rows == 1)):
        return False
    if tile.outputs > 1 and not (whole_rows or tile.rows == shape.rows):
        return False
    pixels = prod(_find_input(shape, tile))
    return (
        threads * pixels * tile.inputs * VECTOR_BYTES <= machine.input_bytes
        and threads * tile.inputs * tile.outputs * shape.kernel**2 * WEIGHT_BYTES
        <= machine.weight_bytes
        and threads * tile.outputs * (tile.rows * tile.columns + 1) * SUM_BYTES <= machine.sum_bytes
    )


def _estimate(shape: VtaConvolution, tile: VtaTile, machine: VtaParameters) -> int:
    """Estimate the cycles of a convolution: the larger of GEMM and loads, plus the ALU."""
    window = shape.kernel**2
    vectors = tile.outputs * tile.rows * tile.columns
    rows, columns = _find_input(shape, tile)
    row, bursts = count_read(0, columns * VECTOR_BYTES, machine)
    size = tile.inputs * tile.outputs * window * WEIGHT_BYTES
    load = tile.inputs * rows * (row + bursts) + count_read(0, size, machine)[0]
    gemm = count_gemm(vectors * tile.inputs * window, machine, 5)
    steps = shape.inputs // tile.inputs
    two = tile.output_threads * tile.row_threads == 2
    cycles = steps * max(load, gemm) if two else steps * (load + gemm)
    count = shape.rows * shape.columns * shape.outputs // vectors
    return count * (cycles + 8 * (vectors + PIPELINE) + load // 2)


def _find_input(shape: VtaConvolution, tile: VtaTile) -> tuple[int, int]:
    """Return rows and columns of the inputs of a tile, with padding."""
    rows, columns = ((size - 1) * shape.stride + shape.kernel for size in (tile.rows, tile.columns))
    return rows, columns
