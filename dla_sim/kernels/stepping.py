"""Compiled execution of a table of steps: numba runs many commands in one call.

The module needs the extra ``fast``. Each row of a table is a step: its kind, then the columns that
the function of the kind unpacks. `dla_sim.kernels.steps` makes the rows and checks all addresses.

Products are computed in tiles of sums that stay in vector registers. A vector has 16 lanes of
int32, one per output channel. Weights are stored as 64 bytes per vector and step: ``GROUP``
consecutive input elements for every lane. An input element is an int8 plus 128 on processors with
VNNI, which multiply uint8 by int8, and an int16 on all others. All code is in this file because
numba's cache only notices changes of the file of a cached function.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numpy.typing import NDArray

from dla_sim.jit import compile_cached

Table = NDArray[np.int64]
Bytes = NDArray[np.int8]
_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2]
VNNI = "+avx512vnni" in _FEATURES
GROUP = 4 if VNNI else 2
"""Input elements that one step multiplies per lane; together they have 32 bits."""
SIZES = ((4, 6), (2, 12), (1, 14)) if "+avx512f" in _FEATURES else ((2, 2), (2, 2), (1, 5))
"""Vectors and positions of the tiles; their sums, weights and inputs fit the vector registers."""
LANES = 16
_BYTE, _WORD, _INT32, _INT64 = map(ir.IntType, (8, 16, 32, 64))
_SUMS, _SCALED = (ir.VectorType(one, LANES) for one in (_INT32, ir.FloatType()))
_ELEMENT = _BYTE if VNNI else _WORD
_ROUND = ir.Constant(_SCALED, [1.5 * 2**23] * LANES)
"""A sum with it rounds a float32 below 2**22 to an integer, which is in the sum's low bits."""
_RECORDS = (_SUMS, _SCALED, _SCALED, _SCALED, _SUMS)
"""Bias, scale, lowest and highest scaled value, and zero point of each lane, 64 bytes each."""


def _make_intrinsic(emit: Callable[..., None]) -> Any:
    """Return a function of a tuple of int64 whose code ``emit`` generates."""

    @intrinsic
    def function(context: Any, given: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, found: Any) -> Any:
            emit(builder, *(builder.extract_value(found[0], n) for n in range(len(given))))
            return target.get_dummy_value()

        return types.void(given), generate

    return function


def _load(builder: Any, address: Any, kind: Any, offset: int = 0) -> Any:
    place = builder.inttoptr(builder.add(address, _INT64(offset)), kind.as_pointer())
    return builder.load(place, align=1)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def _select(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
    """Return the vector of the given lanes of ``one`` and ``other``."""
    mask = ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes)
    return builder.shuffle_vector(one, other, mask)


def _add_products(builder: Any, sums: Any, inputs: Any, weights: Any) -> Any:
    """Return ``sums`` plus, in each lane, the products of ``GROUP`` inputs and weights."""
    if VNNI:
        name = "llvm.x86.avx512.vpdpbusd.512"
        found = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(_SUMS, (_SUMS,) * 3), name
        )
        return builder.call(found, [sums, inputs, weights])
    kind, wide = (ir.VectorType(one, 2 * LANES) for one in (_WORD, _INT32))
    pair = (builder.sext(builder.bitcast(one, kind), wide) for one in (inputs, weights))
    found = builder.mul(*pair)
    parts = (_select(builder, found, found, [*range(n, 2 * LANES, 2)]) for n in (0, 1))
    return builder.add(sums, builder.add(*parts))


