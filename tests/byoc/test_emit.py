"""Emission: words, elision, provenance, constants, memory layout, report, shortage messages."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from byoc.compiled import CompileReport, Region
from byoc.emission.emit import Issue, count_words, elide
from byoc.emission.region import compile_region, shortage
from byoc.estimate.constants import PIECE_ALIGNMENT
from byoc.operators.layer import Shortage, make_layer
from byoc.operators.nest import Span
from byoc.operators.operator import Operator
from byoc.options import SCHEDULES, Schedule
from byoc.scheduling.stream import ConstantPool
from isa.arch import Arch, PeArray
from isa.assembler import assemble, disassemble
from isa.errors import InputError
from isa.ops.requant import pack_records
from isa.program import Program
from isa.program_file import from_bytes, to_bytes
from tests.byoc import region_cases as cases

SMALL = Arch(sram_bytes=4096, pe=PeArray(ic=2, oc=2, ow=1))


def network() -> Region:
    random = np.random.default_rng(2)
    first = cases.convolution(random, cases.operand("x", 4, 10, 9), "a", 6, pads=(1, 1, 1, 1))
    second = cases.convolution(random, first.output, "b", 6, pads=(1, 1, 1, 1), depthwise=True)
    return cases.region((first, second, cases.pool(second.output, "y", "max")), ("x",), ("b", "y"))[
        0
    ]


def compiled(schedule: Schedule, arch: Arch = SMALL) -> tuple[Program, CompileReport]:
    made = network()
    _, values = cases.region(made.operations, made.inputs, made.outputs)
    return compile_region(made, values, arch, schedule)


def test_elision_drops_what_a_register_holds_already() -> None:
    """Reset values count: EX_CLAMP_LOW is -128 from the start."""
    issues = (
        Issue((("EX_CLAMP_LOW", -128), ("EX_LENGTH", 5)), 1),
        Issue((("EX_LENGTH", 5), ("EX_CLAMP_LOW", -3)), 2),
        Issue((("EX_LENGTH", 6), ("EX_CLAMP_LOW", -3)), 3),
        Issue((("EX_LENGTH", 5),), 4),
    )
    kept = elide(issues)
    assert [issue.writes for issue in kept] == [
        (("EX_LENGTH", 5),), (("EX_CLAMP_LOW", -3),), (("EX_LENGTH", 6),), (("EX_LENGTH", 5),),
    ]  # fmt: skip
    assert (count_words(issues), count_words(kept)) == (11, 8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_programs_round_trip_through_bytes_and_assembly(schedule: Schedule) -> None:
    program, _ = compiled(schedule)
    assert to_bytes(from_bytes(to_bytes(program), "test")) == to_bytes(program)
    assert to_bytes(assemble(disassemble(program))) == to_bytes(program)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_compiling_twice_gives_the_same_bytes(schedule: Schedule) -> None:
    assert to_bytes(compiled(schedule)[0]) == to_bytes(compiled(schedule)[0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_command_but_the_end_has_a_source(schedule: Schedule) -> None:
    program, report = compiled(schedule)
    assert program.sources[-1] is None
    sources = [source for source in program.sources if source is not None]
    assert len(sources) == len(program.commands) - 1
    kinds = {source.layer: source.kind for source in sources}
    seed_only = {"a:requantise": "REQUANT", "b:requantise": "REQUANT"}
    assert kinds == {"a": "CONV", "b": "DEPTH", "y": "POOL"} | (
        seed_only if schedule == "seed" else {}
    )
    assert {source.onnx_nodes for source in sources if source.layer == "b"} == {("node_b",)}
    tiles = {layer: 1 + max(s.tile for s in sources if s.layer == layer) for layer in kinds}
    assert report.tiles == tiles


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_is_laid_out_in_order_and_aligned(schedule: Schedule) -> None:
    program, report = compiled(schedule)
    places = [(tensor.address, tensor.nbytes) for tensor in program.tensors]
    places += [(segment.address, segment.data.size) for segment in program.segments]
    places.append((program.command_address, 8 * len(program.words)))
    assert [tensor.name for tensor in program.tensors] == ["x", "b", "y"]
    assert all(address % 64 == 0 for address, _ in places)
    assert all(start + size <= after for (start, size), (after, _) in itertools.pairwise(places))
    assert program.dram_bytes == places[-1][0] + places[-1][1]
    assert report.words == len(program.words) < report.words_before_elision
    assert 0 < report.sram_peak_bytes <= SMALL.sram_bytes


def test_seed_requantises_in_place() -> None:
    program, _ = compiled("seed")
    commands = [
        command for command in program.commands if command.instruction.mnemonic == "OP_REQUANT"
    ]
    assert commands
    assert all(command["EX_INPUT_ADDRESS"] == command["EX_OUTPUT_ADDRESS"] for command in commands)
    convolutions = [
        command for command in program.commands if command.instruction.mnemonic == "OP_CONV"
    ]
    assert all(command.fields["requantise"] == 0 for command in convolutions)


def test_the_default_schedule_keeps_values_in_the_scratchpad() -> None:
    """With room for all tensors, the bus moves only the input, the constants and the outputs."""
    program, report = compiled("default", Arch(sram_bytes=1 << 16))
    loads = [
        command for command in program.commands if command.instruction.mnemonic == "OP_DMA_READ"
    ]
    stores = [
        command for command in program.commands if command.instruction.mnemonic == "OP_DMA_WRITE"
    ]
    first = program.segments[0].address
    assert (
        sum(command["LD_BYTES"] for command in loads if command["LD_DRAM_ADDRESS"] < first) == 360
    )
    assert sum(command["ST_BYTES"] * command["ST_COUNT_1"] for command in stores) == 6 * 90 + 6 * 20
    assert set(report.tiles.values()) == {1}


def test_a_lower_limit_at_the_zero_point_is_the_relu_setting() -> None:
    random = np.random.default_rng(0)
    plain = cases.convolution(random, cases.operand("x", 3, 9, 9), "y", 2)
    for relu, mnemonic in {True: "OP_CONV_RELU", False: "OP_CONV"}.items():
        changed = replace(plain, requantise=cases.requantise(random, 2, relu=relu))
        made, values = cases.region((changed,), ("x",), ("y",))
        text = disassemble(cases.compile_case(made, values, Arch(), "default"))
        assert mnemonic in {line.split(" ")[0] for line in text.splitlines()}


def test_constants_are_packed_by_channel_tile() -> None:
    arch = Arch()
    operation = cases.convolution(np.random.default_rng(4), cases.operand("x", 3, 5, 5), "y", 5)
    layer = make_layer(operation, arch)
    pool = ConstantPool(1024, arch)
    pack = pool.packer(layer)
    assert tuple(pack(span, None) for span in (Span(0, 3), Span(3, 5), Span(0, 3))) == (
        1024,
        1024 + 2 * PIECE_ALIGNMENT,
        1024,
    )
    image = pool.image().tobytes()
    assert operation.requantise is not None
    records = pack_records(
        operation.bias[3:], operation.requantise.scales.select_channels(slice(3, None)), arch
    )
    start = 2 * PIECE_ALIGNMENT
    assert image[start : start + 16] == records
    assert layer.geometry.weights_offset(2) == 16
    assert image[start + 16 :] == operation.weights[3:].tobytes()


def test_matrix_columns_are_packed_row_by_row() -> None:
    operation = cases.matmul(np.random.default_rng(4), cases.operand("x", 2, 7), "y", 6)
    pool = ConstantPool(0, Arch())
    pool.packer(make_layer(operation, Arch()))(Span(2, 5), None)
    assert pool.image()[24:].tobytes() == operation.weights[:, 2:5].tobytes()


def _short(operation: Operator, schedule: Schedule, sram: int) -> Shortage | None:
    return shortage(operation, Arch(sram_bytes=sram), schedule)


def test_shortage_names_every_buffer_and_the_bytes_missing() -> None:
    random = np.random.default_rng(0)
    pointwise = cases.convolution(random, cases.operand("x", 32, 112, 112), "y", 64, kernel=(1, 1))
    found = _short(pointwise, "seed", 1 << 18)
    assert found is not None
    assert dict(found.buffers) == {
        "input": 401_408, "output channel (int32)": 50_176, "weights": 32, "channel record": 8,
    }  # fmt: skip
    assert (found.needed, found.missing) == (451_624, 189_480)
    assert str(found) == (
        "does not fit in 262144 bytes of SRAM: input 401408 + output channel (int32) 50176 + "
        "weights 32 "
        "+ channel record 8 = 451624 bytes, 189480 missing"
    )
    assert _short(pointwise, "seed", 451_632) is None
    assert _short(pointwise, "default", 1 << 18) is None
    bands = _short(pointwise, "default", 3584)
    assert bands is not None
    assert bands.buffers == (
        ("input rows", 3584),
        ("output row", 112),
        ("weights", 32),
        ("channel record", 8),
    )
    assert bands.missing == 152


def test_shortage_counts_alignment() -> None:
    operation = cases.convolution(np.random.default_rng(0), cases.operand("x", 1, 5, 5), "y", 1)
    found = _short(operation, "seed", 80)
    assert found is not None
    assert found.buffers[-1] == ("alignment", 18)
    assert (found.needed, found.missing) == (96, 16)


def test_what_does_not_fit_cannot_be_compiled() -> None:
    operation = cases.convolution(np.random.default_rng(0), cases.operand("x", 64, 9, 9), "y", 8)
    made, values = cases.region((operation,), ("x",), ("y",))
    for schedule in SCHEDULES:
        with pytest.raises(InputError, match="layer 'y' does not fit in 256 bytes of SRAM"):
            compile_region(made, values, Arch(sram_bytes=256), schedule)


def test_a_missing_instruction_is_an_error_that_names_layer_and_isa() -> None:
    operation = cases.convolution(
        np.random.default_rng(0), cases.operand("x", 4, 9, 9), "y", 4, depthwise=True
    )
    made, values = cases.region((operation,), ("x",), ("y",))
    with pytest.raises(InputError) as error:
        compile_region(made, values, Arch(isa="v1"))
    assert (
        str(error.value)
        == "layer 'y' needs OP_DEPTH_CONV, which ISA v1 does not have; choose another ISA"
    )
