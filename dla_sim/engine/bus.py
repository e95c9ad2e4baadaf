"""Shared bus: one slot per cycle, round robin among the ports in their data phase.

docs/machine.md, section 6, gives the rules. :class:`BusArbiter` implements them for both engines
and for the bus statistics (`dla_sim.inspection`). The engine without events uses a machine's
:class:`SharedBus`, or the :class:`BusPort` of one of several machines on a bus.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from dla_sim.engine.banks import BankLoad, Banks, PassingWords

PORTS = ("fetch", "LD", "ST")
"""Bus requesters: the command fetch and two units."""
FETCH_PORT, LD_PORT, ST_PORT = range(len(PORTS))
NEVER = 1 << 62
"""Time of an event that has not happened."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Refresh of the main memory in the cycles [k * interval, k * interval + cycles), k > 0.

    ``interval`` is 0 without refresh.
    """

    interval: int
    cycles: int

    def count_slots(self, time: int) -> int:
        """Return the number of cycles before ``time`` in which the bus can grant a slot."""
        if time < self.interval or not self.interval:
            return time
        periods, rest = divmod(time, self.interval)
        return time - (periods - 1) * self.cycles - min(rest, self.cycles)

    def find_end(self, slots: int) -> int:
        """Return the cycle after slot number ``slots`` of the run, counted from 1."""
        if slots <= self.interval or not self.interval:
            return slots
        periods, rest = divmod(slots - 1 - self.interval, self.interval - self.cycles)
        return (periods + 1) * self.interval + self.cycles + rest + 1


class BusArbiter:
    """Round-robin arbiter that grants slots in closed form between two changes in the set of ports.

    With k ports in cyclic order after the one served last, the port at position p is granted the
    cycles now + p, now + p + k, now + p + 2k, and so on.

    Attributes:
        now: cycle up to which slots are granted.
        waiting: ports in their data phase, in any order.
        left: slots that each port still needs; 0 for ports outside a data phase.
        refresh: refresh of the main memory, in a :class:`RefreshedArbiter` alone.
    """

    __slots__ = ("_cyclic", "_last", "left", "now", "refresh", "waiting")

    def __init__(self, ports: int = len(PORTS)) -> None:
        self._cyclic = [
            [(last + step) % ports for step in range(1, ports + 1)] for last in range(ports)
        ]
        self._last = ports - 1
        self.left = [0] * ports
        self.waiting: list[int] = []
        self.now = 0

    def begin(self, port: int, slots: int) -> None:
        """Start a transfer that needs ``slots`` > 0 bus slots for ``port``.

        The port competes for the grant of this cycle.
        """
        self.left[port] = slots
        self.waiting.append(port)

    def next_end(self) -> int:
        """Return the cycle in which the next data phase ends if no other one begins.

        At least one data phase must be in progress.
        """
        order = self._order()
        count = len(order)
        left = self.left
        now = self.now
        return min(
            now + position + (left[port] - 1) * count + 1 for position, port in enumerate(order)
        )

    def count_granted(self, requester: int, time: int) -> int:
        """Return a port's slots from ``now`` to ``time`` if the set of ports stays the same."""
        order = self._order()
        return (time - self.now - order.index(requester) + len(order) - 1) // len(order)

    def grant(self, horizon: int) -> int:
        """Grant bus slots up to cycle ``horizon``, or until a data phase ends before it.

        Returns the port whose data phase has ended, or -1. Two data phases never end in the same
        cycle.
        """
        waiting = self.waiting
        left = self.left
        now = self.now
        if len(waiting) != 1:
            return self._grant_among(horizon)
        port = waiting[0]
        end = now + left[port]
        if end <= horizon:
            self.now = end
            self._last = port
            left[port] = 0
            waiting.clear()
            return port
        if horizon > now:
            self.now = horizon
            self._last = port
            left[port] = end - horizon
        return -1

    def _grant_among(self, horizon: int) -> int:
        """Grant bus slots as :meth:`grant` does, when the number of active ports is not one."""
        left = self.left
        now = self.now
        order = self._order()
        count = len(order)
        ended = -1
        end = horizon + 1
        for position, port in enumerate(order):
            finish = now + position + (left[port] - 1) * count + 1
            if finish < end:
                ended = port
                end = finish
        self.now = min(end, horizon)
        if order and self.now > now:
            whole, rest = divmod(self.now - now, count)
            for position, port in enumerate(order):
                left[port] -= whole + (position < rest)
            self._last = order[rest - 1]
        if ended >= 0:
            self.waiting.remove(ended)
        return ended

    def _order(self) -> list[int]:
        """Return the bus ports that transfer data, in the order in which they are served."""
        left = self.left
        return [port for port in self._cyclic[self._last] if left[port]]


class RefreshedArbiter(BusArbiter):
    """Bus arbiter that grants no slot in the cycles of a refresh."""

    __slots__ = ()

    refresh: Refresh

    def next_end(self) -> int:
        """Return the cycle in which the next data phase ends if no other one begins."""
        now = self.now
        self.now = self.refresh.count_slots(now)
        end = super().next_end()
        self.now = now
        return self.refresh.find_end(end)

    def count_granted(self, requester: int, time: int) -> int:
        """Return a port's slots from ``now`` to ``time`` if the set of ports stays the same."""
        now = self.now
        self.now = self.refresh.count_slots(now)
        count = super().count_granted(requester, self.refresh.count_slots(time))
        self.now = now
        return count

    def grant(self, horizon: int) -> int:
        """Grant bus slots up to cycle ``horizon``, or until a data phase ends before it."""
        now = self.now
        self.now = self.refresh.count_slots(now)
        ended = super().grant(self.refresh.count_slots(horizon))
        self.now = self.refresh.find_end(self.now) if ended >= 0 else max(now, horizon)
        return ended


