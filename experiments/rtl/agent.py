"""cocotb agent that runs a program on a user's RTL and compares it with the simulator.

The agent models the system memory and observes the end of every command. It stops after the first
command whose bytes or cycles differ. docs/own-rtl.md lists the ports of the RTL.
"""

import time
from typing import Any

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from numpy.typing import NDArray

from dla_sim.engine.workload import UNIT_NAMES
from dla_sim.rtl.parameters import STRAPS
from dla_sim.rtl.simulator.case import (
    SLACK,
    Case,
    HardwareDifference,
    Outcome,
    constant_ranges,
    images_of,
    outputs_of,
)
from isa.access import byte_addresses
from isa.errors import InputError
from isa.instruction import Unit

REQUIRED = (
    "clk", "rst", "command_address", "command_words", "interrupt", "memory_valid", "memory_write",
    "memory_address", "memory_count", "memory_write_data", "memory_read_data",
)  # fmt: skip
"""Ports that every RTL must have."""
LOOKUPS = (
    "lookup_ld_address", "lookup_ld_constant", "lookup_st_address", "lookup_st_constant",
)  # fmt: skip
"""Ports of the address decoder of a flash."""
STARTS = tuple(f"probe_{unit.lower()}_start" for unit in UNIT_NAMES)
ENDS = tuple(f"probe_{unit.lower()}_done" for unit in UNIT_NAMES)
RESET_CYCLES = 3
SHOWN_BYTES = 16
SLOWER = 20
"""Default cycle limit of a comparison of bits only, in multiples of the simulator's cycles."""


