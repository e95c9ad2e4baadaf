"""Programs that repeat an inference many times in one command stream.

What a program costs must grow with its commands and not faster.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa.encoding import decode_set, encode_operation, encode_set
from isa.instruction import Unit
from isa.ops.control import OP_END, OP_SYNC
from isa.program import Program
from isa.variants import SET_OPCODE

_ALIGNMENT = 4096


def repeated(program: Program, times: int) -> Program:
    """Return one program that runs ``program`` ``times`` times, with barriers between.

    There is one ``OP_END``; at a barrier every unit waits for all others.

    Each inference finds the registers as after reset; provenance repeats and leaves out what is in
    between. The commands lie behind the system memory of ``program``, whose tokens must be
    balanced: what it pushes it pops.
    """
    file = program.variant.register_file
    body = [int(word) for word in program.words[:-1]]
    values = dict(decode_set(word, 0, file) for word in body if word >> 56 == SET_OPCODE)
    changed = [
        (name, file.reset[name]) for name, value in values.items() if value != file.reset[name]
    ]
    between = [*_barrier(), *(encode_set(name, value, file) for name, value in changed)]
    period = len(body) + len(between)
    words = (body + between) * (times - 1) + [*body, encode_operation(OP_END, {})]
    provenance = [
        replace(
            item,
            first=item.first + number * period,
            last=min(item.last, len(body)) + number * period,
        )
        for number in range(times)
        for item in program.provenance
        if item.first < len(body)
    ]
    address = -(-program.dram_bytes // _ALIGNMENT) * _ALIGNMENT
    return replace(
        program, words=np.array(words, dtype=np.uint64), provenance=tuple(provenance),
        command_address=address,
        dram_bytes=address + 8 * len(words),
    )  # fmt: skip


def _barrier() -> list[int]:
    """Return the command words of a barrier at which the three units wait for one another.

    LD and ST report to EX; when both and EX itself are done, EX releases them.
    """
    meeting = {"pop_previous": 1, "pop_next": 1, "push_previous": 1, "push_next": 1}
    return [
        _sync(Unit.LD, push_next=1),
        _sync(Unit.ST, push_previous=1),
        _sync(Unit.EX, **meeting),
        _sync(Unit.LD, pop_next=1),
        _sync(Unit.ST, pop_previous=1),
    ]


def _sync(unit: Unit, **flags: int) -> int:
    return encode_operation(OP_SYNC, {**flags, "unit": unit.value})
