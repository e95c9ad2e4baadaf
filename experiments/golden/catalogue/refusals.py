"""Level 2, refusals: words and programs that a machine must not run, and where it must say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from experiments.golden.build import Builder
from experiments.golden.case import Case
from experiments.golden.catalogue.machines import BALANCED, GROUPED, machine
from isa.arch import Arch


def cases() -> Iterator[Case]:
    """Illegal words, illegal streams, addresses outside, missing tokens."""
    yield from _words()
    yield from _tokens()
    yield from _addresses()
    yield _groups()


def _base(arch: Arch, name: str) -> Builder:
    builder = Builder(arch, name)
    builder.input("input", np.arange(64, dtype=np.int8))
    builder.output("result", "int8", (64,))
    return builder


def _words() -> Iterator[Case]:
    end = 0x03 << 56
    forbidden = {
        "unknown-opcode": (0x7F << 56, end),
        "depth-conv-in-v1": (0x21 << 56, end),
        "reserved-bit": ((0x20 << 56) | 1, end),
        "reserved-bit-of-sync": ((0x02 << 56) | 1 << 49, end),
        "reserved-bit-of-end": (end | 1 << 3,),
        "set-reserved-bit": ((0x01 << 56) | (0x20 << 48) | 1 << 32, end),
        "set-unknown-register": ((0x01 << 56) | (0xFF << 48), end),
        "set-too-large": ((0x01 << 56) | (0x2C << 48) | 256, end),
        "set-negative-too-low": ((0x01 << 56) | (0x39 << 48) | 0xFFFF_FF7F, end),
        "no-end": (0x02 << 56 | 1 << 50,),
        "end-twice": (end, end),
        "nothing-at-all": (),
        "load-pops-previous": ((0x10 << 56) | 1 << 55, end),
        "store-pushes-next": ((0x11 << 56) | 1 << 52, end),
        "sync-of-unit-3": ((0x02 << 56) | 3 << 50, end),
    }
    for name, words in forbidden.items():
        case = _base(machine("v1", "onnxruntime"), name).case(f"L2/refuse-{name}", f"words that mean nothing: {name}")
        yield replace(case, words=np.array(words, np.uint64))


def _tokens() -> Iterator[Case]:
    alone = _base(BALANCED, "pop")
    alone.operation("OP_C_MAX", {"EX_LENGTH": 8, "EX_OUTPUT_ADDRESS": 64}, "pop.LD")
    yield alone.case("L2/refuse-pop-without-push", "EX waits for a token that never comes")
    cycle = _base(BALANCED, "cycle")
    cycle.read(0, 0, 8, "pop.EX push.EX")
    cycle.operation("OP_C_MAX", {"EX_LENGTH": 8, "EX_OUTPUT_ADDRESS": 64}, "pop.LD push.LD")
    yield cycle.case("L2/refuse-circular-wait", "LD and EX wait for one another")
    race = _base(BALANCED, "race")
    race.read(0, 0, 64)
    race.operation("OP_C_MAX", {"EX_LENGTH": 64, "EX_OUTPUT_ADDRESS": 128}, "push.ST")
    race.write(64, 128, 64, "pop.EX")
    yield race.case("L2/refuse-read-while-loading", "a missing token: EX reads what LD is writing")
    store = _base(BALANCED, "overwrite")
    store.write(64, 0, 64)
    store.operation("OP_C_MAX", {"EX_LENGTH": 64, "EX_OUTPUT_ADDRESS": 0, "EX_INPUT_ADDRESS": 64})
    yield store.case("L2/refuse-overwrite-while-storing", "a missing token: EX writes what ST is reading")
    memory = _base(BALANCED, "through-memory")
    memory.write(0, 64, 64)
    memory.read(0, 0, 64)
    yield memory.case("L2/refuse-load-while-storing", "a missing token: LD reads system memory that ST writes")


def _addresses() -> Iterator[Case]:
    small = machine("v2", "onnxruntime", sram_bytes=1024, sram_banks=1)
    beyond = _base(small, "scratchpad")
    beyond.read(0, 1000, 32)
    yield beyond.case("L2/refuse-beyond-scratchpad", "a load that reaches past the scratchpad")
    result = _base(small, "result")
    result.operation("OP_C_MAX", {"EX_LENGTH": 100, "EX_OUTPUT_ADDRESS": 1000})
    yield result.case("L2/refuse-result-beyond-scratchpad", "a result that reaches past the scratchpad")
    outside = _base(BALANCED, "memory")
    outside.read(0, 0, 64, count_3=3, dram_stride_3=4096, sram_stride_3=64)
    yield outside.case("L2/refuse-beyond-memory", "rows that lie outside system memory")
    words = _base(BALANCED, "words")
    words.write(128, 0, 8)
    yield words.case("L2/refuse-write-on-words", "a store onto the command words")


def _groups() -> Case:
    builder = _base(GROUPED, "groups")
    registers = {"EX_INPUT_CHANNELS": 4, "EX_OUTPUT_CHANNELS": 6, "EX_GROUPS": 4, "EX_OUTPUT_ADDRESS": 256}
    builder.operation("OP_GROUP_CONV", registers, requantise=1)
    return builder.case("L2/refuse-groups-that-do-not-divide", "EX_GROUPS 4 of 6 output channels")
