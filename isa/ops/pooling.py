"""Instructions on int8 planes: ``OP_POOL`` and ``OP_RESIZE``.

``OP_POOL`` computes maximum, average and global average pooling; ``OP_RESIZE`` interpolates planes.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.access import strided
from isa.arch import Arch
from isa.instruction import (
    FLOAT32,
    INT8,
    Command,
    Instruction,
    Machine,
    Operands,
    Unit,
    ceil_div,
    formula,
    view,
)
from isa.ops.lookup import add_tables
from isa.ops.windows import (
    WIDER,
    check_window,
    input_access,
    make_refusal,
    output_access,
    padded_input,
    tap,
)
from isa.registers import Field, Register, float_value, to_signed

MAX = 0
AVERAGE = 1
GLOBAL_AVERAGE = 2


def _operands(command: Command, arch: Arch) -> Operands:
    check_window(command)
    inputs = command["EX_INPUT_CHANNELS"]
    outputs = command["EX_OUTPUT_CHANNELS"]
    if inputs != outputs:
        raise make_refusal(
            command,
            f"EX_INPUT_CHANNELS = {inputs} and EX_OUTPUT_CHANNELS = {outputs} must be equal",
        )
    if command.fields["mode"] == GLOBAL_AVERAGE:
        _check_whole_plane(command)
    return Operands((input_access(command),), (output_access(command, 1),))


def _check_whole_plane(command: Command) -> None:
    if (command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]) != (1, 1):
        raise make_refusal(
            command, "the average of a whole plane has EX_OUTPUT_HEIGHT = 1 and EX_OUTPUT_WIDTH = 1"
        )
    for axis in ("HEIGHT", "WIDTH"):
        kernel = command[f"EX_KERNEL_{axis}"]
        plane = command[f"EX_INPUT_{axis}"]
        if kernel != plane:
            reason = f"EX_KERNEL_{axis} = {kernel} and EX_INPUT_{axis} = {plane} must be equal"
            raise make_refusal(command, f"{reason} in the average of a whole plane")


def _positions(command: Command) -> Iterator[tuple[int, int]]:
    for row in range(command["EX_KERNEL_HEIGHT"]):
        for column in range(command["EX_KERNEL_WIDTH"]):
            yield row, column


def tap_count(command: Command, inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the pooling window's elements that are not padding, for each output (OH, OW).

    ``inside`` (1, rows, columns) is true at input elements.
    """
    count = np.zeros((command["EX_OUTPUT_HEIGHT"], command["EX_OUTPUT_WIDTH"]), dtype=np.int64)
    for row, column in _positions(command):
        count += tap(command, inside, row, column)[0]
    return count


