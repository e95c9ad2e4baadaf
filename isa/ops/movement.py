"""``OP_PERMUTE``: copies bytes within the scratchpad into another order.

It can repeat or omit bytes.
"""

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from isa.access import Access, row_starts, strided
from isa.arch import Arch
from isa.instruction import BYTES, Command, Instruction, Machine, Operands, Unit, ceil_div, formula
from isa.registers import Field, Register

DIMENSIONS = (1, 2, 3, 4)
"""Dimensions of a copy, fastest first."""
FILL = Field("fill", 51, 1, description="1 writes the byte EX_INPUT_ZERO_POINT and reads nothing")
REGISTERS = tuple(
    register
    for position, number in enumerate(DIMENSIONS)
    for register in (
        Register(
            f"EX_COUNT_{number}", 0x48 + 3 * position, 32, 1, "unsigned",
            f"bytes along dimension {number}",
        ),
        Register(
            f"EX_INPUT_STRIDE_{number}", 0x49 + 3 * position, 32, 0, "unsigned",
            f"bytes between sources along dimension {number}; 0 reads one byte again",
        ),
        Register(
            f"EX_OUTPUT_STRIDE_{number}", 0x4A + 3 * position, 32, 0, "unsigned",
            f"bytes between results along dimension {number}",
        ),
    )
)  # fmt: skip


class _Side(NamedTuple):
    """Bytes and memory words that a copy touches per block, on its source or result side.

    ``span`` is the bytes from first to last, ``words`` the maximum number of words, ``asked`` the
    words requested from memory.
    """

    span: int
    words: int
    asked: int


@lru_cache(maxsize=4096)
def copy_words(
    dims: tuple[tuple[int, int, int], ...], starts: tuple[int, int], word: int
) -> tuple[int, int]:
    """Return the words that a copy requests on its source side and on its result side.

    Source of the rule: docs/machine.md, section 12.

    Args:
        dims: (steps, source stride, result stride) with strides in bytes, fastest dimension first.
        starts: addresses of source and result.
        word: bytes of a word.

    A block covers the fastest dimensions. The next dimension repeats the block once per step, or
    extends it to a larger block that is copied at once; the way with the fewest cycles is used.
    """
    sides = [_Side(1, 1, 1), _Side(1, 1, 1)]
    upwards = True
    for inner, (count, *strides) in enumerate(dims):
        if not count:
            return 0, 0
        if count == 1:
            continue
        found = []
        for number, (side, stride, start) in enumerate(zip(sides, strides, starts, strict=True), 1):
            upwards = upwards and side.span <= max(stride, 1)
            span = side.span + (count - 1) * stride
            outer = [(dim[0], dim[number]) for dim in dims[inner + 1 :] if dim[0] > 1]
            grain = gcd(word, *(step for _, step in outer))
            reach = sum((times - 1) * step for times, step in outer if step % word)
            begin = min(start % grain + word - grain, start % word + reach)
            found.append((span, min(count * side.words, ceil_div(begin + span, word))))
        (_, read), (_, written) = found
        pairs = read * written
        ways = [(count * sides[0].asked, count * sides[1].asked)]
        ways += [(read, pairs) if read <= written else (pairs, written)]
        ways += [(read, written)] if upwards else []
        asked = min(ways, key=lambda way: (max(way), sum(way)))
        sides = [_Side(*side, words) for side, words in zip(found, asked, strict=True)]
    return sides[0].asked, sides[1].asked


def count(command: Command) -> int:
    outer, middle, inner, run = (command[f"EX_COUNT_{number}"] for number in reversed(DIMENSIONS))
    return outer * middle * inner * run


def side(command: Command, name: str) -> Access:
    """Return the bytes that a copy reads (``INPUT``) or writes (``OUTPUT``), in copy order."""
    dims = (
        (command[f"EX_COUNT_{n}"], command[f"EX_{name}_STRIDE_{n}"]) for n in reversed(DIMENSIONS)
    )
    return Access("sram", command[f"EX_{name}_ADDRESS"], 1, tuple(dims))


def find_touched(command: Command, name: str) -> Access:
    """Return the distinct bytes that a copy reads or writes.

    They are in normal form.

    Repeated bytes count once, and dense dimensions are merged.
    """
    access = side(command, name)
    dims = (dim for dim in access.dims if dim[1] or not dim[0])
    return strided("sram", access.address, 1, *sorted(dims, key=lambda dim: -dim[1]))


def _operands(command: Command, arch: Arch) -> Operands:
    empty = Access("sram", command["EX_INPUT_ADDRESS"], 0)
    reads = (
        empty if command.fields["fill"] or not count(command) else find_touched(command, "INPUT")
    )
    return Operands((reads,), (find_touched(command, "OUTPUT"),))


@formula(
    """
    sram[OA + Σ k·OUTPUT_STRIDE] = sram[IA + Σ k·INPUT_STRIDE] for all k < COUNT. With fill, the
    value is EX_INPUT_ZERO_POINT.

    IA is EX_INPUT_ADDRESS, OA is EX_OUTPUT_ADDRESS, and the sums are over dimensions 1 to 4.
    Results must not overlap sources. If several results have the same address, the last one
    remains.
    """
)
def _permute(command: Command, machine: Machine) -> None:
    target = row_starts(side(command, "OUTPUT"))
    if command.fields["fill"]:
        machine.sram[target] = command["EX_INPUT_ZERO_POINT"] & 0xFF
    else:
        machine.sram[target] = machine.sram[row_starts(side(command, "INPUT"))]


@formula(
    """
    COUNT_4 · COUNT_3 · COUNT_2 · ⌈COUNT_1 / p⌉.

    If both strides of dimension 1 are at most 1, p = post_lanes. Otherwise p = min(post_lanes,
    sram_banks), because each byte that is not contiguous needs a bank.
    """
)
def _cycles(command: Command, arch: Arch) -> int:
    dense = max(command["EX_INPUT_STRIDE_1"], command["EX_OUTPUT_STRIDE_1"]) <= 1
    parallel = arch.lanes if dense else min(arch.lanes, arch.sram_banks)
    rows = command["EX_COUNT_4"] * command["EX_COUNT_3"] * command["EX_COUNT_2"]
    return rows * ceil_div(command["EX_COUNT_1"], parallel)


def _least(command: Command, arch: Arch) -> int:
    """Return a lower bound of a copy's cycles; a copy of contiguous bytes reaches it.

    Another program may order the dimensions differently.
    """
    rows = command["EX_COUNT_4"] * command["EX_COUNT_3"] * command["EX_COUNT_2"]
    return ceil_div(rows * command["EX_COUNT_1"], arch.lanes)


OP_PERMUTE = Instruction(
    mnemonic="OP_PERMUTE", opcode=0x50, unit=Unit.EX, kind="ELTWISE",
    description="Copies bytes in four dimensions. Each dimension has a source stride and a result "
                "stride, so a copy can repeat or omit bytes.",
    registers=(
        "EX_INPUT_ADDRESS", "EX_OUTPUT_ADDRESS", "EX_INPUT_ZERO_POINT",
        *(register.name for register in REGISTERS),
    ),
    adds_registers=REGISTERS, fields=(FILL,),
    operands=_operands, semantics=_permute, cycles=_cycles, least=_least, inputs=(BYTES,),
    outputs=(BYTES,),
)  # fmt: skip
INSTRUCTIONS = (OP_PERMUTE,)
