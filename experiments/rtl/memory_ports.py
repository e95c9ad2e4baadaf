"""Scratchpad ports of the hardware, with the operands that each transfers."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from amaranth.hdl import UnusedElaboratable

from dla_sim.presets import Preset
from dla_sim.rtl.building import Library
from dla_sim.rtl.dma import DmaUnit
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.ex.engines import engines
from dla_sim.rtl.parameters import Configuration, limits_of
from dla_sim.rtl.ports import CommandView, ReadPort, WritePort
from experiments.rtl.hardware import is_pipelined
from isa.instruction import BYTES, INT8, INT32, ElementType, Instruction, Unit
from isa.ops.dma import side_registers

SCHEMA = "dla-rtl-ports/1"
_TYPES = {
    "EX_INPUT_ADDRESS": ("inputs", 0),
    "EX_OPERAND_ADDRESS": ("inputs", 1),
    "EX_OUTPUT_ADDRESS": ("outputs", 0),
}
_ELEMENT_BYTES = {INT8: 1, BYTES: 1, INT32: 4}
_LIMITS = ("sram_read_bytes", "sram_write_bytes", "bank_ports")
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
    limits = (f"{name} = {getattr(timing, name)}" for name in _LIMITS)
    yield (
        f"{arch.sram_banks} banks of {bank_bytes:,} bytes; the machine counts with "
        f"{', '.join(limits)}"
    )


def ports_json(hardware: Preset, found: Sequence[Ports]) -> dict[str, Any]:
    """Return the scratchpad ports of the hardware as JSON values."""
    lanes = {
        side: _lanes(merge_ports(_engines(found), kind))
        for side, kind in (("read", ReadPort), ("write", WritePort))
    }
    return {
        "schema": SCHEMA,
        "machine": {
            "arch": hardware.arch.model_dump(mode="json"),
            "timing": hardware.timing.model_dump(mode="json"),
        },
        "ports": port_rows(found),
        "ex": lanes,
    }


def _engines(found: Sequence[Ports]) -> list[Ports]:
    return [one for one in found if one.owner not in Unit.__members__]


def _lanes(widths: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"lanes": lanes, "lane_bytes": width} for width, lanes in widths.items()]
