"""Single commands on a scratchpad of words, worked out by hand before they ran.

The rules are those of docs/machine.md, section 12. test_bank_contention adds transfers. By default
the machine has an array of 8 x 8 x 1: atoms of A = 8 bytes, words of W = 32, P = 32 accumulators, L
= 32 lanes, 4 dividers of 16 cycles, banks of 0x8000 bytes. The bus brings 8 bytes a cycle, a word
in K = 4. A bank moves a word a cycle, and EX has all of its cycles in which no word of LD or ST
passes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dla_sim.device import Device
from dla_sim.engine.workload import EX
from dla_sim.memory import SIDE, Served, busiest
from dla_sim.presets import load_hardware
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import PACKED as PACKED_ISA
from isa.arch import Arch
from isa.assembler import assemble
from isa.errors import InputError
from isa.program import Program
from tests.dla_sim.cases import build_program
from tests.dla_sim.program_generator import random_case
from tests.dla_sim.test_banked_command_figures import _program
from tests.dla_sim.test_engine_hand_worked import present, spans, trace_of

PACKED = '{"isa": "v5"}'
WIDER = '{"isa": "v5", "pe": {"ow": 2}, "word_bytes": 32}'

# Three programs.

PRODUCT = """
    SET EX_INPUT_CHANNELS, 8
    SET EX_OUTPUT_CHANNELS, 12
    SET EX_INPUT_HEIGHT, 8
    SET EX_INPUT_WIDTH, {width}
    SET EX_OUTPUT_HEIGHT, 8
    SET EX_OUTPUT_WIDTH, 9
    SET EX_INPUT_ADDRESS, {input}
    SET EX_OPERAND_ADDRESS, {weights}
    SET EX_CHANNEL_ADDRESS, {records}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_CONV requantise=1
    OP_END
