"""The commit log: its form, its checksums against the semantics, and comparisons of two logs."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dla_sim.device import Device
from dla_sim.inspection import Playback
from dla_sim.presets import Preset
from experiments.debug import commit_log
from experiments.running.simulate import SimulatedRegion
from isa import program_file
from isa.access import Access
from isa.errors import InputError
from isa.instruction import Machine
from isa.program import Program
from tests.experiments.command_line import dla
from tests.experiments.debug_runs import digits_regions, overflowing_program

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]


def _log(hardware: Preset, region: SimulatedRegion, program: Program | None = None) -> list[str]:
    """The log of ``program``, by default the region's own."""
    program = program or region.program
    device = Device(hardware.arch, hardware.timing)
    trace = device.run(program, region.inputs, timing_only=True).trace
    playback = Playback(device, program, region.inputs, trace)
    lines = commit_log.lines(playback, program, trace, trace.cycles)
    return [*commit_log.header(region.region, program), *lines]


def test_form_is_documented_columns_in_order_of_completion() -> None:
    hardware, (region,) = digits_regions()
    first, names, *lines = _log(hardware, region)
    assert first.startswith("# dla-log 1 region 0 program ")
    assert first.endswith(f" arch {hardware.arch.digest()}")
    assert names.removeprefix("#").split() == list(commit_log.COLUMNS)
    times = region.trace.times
    assert len(lines) == len(region.trace.commands) + 1
    rows = [line.split(None, 6) for line in lines]
    assert [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)
    by_word = {int(row[3]): row for row in rows}
    for number, command in enumerate(region.trace.commands):
        end, start, unit, *_ = by_word[command.index]
        assert (int(end), int(start), unit) == (
            times.end[number],
            times.start[number],
            command.unit.name,
        )
    last = (
        str(region.trace.cycles),
        str(region.trace.cycles - 1),
        "CP",
        str(len(region.program.words) - 1),
    )
    assert rows[-1] == [*last, "-", "-", "OP_END"]
    assert [line.index(row[6]) for line, row in zip(lines, rows, strict=True)] == [
        names.index("assembly")
    ] * len(rows)


@pytest.mark.parametrize("isa", ["v1", "v2"])
def test_checksums_are_those_of_the_semantics_in_stream_order(isa: str) -> None:
    """Checksums equal those of a sequential execution by the instructions' semantics.

    A legal program computes the same results in this order.
    """
    hardware, regions = digits_regions(isa)
    for region in regions:
        program = region.program
        found = {int(line.split()[3]): line.split()[4:6] for line in _log(hardware, region)[2:]}
        machine = _reset(region)
        for command in program.commands[:-1]:
            operands = command.instruction.operands(command, program.arch)
            reads = _checksums(operands.reads, machine)
            command.instruction.semantics(command, machine)
            assert found[command.index] == [reads, _checksums(operands.writes, machine)]


def _reset(region: SimulatedRegion) -> Machine:
    program = region.program
    dram = np.zeros(program.dram_bytes, np.uint8)
    for segment in program.segments:
        dram[segment.address : segment.address + segment.data.size] = segment.data
    for tensor in program.inputs:
        dram[tensor.address : tensor.address + tensor.nbytes] = np.frombuffer(
            region.inputs[tensor.name].tobytes(), np.uint8
        )
    return Machine(program.arch, np.zeros(program.arch.sram_bytes, np.uint8), dram)


def _checksums(accesses: tuple[Access, ...], machine: Machine) -> str:
    found = []
    for access in accesses:
        memory = {"sram": machine.sram, "dram": machine.dram}[access.space]
        found.append(
            f"{zlib.crc32(b''.join(memory[low:high].tobytes() for low, high in access.runs())):08x}"
        )
    return ",".join(found) or "-"


def test_bytes_of_a_strided_operand_come_row_by_row() -> None:
    machine = Machine(
        digits_regions()[0].arch, np.arange(64, dtype=np.uint8), np.zeros(0, np.uint8)
    )
    access = Access("sram", 2, 2, ((2, 20), (3, 4)))
    assert list(machine.read(access)) == [
        2,
        3,
        6,
        7,
        10,
        11,
        22,
        23,
        26,
        27,
        30,
        31,
    ]
    assert machine.read(Access("sram", 2, 0)).tobytes() == b""


