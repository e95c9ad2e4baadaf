"""Event engine on SimPy, with one event per command or per change in the set of bus ports.

No event occurs per cycle. It consists of a bus, a command fetch, a command processor and three
units. Each is a small state machine that notifies the others when an operation ends
(docs/machine.md, sections 3 to 6).
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
from simpy import Environment, Event
from simpy.events import NORMAL, URGENT, EventPriority

from dla_sim.engine.banks import BankLoad, Banks, PassingWords
from dla_sim.engine.bus import (
    FETCH_PORT,
    LD_PORT,
    NEVER,
    PORTS,
    ST_PORT,
    MainMemory,
    make_arbiter,
)
from dla_sim.engine.dram import open_dram
from dla_sim.engine.times import CommandTimes, deadlock
from dla_sim.engine.workload import TOKEN_QUEUES, CommandCost, Workload

_LAST = EventPriority(NORMAL + 1)
"""Priority of an event that comes after all others of its cycle."""


class Clock(Environment):
    """Simulated time in whole cycles."""

    @property
    def cycle(self) -> int:
        """The current cycle."""
        return int(self._now)


class Callback(Event):
    """Event that calls ``action`` after ``delay`` cycles.

    Within a cycle, URGENT events come before NORMAL ones.
    """

    def __init__(
        self,
        clock: Clock,
        delay: int,
        action: Callable[[Event], None],
        priority: EventPriority = NORMAL,
    ) -> None:
        # Like simpy.Timeout, set the fields here instead of calling Event.__init__: there is one
        # call per command.
        self.env = clock
        self.callbacks = [action]
        self._value = None
        self._ok = True
        clock.schedule(self, priority, delay)


class BusEvents:
    """Bus of the event engine, which grants slots and signals the ends of data phases.

    ``done[port]`` is called in the cycle in which the data phase of ``port`` has ended;
    ``computed`` is called when EX has had all its bank cycles. Ends of data phases are urgent, so
    in every cycle they precede all beginnings. A data phase that begins needs at least one slot and
    cannot end in the same cycle.
    """

    __slots__ = (
        "_arbiter", "_banks", "_beginning", "_clock", "_computing", "_memory", "_pending",
        "computed", "done",
    )  # fmt: skip

    def __init__(self, clock: Clock, memory: MainMemory | None = None) -> None:
        self._clock = clock
        self._memory = memory
        self._beginning: list[tuple[int, int, int, PassingWords | None]] = []
        self._arbiter = make_arbiter(memory)
        self._banks = Banks(self._arbiter)
        self._pending: Event | None = None
        self._computing: Event | None = None
        self.done: list[Callable[[], None]] = [lambda: None] * len(PORTS)
        self.computed: Callable[[], None] = lambda: None

    def begin(self, port: int, slots: int, key: int, passing: PassingWords | None = None) -> None:
        """Start a data phase of ``port`` in this cycle; ``slots`` is at least 1.

        Data phases that begin in one cycle open rows of the main memory in the order of the ports.
        """
        if self._memory is None:
            self._start(port, slots, passing)
            return
        self._beginning.append((port, slots, key, passing))
        Callback(self._clock, 0, self._start_all, _LAST)

    def _start_all(self, _: Event) -> None:
        assert self._memory is not None
        for port, slots, key, passing in sorted(self._beginning, key=itemgetter(0)):
            self._start(port, *self._memory.begin(key, self._clock.cycle, slots, passing))
        self._beginning.clear()

    def _start(self, port: int, slots: int, passing: PassingWords | None) -> None:
        self._advance()
        self._arbiter.begin(port, slots)
        if passing is not None:
            self._banks.begin(port, passing)
        self._plan()

    def compute(self, load: BankLoad) -> None:
        """Start the computation of an EX command in this cycle."""
        self._advance()
        self._banks.compute(load)
        self._plan()

    def _advance(self) -> int:
        """Grant bus slots up to now; return the port whose data phase has ended, or -1."""
        ended = self._arbiter.grant(self._clock.cycle)
        self._banks.settle()
        return ended

    def _plan(self) -> None:
        """Schedule events for the next end of a data phase and of EX; discard earlier ones."""
        arbiter = self._arbiter
        banks = self._banks
        self._pending = self._computing = None
        if arbiter.waiting:
            self._pending = Callback(
                self._clock, arbiter.next_end() - arbiter.now, self._end, URGENT
            )
        if banks.busy:
            self._computing = Callback(
                self._clock, banks.end() - arbiter.now, self._handle_computed
            )

    def _end(self, event: Event) -> None:
        if event is self._pending:
            ended = self._advance()
            self._plan()
            self.done[ended]()

    def _handle_computed(self, event: Event) -> None:
        if event is self._computing:
            self._advance()
            self._banks.busy = False
            self._plan()
            self.computed()


class CommandFetch:
    """Command fetch, which reads chunks of command words over the bus in order.

    It implements docs/machine.md, section 4. ``ready`` counts the chunks that have arrived;
    ``on_ready`` is called when it increases.
    """

    __slots__ = (
        "_bus", "_busy", "_clock", "_key", "_latency", "_requests", "_slots", "on_ready", "ready",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, bus: BusEvents, chunk_slots: Sequence[int], latency: int, key: int
    ) -> None:
        self._key = key  # of the first chunk's data phase
        self._clock = clock
        self._bus = bus
        self._slots = chunk_slots
        self._latency = latency
        self._requests: list[int] = []
        self._busy = False
        self.ready = 0
        self.on_ready: Callable[[], None] = lambda: None
        bus.done[FETCH_PORT] = self._handle_arrival

    def request(self, time: int) -> None:
        """Request the next chunk of command words, if any, in cycle ``time`` (now or later)."""
        if len(self._requests) < len(self._slots):
            self._requests.append(time)
            if not self._busy:
                self._prepare()

    def _prepare(self) -> None:
        """Schedule the data phase of the next chunk of command words.

        It begins after the chunk's latency and after the previous chunk.
        """
        if self.ready < len(self._requests):
            self._busy = True
            now = self._clock.cycle
            Callback(
                self._clock, max(0, self._requests[self.ready] + self._latency - now), self._begin
            )

    def _begin(self, _: Event) -> None:
        self._bus.begin(FETCH_PORT, self._slots[self.ready], self._key + self.ready)

    def _handle_arrival(self) -> None:
        self.ready += 1
        self._busy = False
        self._prepare()
        self.on_ready()


class Tokens:
    """The four token counters, and for each the callback that wakes the waiting unit."""

    __slots__ = ("counts", "readers")

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]
        self.readers: list[Callable[[], None]] = []


class ExecutionUnit:
    """Model of LD, EX or ST, which executes the commands of its queue in order.

    It takes commands of ``costs`` by number and records when each one starts and ends. ``port`` is
    its bus port, or None for EX, which does not use the bus.

    A command starts when it has arrived, the previous one has completed and its tokens are
    available. Only this unit pops those tokens, so the order of events within a cycle does not
    matter: each of them retries.
    """

    __slots__ = (
        "_arrival", "_bus", "_clock", "_costs", "_end", "_executing", "_port", "_start", "_tokens",
        "on_complete", "queue",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        costs: Sequence[CommandCost],
        tokens: Tokens,
        bus: BusEvents,
        port: int | None,
        times: tuple[list[int], list[int], list[int]],
    ) -> None:
        self._clock = clock
        self._costs = costs
        self._tokens = tokens
        self._bus = bus
        self._port = port if port is not None else -1  # EX never uses the bus
        self._arrival, self._start, self._end = times
        self._executing = False
        self.queue: deque[int] = deque()
        self.on_complete: Callable[[], None] = lambda: None
        if port is not None:
            bus.done[port] = self._data_end
        else:
            bus.computed = self._data_end

    def offer(self, command: int) -> None:
        """Append a command to the queue of an execution unit.

        It can start from its arrival on, which may be in the future.
        """
        self.queue.append(command)
        if not self._executing:
            self.try_start()

    def try_start(self) -> None:
        """Start the command at the head of the queue if all its tokens are available."""
        if self._executing or not self.queue:
            return
        command = self.queue[0]
        cost = self._costs[command]
        counts = self._tokens.counts
        for counter in cost.pops:
            if not counts[counter]:
                return
        for counter in cost.pops:
            counts[counter] -= 1
        self._executing = True
        now = self._clock.cycle
        start = max(now, self._arrival[command])
        self._start[command] = start
        if cost.slots or cost.load is not None:
            Callback(self._clock, start + cost.lead - now, self._data_begin)
        else:
            Callback(self._clock, start + cost.lead + cost.tail - now, self._complete)

    def _data_begin(self, _: Event) -> None:
        cost = self._costs[self.queue[0]]
        if cost.load is not None:
            self._bus.compute(cost.load)
        else:
            self._bus.begin(self._port, cost.slots, self.queue[0], cost.passing)

    def _data_end(self) -> None:
        Callback(self._clock, self._costs[self.queue[0]].tail, self._complete)

    def _complete(self, _: Event) -> None:
        command = self.queue.popleft()
        self._end[command] = self._clock.cycle
        self._executing = False
        for counter in self._costs[command].pushes:
            self._tokens.counts[counter] += 1
            self._tokens.readers[counter]()
        self.try_start()
        self.on_complete()


class CommandProcessor:
    """Command processor, which executes the words in order, at most one per cycle.

    It implements docs/machine.md, section 4. It appends commands to the queues of ``units``,
    records their arrivals and determines the program's ``total`` cycles. It runs ahead of the
    simulated time as long as its inputs are certain: an arrived chunk stays, and room in a queue
    only grows until the processor fills it. SETs and words that never wait therefore need no
    events.
    """

    __slots__ = (
        "_arrival", "_chunk_words", "_clock", "_depth", "_fetch", "_last_word", "_time", "_units",
        "_word",
        "_workload", "next", "total",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        workload: Workload,
        fetch: CommandFetch,
        units: Sequence[ExecutionUnit],
        arrival: list[int],
    ) -> None:
        self._clock = clock
        self._workload = workload
        self._fetch = fetch
        self._units = units
        self._arrival = arrival
        self._depth = workload.timing.queue_depth
        self._chunk_words = workload.timing.fetch_bytes // 8
        self._last_word = workload.word_count - 1
        self._word = 0  # next word to execute
        self._time = 0  # first cycle in which it can execute, as far as earlier words matter
        self.next = 0  # next command
        self.total = 0
        fetch.on_ready = self.proceed
        for unit in units:
            unit.on_complete = self.proceed

    def proceed(self) -> None:
        """Execute command words until one of them has to wait.

        Called at the end of any event that it may wait for.
        """
        self._time = max(self._time, self._clock.cycle)
        costs = self._workload.costs
        while self.next < len(costs):
            cost = costs[self.next]
            unit = self._units[cost.unit]
            if not self._run_to(cost.word) or len(unit.queue) == self._depth:
                return
            self._arrival[self.next] = self._time + 1
            unit.offer(self.next)
            self.next += 1
            self._handle_executed_word()
        if (
            not self.total
            and self._run_to(self._last_word)
            and not any(unit.queue for unit in self._units)
        ):
            self.total = self._time + 1

    def _run_to(self, word: int) -> bool:
        """Execute the register writes (SETs) of the command stream before ``word``.

        Return False if a chunk up to the one with ``word`` is missing.
        """
        while self._word // self._chunk_words < self._fetch.ready:
            boundary = (self._word // self._chunk_words + 1) * self._chunk_words
            if word < boundary:
                self._time += word - self._word
                self._word = word
                return True
            self._time += boundary - self._word
            self._word = boundary
            self._fetch.request(self._time)
        return False

    def _handle_executed_word(self) -> None:
        self._time += 1
        self._word += 1
        if self._word % self._chunk_words == 0:
            self._fetch.request(self._time)


def simulate(workload: Workload) -> CommandTimes:
    """Return when each command of ``workload`` arrives, starts and ends.

    The machine is idle at cycle 0. Raises DeadlockError if the program stops before its ``OP_END``.
    """
    clock = Clock(initial_time=0)
    dram = open_dram(workload, len(workload))
    bus = BusEvents(clock, dram)
    tokens = Tokens()
    times: tuple[list[int], ...] = tuple([0] * len(workload) for _ in range(3))
    arrival, start, end = times
    units = [
        ExecutionUnit(clock, workload.costs, tokens, bus, port, (arrival, start, end))
        for port in (LD_PORT, None, ST_PORT)
    ]
    tokens.readers = [units[reader].try_start for _, reader in TOKEN_QUEUES]
    latency = workload.fetch_latency
    fetch = CommandFetch(clock, bus, workload.chunk_slots, latency, len(workload))
    processor = CommandProcessor(clock, workload, fetch, units, arrival)
    for _ in range(workload.timing.fetch_buffers):
        fetch.request(0)
    clock.run()
    if not processor.total:
        # no command arrives or ends in cycle 0, so 0 marks a time that was never set
        raise deadlock(
            workload, [time or NEVER for time in arrival], [time or NEVER for time in end]
        )
    arrivals, starts, ends = (np.array(column, dtype=np.int64) for column in times)
    missed = None if dram is None else dram.list_missed(len(workload))
    return CommandTimes(arrivals, starts, ends, processor.total, missed)