class Agent:
    """Memory, command stream and checks around one RTL design in a cocotb test."""

    def __init__(
        self,
        dut: Any,
        case: Case,
        *,
        bits_only: bool = False,
        scratchpad: str | None = None,
        max_cycles: int | None = None,
    ) -> None:
        """Prepare the run of ``case`` on ``dut``.

        Args:
            dut: handle of the top level in cocotb.
            case: program, inputs and expected results (``comparison.source_case``).
            bits_only: ignore cycles.
            scratchpad: path of the array of bytes or words in the RTL that stores the scratchpad;
                without it only system memory is compared.
            max_cycles: cycles after which the run ends.

        Raises:
            InputError: a port or the array is missing, or the program has undefined results.
        """
        expected = case.expected
        if expected is None or expected.until is not None:
            raise InputError(f"{case.name}: has commands with undefined results; remove them")
        self._case = case
        self._expected = expected
        self._constants = constant_ranges(case.program) if case.timing.flash else []
        self._ports = _find_ports(dut, bits_only=bits_only, flash=bool(self._constants))
        self._dut = dut
        self._observes = all(self._ports[name] is not None for name in ENDS)
        self._timed = not bits_only
        factor = SLOWER if bits_only else 2
        self._limit = max_cycles or factor * expected.trace.cycles + SLACK
        self._members = [
            [number for number, one in enumerate(expected.trace.commands) if one.unit.value == unit]
            for unit in range(len(UNIT_NAMES))
        ]
        self._started = [0] * len(UNIT_NAMES)
        self._done = [0] * len(UNIT_NAMES)
        self._finished: list[int] = []
        self._named: int | None = None
        self._differences: list[HardwareDifference] = []
        self._memory = self._make_memory()
        self._images = {"dram": self._memory.copy(), "sram": np.zeros(_reach(case), np.uint8)}
        self._writers = {
            space: np.full(image.size, -1, np.int64) for space, image in self._images.items()
        }
        self._readers = {"dram": lambda places: self._memory[places].astype(np.int64)}
        if scratchpad is not None:
            needed = self._images["sram"].size
            self._readers["sram"] = _Scratchpad(dut, scratchpad, needed).read

    def _make_memory(self) -> NDArray[np.uint8]:
        memory = np.zeros(self._case.program.dram_bytes, np.uint8)
        for address, content in images_of(self._case):
            memory[address : address + content.size] = content
        return memory

    async def run(self) -> Outcome:
        """Run the program from reset to the interrupt, the fault or the first difference."""
        begun = time.monotonic()
        await self._reset()
        ended = None
        cycle = -1
        while ended is None:
            await FallingEdge(self._dut.clk)
            cycle += 1
            ended = self._step(cycle)
        if ended != "difference":
            self._conclude(ended, cycle)
        return Outcome(
            self._case,
            ended,
            cycle,
            time.monotonic() - begun,
            sum(self._done),
            {},
            outputs_of(self._case.program, self._memory),
            len(self._differences),
            tuple(self._differences),
        )

    async def _reset(self) -> None:
        program = self._case.program
        inputs = {
            "rst": 1, "command_address": program.command_address,
            "command_words": len(program.words), "memory_read_data": 0,
            "lookup_ld_constant": 0, "lookup_st_constant": 0,
        }  # fmt: skip
        straps = {f"configuration_{name}": strap for name, strap in STRAPS.items()}
        inputs |= {
            name: strap.value(program.arch, self._case.timing)
            for name, strap in straps.items()
            if hasattr(self._dut, name)
        }
        for name, value in inputs.items():
            handle = getattr(self._dut, name, None)
            if handle is None:
                continue
            if value.bit_length() > len(handle):
                raise InputError(f"port {name} has {len(handle)} bits, too few for {value:,}")
            handle.value = value
        Clock(self._dut.clk, 10, "ns").start()
        for _ in range(RESET_CYCLES):
            await RisingEdge(self._dut.clk)
        self._dut.rst.value = 0

    def _step(self, cycle: int) -> str | None:
        """Observe one cycle at its middle; return the reason if the run ends."""
        for number in self._finished:
            self._record(number)
            self._check(number)
        if self._differences and (self._named is None or self._named in self._finished):
            return "difference"
        self._finished.clear()
        try:
            return self._observe(cycle)
        except _UnknownBitsError as error:
            writer = self._current(Unit.ST) if error.port == "memory_write_data" else None
            self._differ("unknown", writer, port=error.port, cycle=cycle)
            return "difference"

    def _observe(self, cycle: int) -> str | None:
        for name in ("interrupt", "fault"):
            if self._get(name):
                return name
        if cycle == self._limit:
            return "limit"
        for unit in ("ld", "st") if self._constants else ():
            address = self._get(f"lookup_{unit}_address")
            constant = any(first <= address < end for first, end in self._constants)
            self._ports[f"lookup_{unit}_constant"].value = int(constant)
        ended = self._transfer(cycle) if self._get("memory_valid") else None
        if self._observes:
            self._observe_units(cycle)
        return ended

    def _get(self, name: str) -> int:
        """Return the value of an output; an output that the RTL lacks is 0."""
        handle = self._ports[name]
        if handle is None:
            return 0
        try:
            return int(handle.value)
        except ValueError as error:
            raise _UnknownBitsError(name) from error

    def _observe_units(self, cycle: int) -> None:
        """Compare starts and ends in this cycle with the simulator.

        A command is named in the cycle in which it should start or end, even if it does so later.
        """
        times = self._expected.trace.times
        found = []
        for unit, members in enumerate(self._members):
            for kind, places, names, planned, at in (
                ("start", self._started, STARTS, times.start, cycle),
                ("end", self._done, ENDS, times.end, cycle + 1),
            ):
                place = places[unit]
                happens = self._get(names[unit]) == 1
                if happens and place == len(members):
                    self._differ(kind, None, unit=UNIT_NAMES[unit], actual=at)
                elif place < len(members) and self._ports[names[unit]] is not None:
                    number = members[place]
                    places[unit] += happens
                    if happens and kind == "end":
                        self._finished.append(number)
                    if happens != (at == planned[number]):
                        found.append((number, kind, int(planned[number]), at, happens))
        for number, kind, expected, actual, happens in sorted(found) if self._timed else ():
            self._named = number if self._named is None else self._named
            if happens:
                self._differ(kind, number, expected=expected, actual=actual)

    def _transfer(self, cycle: int) -> str | None:
        """Answer a read of the system memory, or store the bytes of a write."""
        write = self._get("memory_write")
        address = self._get("memory_address")
        size = self._get("memory_count")
        data = self._ports["memory_write_data" if write else "memory_read_data"]
        if (wide := 8 * size > len(data)) or address + size > self._memory.size:
            kind = "wide" if wide else "outside"
            access = "write" if write else "read"
            number = self._current(Unit.ST) if write else None
            self._differ(kind, number, cycle=cycle, access=access, address=address, count=size)
            return "difference"
        place = slice(address, address + size)
        if not write:
            data.value = int.from_bytes(self._memory[place].tobytes(), "little")
        elif size:
            try:
                content = int(str(data.value)[-8 * size :], 2)
            except ValueError as error:
                raise _UnknownBitsError("memory_write_data") from error
            self._memory[place] = np.frombuffer(content.to_bytes(size, "little"), np.uint8)
        return None

    def _list_remaining(self, unit: Unit) -> list[int]:
        """Return the commands of a unit that have not ended."""
        return self._members[unit.value][self._done[unit.value] :]

    def _current(self, unit: Unit) -> int | None:
        """Return the command that a unit executes or executes next, if ends are observed."""
        rest = self._list_remaining(unit)
        return rest[0] if self._observes and rest else None

    def _differ(self, kind: str, number: int | None, **details: Any) -> None:
        """Record a difference, unless another command already differs."""
        if self._named is None:
            self._named = number
        if number in (None, self._named):
            self._differences.append(HardwareDifference(kind, number, details))

    def _record(self, number: int) -> None:
        """Add the results of a command to the expected content of the memories."""
        for write in self._expected.writes[number]:
            places = byte_addresses(write.access)
            self._images[write.access.space][places] = write.content
            self._writers[write.access.space][places] = number

    def _check(self, number: int) -> None:
        """Compare the results of a command, except bytes that a later command has written."""
        for write in self._expected.writes[number]:
            access = write.access
            if access.space not in self._readers:
                continue
            places = byte_addresses(access)
            latest = np.flatnonzero(self._writers[access.space][places] == number)
            content = write.content[latest]
            found = self._readers[access.space](places[latest])
            wrong = np.flatnonzero(found != content)
            if not wrong.size:
                continue
            first = int(wrong[0])
            offset = int(latest[first])
            shown = slice(first, first + min(SHOWN_BYTES, access.nbytes - offset % access.nbytes))
            self._differ(
                "bytes",
                number,
                space=access.space,
                address=int(places[offset]),
                offset=offset,
                differing=wrong.size,
                of=write.content.size,
                expected=content[shown].tobytes().hex(),
                actual="".join("xx" if one < 0 else f"{one:02x}" for one in found[shown].tolist()),
            )

    def _conclude(self, ended: str, cycle: int) -> None:
        """Compare what is known only at the end of the run."""
        expected = self._expected
        number = self._named
        if ended == "limit":
            self._differ("never", None, cycles=cycle)
        elif (ended == "fault") != (expected.stopper is not None):
            if number is None:
                number = self._current(Unit.EX) if ended == "fault" else expected.stopper
            self._differ("fault", number, cycle=cycle, expected=ended != "fault")
            return
        elif expected.stopper is not None:
            if self._current(Unit.EX) not in (expected.stopper, None):
                self._differ("stop", expected.stopper, cycle=cycle)
            return
        rest = [member for unit in Unit for member in self._list_remaining(unit)]
        if rest and self._observes:
            self._differ("missing", min(rest) if number is None else number)
        elif ended == "interrupt":
            self._conclude_memory(cycle)

    def _conclude_memory(self, cycle: int) -> None:
        """Compare the number of cycles and the whole system memory."""
        trace = self._expected.trace
        numbers = range(len(trace.commands))
        if not self._observes:
            for number in sorted(numbers, key=lambda number: int(trace.times.end[number])):
                self._record(number)
            for number in numbers:
                self._check(number)
        if self._timed and cycle != trace.cycles:
            self._differ("total", None, expected=trace.cycles, actual=cycle)
        image = self._images["dram"]
        for place in np.flatnonzero(self._memory != image)[:1].tolist():
            if self._named is None:
                values = {"expected": f"{image[place]:02x}", "actual": f"{self._memory[place]:02x}"}
                self._differ("stray", None, space="dram", address=place, **values)


