"""Instructions in banked memory: operand layouts, operand words and compute cycles.

The formulas are those of docs/machine.md, section 12, with its letters: a, b, c are the sizes of
the array, N = a·b·c, A the bytes of an atom, W those of a word, P the accumulators, L = post_lanes.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from isa.arch import Arch, BankedMemory, words_of
from isa.instruction import Atoms, Blocks, Command, OperandLayout, Packed, Plain, ceil_div, formula
from isa.ops import matmul, movement, pairs, rows
from isa.ops.convolution import MAPPING, group_shape
from isa.ops.lookup import TABLE_BYTES
from isa.ops.movement import copy_words
from isa.ops.packed_operands import (
    compute_finishing_cycles,
    list_matrices,
    list_planes,
    list_table_words,
    list_tables,
)
from isa.ops.packed_windows import (
    _depth_cycles,
    _depth_layouts,
    _depth_words,
    _pool_cycles,
    _pool_layouts,
    _pool_words,
    _resize_cycles,
    _resize_layouts,
    _resize_words,
)
from isa.ops.products import (
    ArrayProduct,
    gapless,
    product_block,
    product_bytes,
    product_cycles,
    product_places,
    product_words,
    use_mapping,
)
from isa.ops.windows import ACCUMULATE, EX_PARTIAL_ADDRESS, element_bytes, make_refusal
from isa.packing import (
    Bytes,
    WeightShape,
    read_blocks,
)

# Products


def _read_convolution(command: Command) -> ArrayProduct:
    groups, inputs, outputs = group_shape(command)
    kernel = command["EX_KERNEL_HEIGHT"], command["EX_KERNEL_WIDTH"]
    plane = command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]
    strides = command["EX_STRIDE_HEIGHT"], command["EX_STRIDE_WIDTH"]
    shape = WeightShape(groups, outputs, inputs, *kernel)
    product = ArrayProduct(
        shape, *plane, strides[1], gapless=gapless(plane[1], command["EX_INPUT_WIDTH"], *strides)
    )
    return use_mapping(product, command.fields.get(MAPPING.name, 0))


def _read_multiplication(command: Command) -> ArrayProduct:
    rows, inputs, outputs = matmul.shape(command)
    return ArrayProduct(WeightShape(1, outputs, inputs), 1, rows)


def _read_product(
    product: ArrayProduct, arch: Arch, inputs_first: bool, blocks: Bytes, weights: Bytes
) -> None:
    shape = product.weights
    plain = weights.reshape(shape.inputs, shape.outputs).T if inputs_first else weights
    read_blocks(
        shape, product_block(product, arch), words_of(arch).word, blocks, plain.reshape(shape)
    )


_PRODUCT = """
words of the first block + max(Σ over blocks and stripes of max(q·v, w), ⌈results / L⌉).

