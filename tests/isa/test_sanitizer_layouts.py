"""A command of v5 that reads other bytes than its program states is a finding."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from isa.assembler import assemble, disassemble
from isa.dataflow import CONSTANT, FILL, ByteMovement, Computation, Dataflow, Extent
from isa.errors import InputError
from isa.program import Program
from isa.program_file import from_bytes, to_bytes
from isa.sanitizer import sanitize

KIND = "layout mismatch"
ARCH = '.arch {"isa": "v5", "atom": 8}'
TENSORS = """
.memory 0x4000 commands 0x2000
.tensor ["x", "input", "int8", [2, 40, 8], 0]
.tensor ["y", "output", "int8", [2, 40, 8], 1024]
.image 0x1000
"""
TABLE = "\n".join([".data " + "AAAA" * 32] * 11)
"""1,056 bytes of constants."""
LOAD = """
SET LD_DRAM_ADDRESS, {dram}
SET LD_SRAM_ADDRESS, {sram}
SET LD_BYTES, {size}
OP_DMA_READ
"""
BODY = """
SET EX_INPUT_CHANNELS, 12
SET EX_OPERAND_ADDRESS, 0x8000
SET EX_OUTPUT_ADDRESS, 0x800
SET EX_ROWS, 1
SET EX_LENGTH, 40
{first}
OP_SOFTMAX
SET EX_INPUT_ADDRESS, 0x800
SET EX_OUTPUT_ADDRESS, 0x1000
SET EX_COUNT_1, 320
SET EX_INPUT_STRIDE_1, 1
SET EX_OUTPUT_STRIDE_1, 1
SET EX_COUNT_2, 2
SET EX_INPUT_STRIDE_2, 320
SET EX_OUTPUT_STRIDE_2, 320
{move}
OP_PERMUTE
SET EX_INPUT_ADDRESS, 0x1000
SET EX_OUTPUT_ADDRESS, 0x1800
{second}
OP_SOFTMAX
SET ST_DRAM_ADDRESS, 0x400
SET ST_SRAM_ADDRESS, 0x1800
SET ST_BYTES, 640
{store}
OP_DMA_WRITE
OP_END
"""
"""A softmax of 40 rows of 12 channels in two atoms of 8, a copy of its result, and another
softmax of that.
"""
SIZE = 640


def whole(value: int) -> Extent:
    return Extent(value, 0, SIZE)


def softmax(command: int, source: int, result: int) -> Computation:
    return Computation(command, (12, 12), 0, (("EX_INPUT_ADDRESS", whole(source)),), whole(result))


COPIED = (ByteMovement(2, 0, 1, 0, ((SIZE, 1, 1),)),)
FLOW = Dataflow((SIZE,) * 4, ((0, 0), (3, 0)), COPIED, (softmax(2, 0, 1), softmax(4, 2, 3)))
"""Values: the input, the first result, its copy, the output."""


def program(flow: Dataflow | None = FLOW, load: str = "", **changes: str) -> Program:
    """The program with lines put before its commands."""
    stated = [] if flow is None else [f".dataflow {json.dumps(flow)}"]
    body = BODY.format(**{"first": "", "move": "", "second": "", "store": ""} | changes)
    loads = LOAD.format(dram=0, sram=0, size=SIZE).replace("OP_DMA", f"{load}\nOP_DMA")
    loads += LOAD.format(dram=0x1000, sram=0x8000, size=1056)
    return assemble("\n".join((ARCH, *stated, TENSORS + TABLE, loads + body)))


def mismatches(flow: Dataflow | None = FLOW, load: str = "", **changes: str) -> list[str]:
    """The layout mismatches of the program."""
    return [
        finding.text for finding in sanitize(program(flow, load, **changes)) if finding.kind == KIND
    ]


def test_a_program_that_does_what_it_states_has_no_finding() -> None:
    assert mismatches() == []


FOUND: Sequence[tuple[dict[str, str], str]] = (
    ({"first": "SET EX_INPUT_CHANNELS, 11"}, "reads 11 channels, where the program states 12"),
    ({"first": "SET EX_INPUT_CHANNELS, 17"}, "reads scratchpad bytes 0x0 to 0x3c0, where the "
                                             "program states 640 bytes"),
    ({"first": "SET EX_INPUT_PLANE, 328"},
     "byte 328 of input 'x', where the program states byte 320 of input 'x'"),
    ({"first": "SET EX_OPERAND_ADDRESS, 0x8008"}, ""),
    ({"first": "SET EX_OPERAND_ADDRESS, 0x0"},
     "as constants, which begin with byte 0 of input 'x'"),
    ({"first": "SET EX_LENGTH, 39"}, "where the program states 640 bytes"),
    ({"load": "SET LD_DRAM_ADDRESS, 8"},
     "byte 8 of input 'x', where the program states byte 0 of input 'x'"),
    ({"move": "SET EX_INPUT_STRIDE_2, 0"},
     "byte 0 of what OP_SOFTMAX at word 13 on EX writes, where the"),
    ({"move": "SET EX_OUTPUT_STRIDE_2, 319"}, "OP_PERMUTE at word 23 on EX writes a byte twice"),
    ({"second": "SET EX_INPUT_ADDRESS, 0x1008"},
     "byte 8 of what OP_SOFTMAX at word 13 on EX writes, where"),
    ({"second": "SET EX_INPUT_ADDRESS, 0x800"}, ""),
    ({"store": "SET ST_BYTES, 632"},
     "output 'y' reads system memory bytes 0x678 to 0x680, bytes of no value"),
)  # fmt: skip


@pytest.mark.parametrize(("changes", "text"), FOUND)
def test_a_command_that_reads_other_bytes_is_found(changes: dict[str, str], text: str) -> None:
    """A command that reads other bytes is found, unless the bytes are equal.

    Equal bytes are copies, or constants further on.
    """
    found = mismatches(**changes)
    assert any(text in one for one in found) if text else not found, found


@pytest.mark.parametrize(
    ("movement", "count"),
    [
        (ByteMovement(2, 0, 1, 8, ((632, 1, 1),)), 1),
        (ByteMovement(2, 0, FILL, 0, ((SIZE, 0, 1),)), 1),
        (ByteMovement(2, 0, CONSTANT, 0x1000, ((SIZE, 1, 1),)), 1),
        (ByteMovement(2, 0, 0, 0, ((SIZE, 1, 1),)), 1),
        (ByteMovement(2, 0, 1, 0, ((80, 8, 8), (8, 1, 1))), 0),
    ],
)
def test_a_copy_is_of_the_bytes_that_are_stated(movement: ByteMovement, count: int) -> None:
    assert len(mismatches(FLOW._replace(movements=(movement,)))) == count


def test_weights_are_in_the_order_of_the_mapping() -> None:
    first, second = FLOW.computations
    found = mismatches(FLOW._replace(computations=(first._replace(mapping=1), second)))
    assert "has another mapping than its weights, which are in the order of 1" in found[0]


def test_nothing_is_found_where_nothing_is_stated() -> None:
    assert mismatches(None, first="SET EX_INPUT_PLANE, 328") == []


def test_what_a_program_states_is_in_its_files() -> None:
    written = program()
    assert from_bytes(to_bytes(written), "x").dataflow == FLOW
    assert assemble(disassemble(written)).dataflow == FLOW
    assert b"dataflow" not in to_bytes(program(None))


BAD: Sequence[dict[str, Any]] = (
    {"values": (SIZE,) * 3},
    {"values": (SIZE, SIZE, SIZE, -1)},
    {"tensors": ((0, 0),)},
    {"tensors": ((0, 0), (3, 8))},
    {"tensors": ((0, 0), (CONSTANT, 0))},
    {"movements": (ByteMovement(CONSTANT, 0, 1, 0, ()),)},
    {"movements": (ByteMovement(2, 0, -3, 0, ()),)},
    {"movements": (ByteMovement(2, 0, 1, 0, ((SIZE, -1, 1),)),)},
    {"movements": (ByteMovement(2, 0, 1, 0, ((1 << 40, 0, 0),)),)},
    {"values": (1 << 40,) * 4},
    {"computations": (softmax(2, 0, 1)._replace(result=Extent(1, 0, SIZE, ((1, 1 << 60),))),)},
    {"computations": (softmax(2, FILL, 1),)},
    {"computations": (softmax(2, 0, 9),)},
)


@pytest.mark.parametrize("changes", BAD)
def test_statements_beyond_the_program_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the data flow states"):
        program(FLOW._replace(**changes))