"""


@pytest.mark.parametrize(
    ("places", "width", "waiting"),
    [
        ((0, 0x8000, 0x10000, 0x18000), 10, 0),  # alone: 58 words of activations, 40 of results
        ((0, 0x1000, 0x2000, 0x3000), 10, 25),  # one bank: 58 + 6 + 3 + 40 = 107 words; 107 - 82
        # two banks: 58 + 6 + 40 = 104 words, 3 of records apart; 104 - 82
        ((0, 0x1000, 0x8000, 0x2000), 10, 22),
        # one bank, one stream: 44 + 6 + 3 + 40 = 93 words; 93 - 82
        ((0, 0x1000, 0x2000, 0x3000), 9, 11),
    ],
    ids=["alone", "one bank", "two banks", "one stream"],
)
def test_a_product(places: tuple[int, int, int, int], width: int, waiting: int) -> None:
    """A 1 x 1 product of 8 channels of 8 x 9 positions gives 12 channels.

    The array has 8 x 8 x 2 (A = 8, W = 32 as before).

    A row takes ceil(9 / 2) = 5 steps, 40 in all: stripes of 32 and 8. A step takes (1 + 1) * 8 /
    32, one word. Output channels come as 8, w = 64 / 32 = 2, and as 4, w = 1: both pass the stripes
    in 32 + 8. So c = 2 + 80 = 82; the lanes need 12 * 72 / 32 = 27 only.

    Activations: the stripe of 32 steps takes 32 * 2 * 8 / 32 = 16 words and one more for each of
    ceil(32 / 5) = 7 rows, 23 in place of 32; that of 8 takes 4 + 2; both twice: 58. Where rows of
    the input are no wider than those of the results they are one stream, 16 + 1 and 4 + 1: 44.
    Weights 2 + 1 a stripe: 6. Records 8 * 8 / 32 = 2, and 1. Results: 16 and 4 words for either
    block of output channels (4 channels are an atom, too): 40.
    """
    names = ("input", "weights", "records", "output")
    trace = trace_of(
        PRODUCT.format(width=width, **dict(zip(names, places, strict=True))), Timing(), WIDER
    )
    # Some SETs change nothing and are words all the same: 12 words, 96 bytes, bursts of 8 and 4
    # beats, 8 + 7 slots: ready at 115; the operation is word 10, so that EX starts at 126.
    assert spans(trace) == [(126, 126, 126 + 8 + 82 + waiting + 8)]
    assert trace.cycles == 225 + waiting
    expected = {"queue_empty": 126, "busy": 98, "sram": waiting, "drained": 1}
    assert present(trace.units["EX"]) == present(expected)


def test_a_product_on_a_larger_array() -> None:
    """The product of above on an array of 16 x 16 with atoms of 8 and words of 16, in one bank.

    72 steps are stripes of 32, 32 and 8. The one block has 8 * 12 weights, w = 6: c = 6 + 72 = 78.
    Activations are one stream of 16 + 1, 16 + 1 and 4 + 1 words: 39. Weights 6 a stripe: 18.
    Records 12 * 8 / 16 = 6. Results of two atoms 2 * (16 + 16 + 4) = 72. EX needs
    39 + 18 + 6 + 72 = 135 words of the bank, so it waits for 135 - 78 cycles.
    """
    places = {"input": 0, "weights": 0x1000, "records": 0x2000, "output": 0x3000}
    machine = '{"isa": "v5", "pe": {"ic": 16, "oc": 16}, "atom": 8, "word_bytes": 16}'
    trace = trace_of(PRODUCT.format(width=9, **places), Timing(), machine)
    assert spans(trace) == [(126, 126, 126 + 8 + 135 + 8)]
    assert trace.cycles == 278
    expected = {"queue_empty": 126, "busy": 94, "sram": 57, "drained": 1}
    assert present(trace.units["EX"]) == present(expected)


def test_records_sums_and_tables_share_a_port() -> None:
    """The product of above, which adds to sums and looks up, each operand alone in a bank.

    Sums are int32, so that the stripes of 32 and 8 steps take 64 and 16 words for either block of
    output channels: 160. With 3 words of records and 256 / 32 = 8 of the table 171 words, where the
    bank of the sums has 160.
    """
    places = zip(
        ("input", "weights", "records", "output"), (0, 0x8000, 0x10000, 0x18000), strict=True
    )
    more = (
        "SET EX_PARTIAL_ADDRESS, 0x20000\nSET EX_TABLE_ADDRESS, 0x28000\nOP_CONV requantise=1 "
        "accumulate=1 look_up=1"
    )
    text = PRODUCT.format(width=10, **dict(places)).replace("OP_CONV requantise=1", more)
    trace = trace_of(text, Timing(), WIDER)
    ((_, start, end),) = spans(trace)
    assert end - start == 8 + 171 + 8
    assert trace.units["EX"]["sram"] == 171 - 82
    words = {"EX_CHANNEL_ADDRESS": 3, "EX_PARTIAL_ADDRESS": 160, "EX_TABLE_ADDRESS": 8}
    assert _fullest(assemble(f".arch {WIDER}\n.memory 0x4000 commands 0x0\n{text}")) == Served(
        SIDE, words
    )


def test_no_rows_start_from_no_sums() -> None:
    """A product of no rows has no sums to read, and its table is read all the same."""
    text = (
        "SET EX_ROWS, 0\nSET EX_TABLE_ADDRESS, 0x8000\nOP_MAT_MUL requantise=1 accumulate=1 "
        "look_up=1\nOP_END"
    )
    program = assemble(f".arch {PACKED}\n.memory 0x4000 commands 0x0\n{text}")
    operands = program.commands[0].instruction.operands(program.commands[0], program.arch)
    assert [one.address for one in operands.reads if one.total > 64] == [0x8000]
    assert [one.total for one in operands.writes] == [0]
    assert Device(program.arch, Timing()).run(program, {}).trace.cycles > 0


WINDOW = """
    SET EX_INPUT_CHANNELS, 20
    SET EX_OUTPUT_CHANNELS, 20
    SET EX_INPUT_HEIGHT, 5
    SET EX_INPUT_WIDTH, 11
    SET EX_OUTPUT_HEIGHT, 4
    SET EX_OUTPUT_WIDTH, 10
    SET EX_KERNEL_HEIGHT, 2
    SET EX_KERNEL_WIDTH, 2
    SET EX_INPUT_ADDRESS, {input}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_POOL
    OP_END
