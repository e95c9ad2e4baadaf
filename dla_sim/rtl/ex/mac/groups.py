"""Which input channels the groups read that are computed side by side."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.ex.mac.mapping import Mapping
from dla_sim.rtl.ex.mac.work import COUNT_BITS, Work
from dla_sim.rtl.parameters import Limits
from dla_sim.rtl.ports import ADDRESS_BITS


class Groups:
    """Offsets of the first input channel of each (i, j)'s group: on to the next groups when all else is done.

    ``shares`` groups read the same channel: how many of those are behind, (i, j) counts. ``fresh``: a step is the first
    of its groups, ``final``: those are the last ones; ``domain`` ticks where they are ``fresh``, and has a reset.
    """

    def __init__(
        self, m: Module, limits: Limits, work: Work, mapping: Mapping, domain: str, fresh: Value, final: Value
    ) -> None:
        self.limits, self.work, self.domain, self.fresh = limits, work, domain, fresh
        self.started = Signal(name="groups_started")
        m.d[domain] += self.started.eq(~final)
        most = (1 << (limits.ic * limits.oc).bit_length()) - 1
        self.few = wire(m, Mux(work.shares > most, most, work.shares)[: most.bit_length()], "few_shares")
        self.rest = wire(m, mapping.parallel % self.few, "rest")
        self.on = wire(m, (mapping.parallel // self.few * work.group_stride)[:ADDRESS_BITS], "on")
        self.further = wire(m, (self.on + work.group_stride)[:ADDRESS_BITS], "further")
        self.offset = {place: self._offset(m, group) for place, group in mapping.group.items()}

    def _offset(self, m: Module, group: Value) -> Value:
        work = self.work
        behind, offset = Signal(COUNT_BITS, name="shares_behind"), Signal(ADDRESS_BITS, name="group_offset")
        total = wire(m, behind + self.rest, "total")
        wraps = wire(m, total >= work.shares, "wraps")
        start = (group // self.few * work.group_stride)[:ADDRESS_BITS]
        on = (Mux(wraps, total - work.shares, total), offset + Mux(wraps, self.further, self.on))
        begin = (group % self.few, start)
        now = [
            wire(m, Mux(self.started, after, before)[: len(held)], "now")
            for held, before, after in zip((behind, offset), begin, on, strict=True)
        ]
        m.d[self.domain] += [behind.eq(now[0]), offset.eq(now[1])]
        return offset if self.limits.pipelined else wire(m, Mux(self.fresh, now[1], offset), "offset")