class _UnknownBitsError(Exception):
    """An output ``port`` of the RTL has unknown bits (x or z)."""

    def __init__(self, port: str) -> None:
        super().__init__(port)
        self.port = port


class _Scratchpad:
    """Array of bytes or words in the RTL that stores the scratchpad."""

    def __init__(self, dut: Any, path: str, needed: int) -> None:
        """Find the array by its path below the top level; it must have ``needed`` bytes."""
        handle = dut
        for name in path.split("."):
            handle = getattr(handle, name, None)
        try:
            bits = len(handle[0])
        except (TypeError, IndexError):
            bits = 0
        if not bits or bits % 8:
            raise InputError(
                f"--scratchpad {path}: the RTL has no array of bytes or words with this path, "
                "or its first index is not 0"
            )
        size = len(handle) * bits // 8
        if size < needed:
            raise InputError(
                f"--scratchpad {path}: has {size:,} bytes, and the program writes {needed:,}; "
                "choose a program for a machine with a smaller scratchpad (sram_bytes)"
            )
        self._words = handle
        self._width = bits // 8

    def read(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes at ``places``; -1 is a byte with unknown bits."""
        words = places // self._width
        texts = {word: str(self._words[word].value) for word in dict.fromkeys(words.tolist())}
        found = []
        for word, byte in zip(words.tolist(), (places % self._width).tolist(), strict=True):
            end = 8 * (self._width - byte)
            bits = texts[word][end - 8 : end]
            found.append(int(bits, 2) if set(bits) <= {"0", "1"} else -1)
        return np.array(found, np.int64)


def _find_ports(dut: Any, *, bits_only: bool, flash: bool) -> dict[str, Any]:
    """Return the ports by name, None for a missing one; raise InputError if one is needed."""
    ports = {
        name: getattr(dut, name, None) for name in (*REQUIRED, *LOOKUPS, "fault", *STARTS, *ENDS)
    }
    needed = dict.fromkeys(REQUIRED, "; docs/own-rtl.md lists the ports")
    if not bits_only:
        reason = ", which shows the cycles of commands; add it or pass --bits-only"
        needed |= dict.fromkeys(ENDS, reason)
    if flash:
        needed |= dict.fromkeys(LOOKUPS, ", which the flash of the machine needs; add it")
    for name, reason in needed.items():
        if ports[name] is None:
            raise InputError(f"the top level has no port {name}{reason}")
    return ports


def _reach(case: Case) -> int:
    """Return the end of the last scratchpad byte that a command of a case writes."""
    assert case.expected is not None
    writes = (write.access for writes in case.expected.writes for write in writes)
    return max((access.end for access in writes if access.space == "sram"), default=0)