"""


@pytest.mark.parametrize(
    ("places", "waiting"),
    [
        ((0, 0x8000), 24),  # alone: 120 words
        ((0, 0x1000), 54),  # one bank: 150 words
        ((0x7D80, 0x9000), 54),  # both banks have the input, which counts in both
    ],
    ids=["alone", "one bank", "over two banks"],
)
def test_a_window(places: tuple[int, int], waiting: int) -> None:
    """The maxima of 2 x 2 windows of 20 channels of 5 x 11, 4 x 10 windows.

    20 channels are 3 atoms. 64 / 8 = 8 windows at once: 8 in a row, 1 below another; 10 columns are
    2 pieces, so an atom takes 2 * 4 * 4 = 32 cycles: c = 96. There are no lanes behind it.

    A piece reads 8 + 1 = 9 columns, 72 bytes: 3 words, and one more as there are two pieces; 4 + 1
    = 5 rows: 20 words a piece, 40 an atom, 120. Results: 3 * 40 * 8 / 32 = 30.
    """
    trace = trace_of(WINDOW.format(input=places[0], output=places[1]), Timing(), PACKED)
    assert spans(trace) == [(126, 126, 126 + 8 + 96 + waiting + 8)]
    assert present(trace.units["EX"]) == {
        "queue_empty": 126,
        "busy": 112,
        "sram": waiting,
        "drained": 1,
    }


ADDITION = """
    SET EX_LENGTH, 1000
    SET EX_OPERAND_ADDRESS, {operand}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_E_ADD
    OP_END
"""


@pytest.mark.parametrize(
    ("places", "bus", "waiting"),
    [
        ((0x8000, 0x10000), 8, 0),  # alone
        ((0x400, 0x800), 8, 64),  # one bank: 96 words
        ((0x400, 0x8000), 8, 32),  # two in one bank: 64
        ((0x400, 0x8000), 16, 32),  # a bus that brings nothing takes nothing, however wide it is
        ((0x400, 0x8000), 1, 32),
    ],
)
def test_an_addition(places: tuple[int, int], bus: int, waiting: int) -> None:
    """1000 elements on 32 lanes: c = 32.

    Each of the three operands is ceil(1000 / 32) = 32 words.
    """
    trace = trace_of(
        ADDITION.format(operand=places[0], output=places[1]), Timing(bus_bytes=bus), PACKED
    )
    ((_, start, end),) = spans(trace)
    assert end - start == 8 + 32 + waiting + 8
    assert trace.units["EX"]["sram"] == waiting
    if bus == 8:  # 5 words are there at 107, the operation is word 3
        assert (start, trace.cycles) == (111, 111 + 48 + waiting + 1)


SOFTMAX = """
    SET EX_ROWS, 40
    SET EX_INPUT_CHANNELS, 12
    SET EX_LENGTH, 1
    SET EX_INPUT_ADDRESS, {input}
    SET EX_OPERAND_ADDRESS, {table}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_SOFTMAX
    OP_END
