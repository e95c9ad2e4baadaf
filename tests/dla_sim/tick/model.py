"""One step per clock cycle, in the order of docs/machine.md section 3.

Obviously right comes before fast.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from isa.instruction import Command
from isa.program import Program
from tests.dla_sim.tick.banks import BankState
from tests.dla_sim.tick.constants import TimingConstants
from tests.dla_sim.tick.scripts import (
    HELD,
    SLOT_CAUSE,
    command_script,
    main_memory_rows,
    memory_of,
    transfer_slots,
)

UNITS = ("LD", "EX", "ST")
PREVIOUS = {"EX": "LD", "ST": "EX"}
NEXT = {"LD": "EX", "EX": "ST"}
REQUESTERS = ("fetch", "LD", "ST")
WORD_BYTES = 8


@dataclass(frozen=True)
class TickResult:
    """Result of a run, in cycles.

    ``causes`` is unit -> cause -> cycles; ``spans`` the half-open interval of each command of
    ``Program.commands`` (``OP_END``: the cycle that executed it); ``kinds`` the run's cycles by
    (kind, layer); ``events`` counts what the program exercised, for the coverage table.
    """

    total: int
    causes: dict[str, dict[str, int]]
    spans: tuple[tuple[int, int], ...]
    kinds: dict[tuple[str, str], int]
    events: Counter[str]


@dataclass
class UnitState:
    """A unit: its queue, headed by the executing command, and that one's remaining symbols."""

    name: str
    to_come: int
    queue: deque[int] = field(default_factory=deque)
    script: list[str] | None = None
    position: int = 0
    started: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def wants_bus(self) -> bool:
        """In its data phase, slots left."""
        return self.script is not None and self.script[self.position] in SLOT_CAUSE