def _make_tile(vectors: int, positions: int, repeated: bool) -> Any:
    """Return the function that computes the results of a tile.

    Its arguments are the addresses of the input, of each position's offset in it, of each step's
    offset, the number of steps, and the addresses of weights, records, results, of the two
    offsets of each vector's results, and of each position's offset in them. With ``repeated`` all
    lanes read the same ``GROUP`` elements of the input, otherwise each lane its own.
    """
    tile = list(product(range(vectors), range(positions)))

    def emit(builder: Any, *given: Any) -> None:
        data, places, steps, count, weights, records, results, halves, targets = given
        starts = [
            builder.add(data, _load(builder, places, _INT64, 8 * n)) for n in range(positions)
        ]
        entry = builder.block
        body, after = (builder.append_basic_block(name) for name in ("step", "results"))
        builder.branch(body)
        builder.position_at_end(body)
        step = builder.phi(_INT64)
        sums = [builder.phi(_SUMS) for _ in tile]
        offset = _load(builder, builder.add(steps, builder.shl(step, _INT64(3))), _INT64)
        row = builder.add(weights, builder.shl(step, _INT64(6)))
        size = builder.shl(count, _INT64(6))
        factors = []
        for _ in range(vectors):
            factors.append(_load(builder, row, _SUMS))
            row = builder.add(row, size)
        inputs = []
        for start in starts:
            found = _load(builder, builder.add(start, offset), _INT32 if repeated else _SUMS)
            if repeated:
                first = builder.insert_element(ir.Constant(_SUMS, None), found, _INT32(0))
                found = _select(builder, first, first, [0] * LANES)
            inputs.append(found)
        totals = [
            _add_products(builder, one, inputs[position], factors[vector])
            for one, (vector, position) in zip(sums, tile, strict=True)
        ]
        following = builder.add(step, _INT64(1))
        for phi, value in ((step, following), *zip(sums, totals, strict=True)):
            phi.add_incoming(ir.Constant(phi.type, None), entry)
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, count), body, after)
        builder.position_at_end(after)
        for total, (vector, position) in zip(totals, tile, strict=True):
            _emit_result(builder, total, records, 320 * vector, (
                builder.add(
                    builder.add(results, _load(builder, targets, _INT64, 8 * position)),
                    _load(builder, halves, _INT64, 16 * vector + 8 * half),
                )
                for half in (0, 1)
            ))  # fmt: skip

    return _make_intrinsic(emit)


def _emit_result(builder: Any, total: Any, records: Any, offset: int, places: Any) -> None:
    """Requantise the sums of 16 channels and store 8 of them at each of two addresses.

    The upper half comes first: without one, both addresses are equal.
    """
    bias, scale, low, high, zero_point = (
        _load(builder, records, kind, offset + 64 * n) for n, kind in enumerate(_RECORDS)
    )
    scaled = builder.fmul(builder.sitofp(builder.add(total, bias), _SCALED), scale)
    scaled = builder.select(builder.fcmp_ordered(">", scaled, low), scaled, low)
    scaled = builder.select(builder.fcmp_ordered("<", scaled, high), scaled, high)
    rounded = builder.bitcast(builder.fadd(scaled, _ROUND), _SUMS)
    result = builder.trunc(builder.add(rounded, zero_point), ir.VectorType(_BYTE, LANES))
    for half, place in reversed(list(enumerate(places))):
        _store(builder, _select(builder, result, result, [*range(8 * half, 8 * half + 8)]), place)


def _emit_interleave(builder: Any, target: Any, source: Any, step: Any) -> None:
    """Store ``GROUP`` input elements per lane, which are ``step`` bytes apart in the source."""
    found = []
    for _ in range(GROUP):
        found.append(_load(builder, source, ir.VectorType(_ELEMENT, LANES)))
        source = builder.add(source, step)
    while len(found) > 1:
        half = len(found) // 2
        size = found[0].type.count
        found = [
            _select(builder, one, other, [n + size * k for n in range(size) for k in (0, 1)])
            for one, other in zip(found[:half], found[half:], strict=True)
        ]
    _store(builder, found[0], target)


def _emit_atom(builder: Any, target: Any, source: Any) -> None:
    """Copy 8 int8 to input elements."""
    found = _load(builder, source, ir.VectorType(_BYTE, 8))
    if VNNI:
        found = builder.xor(found, ir.Constant(found.type, [-128] * 8))
    else:
        found = builder.sext(found, ir.VectorType(_WORD, 8))
    _store(builder, found, target)