"""


@pytest.mark.parametrize(
    ("places", "waiting"),
    [
        ((0, 0x8000, 0x10000), 0),  # alone: 60 words
        ((0, 0x1000, 0x2000), 48),  # one bank: 60 + 32 + 20 = 112 words
        ((0, 0x8000, 0), 16),  # in place: 80 words
    ],
    ids=["alone", "one bank", "in place"],
)
def test_a_softmax(places: tuple[int, int, int], waiting: int) -> None:
    """Softmax of 40 rows of 12 takes 64 compute cycles.

    40 rows of 12 are 40 positions of 2 atoms: 640 elements on 32 lanes, 20 cycles a pass, two of
    them; between them 12 elements of each row are added, 40 rows are 2 turns: c = 40 + 24 = 64. 16
    dividers make 40 quotients in 48.

    A surface is 320 bytes, 10 words: the operand 20, read three times; the table 1024 bytes, 32;
    results 20.
    """
    text = SOFTMAX.format(**dict(zip(("input", "table", "output"), places, strict=True)))
    trace = trace_of(text, Timing(), '{"isa": "v5", "dividers": 16}')
    ((_, start, end),) = spans(trace)
    assert end - start == 8 + 64 + waiting + 8
    assert trace.units["EX"]["sram"] == waiting


NORMALISATION = """
    SET EX_ROWS, 40
    SET EX_INPUT_CHANNELS, 20
    SET EX_LENGTH, 1
    SET EX_INPUT_ADDRESS, {input}
    SET EX_OPERAND_ADDRESS, {pairs}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_NORM
    OP_END
"""


@pytest.mark.parametrize(
    ("places", "waiting"),
    [
        ((0, 0x8000, 0x10000), 0),  # alone: 60 words
        ((0, 0x1000, 0x2000), 15),  # one bank: 60 + 5 + 30 = 95 words
    ],
    ids=["alone", "one bank"],
)
def test_a_normalisation(places: tuple[int, int, int], waiting: int) -> None:
    """Normalisation of 40 rows of 20 takes 80 compute cycles.

    40 rows of 20 are 40 positions of 3 atoms: 960 elements on 48 lanes, 20 cycles a pass, two of
    them, and 40 roots: c = 80. 80 quotients and roots on 16 dividers take 5 * 16 = 80.

    A surface is 320 bytes, 10 words: the operand 30, read twice; 20 pairs of 8 bytes, 5; results
    30.
    """
    text = NORMALISATION.format(**dict(zip(("input", "pairs", "output"), places, strict=True)))
    trace = trace_of(text, Timing(), '{"isa": "v5", "dividers": 16, "post_lanes": 48}')
    ((_, start, end),) = spans(trace)
    assert end - start == 8 + 80 + waiting + 8
    assert trace.units["EX"]["sram"] == waiting


REDUCTION = """
    SET EX_ROWS, 1
    SET EX_INPUT_CHANNELS, 20
    SET EX_LENGTH, 49
    SET EX_INPUT_PLANE, {plane}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_REDUCE
    OP_END
"""


@pytest.mark.parametrize(
    ("plane", "output", "waiting"),
    [
        (0, 0x8000, 2),  # alone: 39 words
        (0, 0x1000, 4),  # one bank: 39 + 2 words
        # a surface in each of three banks, the result in the third; all count in each
        (0x8000, 0x10400, 4),
    ],
)
def test_a_reduction(plane: int, output: int, waiting: int) -> None:
    """20 channels of 49 are 3 atoms, 8 * 49 elements each: 1176 / 32, c = 37.

    A reciprocal takes 16.

    A surface is 392 bytes, 13 words: 39 in all; 49 results are 2.
    """
    trace = trace_of(REDUCTION.format(plane=plane, output=output), Timing(), PACKED)
    ((_, start, end),) = spans(trace)
    assert end - start == 8 + 37 + waiting + 8
    assert trace.units["EX"]["sram"] == waiting


OF_TWO = """
    SET EX_ROWS, 40
    SET EX_INPUT_CHANNELS, 20
    SET EX_OUTPUT_CHANNELS, 12
    SET EX_INPUT_ADDRESS, {input}
    SET EX_OPERAND_ADDRESS, {second}
    SET EX_OUTPUT_ADDRESS, {output}
    OP_DYN_MAT_MUL requantise=1 transposed={transposed}
    OP_END