class TickModel:
    """The state of the machine between two cycles, and one method per step of a cycle."""

    def __init__(
        self, program: Program, timing: TimingConstants, start: int = 0, cut: int | None = None
    ) -> None:
        commands = program.commands
        self.cut = cut
        self.commands = commands
        self.sources = program.sources
        self.program = program
        self.timing = timing
        self.word_count = len(program.words)
        self.command_address = program.command_address
        self.command_memory = memory_of(True, timing)
        self.command_at = {command.index: number for number, command in enumerate(commands)}
        self.to_units = [number for number, command in enumerate(commands) if not _is_end(command)]
        self.units = {
            name: UnitState(
                name, sum(commands[number].unit.name == name for number in self.to_units)
            )
            for name in UNITS
        }
        self.tokens: Counter[tuple[str, str]] = Counter()
        self.cycle = start
        self.word = 0
        self.total = 0
        self.served = "ST"
        self.granted: str | None = None
        self.spans: dict[int, tuple[int, int]] = {}
        self.kinds: Counter[tuple[str, str]] = Counter()
        self.events: Counter[str] = Counter()
        self.oldest = 0
        self.banks = (
            BankState(program.arch, self.events) if program.arch.words is not None else None
        )
        self.pushed: set[tuple[str, str]] = set()
        chunks = -(-self.word_count * WORD_BYTES // timing.fetch_bytes)
        self.requested: list[int | None] = [
            start if k < timing.fetch_buffers else None for k in range(chunks)
        ]
        self.ready: list[int | None] = [None] * chunks
        self.chunk = 0
        self.chunk_slots = self._chunk_slots(0)
        self.rows: dict[int, int] = {}
        self.begun: set[object] = set()

    def run(self) -> TickResult:
        """Step until ``OP_END`` has been executed."""
        while not self.total:
            self.complete()
            self.start()
            self.grant()
            self.finish_cycle()
        causes = {name: dict(unit.causes) for name, unit in self.units.items()}
        spans = tuple(self.spans[number] for number in range(len(self.commands)))
        return TickResult(self.total, causes, spans, dict(self.kinds), +self.events)

    def finish_cycle(self) -> None:
        """Finish a cycle after the grant."""
        self.account()
        self.consume()
        self.execute_word()
        self.cycle += 1

    # Step 1: completion.

    def complete(self) -> None:
        """Complete every unit whose command has no symbol left.

        It ended with the last cycle: free its entry and count its tokens.
        """
        self.pushed.clear()
        completed = 0
        for name, unit in self.units.items():
            if unit.script is None or unit.position < len(unit.script):
                continue
            number = unit.queue.popleft()
            unit.script = None
            self.spans[number] = (unit.started, self.cycle)
            command = self.commands[number]
            if command.push_previous:
                self.pushed.add((name, PREVIOUS[name]))
            if command.push_next:
                self.pushed.add((name, NEXT[name]))
            completed += 1
        self.tokens.update(self.pushed)
        self.events["several units complete in one cycle"] += completed > 1

    # Step 2: start.

    def missing(self, unit: UnitState) -> list[str]:
        """Units whose token the command at the head of the queue lacks, the previous unit first."""
        command = self.commands[unit.queue[0]]
        wanted = []
        if command.pop_previous:
            wanted.append(PREVIOUS[unit.name])
        if command.pop_next:
            wanted.append(NEXT[unit.name])
        return [giver for giver in wanted if self.tokens[giver, unit.name] == 0]

    def start(self) -> None:
        """Start the head of each idle unit's queue that finds all its tokens."""
        for name, unit in self.units.items():
            if unit.script is not None or not unit.queue or self.missing(unit):
                continue
            command = self.commands[unit.queue[0]]
            for popped, giver in (
                (command.pop_previous, PREVIOUS.get(name)),
                (command.pop_next, NEXT.get(name)),
            ):
                if popped and giver is not None:
                    self.tokens[giver, name] -= 1
                    self.events["token popped in the cycle of its push"] += (
                        giver,
                        name,
                    ) in self.pushed
            unit.script = command_script(command, self.program, self.timing, self.events)
            unit.position = 0
            unit.started = self.cycle
            if self.banks and command.instruction.unit is not None:
                self.banks.start(command, sum(symbol in SLOT_CAUSE for symbol in unit.script))
            if name == "EX":
                self.wait_for_banks()
            if not unit.script:
                unit.script.append("busy")
                self.events["command of no cycles, which takes one"] += 1

    # Step 3: bus.

    def _chunk_row(self, chunk: int) -> tuple[int, int]:
        """Bytes of a chunk, one row of system memory."""
        size = self.timing.fetch_bytes
        end = min((chunk + 1) * size, self.word_count * WORD_BYTES)
        return self.command_address + chunk * size, self.command_address + end

    def _chunk_slots(self, chunk: int) -> int:
        """Number of slots of a chunk."""
        return len(transfer_slots([self._chunk_row(chunk)], self.command_memory, self.events))

    def fetch_wants_bus(self) -> bool:
        """The data phase of the current chunk has begun (the chunks before it have ended)."""
        if self.chunk == len(self.requested):
            return False
        requested = self.requested[self.chunk]
        return requested is not None and self.cycle >= requested + self.command_memory.latency

    def requesters(self) -> list[str]:
        """Return the units in a data phase."""
        found = [name for name in UNITS if name != "EX" and self.units[name].wants_bus()]
        return ["fetch", *found] if self.fetch_wants_bus() else found

    def refreshes(self) -> bool:
        """The main memory refreshes in this cycle; the first interval has no refresh."""
        interval = self.timing.dram_refresh_interval
        return bool(
            interval
            and self.cycle >= interval
            and self.cycle % interval < self.timing.dram_refresh_cycles
        )

    def open_rows(self, requesters: list[str]) -> None:
        """Open the rows of the data phases that begin, and lengthen those by their misses."""
        interval = self.timing.dram_refresh_interval
        if interval and self.cycle % interval == 0:
            self.rows.clear()
        for name in requesters:
            begun = (name, self.chunk if name == "fetch" else self.units[name].started)
            if begun in self.begun:
                continue
            self.begun.add(begun)
            held = self.missing_rows(self._rows_of(name)) * self.timing.dram_row_miss
            if name == "fetch":
                self.chunk_slots += held
                continue
            unit = self.units[name]
            assert unit.script is not None
            unit.script[unit.position : unit.position] = [HELD["dram"]] * held
            self.events["dram: data phase with row misses"] += held > 0
            if self.banks:
                slots = sum(symbol in SLOT_CAUSE for symbol in unit.script)
                self.banks.start(self.commands[unit.queue[0]], slots)

    def _rows_of(self, name: str) -> list[tuple[int, int]]:
        """Byte intervals in the main memory of the data phase of a requester."""
        if name == "fetch":
            return [] if self.timing.flash_bytes else [self._chunk_row(self.chunk)]
        return main_memory_rows(self.commands[self.units[name].queue[0]], self.program, self.timing)

    def missing_rows(self, intervals: list[tuple[int, int]]) -> int:
        """Count the bursts whose row is not open, and open these."""
        size = self.timing.dram_row_bytes
        missing = 0
        for begin, end in intervals if size else []:
            at = begin
            while at < end:
                row = at // size
                bank = row % self.timing.dram_row_banks
                missing += self.rows.get(bank) != row
                self.rows[bank] = row
                at = (at // self.timing.burst_bytes + 1) * self.timing.burst_bytes
        return missing

    def grant(self) -> None:
        """One slot to the first requester after the one served last; none in a refresh."""
        requesters = self.requesters()
        self.granted = None
        self.open_rows(requesters)
        if self.refreshes():
            self.events["dram: refresh in a data phase"] += bool(requesters)
            return
        if not requesters:
            return
        if len(requesters) > 1:
            self.events["bus: " + " + ".join(requesters)] += 1
        first = REQUESTERS.index(self.served) + 1
        order = REQUESTERS[first:] + REQUESTERS[:first]
        self.granted = self.served = next(name for name in order if name in requesters)

    # The accounts of section 7: the state after the start and the grant, before the word of this
    # cycle is executed.

    def cause(self, unit: UnitState) -> str:
        """The one cause of this cycle."""
        if unit.script is not None:
            symbol = unit.script[unit.position]
            if symbol not in SLOT_CAUSE:
                return symbol
            if self.refreshes():
                return "dram"
            return SLOT_CAUSE[symbol] if self.granted == unit.name else "bus"
        if unit.queue:
            missing = self.missing(unit)
            if len(missing) > 1:
                self.events[f"{unit.name} waits for both tokens"] += 1
            return f"token_{missing[0]}"
        return "queue_empty" if unit.to_come else "drained"

    def account(self) -> None:
        """Give this cycle of every unit, and of the run, its cause."""
        for unit in self.units.values():
            unit.causes[self.cause(unit)] += 1
        while self.oldest + 1 < len(self.to_units) and self.to_units[self.oldest] in self.spans:
            self.oldest += 1
        layer_of = self.to_units[self.oldest] if self.to_units else None
        kind = "DMA" if self.units["LD"].script or self.units["ST"].script else "ISSUE"
        source = None if layer_of is None else self.sources[layer_of]
        if self.units["EX"].script:
            number = self.units["EX"].queue[0]
            source = self.sources[number]
            kind = self.commands[number].instruction.kind
            if source and kind != "ISSUE":
                kind = source.kind
        self.kinds[kind, source.layer if source else ""] += 1

    def wait_for_banks(self) -> None:
        """Behind its compute cycles EX waits for one more cycle if words are left (section 12)."""
        unit = self.units["EX"]
        if self.banks and unit.script is not None and self.computes(unit):
            last = len(unit.script) - self.timing.ex_drain
            if unit.position == last and self.banks.waits():
                unit.script.insert(last, "sram")

    def computes(self, unit: UnitState) -> bool:
        """EX has filled its pipeline for an instruction that computes."""
        instruction = self.commands[unit.queue[0]].instruction
        return instruction.unit is not None and unit.position >= self.timing.ex_fill

    def consume(self) -> None:
        """Every executing unit uses up one symbol, a slot only if it was granted.

        The fetch likewise.
        """
        unit = self.units["EX"]
        if self.banks:
            taken = self.banks.taken(self.granted, self.cycle)
            if unit.script is not None and self.computes(unit):
                self.banks.serve(taken)
        for unit in self.units.values():
            if unit.script is not None and (not unit.wants_bus() or self.granted == unit.name):
                unit.position += 1
        self.wait_for_banks()
        if self.granted == "fetch":
            self.chunk_slots -= 1
            if self.chunk_slots == 0:
                self.ready[self.chunk] = self.cycle + 1
                self.chunk += 1
                self.chunk_slots = (
                    self._chunk_slots(self.chunk) if self.chunk < len(self.ready) else 0
                )

    # Step 4: command processor.

    def execute_word(self) -> None:
        """Execute the next word if its chunk is here and its queue has room.

        ``OP_END`` waits for the whole machine.
        """
        if self.cut is not None and self.word == (
            self.commands[self.cut - 1].index + 1 if self.cut else 0
        ):
            self.execute_cut()
            return
        chunk = self.word * WORD_BYTES // self.timing.fetch_bytes
        ready = self.ready[chunk]
        if ready is None or ready > self.cycle:
            self.events["command processor waits for a chunk"] += 1
            return
        number = self.command_at.get(self.word)
        if number is not None and not self.execute_operation(number):
            return
        self.word += 1
        later = chunk + self.timing.fetch_buffers
        if (
            later < len(self.requested)
            and self.word * WORD_BYTES == (chunk + 1) * self.timing.fetch_bytes
        ):
            self.requested[later] = self.cycle + 1
            self.events["chunk requested when a buffer was freed"] += 1

    def execute_cut(self) -> None:
        """Execute ``OP_END`` instead of command ``cut``, once no chunk is in flight.

        See docs/systems.md, section 3.
        """
        pairs = zip(self.requested, self.ready, strict=True)
        under_way = any(
            asked is not None and (here is None or here > self.cycle) for asked, here in pairs
        )
        if not under_way and not any(unit.queue for unit in self.units.values()):
            self.total = self.cycle + 1

    def execute_operation(self, number: int) -> bool:
        """Execute an operation if possible in this cycle, and return True if so."""
        command = self.commands[number]
        if _is_end(command):
            if any(unit.queue for unit in self.units.values()):
                self.events["OP_END waits"] += 1
                return False
            self.total = self.cycle + 1
            self.spans[number] = (self.cycle, self.cycle + 1)
            return True
        unit = self.units[command.unit.name]
        if len(unit.queue) >= self.timing.queue_depth:
            self.events[f"queue of {unit.name} full"] += 1
            return False
        unit.queue.append(number)
        unit.to_come -= 1
        return True


def _is_end(command: Command) -> bool:
    return command.instruction.mnemonic == "OP_END"


def run_ticks(program: Program, timing: TimingConstants) -> TickResult:
    """Run ``program`` cycle by cycle from a drained machine.

    It must be legal: a deadlock never ends.
    """
    return TickModel(program, timing).run()