def _emit_transpose(builder: Any, *given: Any) -> None:
    """Transpose 16 rows of 16 bytes; rows after the last one of a side are the last one."""
    target, target_step, target_last, source, source_step, source_last = given
    kind = ir.VectorType(_BYTE, LANES)

    def place(start: Any, step: Any, last: Any, number: int) -> Any:
        wanted = _INT64(number)
        number = builder.select(builder.icmp_signed("<", wanted, last), wanted, last)
        return builder.add(start, builder.mul(step, number))

    rows = [_load(builder, place(source, source_step, source_last, n), kind) for n in range(LANES)]
    for _ in range(4):
        rows = [
            _select(builder, one, other, [first + n // 2 + LANES * (n % 2) for n in range(LANES)])
            for one, other in zip(rows[:8], rows[8:], strict=True)
            for first in (0, LANES // 2)
        ]
    for n in reversed(range(LANES)):
        _store(builder, rows[n], place(target, target_step, target_last, n))


def _emit_copy(builder: Any, target: Any, source: Any, count: Any) -> None:
    """Copy ``count`` bytes between memories that do not overlap."""
    kind = _BYTE.as_pointer()
    copy = builder.module.declare_intrinsic("llvm.memcpy", [kind, kind, _INT64])
    places = (builder.inttoptr(one, kind) for one in (target, source))
    builder.call(copy, [*places, count, ir.IntType(1)(0)])


interleave = _make_intrinsic(_emit_interleave)
copy_atom = _make_intrinsic(_emit_atom)
copy_bytes = _make_intrinsic(_emit_copy)
transpose = _make_intrinsic(_emit_transpose)
PRODUCTS = (
    *(_make_tile(*size, repeated=True) for size in SIZES), _make_tile(*SIZES[2], repeated=False)
)  # fmt: skip
"""Functions for a tile of each size, and for a depthwise tile of the last size."""
_PIXEL = LANES if VNNI else 2 * LANES
"""Bytes of the input elements of one position and vector."""
_STEP = 4 * LANES
"""Bytes of the weights of one vector and step."""
_RECORD = 5 * _STEP
_WIDE = SIZES[0][0]
_MEDIUM = SIZES[1][0]
_jit = numba.njit(error_model="numpy")


@_jit
def _address(memory: Bytes) -> int:
    return np.int64(memory.ctypes.data)  # type: ignore[return-value]


def _make_tiles(tile: Any, size: int) -> Any:
    """Return the function that computes all positions of some vectors in tiles of ``size``."""

    @_jit
    def compute(positions: int, given: Any) -> None:
        data, places, steps, count, weights, records, results, halves, targets = given
        for n in range(0, 8 * positions, 8 * size):
            tile((
                data, places + n, steps, count, weights, records, results, halves, targets + n
            ))  # fmt: skip

    return compute


_wide, _medium, _narrow, _by_channel = (
    _make_tiles(tile, size) for tile, (_, size) in zip(PRODUCTS, (*SIZES, SIZES[2]), strict=True)
)


@_jit
def _copy(row: Any, sram: int, dram: int) -> None:
    """Execute a DMA transfer: up to three dimensions of byte rows."""
    for i in range(row[4]):
        for j in range(row[5]):
            for k in range(row[6]):
                near = sram + row[2] + i * row[8] + j * row[9] + k * row[10]
                far = dram + row[3] + i * row[11] + j * row[12] + k * row[13]
                if row[1]:
                    copy_bytes((near, far, row[7]))
                else:
                    copy_bytes((far, near, row[7]))


@_jit
def _transpose(row: Any, near: int, packed: int) -> None:
    """Copy planes in the scratchpad to packed pixels of 16 channels each, or back."""
    _, back, start, plane, channels, positions, at, pixel = row[:8]
    for first in range(0, channels, LANES):
        last = min(channels - first, LANES) - 1
        for p in range(0, positions, LANES):
            q = min(p, max(positions - LANES, 0))
            dense = near + start + first * plane + q
            inner = packed + at + q * pixel + first
            if positions < LANES:
                for n in range(last + 1):
                    for m in range(positions):
                        if back:
                            copy_bytes((dense + n * plane + m, inner + m * pixel + n, 1))
                        else:
                            copy_bytes((inner + m * pixel + n, dense + n * plane + m, 1))
            elif back:
                transpose((dense, plane, last, inner, pixel, LANES - 1))
            else:
                transpose((inner, pixel, LANES - 1, dense, plane, last))


@_jit
def _fill(target: Any, value: int) -> None:
    for place in range(len(target)):
        target[place] = value


if VNNI:

    @_jit
    def _input_elements(scratch: Bytes) -> Any:
        return scratch

    @_jit
    def _convert(target: Any, source: Bytes) -> None:
        for place in range(len(target)):
            target[place] = source[place] ^ np.int8(-128)

else:

    @_jit
    def _input_elements(scratch: Bytes) -> Any:
        return scratch.view(np.int16)

    @_jit
    def _convert(target: Any, source: Bytes) -> None:
        for place in range(len(target)):
            target[place] = source[place]


@_jit
def _multiply(row: Any, memory: Bytes, scratch: Bytes, fixed: int) -> None:
    """Compute a convolution, after a copy of its input with padding to the scratch buffer."""
    source, surfaces, plane, height, width, atom, rows, columns, top, left, fill = row[1:12]
    image = _input_elements(scratch)
    if rows > height or columns > width:
        _fill(image[: surfaces * rows * columns * atom], fill)
    for surface in range(surfaces):
        for y in range(height):
            begin = ((surface * rows + top + y) * columns + left) * atom
            first = source + surface * plane + y * width * atom
            _convert(image[begin : begin + width * atom], memory[first:])
    data = _address(scratch)
    near = _address(memory)
    places, positions, steps, count, weights, records, halves, targets, vectors = row[12:21]
    vector = 0
    while vector < vectors:
        given = (
            data, fixed + places, fixed + steps, count,
            fixed + weights + vector * count * _STEP, fixed + records + vector * _RECORD,
            near, fixed + halves + 16 * vector, fixed + targets,
        )  # fmt: skip
        if vectors - vector >= _WIDE:
            _wide(positions, given)
            vector += _WIDE
        elif vectors - vector >= _MEDIUM:
            _medium(positions, given)
            vector += _MEDIUM
        else:
            _narrow(positions, given)
            vector += 1


@_jit
def _multiply_channels(row: Any, near: int, scratch: Bytes, constants: Bytes) -> None:
    """Compute a depthwise convolution, 16 channels at a time.

    The input is copied with padding, then once more with the taps of each output side by side.
    """
    _, _, _, height, width, atom, rows, columns, top, left, fill = row[1:12]
    places, positions, steps, count, weights, records, halves, targets, vectors = row[12:21]
    sources, groups, stride, dilation, outputs, taps = row[21:27]
    image = _input_elements(scratch)[: rows * columns * LANES]
    data = _address(scratch)
    fixed = _address(constants)
    offsets = constants[sources : sources + 16 * vectors].view(np.int64)
    if rows > height or columns > width:
        _fill(image, fill)
    for vector in range(vectors):
        for half in range(2):
            for y in range(height):
                pixel = near + offsets[2 * vector + half] + y * width * atom
                target = data + ((top + y) * columns + left) * _PIXEL + half * (_PIXEL // 2)
                for x in range(width):
                    copy_atom((target + x * _PIXEL, pixel + x * atom))
        target = data + taps
        for y in range(rows):
            for x in range(outputs):
                pixel = data + (y * columns + x * stride) * _PIXEL
                for _ in range(groups):
                    interleave((target, pixel, dilation * _PIXEL))
                    target += _STEP
                    pixel += GROUP * dilation * _PIXEL
        _by_channel(positions, (
            data + taps, fixed + places, fixed + steps, count,
            fixed + weights + vector * count * _STEP, fixed + records + vector * _RECORD,
            near, fixed + halves + 16 * vector, fixed + targets,
        ))  # fmt: skip


@_jit
def _round(scaled: Any, low: Any, high: Any) -> Any:
    """Return a clamped float32 as the nearest integer, ties to even."""
    return np.int32(np.rint(min(max(scaled, low), high)))


@_jit
def _add(row: Any, sram: Bytes, floats: Any) -> None:
    """Add two tensors; float64 replaces the fused multiply-adds, as in `pairs.addition`."""
    _, count, first, second, result, offset, at = row[:7]
    ratio_a, ratio_b, constant = floats[at], floats[at + 1], floats[at + 2]
    low, high = np.float32(floats[at + 3]), np.float32(floats[at + 4])
    a, b = sram[first : first + count], sram[second : second + count]
    y = sram[result : result + count]
    for n in range(count):
        inner = np.float32((np.int32(b[n]) + offset) * ratio_b + constant)
        total = np.float32((np.int32(a[n]) + offset) * ratio_a + np.float64(inner))
        y[n] = _round(total, low, high) - offset


@_jit
def _average(row: Any, sram: Bytes, floats: Any) -> None:
    """Compute a global average pooling."""
    _, source, surfaces, plane, positions, atom, channels, results, step, zero_in, zero, at = row[
        :12
    ]
    scale, low, high = (
        np.float32(floats[at]),
        np.float32(floats[at + 1]),
        np.float32(floats[at + 2]),
    )
    for surface in range(surfaces):
        data = sram[source + surface * plane :][: positions * atom]
        for lane in range(atom):
            total = -positions * zero_in
            for n in range(positions):
                total += data[n * atom + lane]
            value = _round(np.float32(total) * scale, low, high) + zero
            sram[results + surface * step + lane] = value if surface * atom + lane < channels else 0


@_jit
def _permute(row: Any, sram: Bytes, near: int) -> None:
    """Copy bytes within the scratchpad in up to four dimensions, or fill them with a value."""
    filled, value, source, target = row[1:5]
    dense = row[12] == 1 and row[16] == 1
    for i in range(row[5]):
        for j in range(row[6]):
            for k in range(row[7]):
                begin = source + i * row[9] + j * row[10] + k * row[11]
                place = target + i * row[13] + j * row[14] + k * row[15]
                if filled:
                    for n in range(row[8]):
                        sram[place + n * row[16]] = value
                elif dense:
                    copy_bytes((near + place, near + begin, row[8]))
                else:
                    for n in range(row[8]):
                        sram[place + n * row[16]] = sram[begin + n * row[12]]


@_jit
def _look_up(row: Any, sram: Bytes, constants: Bytes) -> None:
    """Look up results in a table; padding stays 0. Their sources are ``shift`` bytes after them."""
    _, source, surfaces, plane, positions, atom, channels, at, shift = row[:9]
    table = constants[at : at + 256]
    for surface in range(surfaces):
        count = min(channels - surface * atom, atom)
        for position in range(positions):
            begin = source + surface * plane + position * atom
            for place in range(begin, begin + count):
                sram[place] = table[np.uint8(sram[place + shift])]


def execute_rows(
    table: Table, sram: Bytes, dram: Bytes, packed: Bytes, scratch: Bytes, constants: Bytes
) -> None:
    """Execute the steps of a table, whose addresses are offsets in the memories.

    Products of dense tensors work on transposed copies in ``packed``.
    """
    near, far, fixed = _address(sram), _address(dram), _address(constants)
    floats = constants.view(np.float64)
    for row in table:
        kind = row[0]
        if kind == 0:
            _copy(row, near, far)
        elif kind == 1:
            _multiply(row, sram, scratch, fixed)
        elif kind == 2:
            _multiply_channels(row, near, scratch, constants)
        elif kind == 3:
            _add(row, sram, floats)
        elif kind == 4:
            _average(row, sram, floats)
        elif kind == 5:
            _look_up(row, sram, constants)
        elif kind == 6:
            _transpose(row, near, _address(packed))
        elif kind == 7:
            _multiply(row, packed, scratch, fixed)
        elif kind == 9:
            _permute(row, sram, near)
        else:
            _multiply_channels(row, _address(packed), scratch, constants)


_SIGNATURE = "void(int64[:, ::1], int8[::1], int8[::1], int8[::1], int8[::1], int8[::1])"
run_steps = compile_cached(execute_rows, _SIGNATURE)