def test_changing_one_constant_changes_the_log_from_the_command_on_that_reads_it() -> None:
    hardware, (region,) = digits_regions()
    (segment,) = region.program.segments
    original = _log(hardware, region)
    for place in (segment.data.size - 1, segment.data.size // 2, 5):
        data = segment.data.copy()
        data[place] ^= 0x40
        changed = _log(
            hardware, region, replace(region.program, segments=(replace(segment, data=data),))
        )
        address = segment.address + place
        readers = {
            command.index
            for command in region.trace.commands
            for access in command.instruction.operands(command, hardware.arch).reads
            if access.space == "dram" and any(low <= address < high for low, high in access.runs())
        }
        difference = commit_log.first_difference("\n".join(changed), "\n".join(original))
        assert difference is not None
        position = difference.line + 1
        assert changed[2:position] == original[2:position]
        assert int(changed[position].split()[3]) in readers
        assert difference.columns == ("reads", "writes")
        assert changed[0] != original[0]


def test_logs_are_compared_by_their_values() -> None:
    log = (
        "# dla-log 1 region 0\n 10 0 LD 2 aaaaaaaa bbbbbbbb OP_DMA_READ push.EX\n 20 10 EX 4 - - "
        "OP_SYNC unit=EX\n"
    )
    spaced = (
        "# dla-log 1 of the RTL\n10  0 LD 2   aaaaaaaa bbbbbbbb   OP_DMA_READ push.EX\n\n# more\n"
        "20 10 EX 4 - - OP_SYNC unit=EX"
    )
    assert commit_log.first_difference(log, spaced) is None
    other = commit_log.first_difference(log, spaced.replace("20 10", "21 11"))
    assert other is not None
    assert other.message("rtl.log") == (
        "command 2, word 4 OP_SYNC unit=EX: end 20 here, 21 there; start 10 here, 11 there "
        "(rtl.log)"
    )
    shorter = commit_log.first_difference(log, spaced.split("# more")[0])
    assert shorter is not None
    assert (
        shorter.message("rtl.log")
        == "command 2: rtl.log ends before '20 10 EX 4 - - OP_SYNC unit=EX'"
    )
    longer = commit_log.first_difference(spaced.split("# more")[0], log)
    assert longer is not None
    assert (
        longer.message("rtl.log")
        == "command 2: this run ends before '20 10 EX 4 - - OP_SYNC unit=EX'"
    )


def test_the_command_line_writes_and_compares_logs(capsys: Capture) -> None:
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    assert dla(capsys, "simulate", "digits.dla", "--log", "a.log").out.endswith(
        "a.log: 14 commands\n"
    )
    again = dla(capsys, "simulate", "digits.dla", "--log", "b.log", "--against", "a.log")
    assert (again.status, again.err) == (0, "")
    assert Path("a.log").read_bytes() == Path("b.log").read_bytes()
    slower = dla(
        capsys, "simulate", "digits.dla", "--set", "dram_latency=101", "--against", "a.log"
    )
    assert slower.status == 1
    assert re.match(r"difference: command 1, word \d+ OP_DMA_READ: end ", slower.err)
    prefix = dla(
        capsys, "simulate", "digits.dla", "--until", "600", "--log", "c.log", "--against", "a.log"
    )
    assert prefix.status == 0
    assert Path("a.log").read_text().startswith(Path("c.log").read_text())
    assert dla(capsys, "simulate", "digits.dla", "--isa", "v1", "--log", "two.log").status == 0
    headers = [
        line for line in Path("two.log").read_text().splitlines() if line.startswith("# dla-log")
    ]
    assert [line.split()[3:5] for line in headers] == [["region", "0"], ["region", "1"]]


def test_what_is_no_log_is_refused(capsys: Capture) -> None:
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    assert dla(capsys, "simulate", "digits.dla", "--against", "none.log").err == (
        "error: none.log: no such file; 'dla simulate ... --log none.log' makes a log\n"
    )
    Path("bad.log").write_bytes(b"\xff\n")
    assert dla(capsys, "simulate", "digits.dla", "--against", "bad.log").err == (
        "error: bad.log: not a commit log (its first line must start with '# dla-log 1 ')\n"
    )
    Path("short.log").write_text("# dla-log 1 \n1 2 LD\n")
    assert dla(capsys, "simulate", "digits.dla", "--against", "short.log").err == (
        "error: short.log: a line needs the columns end, start, unit, word, reads, writes, "
        "assembly; "
        "this has fewer: '1 2 LD'\n"
    )


def test_a_program_that_stops_on_overflow_leaves_its_log(capsys: Capture) -> None:
    program_file.save(overflowing_program(), Path("overflow.prog"))
    found = dla(capsys, "simulate", "overflow.prog", "--log", "a.log")
    assert found.status == 2
    assert found.err == (
        "error: overflow.prog: the program stopped: word 4, OP_E32_ADD pop.LD: int32 addition "
        "overflows int32 at (0,): "
        "4294967294\n"
    )
    assert dla(capsys, "simulate", "overflow.prog").err == found.err
    (line,) = (line for line in Path("a.log").read_text().splitlines() if not line.startswith("#"))
    checksum = f"{zlib.crc32(np.int32(2**31 - 1).tobytes()):08x}"
    assert line.split()[4:] == [checksum, checksum, "OP_DMA_READ", "push.EX"]
    before = dla(capsys, "simulate", "overflow.prog", "--break", "4", "--dump-sram", "0..4")
    assert before.status == 0
    assert before.out.endswith("scratchpad 0x0..0x4\n00000000  ff ff ff 7f\n")


def test_playback_wants_the_inputs() -> None:
    hardware, (region,) = digits_regions()
    with pytest.raises(InputError, match="is missing"):
        Playback(Device(hardware.arch, hardware.timing), region.program, {}, region.trace)


def test_log_and_timeline_need_a_file_each(capsys: Capture) -> None:
    program_file.save(overflowing_program(), Path("overflow.prog"))
    found = dla(capsys, "simulate", "overflow.prog", "--trace", "same", "--log", "same")
    assert (found.status, found.err) == (
        2,
        "error: --trace and --log both write same; give each a file of its own\n",
    )
    assert not Path("same").exists()
