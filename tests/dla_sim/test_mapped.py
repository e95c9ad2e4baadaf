"""The device behind its register map: bits, cycles and counters of a run, and every fault."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dla_sim.engine.accounts import CAUSES
from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.mapped import make_bus
from dla_sim.presets import load_hardware
from isa.device import (
    COUNTED_CAUSES,
    COUNTED_UNITS,
    DEVICE_REGISTERS,
    MAP_BYTES,
    FaultReason,
    hash_arch,
    number_isa,
    to_image,
)
from isa.errors import InputError
from isa.program import Segment
from tests.dla_sim.fuzz_device import Fuzz, mutate_words, run_shards, write_registers
from tests.dla_sim.mapped_systems import (
    BASE,
    LENGTH,
    RELU,
    System,
    compile_digits,
    offset,
    random_inputs,
    small_program,
)

INPUTS = {"x": np.arange(-32, 32, dtype=np.int8)}


def test_registers_are_words_that_do_not_overlap() -> None:
    offsets = [register.offset for register in DEVICE_REGISTERS.values()]
    assert len(set(offsets)) == len(offsets)
    assert all(value % 4 == 0 and 0 <= value < MAP_BYTES for value in offsets)


def test_the_counters_are_those_of_the_simulator() -> None:
    assert tuple(COUNTED_CAUSES) == CAUSES
    assert COUNTED_UNITS == UNIT_NAMES


def test_the_device_identifies_itself() -> None:
    program = small_program()
    system = System(program)
    assert system.read("ID").to_bytes(4, "little") == b"DLA1"
    assert system.read("MAP_VERSION") == 1
    assert system.read("ISA") == 2
    words = "".join(f"{system.read(f'ARCH_HASH{number}'):08x}" for number in range(4))
    settled = json.dumps(program.arch.list_settled_values(), sort_keys=True).replace(", ", ",")
    assert words == hashlib.sha256(settled.replace(": ", ":").encode()).hexdigest()[:32]


def test_a_packages_instruction_set_has_the_number_0() -> None:
    arch = load_hardware(None, isa="v4").arch
    for isa, number in (("v4", 4), ("v4+OP_MINE", 4), ("mine", 0), ("v4-mine", 0)):
        assert number_isa(arch.model_copy(update={"isa": isa})) == number


def test_the_same_machine_has_the_same_hash() -> None:
    default = load_hardware(None, isa="v5").arch
    assert default.words is not None
    for key, value in default.words.keys.items():
        chosen = default.model_copy(update={key: value})
        assert chosen.same_machine(default)
        assert hash_arch(chosen) == hash_arch(default), key
        other = default.model_copy(update={key: 2 * value})
        assert hash_arch(other) != hash_arch(default), key


@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_a_run_has_the_bits_the_cycles_and_the_counters_of_the_simulator(isa: str) -> None:
    program = compile_digits(isa)
    for seed in range(2):
        system = System(program)
        inputs = random_inputs(program, seed)
        system.start(inputs)
        assert system.read("STATUS") == 2
        expected = system.simulator.run(program, inputs)
        found = system.outputs()
        assert found.keys() == expected.outputs.keys()
        for name, output in expected.outputs.items():
            np.testing.assert_array_equal(found[name], output)
        assert system.counter("CYCLES") == expected.trace.cycles
        for unit, causes in expected.trace.units.items():
            for cause in COUNTED_CAUSES:
                found_cycles = system.counter(f"{unit}_{cause}".upper())
                assert found_cycles == causes.get(cause, 0), (unit, cause)


def test_a_second_run_with_other_inputs_and_a_second_device_agree() -> None:
    system = System(small_program())
    for shift in (0, 5):
        inputs = {"x": np.roll(INPUTS["x"], shift)}
        system.start(inputs)
        np.testing.assert_array_equal(system.outputs()["y"], np.maximum(inputs["x"], 0))


def test_polling_and_the_interrupt() -> None:
    system = System(small_program(), deferred=True)
    system.start(INPUTS)
    assert (system.read("STATUS"), system.device.interrupt) == (1, False)
    system.write("COMMAND_WORDS", 0)  # no effect while busy
    system.write("CONTROL", 1)
    system.write("INTERRUPT_ENABLE", 0xFFFFFFFF)
    assert system.read("INTERRUPT_ENABLE") == 1
    system.device.finish()
    assert (system.read("STATUS"), system.device.interrupt) == (2, True)
    system.write("INTERRUPT", 0)
    assert system.device.interrupt
    system.write("INTERRUPT", 1)
    assert (system.read("INTERRUPT"), system.device.interrupt) == (0, False)
    system.device.finish()
    assert not system.read("INTERRUPT")


def test_a_fault_interrupts_too_and_the_next_run_clears_it() -> None:
    system = System(small_program())
    system.write("INTERRUPT_ENABLE", 1)
    system.start(INPUTS, PROGRAM_HASH0=1)
    assert (system.read("STATUS"), system.device.interrupt) == (4, True)
    system.start(INPUTS)
    assert (system.read("STATUS"), system.fault()) == (2, (FaultReason.NONE, 0, 0))
    assert system.counter("CYCLES") > 0
    system.start(INPUTS, PROGRAM_HASH0=1)
    assert system.counter("CYCLES") == 0


def test_reset_aborts_a_run_and_clears_the_registers() -> None:
    system = System(small_program(), deferred=True)
    before = {name: system.read(name) for name in DEVICE_REGISTERS}
    system.start(INPUTS)
    memory = bytes(system.memory)
    system.write("CONTROL", 3)
    system.device.finish()
    assert {name: system.read(name) for name in DEVICE_REGISTERS} == before
    assert system.memory == memory


def test_a_bus_on_an_array_counts_bytes() -> None:
    bus = make_bus(memoryview(np.zeros(32, np.int16)), 64)
    bus.write(65, b"abc")
    assert (bus.read(64, 5), bus.ranges) == (b"\0abc\0", ((64, 128),))


def test_other_offsets_read_as_zero_and_ignore_writes() -> None:
    system = System(small_program())
    before = {name: system.read(name) for name in DEVICE_REGISTERS}
    for other in (0x00C, 0x07C, 0x060, 0x178, 0xFFC, 0x1000, 2, -4):
        if other != offset("CONTROL"):
            system.device.write32(other, 0xFFFFFFFF)
        assert system.device.read32(other) == 0
    system.device.write32(offset("ID"), 5)
    assert {name: system.read(name) for name in DEVICE_REGISTERS} == before


HIGHEST = (1 << 32) - 64
FAULTS: dict[str, tuple[FaultReason, int, dict[str, str], dict[str, int]]] = {
    "hash": (FaultReason.HASH, 0, {}, {"PROGRAM_HASH3": 7}),
    "command base": (FaultReason.ALIGNMENT, 0, {}, {"COMMAND_BASE": BASE + 4}),
    "activation base": (FaultReason.ALIGNMENT, 0, {}, {"ACTIVATION_BASE": BASE + 8}),
    "below memory": (FaultReason.MEMORY, 0, {}, {"ACTIVATION_BASE": BASE - 64}),
    "above memory": (FaultReason.MEMORY, 0, {}, {"ACTIVATION_BYTES": 1 << 16}),
    "bus beyond 2^32": (FaultReason.MEMORY, 0, {}, {"ACTIVATION_BASE": HIGHEST}),
    "program beyond 2^32": (FaultReason.MEMORY, 0, {}, {"COMMAND_START": HIGHEST}),
    "too many words": (FaultReason.MEMORY, 0, {}, {"COMMAND_WORDS": 0xFFFFFFFF}),
    "bus overlap": (FaultReason.OVERLAP, 0, {}, {"ACTIVATION_BASE": BASE}),
    "program overlap": (FaultReason.OVERLAP, 0, {}, {"COMMAND_START": 64}),
    "no words": (FaultReason.WORD, 0, {}, {"COMMAND_WORDS": 0}),
    "no end": (FaultReason.WORD, 0, {}, {"COMMAND_WORDS": 12}),
    "no instruction": (FaultReason.WORD, 13, {}, {"COMMAND_WORDS": 14}),
    "read before the window": (
        FaultReason.ADDRESS,
        2,
        {},
        {"ACTIVATION_START": 64, "ACTIVATION_BYTES": 1024},
    ),
    "write after the window": (FaultReason.ADDRESS, 11, {}, {"ACTIVATION_BYTES": 512}),
    "write to constants": (
        FaultReason.ADDRESS,
        11,
        {},
        {
            "ACTIVATION_BYTES": 512,
            "CONSTANT_BASE": BASE + 1024,
            "CONSTANT_START": 512,
            "CONSTANT_BYTES": 512,
        },
    ),
    "scratchpad": (FaultReason.ADDRESS, 7, {LENGTH: "SET EX_LENGTH, 4096"}, {}),
    "deadlock": (FaultReason.DEADLOCK, 7, {"OP_DMA_READ push.EX": "OP_DMA_READ"}, {}),
    "hazard": (
        FaultReason.HAZARD,
        2,
        {"OP_DMA_READ push.EX": "OP_DMA_READ", RELU: "OP_ACT_RELU push.ST"},
        {},
    ),
    "overflow": (
        FaultReason.OVERFLOW,
        7,
        {LENGTH: "SET EX_LENGTH, 16", RELU: "OP_E32_ADD pop.LD push.ST"},
        {},
    ),
    "operand": (
        FaultReason.OPERAND,
        7,
        {LENGTH: "SET EX_INPUT_CHANNELS, 0", RELU: "OP_MAT_MUL pop.LD push.ST"},
        {},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_reason_and_its_word_and_writes_no_memory(name: str) -> None:
    reason, word, texts, registers = FAULTS[name]
    inputs = {"x": np.full(64, 127, np.int8)}
    system = System(small_program(*texts.items()))
    system.put(system.activations, inputs["x"].tobytes())
    before = bytes(system.memory)
    system.start(inputs, **registers)
    assert (*system.fault()[:2], system.read("STATUS")) == (reason, word, 4)
    assert system.memory == before


def test_the_limit_of_the_model_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(small_program())
    monkeypatch.setenv("DLA_MAX_MEMORY", "1K")
    system.start(INPUTS)
    assert system.fault() == (FaultReason.LIMIT, 0, 0)


def test_every_reason_is_tested() -> None:
    reasons = {reason for reason, *_ in FAULTS.values()}
    assert reasons | {FaultReason.NONE, FaultReason.LIMIT} == set(FaultReason)


def test_the_image_has_all_bytes_of_the_program() -> None:
    program = compile_digits()
    image = to_image(program)
    (segment,) = program.segments
    np.testing.assert_array_equal(image.constants, segment.data)
    assert (image.activation_bytes, image.constant_start) == (segment.address, segment.address)
    assert image.command_start == program.command_address
    assert image.arch_hash == hash_arch(program.arch)


def test_a_tensor_after_constants_has_no_window() -> None:
    program = small_program()
    late = replace(program, segments=(Segment(256, np.zeros(16, np.uint8)),))
    with pytest.raises(InputError, match="'y' at 0x200 is not before the constants at 0x100"):
        to_image(late)


@pytest.mark.parametrize("case", [write_registers, mutate_words])
def test_random_registers_and_words_end_with_outputs_or_a_fault(
    case: Callable[[Fuzz, random.Random], None],
) -> None:
    ends = run_shards(case, 1000)
    assert ends.total() == 1000
    assert ends["NONE"]
    assert len(ends) > 5
