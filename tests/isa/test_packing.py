"""Packed operands: an instruction on banked memory gives the result of the plain layout."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dla_sim.kernels.atoms import WeightStore
from dla_sim.kernels.dispatch import ON_ATOMS, Kernels
from isa.access import Access, row_starts
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Blocks, Command, Machine
from isa.ops.packed import PACKED
from isa.ops.products import (
    ArrayProduct,
    product_block,
    product_blocks,
    product_bytes,
    product_places,
    use_mapping,
)
from isa.packing import (
    GAP,
    Block,
    WeightShape,
    block_places,
    block_weights,
    compute_serving_cycles,
    depthwise_places,
    get_cycles,
    operand_loads,
    read_blocks,
    unblock_weights,
    write_blocks,
)
from isa.shapes import COMMAND_SHAPES
from isa.variants import VARIANTS
from tests.isa.bench import make_command, run
from tests.isa.packed_cases import DRAWS, bytes_where_they_lie
from tests.isa.packed_operands import Drawn, Placed, atom_by_atom, in_blocks, machines, placed
from tests.rotation import choose_cases

COMMANDS = 30
MANY = 400
WHERE_THEY_LIE = ("OP_PERMUTE",)
NUMERICS = ("onnxruntime", "fixed")
FLAGS = ("unit", "pop_previous", "pop_next", "push_previous", "push_next", "fields")
ADDRESSES = (
    "EX_INPUT_ADDRESS",
    "EX_OPERAND_ADDRESS",
    "EX_CHANNEL_ADDRESS",
    "EX_TABLE_ADDRESS",
    "EX_PARTIAL_ADDRESS",
)


def plain_result(drawn: Drawn, arch: Arch) -> NDArray[Any]:
    """(channels, positions): what the machine without words makes of the same tensors."""
    reads = [drawn.operands[name].plainly if name in drawn.operands else None for name in ADDRESSES]
    channels, positions, kind = drawn.result
    shape = (positions, channels) if drawn.rows else (channels, positions)
    plain = Arch.model_validate({"isa": "v4", "pe": arch.pe, "numerics": arch.numerics})
    found = run(drawn.mnemonic, drawn.registers, reads, (shape, kind), drawn.fields, plain)
    return np.ascontiguousarray(found.T) if drawn.rows else found


def drawn_commands(mnemonic: str, numerics: str, count: int) -> Iterator[tuple[Arch, Placed]]:
    """Yield random commands on random machines, with their expected results."""
    rng = np.random.default_rng(zlib.crc32(f"{mnemonic} {numerics}".encode()))
    known = machines(numerics)
    for _ in range(count):
        arch = known[int(rng.integers(len(known)))]
        drawn = DRAWS[mnemonic](rng, arch)
        yield arch, placed(drawn, plain_result(drawn, arch), arch, rng)


def bytes_of(access: Access) -> NDArray[np.int64]:
    return np.unique(row_starts(access)[:, np.newaxis] + np.arange(access.nbytes))


def check_commands(mnemonic: str, numerics: str, count: int) -> None:
    """Check semantics, operands and kernels of random commands against the expected bytes.

    The kernels of one device run one command after another, each twice. They may keep buffers but
    never values.
    """
    kernels: dict[Arch, Kernels] = {}
    for arch, case in drawn_commands(mnemonic, numerics, count):
        command = case.command
        told = (arch, case.command.registers, case.command.fields)
        kernel = kernels.setdefault(arch, Kernels(arch)).run
        for effect in (command.instruction.semantics, kernel, kernel):
            sram = case.before.copy()
            effect(command, Machine(arch, sram, np.zeros(0, np.uint8)))
            assert np.array_equal(sram, case.after), told
        operands = command.instruction.operands(command, arch)
        assert np.array_equal(bytes_of(operands.writes[0]), case.written)
        touched: dict[str, list[NDArray[np.int64]]] = {}
        for layout, access in zip(operands.layouts, operands.reads, strict=False):
            touched.setdefault(layout.register, []).append(bytes_of(access))
        for parts, read in zip(touched.values(), case.read, strict=True):
            assert np.isin(read, np.concatenate(parts)).all()


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("mnemonic", sorted(DRAWS))
def test_a_packed_command_means_what_the_plain_one_means(mnemonic: str, numerics: str) -> None:
    """To the bit, as semantics and as kernels.

    Zeros lie behind the last channel, and nothing else is written.
    """
    check_commands(mnemonic, numerics, COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mnemonic", "numerics"), choose_cases([*product(sorted(DRAWS), NUMERICS)], 2)
)
def test_many_packed_commands_mean_what_the_plain_ones_mean(mnemonic: str, numerics: str) -> None:
    check_commands(mnemonic, numerics, MANY)


@pytest.mark.parametrize("mnemonic", sorted(DRAWS))
def test_cycles_and_words_are_those_of_some_work(mnemonic: str) -> None:
    """No command takes fewer cycles than its products over the array.

    Each operand has words, as it has a layout.
    """
    for arch, case in drawn_commands(mnemonic, "fixed", 20):
        command = case.command
        packed = PACKED[mnemonic]
        instruction = command.instruction
        operands = instruction.operands(command, arch)
        assert instruction.cycles(command, arch) >= instruction.least_cycles(command, arch)
        words = packed.words(command, arch)
        assert (
            len(words)
            == len(packed.layouts(command, arch))
            == len((*operands.reads, *operands.writes))
        )
        assert compute_serving_cycles(command, arch) == max(packed.cycles(command, arch), *words)
        assert min(words) > 0


def _move_operands(command: Command, rng: np.random.Generator, step: int) -> Command:
    """Return a command with each operand up to 99 steps further."""
    moved = {
        name: value + step * int(rng.integers(100)) * name.endswith("_ADDRESS")
        for name, value in command.registers.items()
    }
    return Command(0, command.instruction, *[vars(command)[name] for name in FLAGS], moved)


@pytest.mark.parametrize("mnemonic", sorted(DRAWS))
def test_cached_shapes_of_commands_are_their_own(mnemonic: str) -> None:
    """Operands, cycles and words of commands that differ in addresses are as without a cache."""
    rng = np.random.default_rng(zlib.crc32(mnemonic.encode()))
    for arch, case in drawn_commands(mnemonic, "fixed", 10):
        command = case.command
        commands = [command, *(_move_operands(command, rng, step) for step in (1, 8, 64))]
        sizes = [arch, arch.model_copy(update={"sram_bytes": 2 * arch.sram_bytes})]
        for cases in (list(product(commands, sizes)), list(product(commands, sizes))[::-1]):
            found = [_read_command(*case) for case in cases]
            for case, one in zip(cases, found, strict=True):
                COMMAND_SHAPES.clear()
                assert one == _read_command(*case)


def _read_command(command: Command, arch: Arch) -> tuple[object, ...]:
    operands = command.instruction.operands(command, arch)
    loads = operand_loads(command, operands, arch)
    return operands, loads, get_cycles(command, arch)


@pytest.mark.parametrize("mnemonic", ON_ATOMS)
def test_kernels_on_atoms_see_weights_that_change(mnemonic: str) -> None:
    """They keep weights in another order; the same command on other weights has other results."""
    taken = changed = 0
    for arch, case in drawn_commands(mnemonic, "onnxruntime", COMMANDS):
        command = case.command
        kernels = Kernels(arch)
        attempt = ON_ATOMS[mnemonic](command, arch, WeightStore())
        weights = command.instruction.operands(command, arch).reads[1]
        sram = case.before.copy()
        taken += attempt is not None and attempt(
            Machine(arch, sram, np.zeros(0, np.uint8)), kernels.scratch
        )
        memories = [case.before.copy() for _ in range(3)]
        for memory in memories[1:]:
            memory[weights.address : weights.end] ^= 0x55
        effects = (kernels.run, kernels.run, command.instruction.semantics)
        for effect, memory in zip(effects, memories, strict=True):
            effect(command, Machine(arch, memory, np.zeros(0, np.uint8)))
        assert np.array_equal(memories[1], memories[2]), (arch, command.registers, command.fields)
        changed += not np.array_equal(memories[1][case.written], memories[0][case.written])
    assert taken > COMMANDS // 2
    assert changed > COMMANDS // 4


@pytest.mark.parametrize("mnemonic", ["OP_CONV", "OP_GROUP_CONV", "OP_MAT_MUL", "OP_DEPTH_CONV"])
def test_weights_are_read_from_where_they_are_stored(mnemonic: str) -> None:
    """The places of a command's weights agree with the function that reads them.

    Each has its own code.
    """
    random = np.random.default_rng(0)
    for arch, case in drawn_commands(mnemonic, "onnxruntime", COMMANDS):
        _, blocks, *_ = PACKED[mnemonic].layouts(case.command, arch)
        assert isinstance(blocks, Blocks)
        weights = random.integers(0, 256, int(blocks.places.max(initial=-1)) + 1, dtype=np.uint8)
        found = np.empty_like(weights)
        blocks.read(block_weights(weights, blocks.places), found)
        assert found.tolist() == weights.tolist()


def check_bytes(mnemonic: str, numerics: str, count: int) -> None:
    """Random commands against what a machine without words makes of the same bytes."""
    rng = np.random.default_rng(zlib.crc32(f"{mnemonic} {numerics}".encode()))
    known = machines(numerics)
    for _ in range(count):
        arch = known[int(rng.integers(len(known)))]
        plain = Arch.model_validate({"isa": "v4", "pe": arch.pe, "numerics": numerics})
        command, before = bytes_where_they_lie(rng)
        elsewhere, _ = VARIANTS["v4"].by_mnemonic[mnemonic]
        after = before.copy()
        elsewhere.semantics(command, Machine(plain, after, np.zeros(0, np.uint8)))
        assert not np.array_equal(after, before)
        for effect in (command.instruction.semantics, Kernels(arch).run):
            sram = before.copy()
            effect(command, Machine(arch, sram, np.zeros(0, np.uint8)))
            assert np.array_equal(sram, after), (arch, command.registers, command.fields)
        operands = command.instruction.operands(command, arch)
        assert operands == elsewhere.operands(command, plain)
        words = PACKED[mnemonic].words(command, arch)
        accesses = (*operands.reads, *operands.writes)
        assert len(words) == len(PACKED[mnemonic].layouts(command, arch)) == len(accesses)
        for taken, access in zip(words, accesses, strict=True):
            assert arch.words is not None
            copied = prod(command.registers.get(f"EX_COUNT_{number}", 1) for number in (1, 2, 3, 4))
            assert (
                -(-len(bytes_of(access)) // arch.words.word) <= taken <= max(access.total, copied)
            )


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("mnemonic", WHERE_THEY_LIE)
def test_a_command_on_bytes_where_they_lie_means_what_it_means_elsewhere(
    mnemonic: str, numerics: str
) -> None:
    check_bytes(mnemonic, numerics, COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("mnemonic", WHERE_THEY_LIE)
def test_many_commands_on_bytes_where_they_lie_mean_what_they_mean_elsewhere(
    mnemonic: str, numerics: str
) -> None:
    check_bytes(mnemonic, numerics, MANY)


def test_instructions_find_atoms_or_bytes_where_they_lie() -> None:
    assert {name for name, packed in PACKED.items() if packed.raw} == {*WHERE_THEY_LIE}
    assert DRAWS.keys() == PACKED.keys() - {*WHERE_THEY_LIE}


def test_blocks_of_weights_lie_as_they_are_told() -> None:
    rng = np.random.default_rng(28)
    for arch in machines("onnxruntime"):
        shape = WeightShape(*(int(rng.integers(1, most)) for most in (6, 30, 30, 4, 4)))
        for taps in sorted({False, shape.groups == 1}):
            assert arch.words is not None
            weights = rng.integers(-128, 128, shape, dtype=np.int8)
            together = max(
                1, min(shape.groups, arch.pe.ic // shape.inputs, arch.pe.oc // shape.outputs)
            )
            together = 1 if arch.words.atom % shape.inputs else together
            places = block_places(
                shape, Block(together, arch.pe.oc, arch.pe.ic, taps), arch.words.word
            )
            found = block_weights(weights.view(np.uint8), places)
            assert np.array_equal(found, in_blocks(weights, arch, taps))
            assert np.array_equal(
                unblock_weights(found, places), weights.view(np.uint8).reshape(-1)
            )
            plain = np.empty(shape, np.uint8)
            read_blocks(
                shape, Block(together, arch.pe.oc, arch.pe.ic, taps), arch.words.word, found, plain
            )
            assert np.array_equal(plain, weights.view(np.uint8))
            written = np.zeros_like(found)
            write_blocks(
                shape,
                Block(together, arch.pe.oc, arch.pe.ic, taps),
                arch.words.word,
                plain,
                written,
            )
            assert np.array_equal(written, found)
            assert np.array_equal(np.sort(places[places != GAP]), np.arange(weights.size))


def test_depthwise_weights_lie_atom_by_atom() -> None:
    rng = np.random.default_rng(29)
    for arch in machines("onnxruntime"):
        assert arch.words is not None
        weights = rng.integers(
            -128, 128, (int(rng.integers(1, 50)), int(rng.integers(1, 10))), dtype=np.int8
        )
        places = depthwise_places(*weights.shape, arch.words.atom)
        found = block_weights(weights.view(np.uint8), places)
        assert np.array_equal(found, atom_by_atom(weights, arch))
        assert np.array_equal(unblock_weights(found, places), weights.view(np.uint8).reshape(-1))


def test_instructions_of_v5_have_packed_operands_and_others_are_not_its() -> None:
    computing = {item.mnemonic for item in VARIANTS["v5"].instructions if item.packed is not None}
    moving = {"OP_DMA_READ", "OP_DMA_WRITE", "OP_SYNC", "OP_END"}
    assert computing == PACKED.keys()
    assert VARIANTS["v5"].mnemonics == computing | moving
    assert VARIANTS["v5"].mnemonics < VARIANTS["v4"].mnemonics


@pytest.mark.parametrize("mapping", [2, 3])
def test_taps_and_groups_lie_side_by_side(mapping: int) -> None:
    rng = np.random.default_rng(30)
    for arch in machines("onnxruntime"):
        shape = WeightShape(*(int(rng.integers(1, most)) for most in (6, 30, 12, 8, 8)))
        weights = rng.integers(-128, 128, shape, dtype=np.int8)
        product = use_mapping(ArrayProduct(shape, 1, 1), mapping)
        found = block_weights(weights.view(np.uint8), product_places(product, arch))
        assert np.array_equal(found, in_blocks(weights, arch, mapping))
        assert np.array_equal(
            found, product_blocks(product, arch, weights.view(np.uint8).reshape(product.weights))
        )
        assert found.size == product_bytes(product, arch)
        plain = np.empty(weights.size, np.uint8)
        assert arch.words is not None
        block = product_block(product, arch)
        read_blocks(product.weights, block, arch.words.word, found, plain.reshape(product.weights))
        assert np.array_equal(plain, weights.view(np.uint8).reshape(-1))


REFUSED = {
    "depthwise mapping": (
        "OP_DEPTH_CONV",
        {},
        {"mapping": 1},
        "mapping is for machines without words; give 0",
    ),
    "more outputs": (
        "OP_DEPTH_CONV",
        {"EX_OUTPUT_CHANNELS": 2},
        {},
        "EX_INPUT_CHANNELS and EX_OUTPUT_CHANNELS must be",
    ),
    "rows of planes, reduced": (
        "OP_REDUCE",
        {"EX_ROWS": 3, "EX_LENGTH": 2},
        {},
        "EX_ROWS = 3: with banked memory either EX_ROWS or EX_LENGTH is 1",
    ),
    "rows of planes, softmax": (
        "OP_SOFTMAX",
        {"EX_ROWS": 2, "EX_LENGTH": 2},
        {},
        "EX_ROWS = 2: with banked memory either EX_ROWS or EX_LENGTH is 1",
    ),
    "rows of tables": (
        "OP_LUT",
        {"EX_ROWS": 2, "EX_OUTPUT_CHANNELS": 2},
        {},
        "tables of channels are for EX_ROWS = 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_worked_out_on_words_is_refused(name: str) -> None:
    mnemonic, registers, fields, message = REFUSED[name]
    known = {
        item.name: 1 for item in VARIANTS["v4"].by_mnemonic[mnemonic][0].register_declarations()
    }
    known |= {name: 0 for name in known if name.endswith(("_ADDRESS", "_PLANE", "_TOP", "_LEFT"))}
    command = make_command(mnemonic, known | registers, fields)
    with pytest.raises(InputError) as error:
        command.instruction.operands(command, Arch(isa="v5"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    command.instruction.operands(command, Arch(isa="v4"))