"""


@pytest.mark.parametrize(
    ("places", "transposed", "cycles", "waiting"),
    [
        ((0, 0x8000, 0x10000), 0, 242, 0),  # alone
        ((0, 0x8000, 0x10000), 1, 242, 0),
        ((0, 0x1000, 0x2000), 0, 242, 0),  # one bank: 72 + 20 + 20 = 112 words
    ],
)
def test_a_product_of_two_tensors(
    places: tuple[int, int, int], transposed: int, cycles: int, waiting: int
) -> None:
    """40 x 20 by 20 x 12.

    Outputs come as 8 and 4, inputs as 8, 8 and 4; 40 steps of a word, stripes of 32 and 8.

    20 x 12 is 12 channels of 20 positions: a block of 8 positions takes 2 words, of 4 one. 12 x 20,
    transposed, is 20 channels of 12 positions: a block of 8 outputs takes 2 words, of 4 one. Either
    way c = 2 + 6 * 40.

    Activations: 8 words and one of the rows begun, 9, and 2 + 1, of 6 blocks: 72. The second: 2 + 2
    + 1 for both blocks of outputs, or 3 * 2 and 3 * 1 transposed, for each stripe. Results 2 * (8 +
    2).
    """
    text = OF_TWO.format(
        **dict(zip(("input", "second", "output"), places, strict=True)), transposed=transposed
    )
    trace = trace_of(text, Timing(), PACKED)
    ((_, start, end),) = spans(trace)
    assert end - start == 8 + cycles + waiting + 8
    assert trace.units["EX"].get("sram", 0) == waiting
    program = assemble(f".arch {PACKED}\n.memory 0x4000 commands 0x0\n{text}")
    command = program.commands[0]
    assert command.instruction.packed is not None
    assert command.instruction.packed.words(command, program.arch) == (
        72,
        18 if transposed else 20,
        20,
    )


def test_a_transfer_of_rows_that_each_touch_a_word() -> None:
    """A transfer of 4 rows of 8 bytes takes 4 * K = 16 slots for its 4 words.

    The 32 dense bytes of system memory are 4 beats in a burst of 7 slots.

    So 4 slots are beats, 3 are the burst gap's and 9 the scratchpad's. Rows of 8 that lie across
    the ends of words touch two each: 32 slots.
    """
    text = """
        SET LD_DRAM_ADDRESS, 0x1000
        SET LD_SRAM_ADDRESS, {place}
        SET LD_BYTES, 8
        SET LD_COUNT_1, 4
        SET LD_DRAM_STRIDE_1, 8
        SET LD_SRAM_STRIDE_1, 32
        OP_DMA_READ
        OP_END
    """
    for place, slots in ((0, 16), (28, 32)):
        trace = trace_of(text.format(place=place), Timing(), PACKED)
        ((_, start, end),) = spans(trace)
        assert end - start == 4 + 100 + slots + 4
        within = {"busy": 12, "dram": 103, "sram": slots - 7}
        assert present(trace.units["LD"]) == {"queue_empty": start, **within, "drained": 1}
    # on a machine without words
    assert trace_of(text.format(place=28), Timing()).units["LD"]["sram"] == 0


def test_the_bank_that_a_command_waits_for() -> None:
    """The product of above with activations and weights in one bank, and the window over two."""
    program = assemble(f".arch {WIDER}\n.memory 0x4000 commands 0x0\n" + PRODUCT.format(
        width=10, input=0, weights=0x1000, records=0x8000, output=0x9000
    ))  # fmt: skip
    assert _fullest(program) == Served(0, {"EX_INPUT_ADDRESS": 58, "EX_OPERAND_ADDRESS": 6})
    program = assemble(
        f".arch {PACKED}\n.memory 0x4000 commands "
        "0x0\n" + WINDOW.format(input=0x7D80, output=0x9000)
    )
    assert _fullest(program) == Served(1, {"EX_INPUT_ADDRESS": 120, "EX_OUTPUT_ADDRESS": 30})
    empty = _program("SET EX_LENGTH, 0", "OP_E_ADD", {})
    assert _fullest(empty) is None


def test_the_banks_of_random_programs() -> None:
    """A command waits for its fullest bank, or for the shared port if that is fuller.

    The words of the bank or port are those of the demand.
    """
    waiting: Counter[str] = Counter()
    for seed in range(60):
        case = random_case(seed, PACKED_ISA)
        program = build_program(case)
        workload = Device(case.arch, Timing(**case.timing)).load(program).workload
        for number in workload.demands.by_unit[EX].tolist():
            command = program.commands[number]
            served = busiest(command, command.instruction.operands(command, case.arch), case.arch)
            assert workload.demands.crowd[number] == (served.total if served else 0)
            waits = bool(workload.columns["scratchpad"][number])
            waiting.update(
                {"bank": waits, "port": waits and served is not None and served.by == SIDE}
            )
    assert waiting["bank"] > 20
    assert waiting["port"] > 0


def _fullest(program: Program) -> Served | None:
    command = program.commands[0]
    return busiest(command, command.instruction.operands(command, program.arch), program.arch)


# Machines that cannot be, and figures.


def test_a_bus_that_would_take_all_of_a_bank() -> None:
    """A word has to take two slots of the bus at least, K = W / bus_bytes."""
    said = (
        r"bus_bytes 32 is more than half of word_bytes 32.*; bus_bytes 16 or word_bytes 64 would do"
    )
    with pytest.raises(InputError, match=said):
        Device(Arch(isa="v5"), Timing(bus_bytes=32))
    with pytest.raises(InputError, match=said):
        load_hardware(settings=("word_bytes=32", "bus_bytes=32"), isa="v5")
    with pytest.raises(InputError, match=said):
        ProgramTiming(_program("SET EX_LENGTH, 5", "OP_E_ADD", {})).run(Timing(bus_bytes=32))
    Device(Arch(isa="v5"), Timing(bus_bytes=16))
    Device(Arch(isa="v4"), Timing(bus_bytes=32))


def test_ports_of_the_other_machines_mean_nothing() -> None:
    """Limits of ports that delay EX on other machines do not delay it here."""
    text = ADDITION.format(operand=0x400, output=0x8000)
    assert (
        trace_of(text, Timing(sram_read_bytes=1, sram_write_bytes=1, bank_ports=1), PACKED).units[
            "EX"
        ]["sram"]
        == 32
    )


def test_the_scratchpad_counts_whole_words() -> None:
    """Three times 32 words of 32 bytes; without words 3000 bytes."""
    text = ADDITION.format(operand=0x8000, output=0x10000)
    assert trace_of(text, Timing(), PACKED).sram_moved_bytes == 3 * 32 * 32
    assert trace_of(text, Timing()).sram_moved_bytes == 3000


def test_another_size_of_the_scratchpad() -> None:
    """``resize`` gives the result of a new preparation.

    Operands that share a bank depend on the banks.
    """
    settings = "SET EX_LENGTH, 1000\nSET EX_OPERAND_ADDRESS, 0x1000\nSET EX_OUTPUT_ADDRESS, 0x8000"
    program = _program(settings, "OP_E_ADD", {})
    prepared = ProgramTiming(program)
    for size, waiting in ((1 << 19, 32), (1 << 16, 0), (1 << 17, 32)):
        other = program.arch.model_copy(update={"sram_bytes": size})
        changed = replace(program, arch=other)
        resized = prepared.resize(changed)
        assert resized is not None
        assert resized.run(Timing()).units["EX"]["sram"] == waiting
        assert resized.run(Timing()) == ProgramTiming(changed).run(Timing())
