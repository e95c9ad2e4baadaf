"""Scratchpad ports of the hardware, and the bandwidth that a network needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from amaranth.hdl import UnusedElaboratable

from dla_sim.memory import count_crowds
from dla_sim.prepared import prepare
from dla_sim.presets import Preset
from dla_sim.rtl.building import Library
from dla_sim.rtl.dma import DmaUnit
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.ex.engines import engines
from dla_sim.rtl.parameters import Configuration, limits_of
from dla_sim.rtl.ports import CommandView, ReadPort, WritePort
from experiments.rtl.hardware import is_pipelined
from isa.access import Access
from isa.instruction import BYTES, INT8, INT32, Command, ElementType, Instruction, Unit
from isa.ops.dma import side_registers
from isa.program import Program

SCHEMA = "dla-rtl-ports/1"
_TYPES = {
    "EX_INPUT_ADDRESS": ("inputs", 0),
    "EX_OPERAND_ADDRESS": ("inputs", 1),
    "EX_OUTPUT_ADDRESS": ("outputs", 0),
}
_ELEMENT_BYTES = {INT8: 1, BYTES: 1, INT32: 4}
Port = ReadPort | WritePort


class Ports(NamedTuple):
    """Scratchpad ports of a hardware unit, or of an engine of EX with its instructions."""

    owner: str
    instructions: tuple[Instruction, ...]
    ports: tuple[Port, ...]


def hardware_ports(hardware: Preset) -> list[Ports]:
    """Return the scratchpad ports that the hardware declares for its engines, LD and ST.

    The engines come first.
    """
    # the components are built only to read their declarations
    warnings.simplefilter("ignore", UnusedElaboratable)
    limits = limits_of(hardware.arch, hardware.timing, pipelined=is_pipelined(hardware.timing))
    configuration = Configuration(limits)
    heads = {unit: CommandView(limits.variant, unit) for unit in Unit}

    def find_ports(engine: Engine) -> Ports:
        instructions = tuple(
            one for one in limits.variant.instructions if one.mnemonic in engine.mnemonics
        )
        return Ports(engine.name, instructions, (*engine.read_ports, *engine.write_ports))

    found = [
        find_ports(engine) for engine in engines(limits, configuration, heads[Unit.EX], Library())
    ]
    for unit in (Unit.LD, Unit.ST):
        instructions = tuple(one for one in limits.variant.instructions if one.unit is unit)
        port = DmaUnit(limits, configuration, heads[unit], unit).port
        found.append(Ports(unit.name, instructions, (port,)))
    return found


def port_rows(found: Iterable[Ports]) -> list[dict[str, Any]]:
    """Return a table row for each instruction, operand, and scratchpad port that transfers it.

    ``bytes`` per cycle is ``lanes`` times ``lane_bytes``, which the instruction needs;
    ``port_bytes`` is the port's full width. A port that declares no operands has one row, without
    an instruction.
    """
    rows = []
    for owner, instructions, ports in found:
        for port in ports:
            passing: list[tuple[Instruction | None, str]] = [
                (one, name) for one in instructions for name in _operands(port, one)
            ]
            for instruction, operand in passing or [(None, "")]:
                width = _lane_bytes(port, instruction, operand)
                rows.append({
                    "instruction": "" if instruction is None else instruction.mnemonic,
                    "operand": operand,
                    "access": "read" if isinstance(port, ReadPort) else "write", "owner": owner,
                    "port": port.name,
                    "lanes": port.lanes, "lane_bytes": width, "bytes": port.lanes * width,
                    "port_bytes": port.lanes * port.width,
                })  # fmt: skip
    order = {
        mnemonic: number
        for number, mnemonic in enumerate(dict.fromkeys(row["instruction"] for row in rows))
    }
    return sorted(rows, key=lambda row: order[row["instruction"]])


def _operands(port: Port, instruction: Instruction) -> Iterator[str]:
    """Yield the address registers of the operands that a port transfers for an instruction."""
    if instruction.unit in (Unit.LD, Unit.ST):
        yield side_registers(instruction.unit, "sram")[0]
    for register, mnemonics in port.serves.items():
        if register in instruction.registers and (
            not mnemonics or instruction.mnemonic in mnemonics
        ):
            yield register


def _lane_bytes(port: Port, instruction: Instruction | None, operand: str) -> int:
    """Return the number of bytes that an operand uses in each lane of a port.

    This is one element if the operand has a single integer type, else the full width.
    """
    if instruction is None or operand not in _TYPES:
        return port.width
    side, place = _TYPES[operand]
    types: Sequence[ElementType] = getattr(instruction, side)
    return _ELEMENT_BYTES.get(types[place], port.width) if place < len(types) else port.width


def merge_ports(found: Iterable[Ports], kind: type[ReadPort] | type[WritePort]) -> dict[int, int]:
    """Return the fewest port lanes that suffice if units use the scratchpad one at a time.

    The keys are widths in bytes, the values counts of lanes. The widest lanes of all owners share
    one, the next widest share the next, and so on; no other sharing has fewer bytes. The widest
    lanes come first.
    """
    each = (
        sorted(
            (port.width for port in one.ports if isinstance(port, kind) for _ in range(port.lanes)),
            reverse=True,
        )
        for one in found
    )
    widths = [max(column) for column in zip_longest(*each, fillvalue=0)]
    return {width: widths.count(width) for width in sorted(set(widths), reverse=True)}


class ByteStream(NamedTuple):
    """Scratchpad traffic of one operand of a command: its bytes, compute cycles and banks.

    Each byte counts once. ``banks`` is the number of banks that the operand spans.
    """

    instruction: str
    operand: str
    access: str
    nbytes: int
    cycles: int
    banks: int


class Needs(NamedTuple):
    """Bandwidth and ports with which no command of a network ever waits for the scratchpad."""

    sram_read_bytes: int
    sram_write_bytes: int
    bank_ports: int


def streams(programs: Iterable[Program]) -> Iterator[ByteStream]:
    """Yield the scratchpad traffic of every EX operand that transfers at least one byte."""
    for program in programs:
        arch = program.arch
        bank_bytes = arch.sram_bytes // arch.sram_banks
        found = prepare(program)
        for command, operands in zip(found.commands, found.operands, strict=True):
            if command.instruction.unit is not Unit.EX:
                continue
            cycles = command.instruction.cycles(command, arch)
            for access, accesses in (("read", operands.reads), ("write", operands.writes)):
                for name, one in zip(_name_operands(command, accesses), accesses, strict=True):
                    if one.total:
                        banks = (one.end - 1) // bank_bytes - one.address // bank_bytes + 1
                        yield ByteStream(
                            command.instruction.mnemonic, name, access, one.total, cycles, banks
                        )


def _name_operands(command: Command, accesses: Sequence[Access]) -> list[str]:
    """Return the name of each operand's address register, each used once if possible.

    A second part of an operand has the register of the first.
    """
    left = [name for name in command.instruction.registers if name.endswith("_ADDRESS")]
    names: list[str] = []
    for access in accesses:
        name = next(
            (name for name in left if command[name] == access.address), names[-1] if names else ""
        )
        names.append(name)
        left = [other for other in left if other != name]
    return names


def stream_rows(found: Iterable[ByteStream]) -> list[dict[str, Any]]:
    """Return a table row of scratchpad bandwidths per instruction and operand.

    A row has the mean and maximum bytes per compute cycle, and the most banks of a stream.
    """
    groups: dict[tuple[str, str, str], list[ByteStream]] = {}
    for one in found:
        groups.setdefault((one.instruction, one.operand, one.access), []).append(one)
    return [
        {
            "instruction": instruction, "operand": operand, "access": access, "streams": len(group),
            "bytes": sum(one.nbytes for one in group), "cycles": sum(one.cycles for one in group),
            "mean": round(
                sum(one.nbytes for one in group) / max(1, sum(one.cycles for one in group)), 3
            ),
            "most": max(-(-one.nbytes // max(1, one.cycles)) for one in group),
            "banks": max(one.banks for one in group),
        }
        for (instruction, operand, access), group in sorted(groups.items())
    ]  # fmt: skip


def compute_needs(programs: Iterable[Program]) -> Needs:
    """Return the least scratchpad bandwidths and bank ports with which no command waits.

    No wait means x = 0 in docs/machine.md, section 5.
    """
    least = Needs(0, 0, 1)
    for program in programs:
        found = prepare(program)
        crowd = int(count_crowds(found.commands, found.operands, program.arch).max(initial=1))
        demands = found.demands
        computes = demands.compute > 0
        reads, writes = (
            int((-(-moved[computes] // demands.compute[computes])).max(initial=0))
            for moved in (demands.reads, demands.writes)
        )
        least = Needs(*map(max, least, (reads, writes, crowd)))
    return least


def summary_lines(hardware: Preset, found: Sequence[Ports]) -> Iterator[str]:
    """Yield text lines with the ports that the scratchpad must offer per cycle.

    They serve any one engine of EX, and LD and ST.
    """
    arch = hardware.arch
    timing = hardware.timing
    for verb, kind in (("reads", ReadPort), ("writes", WritePort)):
        lanes = merge_ports(_engines(found), kind)
        parts = ", ".join(f"{count} x {width}" for width, count in lanes.items())
        nbytes = sum(count * width for width, count in lanes.items())
        yield (
            f"EX {verb} by {sum(lanes.values())} addresses at once, {nbytes} bytes a cycle: "
            f"{parts} (lanes x bytes)"
        )
    yield (
        f"LD writes and ST reads {timing.bus_bytes} bytes a cycle, by {timing.bus_bytes} addresses "
        "each"
    )
    bank_bytes = arch.sram_bytes // arch.sram_banks
    limits = (f"{name} = {getattr(timing, name)}" for name in Needs._fields)
    yield (
        f"{arch.sram_banks} banks of {bank_bytes:,} bytes; the machine counts with "
        f"{', '.join(limits)}"
    )


def format_needs(found: Needs) -> str:
    """Format the bandwidth and ports that a network needs as a sentence."""
    parts = (f"{name} = {value}" for name, value in found._asdict().items())
    return f"no command waits for the scratchpad with {', '.join(parts)}"


def ports_json(
    hardware: Preset, found: Sequence[Ports], programs: Sequence[Program] | None
) -> dict[str, Any]:
    """Return scratchpad ports and a network's needs as JSON values.

    ``network`` is None without programs.
    """
    lanes = {
        side: _lanes(merge_ports(_engines(found), kind))
        for side, kind in (("read", ReadPort), ("write", WritePort))
    }
    network = (
        None
        if programs is None
        else {"streams": stream_rows(streams(programs)), **compute_needs(programs)._asdict()}
    )
    return {
        "schema": SCHEMA,
        "machine": {
            "arch": hardware.arch.model_dump(mode="json"),
            "timing": hardware.timing.model_dump(mode="json"),
        },
        "ports": port_rows(found),
        "ex": lanes,
        "network": network,
    }


def _engines(found: Sequence[Ports]) -> list[Ports]:
    return [one for one in found if one.owner not in Unit.__members__]


def _lanes(widths: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"lanes": lanes, "lane_bytes": width} for width, lanes in widths.items()]