The array stores one block of w memory words of weights at a time. A stripe has q steps, and each
step reads v memory words of activations. The term ⌈results / L⌉ applies if the lanes requantise,
add partial sums or look up results. The page machine.md defines the symbols for each mapping.
"""


def product(
    read: Callable[[Command], ArrayProduct],
    layouts: Callable[[Command], tuple[OperandLayout, OperandLayout]],
    *,
    inputs_first: bool = False,
) -> Packed:
    """Declare a convolution or matrix product instruction in banked memory.

    Args:
        read: converts a command to the product that the array sees.
        layouts: returns the layouts of a command's input and result.
        inputs_first: dense weights are (inputs, outputs) instead of (outputs, inputs).
    """

    def all_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
        found = read(command)
        source, result = layouts(command)
        weights = Blocks(
            "EX_OPERAND_ADDRESS",
            product_bytes(found, arch),
            partial(product_places, found, arch, inputs_first=inputs_first),
            partial(_read_product, found, arch, inputs_first),
        )
        records = Plain("EX_CHANNEL_ADDRESS", found.channels * arch.channel_record_bytes)
        parts: tuple[OperandLayout, ...] = (source, weights, records)
        if _is_continuation(command, found):
            assert isinstance(result, Atoms)
            parts = (*parts, result._replace(register=EX_PARTIAL_ADDRESS.name, element=4, plane=""))
        return (*parts, *list_tables(command), result)

    @formula(_PRODUCT)
    def cycles(command: Command, arch: Arch) -> int:
        found = read(command)
        return product_cycles(found, arch, compute_finishing_cycles(command, found.outputs, arch))

    def words(command: Command, arch: Arch) -> tuple[int, ...]:
        found = read(command)
        of = product_words(found, arch, element_bytes(command))
        sums = (product_words(found, arch, 4).results,) if _is_continuation(command, found) else ()
        return (*of[:3], *sums, *list_table_words(command, arch), of.results)

    return Packed(all_layouts, cycles, words)


def _is_continuation(command: Command, found: ArrayProduct) -> bool:
    """Return True if a command continues the sums of an earlier one.

    A command without results has no sums.
    """
    return bool(command.fields.get(ACCUMULATE.name, 0) and found.outputs)


def _activations(command: Command) -> ArrayProduct:
    return _read_multiplication(command)._replace(
        computed="inputs" if command.fields["transposed"] else "outputs"
    )


def _dynamic_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    source, result = list_matrices(command)
    positions, channels = matmul.second_shape(command)
    return (
        source,
        Atoms("EX_OPERAND_ADDRESS", channels, positions, rows=True),
        *list_tables(command),
        result,
    )


def _dynamic_words(command: Command, arch: Arch) -> tuple[int, ...]:
    of = product_words(_activations(command), arch, element_bytes(command))
    return of.activations, of.weights, *list_table_words(command, arch), of.results


# Element-wise operations

_ELEMENTWISE = "⌈length / L⌉ cycles. All operands have the same layout and are dense."


def _dense(*registers: str, divides: bool = False) -> Packed:
    """Declare an element-wise instruction in banked memory whose operands are dense.

    EX_LENGTH bytes are at each of ``registers``. The last is the result's.

    With ``divides`` the command divides by one scale and computes its reciprocal first.
    """

    def layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
        *reads, result = (Plain(name, command["EX_LENGTH"]) for name in registers)
        return *reads, *list_tables(command), result

    @formula(
        f"divide_cycles for the reciprocal of SCALE_Y + {_ELEMENTWISE}" if divides else _ELEMENTWISE
    )
    def cycles(command: Command, arch: Arch) -> int:
        return divides * words_of(arch).divide_cycles + ceil_div(command["EX_LENGTH"], arch.lanes)

    def words(command: Command, arch: Arch) -> tuple[int, ...]:
        count = words_of(arch).count(command["EX_LENGTH"])
        return *(count for _ in registers[1:]), *list_table_words(command, arch), count

    return Packed(layouts, cycles, words)


def _pair_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    names = ("EX_INPUT_ADDRESS", pairs.REPEAT_A), ("EX_OPERAND_ADDRESS", pairs.REPEAT_B)
    reads = (
        Atoms(name, *pairs.operand_shape(command, command.fields[field.name]))
        for name, field in names
    )
    return (
        *reads,
        *list_tables(command),
        Atoms("EX_OUTPUT_ADDRESS", *pairs.operand_shape(command, 0)),
    )


def _pair_words(command: Command, arch: Arch) -> tuple[int, ...]:
    channels, length = pairs.operand_shape(command, 0)

    def count_side(repeat: int) -> int:
        positions = 1 if repeat & pairs.ALONG_LENGTH else length
        return _surface_words(channels, positions, words_of(arch))

    repeats = (command.fields[field.name] for field in (pairs.REPEAT_A, pairs.REPEAT_B))
    return *map(count_side, repeats), *list_table_words(command, arch), count_side(0)


@formula("⌈⌈OC/A⌉·A·length / L⌉.")
def _pair_cycles(command: Command, arch: Arch) -> int:
    return _count_lane_cycles(*pairs.operand_shape(command, 0), arch)


@formula(
    """
    ⌈⌈OC/A⌉·A·length / L⌉ + divide_cycles for the reciprocal of SCALE_Y.
    """
)
def _difference_cycles(command: Command, arch: Arch) -> int:
    return words_of(arch).divide_cycles + _pair_cycles(command, arch)


@formula(
    """
    divide_cycles for the reciprocal of SCALE_Y + max(⌈⌈OC/A⌉·A·length / L⌉, ⌈divisors / dividers⌉ ·
    divide_cycles).
    """
)
def _quotient_cycles(command: Command, arch: Arch) -> int:
    words = words_of(arch)
    divisors = prod(pairs.operand_shape(command, command.fields[pairs.REPEAT_B.name]))
    return words.divide_cycles + _limit_by_divisions(_pair_cycles(command, arch), divisors, words)


def _table_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    rows = command["EX_ROWS"]
    channels = command["EX_OUTPUT_CHANNELS"]
    length = command["EX_LENGTH"]
    tables = Plain("EX_OPERAND_ADDRESS", TABLE_BYTES * channels)
    if channels == 1:
        return (
            Plain("EX_INPUT_ADDRESS", rows * length),
            tables,
            Plain("EX_OUTPUT_ADDRESS", rows * length),
        )
    if rows != 1:
        raise make_refusal(
            command, f"EX_ROWS = {rows}: with banked memory tables of channels are for EX_ROWS = 1"
        )
    return (
        Atoms("EX_INPUT_ADDRESS", channels, length),
        tables,
        Atoms("EX_OUTPUT_ADDRESS", channels, length),
    )


def _table_bytes(command: Command, arch: Arch) -> int:
    """Return the bytes of a table look-up's operand; the result has as many.

    These are whole atoms if each channel has its own table.
    """
    channels = command["EX_OUTPUT_CHANNELS"]
    length = command["EX_LENGTH"]
    if channels == 1:
        return command["EX_ROWS"] * length
    return _count_padded_elements(channels, length, words_of(arch))


@formula(
    """
    ⌈256·OC / W⌉ for the tables + ⌈length / L⌉ for the elements. With OC > 1, the padding of the
    last atom counts as elements.
    """
)
def _table_cycles(command: Command, arch: Arch) -> int:
    tables = words_of(arch).count(TABLE_BYTES * command["EX_OUTPUT_CHANNELS"])
    return tables + ceil_div(_table_bytes(command, arch), arch.lanes)


def _table_operand_words(command: Command, arch: Arch) -> tuple[int, ...]:
    words = words_of(arch)
    channels = command["EX_OUTPUT_CHANNELS"]
    surfaces = 1 if channels == 1 else words.surfaces(channels)
    count = surfaces * words.count(_table_bytes(command, arch) // max(surfaces, 1))
    return count, words.count(TABLE_BYTES * channels), count


# Operations on whole rows


def _row_shape(command: Command) -> tuple[int, int, bool]:
    """Return the shape of a row operation as (elements per row, rows, dense).

    ``dense`` is True if rows are dense in ideal memory.

    In atoms this is (channels, positions).
    """
    outer, count, inner = rows.shape(command)
    if min(outer, inner) > 1:
        raise make_refusal(
            command, f"EX_ROWS = {outer}: with banked memory either EX_ROWS or EX_LENGTH is 1"
        )
    return count, outer * inner, inner == 1


def _rows_at(register: str, command: Command) -> Atoms:
    channels, positions, dense = _row_shape(command)
    return Atoms(
        register, channels, positions, plane=register.replace("ADDRESS", "PLANE"), rows=dense
    )


def _count_padded_elements(channels: int, positions: int, words: BankedMemory) -> int:
    """Return the number of elements of a tensor including padding channels."""
    return words.surfaces(channels) * words.atom * positions


def _count_lane_cycles(channels: int, positions: int, arch: Arch) -> int:
    """Return the cycles in which the lanes compute every element of a tensor once."""
    return ceil_div(_count_padded_elements(channels, positions, words_of(arch)), arch.lanes)


def _surface_words(channels: int, positions: int, words: BankedMemory) -> int:
    return words.surfaces(channels) * words.count(positions * words.atom)


def _limit_by_divisions(cycles: int, quotients: int, words: BankedMemory) -> int:
    """Return the larger of ``cycles`` and the cycles that the dividers take for ``quotients``.

    The divisions run in parallel.
    """
    return max(cycles, ceil_div(quotients, words.dividers) * words.divide_cycles)


def _reduce_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    source = _rows_at("EX_INPUT_ADDRESS", command)
    result = Plain("EX_OUTPUT_ADDRESS", _row_shape(command)[1])
    return source, *list_tables(command), result


@formula(
    """
    max(⌈⌈IC/A⌉·A·rows / L⌉, divide_cycles).
    """
)
def _reduce_cycles(command: Command, arch: Arch) -> int:
    channels, positions, _ = _row_shape(command)
    return _limit_by_divisions(_count_lane_cycles(channels, positions, arch), 1, words_of(arch))


def _reduce_words(command: Command, arch: Arch) -> tuple[int, ...]:
    words = words_of(arch)
    channels, positions, _ = _row_shape(command)
    return (
        _surface_words(channels, positions, words),
        *list_table_words(command, arch),
        words.count(positions),
    )


def _softmax_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    source, result = (_rows_at(f"EX_{name}_ADDRESS", command) for name in ("INPUT", "OUTPUT"))
    return source, Plain("EX_OPERAND_ADDRESS", rows.TABLE_BYTES), *list_tables(command), result


@formula(
    """
    max(2 · ⌈⌈IC/A⌉·A·rows / L⌉ + IC · ⌈rows / L⌉, ⌈rows / dividers⌉ · divide_cycles).

    The lanes compute maxima and quotients of all elements in parallel. They compute the sums in
    order, one row for each lane.
    """
)
def _softmax_cycles(command: Command, arch: Arch) -> int:
    channels, positions, _ = _row_shape(command)
    passes = 2 * _count_lane_cycles(channels, positions, arch)
    sums = channels * ceil_div(positions, arch.lanes)
    return _limit_by_divisions(passes + sums, positions, words_of(arch))


def _softmax_words(command: Command, arch: Arch) -> tuple[int, ...]:
    words = words_of(arch)
    channels, positions, _ = _row_shape(command)
    tensor = _surface_words(channels, positions, words)
    return 3 * tensor, words.count(rows.TABLE_BYTES), *list_table_words(command, arch), tensor


def _norm_shape(command: Command) -> tuple[int, int]:
    """Return the shape of a normalisation as (elements per row, rows)."""
    outer, count, inner = rows.shape(command)
    return count * inner, outer


def _norm_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    tensor = Atoms("EX_INPUT_ADDRESS", *_norm_shape(command), rows=True)
    parameters = Plain("EX_OPERAND_ADDRESS", rows.PARAMETER_BYTES * rows.parameters(command))
    return tensor, parameters, *list_tables(command), tensor._replace(register="EX_OUTPUT_ADDRESS")


@formula(
    """
    max(2 · ⌈⌈n/A⌉·A·rows / L⌉ + rows, ⌈2·rows / dividers⌉ · divide_cycles) with n = IC·length: a
    pass for the sums, a pass for the results, and a root for each row.
    """
)
def _norm_cycles(command: Command, arch: Arch) -> int:
    channels, positions = _norm_shape(command)
    passes = 2 * _count_lane_cycles(channels, positions, arch)
    return _limit_by_divisions(passes + positions, 2 * positions, words_of(arch))


def _norm_words(command: Command, arch: Arch) -> tuple[int, ...]:
    words = words_of(arch)
    tensor = _surface_words(*_norm_shape(command), words_of(arch))
    parameters = words.count(rows.PARAMETER_BYTES * rows.parameters(command))
    return 2 * tensor, parameters, *list_table_words(command, arch), tensor


# Copies of bytes


def _permute_layouts(command: Command, arch: Arch) -> tuple[OperandLayout, ...]:
    operands = movement.OP_PERMUTE.operands(command, arch)
    both = zip(_BOTH, (*operands.reads, *operands.writes), strict=False)
    return tuple(Plain(register, access.total) for register, access in both)


def _count_copied_words(command: Command, arch: Arch) -> tuple[int, int]:
    """Return the words that a copy reads and writes; a fill reads one constant byte."""
    at = command.registers
    fill = command.fields["fill"]
    dims = tuple(
        [
            (
                at[f"EX_COUNT_{n}"],
                0 if fill else at[f"EX_INPUT_STRIDE_{n}"],
                at[f"EX_OUTPUT_STRIDE_{n}"],
            )
            for n in movement.DIMENSIONS
        ]
    )
    if not all(dim[0] for dim in dims):
        return 0, 0
    # An address matters only by the byte of a word in which the copy begins.
    word = words_of(arch).word
    starts = 0 if fill else at["EX_INPUT_ADDRESS"] % word, at["EX_OUTPUT_ADDRESS"] % word
    return copy_words(dims, starts, word)


@formula(
    """
    the larger of the memory words read from the source and the memory words written to the result.

    The words are counted in blocks. A block consists of dimensions 1 to m, and its inner block of
    dimensions 1 to m - 1. A block occupies at most u words of the source and u' words of the
    result. On each side this number is the smaller of COUNT_m · (u or u' of the inner block) and
    ⌈(begin + span) / W⌉.

    span = 1 + Σ (COUNT - 1) · stride over the dimensions of the block. begin is the smaller of
    address mod g + W - g, with g = gcd(W, strides of the outer dimensions), and address mod W + Σ
    (COUNT - 1) · stride over the outer dimensions whose strides are not multiples of W.

    A block moves with the method that takes the fewest cycles:

    | words of one side | words of the other side | condition |
    | --- | --- | --- |
    | COUNT_m · (words that the inner block moves) | the same for this side | |
    | the smaller of u and u' | u · u' | |
    | u | u' | on both sides, the span of every inner block is at most the next stride |

    The source of a fill is one byte that is not read.
    """
)
def _permute_cycles(command: Command, arch: Arch) -> int:
    return max(_count_copied_words(command, arch))


def _permute_words(command: Command, arch: Arch) -> tuple[int, ...]:
    """Return the words that OP_PERMUTE reads and writes; a fill reads none."""
    source, result = _count_copied_words(command, arch)
    return 0 if command.fields["fill"] else source, result


_PAIR = Packed(_pair_layouts, _pair_cycles, _pair_words)
_BOTH = ("EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS")
_WITH_SECOND = ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS")
_ONE = _dense(*_BOTH, divides=True)
_TWO = _dense(*_WITH_SECOND)
PACKED: Mapping[str, Packed] = {
    "OP_CONV": product(_read_convolution, list_planes),
    "OP_GROUP_CONV": product(_read_convolution, list_planes),
    "OP_MAT_MUL": product(_read_multiplication, list_matrices, inputs_first=True),
    "OP_DEPTH_CONV": Packed(_depth_layouts, _depth_cycles, _depth_words),
    "OP_POOL": Packed(_pool_layouts, _pool_cycles, _pool_words),
    "OP_RESIZE": Packed(_resize_layouts, _resize_cycles, _resize_words),
    "OP_ACT_RELU": _ONE,
    "OP_ACT_LRELU": _ONE,
    "OP_E_ABS": _ONE,
    "OP_E_ADD": _TWO,
    "OP_C_MIN": _TWO,
    "OP_C_MAX": _TWO,
    "OP_PERMUTE": Packed(_permute_layouts, _permute_cycles, _permute_words, raw=True),
    "OP_DYN_MAT_MUL": replace(
        product(_activations, list_matrices), layouts=_dynamic_layouts, words=_dynamic_words
    ),
    "OP_REDUCE": Packed(_reduce_layouts, _reduce_cycles, _reduce_words),
    "OP_SOFTMAX": Packed(_softmax_layouts, _softmax_cycles, _softmax_words),
    "OP_NORM": Packed(_norm_layouts, _norm_cycles, _norm_words),
    "OP_LUT": Packed(_table_layouts, _table_cycles, _table_operand_words),
    "OP_E_MUL": _PAIR,
    "OP_B_ADD": _PAIR,
    "OP_B_MIN": _PAIR,
    "OP_E_SUB": Packed(_pair_layouts, _difference_cycles, _pair_words),
    "OP_E_DIV": Packed(_pair_layouts, _quotient_cycles, _pair_words),
}
"""Instructions in banked memory by mnemonic; transfers and synchronisation are not listed."""