class BusPort(Protocol):
    """Interface of a machine to the bus of the system memory.

    The machine announces its data phases, and the EX commands that they may delay.
    """

    def announce(
        self,
        port: int,
        time: int,
        slots: int,
        result: int,
        tail: int,
        passing: PassingWords | None = None,
    ) -> None:
        """Announce that a data phase of ``slots`` > 0 bus slots begins at ``time``.

        Its end plus ``tail`` goes to ``known[result]``.
        """

    def compute(self, time: int, load: BankLoad, result: int, tail: int) -> None:
        """Announce that EX computes from ``time`` on.

        Its end plus ``tail`` goes to ``known[result]``.
        """


class MainMemory(Protocol):
    """Interface of a bus to a main memory whose state changes the slots of data phases."""

    refresh: Refresh

    def begin(
        self, key: int, time: int, slots: int, passing: PassingWords | None = None
    ) -> tuple[int, PassingWords | None]:
        """Begin a data phase at ``time``; return its slots and its words spread over them."""


def make_arbiter(memory: MainMemory | None) -> BusArbiter:
    """Return the arbiter of a bus to a main memory; None has neither rows nor refresh."""
    if memory is None:
        return BusArbiter()
    arbiter = RefreshedArbiter()
    arbiter.refresh = memory.refresh
    return arbiter


_COMPUTE = len(PORTS)


class SharedBus(BusArbiter):
    """Bus of one machine, shared by its command fetch, LD and ST.

    Data phases may be announced in any order, but not before the time that the bus has reached.
    When one ends, the bus writes ``known``.
    """

    __slots__ = ("_announced", "_banks", "_memory", "_results", "known")
    observed: ClassVar[bool] = False
    """True if every slot must be granted by :meth:`grant`, also without competing requesters."""

    def __init__(self, known: list[int], memory: MainMemory | None = None) -> None:
        super().__init__()
        self.known = known
        self._memory = memory
        self._banks = Banks(self)
        # sorted by time
        self._announced: list[tuple[int, int, int | BankLoad, int, int, PassingWords | None]] = []
        # result and tail of each port's data phase and of EX
        self._results = [(0, 0)] * (len(PORTS) + 1)

    def announce(
        self,
        port: int,
        time: int,
        slots: int,
        result: int,
        tail: int,
        passing: PassingWords | None = None,
    ) -> None:
        """Announce that a data phase of ``slots`` > 0 bus slots begins at ``time``.

        Its end plus ``tail`` goes to ``known[result]``.
        """
        self._announced.append((time, port, slots, result, tail, passing))
        self._announced.sort()

    def compute(self, time: int, load: BankLoad, result: int, tail: int) -> None:
        """Announce that EX computes from ``time`` on.

        Its end plus ``tail`` goes to ``known[result]``.
        """
        self._announced.append((time, _COMPUTE, load, result, tail, None))
        self._announced.sort()

    def proceed(self) -> bool:
        """Advance the bus until a data phase or EX ends; return False if none is active."""
        announced = self._announced
        waiting = self.waiting
        banks = self._banks
        while announced or waiting or banks.busy:
            if waiting or banks.busy:
                ended = self._advance(announced[0][0] if announced else NEVER)
                if ended >= 0:
                    result, tail = self._results[ended]
                    self.known[result] = self.now + tail
                    return True
            time, port, work, result, tail, passing = announced.pop(0)
            if isinstance(work, BankLoad):
                self.now = time
                self._results[port] = result, tail
                banks.compute(work)
                continue
            end = time + work
            if self._memory is not None:
                work, passing = self._memory.begin(result, time, work, passing)
                refresh = self._memory.refresh
                end = refresh.find_end(refresh.count_slots(time) + work)
            # no competing requester
            if not (
                waiting or banks.busy or (announced and announced[0][0] < end) or self.observed
            ):
                self.now = end
                self._last = port
                self.known[result] = end + tail
                return True
            self.now = time
            self._results[port] = result, tail
            self.begin(port, work)
            if passing is not None:
                banks.begin(port, passing)
        return False

    def _advance(self, horizon: int) -> int:
        """Grant bus slots up to cycle ``horizon``, or until a data phase or EX ends.

        Return the port that ended, ``_COMPUTE`` or -1.
        """
        banks = self._banks
        if not banks.busy:
            return self.grant(horizon)
        finish = banks.end()
        ended = self.grant(min(horizon, finish))
        banks.settle()
        if ended < 0 and self.now == finish:
            banks.busy = False
            return _COMPUTE
        return ended


class RefreshedBus(RefreshedArbiter, SharedBus):
    """Bus of one machine whose main memory has rows or a refresh."""

    __slots__ = ()

    def __init__(self, known: list[int], memory: MainMemory) -> None:
        SharedBus.__init__(self, known, memory)
        self.refresh = memory.refresh