def data_mask(command: Command, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a mask (1, rows, columns) of the padded input that is True for data, not padding.

    It is true for input elements and false for padding.
    """
    top = command["EX_PAD_TOP"]
    left = command["EX_PAD_LEFT"]
    data = np.zeros((1, *shape[1:]), dtype=np.bool_)
    data[:, top : top + command["EX_INPUT_HEIGHT"], left : left + command["EX_INPUT_WIDTH"]] = True
    return data


def _max(command: Command, machine: Machine) -> NDArray[np.int8]:
    padded = padded_input(command, machine, -128)
    taps = [tap(command, padded, row, column) for row, column in _positions(command)]
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    return numerics.saturate_int8(np.max(np.stack(taps), axis=0), low, high)


def _average(command: Command, machine: Machine) -> NDArray[np.int8]:
    zero_point = command["EX_INPUT_ZERO_POINT"]
    offset = command["EX_OFFSET"]
    padded = padded_input(command, machine, zero_point - offset)
    data = data_mask(command, padded.shape)
    taps_counted = np.ones_like(data) if command.fields["count_include_pad"] else data
    count = tap_count(command, taps_counted)
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    output_zero = command["EX_OUTPUT_ZERO_POINT"]
    if machine.arch.numerics == "fixed":
        total = sum(
            (tap(command, padded, row, column) for row, column in _positions(command)),
            np.zeros((), np.int64),
        )
        total = total - (tap_count(command, np.ones_like(data)) - count) * zero_point
        scale = command["EX_SCALE_A"], command["EX_SHIFT_A"]
        return numerics.average_fixed(total, count, *scale, zero_point, output_zero, low, high)
    taps = (
        (tap(command, padded, row, col), tap(command, data, row, col))
        for row, col in _positions(command)
    )
    scales = float_value(command["EX_SCALE_A"]), float_value(command["EX_SCALE_Y"])
    return numerics.average_taps(taps, count, scales, (zero_point, output_zero), offset, low, high)


def _global_average(command: Command, machine: Machine) -> NDArray[np.int8]:
    zero_point = command["EX_INPUT_ZERO_POINT"]
    shape = (command["EX_INPUT_CHANNELS"], command["EX_INPUT_HEIGHT"] * command["EX_INPUT_WIDTH"])
    data = view(
        machine.sram, command["EX_INPUT_ADDRESS"], shape, np.int8, command["EX_INPUT_PLANE"]
    ).astype(np.int64)
    low = command["EX_CLAMP_LOW"]
    high = command["EX_CLAMP_HIGH"]
    output_zero = command["EX_OUTPUT_ZERO_POINT"]
    total = (data - zero_point).sum(axis=1)
    if machine.arch.numerics == "fixed":
        scale = numerics.mean_multiplier(command["EX_SCALE_A"], command["EX_SHIFT_A"], shape[1])
        result = numerics.requantise_fixed(total, *scale, output_zero, low, high)
    else:
        factor = np.float32(float_value(command["EX_SCALE_A"]))
        result = numerics.global_average(total, factor, output_zero, low, high)
    return result.reshape(-1, 1, 1)


_MODES = {MAX: _max, AVERAGE: _average, GLOBAL_AVERAGE: _global_average}


@formula(
    """
    Window (r, c) of a plane has the taps x[r·SH + kr·DH - PT, c·SW + kc·DW - PL]. Every result is
    clamped.

    | mode | result of a window |
    | --- | --- |
    | maximum | the largest tap |
    | average | rint(s / count / SCALE_Y + OUTPUT_ZERO_POINT) |
    | global average | rint(Σ (x - zero) · SCALE_A) + OUTPUT_ZERO_POINT |

    s is the running float32 sum of (x - zero) · SCALE_A in row order.

    With numerics fixed, the averages are integer sums that multiplier SCALE_A and shift SHIFT_A
    scale. The average of a window is scaled after the division. The average of a whole plane
    (LiteRT's Mean) uses the multiplier ⌊SCALE_A · 2^e / count⌋ and the shift SHIFT_A - e. Here
    count is the number of elements of the plane, and e is ⌊log2(count)⌋, but at most 31 + SHIFT_A.
    """
)
def _pool(command: Command, machine: Machine) -> None:
    result = _MODES[command.fields["mode"]](command, machine)
    output = view(
        machine.sram,
        command["EX_OUTPUT_ADDRESS"],
        result.shape,
        np.int8,
        command["EX_OUTPUT_PLANE"],
    )
    output[...] = result


@formula("⌈C/(a·b)⌉ · OH · ⌈OW/c⌉ · KH · KW.")
def _cycles(command: Command, arch: Arch) -> int:
    blocks = ceil_div(command["EX_OUTPUT_CHANNELS"], arch.pe.ic * arch.pe.oc)
    columns = ceil_div(command["EX_OUTPUT_WIDTH"], arch.pe.ow)
    taps = command["EX_KERNEL_HEIGHT"] * command["EX_KERNEL_WIDTH"]
    return blocks * command["EX_OUTPUT_HEIGHT"] * columns * taps


OP_POOL = Instruction(
    mnemonic="OP_POOL", opcode=0x30, unit=Unit.EX, kind="POOL",
    description=(
        "Pools each plane: maximum or average of each window, or average of the whole plane. The "
        "padding of a maximum is -128. For the average of a plane, the kernel has the size of the "
        "plane, and EX_SCALE_A is the factor of the integer sum."
    ),
    registers=(
        "EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_INPUT_CHANNELS", "EX_INPUT_HEIGHT", "EX_INPUT_WIDTH", "EX_INPUT_PLANE",
        "EX_OUTPUT_CHANNELS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH", "EX_OUTPUT_PLANE",
        "EX_KERNEL_HEIGHT", "EX_KERNEL_WIDTH", "EX_STRIDE_HEIGHT", "EX_STRIDE_WIDTH",
        "EX_DILATION_HEIGHT", "EX_DILATION_WIDTH", "EX_PAD_TOP", "EX_PAD_LEFT",
        "EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_CLAMP_LOW", "EX_CLAMP_HIGH", "EX_OFFSET",
        "EX_SCALE_A", "EX_SCALE_Y", "EX_SHIFT_A",
    ),
    fields=(
        Field("mode", 50, 2, description="0 maximum, 1 average, 2 global average", defined=3),
        Field("count_include_pad", 49, 1,
              description="1 divides by KH·KW, 0 by the number of taps that read data"),
    ),
    operands=_operands, semantics=_pool, cycles=_cycles, inputs=(INT8,), outputs=(INT8,),
)  # fmt: skip


# Interpolation

EX_FIRST_ROW = Register(
    "EX_FIRST_ROW", 0x68, 16, 0, "unsigned", "the tile's first row among the coordinates of rows"
)
EX_FIRST_INPUT_ROW = Register(
    "EX_FIRST_INPUT_ROW", 0x69, 16, 0, "unsigned", "the coordinate of the input's first row"
)
COORDINATE_BYTES = 4
NEIGHBOURS = 4
"""Elements of the input from which an element of the result is interpolated."""


def _resize_operands(command: Command, arch: Arch) -> Operands:
    if command["EX_INPUT_CHANNELS"] != command["EX_OUTPUT_CHANNELS"]:
        raise make_refusal(command, "EX_INPUT_CHANNELS and EX_OUTPUT_CHANNELS must be equal")
    if not command["EX_INPUT_HEIGHT"] or not command["EX_INPUT_WIDTH"]:
        raise make_refusal(command, "EX_INPUT_HEIGHT and EX_INPUT_WIDTH must be 1 or more")
    start, rows, columns = (
        command[name] for name in ("EX_OPERAND_ADDRESS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH")
    )
    first = start + COORDINATE_BYTES * (columns + command["EX_FIRST_ROW"])
    tables = (
        strided("sram", at, COORDINATE_BYTES * count)
        for at, count in ((start, columns), (first, rows))
    )
    return Operands((input_access(command), *tables), (output_access(command, 1),))


def coordinates(
    command: Command, machine: Machine
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the row and column coordinates at which a resize command reads its input.

    Rows are relative to EX_FIRST_INPUT_ROW.

    Raises InputError if a coordinate is not a finite number.
    """
    start, rows, columns = (
        command[name] for name in ("EX_OPERAND_ADDRESS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH")
    )
    first = start + COORDINATE_BYTES * (columns + command["EX_FIRST_ROW"])
    along, down = (
        machine.sram[at : at + COORDINATE_BYTES * count].copy().view("<f4")
        for at, count in ((start, columns), (first, rows))
    )
    if not (np.isfinite(along).all() and np.isfinite(down).all()):
        raise make_refusal(command, "a coordinate is no finite number")
    return down - np.float32(command["EX_FIRST_INPUT_ROW"]), along


@formula(
    """
    y = clip(rint(Σ w·(x - INPUT_ZERO_POINT)·SCALE_A / SCALE_Y) + OUTPUT_ZERO_POINT). The sum is
    over the four neighbours x[t,l], x[t,m], x[u,l], x[u,m] in this order, and each step is rounded
    to float32.

    The coordinates are float32: OW coordinates C of columns, followed by the coordinates R of rows.
    Column c of the result is at C[c] of the input, and row r is at R[FIRST_ROW + r] -
    FIRST_INPUT_ROW. A coordinate beyond an end of the input becomes that end.

    The neighbours of a coordinate are the rows t and u = t + 1 and the columns l and m = l + 1. The
    weight w is the product of the weights of a row and a column. The weight of a row or column is
    the distance to the opposite neighbour, or 0.5 if there is only one neighbour.

    With numerics fixed, the weights have 10 fraction bits. Multiplier SCALE_A and the shift
    SHIFT_A - 20 scale the sum. Between equal quantisations (multiplier 2^30, shift 1), y is the sum
    of stored values / 2^20, rounded half away from zero.
    """
)
def _resize(command: Command, machine: Machine) -> None:
    shape = tuple(command[f"EX_INPUT_{name}"] for name in ("CHANNELS", "HEIGHT", "WIDTH"))
    data = view(
        machine.sram, command["EX_INPUT_ADDRESS"], shape, np.int8, command["EX_INPUT_PLANE"]
    )
    rows, columns = coordinates(command, machine)
    before = command["EX_INPUT_ZERO_POINT"]
    after = command["EX_OUTPUT_ZERO_POINT"]
    if machine.arch.numerics == "fixed":
        multiplier = to_signed(command["EX_SCALE_A"])
        shift = command["EX_SHIFT_A"]
        result = numerics.interpolate_fixed(data, rows, columns, multiplier, shift, before, after)
    else:
        scales = float_value(command["EX_SCALE_A"]), float_value(command["EX_SCALE_Y"])
        result = numerics.interpolate(data, rows, columns, scales[0], before, scales[1], after)
    view(
        machine.sram,
        command["EX_OUTPUT_ADDRESS"],
        result.shape,
        np.int8,
        command["EX_OUTPUT_PLANE"],
    )[...] = result


@formula("4 · ⌈C·OH·OW / post_lanes⌉.")
def _resize_cycles(command: Command, arch: Arch) -> int:
    elements = (
        command["EX_INPUT_CHANNELS"] * command["EX_OUTPUT_HEIGHT"] * command["EX_OUTPUT_WIDTH"]
    )
    return NEIGHBOURS * ceil_div(elements, arch.lanes)


OP_RESIZE = Instruction(
    mnemonic="OP_RESIZE", opcode=0x26, unit=Unit.EX, kind="POOL",
    description="Interpolates each plane linearly at given coordinates; input and result have "
                "their own quantisations.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS",
        "EX_INPUT_CHANNELS", "EX_INPUT_HEIGHT", "EX_INPUT_WIDTH", "EX_INPUT_PLANE",
        "EX_OUTPUT_CHANNELS", "EX_OUTPUT_HEIGHT", "EX_OUTPUT_WIDTH", "EX_OUTPUT_PLANE",
        "EX_FIRST_ROW", "EX_FIRST_INPUT_ROW",
        "EX_INPUT_ZERO_POINT", "EX_OUTPUT_ZERO_POINT", "EX_SCALE_A", "EX_SCALE_Y", "EX_SHIFT_A",
    ),
    adds_registers=(EX_FIRST_ROW, EX_FIRST_INPUT_ROW),
    operands=_resize_operands, semantics=_resize, cycles=_resize_cycles, inputs=(INT8, FLOAT32),
    outputs=(INT8,),
)  # fmt: skip
INSTRUCTIONS = (add_tables(OP_POOL, *WIDER), OP_RESIZE)
