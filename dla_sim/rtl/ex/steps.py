"""The steps of an engine on their way through its pipeline."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value


class Steps:
    """``valid``: by stage, whether a step is there. Registers of ``sync``, which gate the clocks of the data path."""

    def __init__(self, m: Module, advance: Value, stages: int, *, pipelined: bool) -> None:
        self.valid: list[Value] = [advance] * (stages + 1)
        if pipelined and stages:
            held = Signal(stages, name="valid")
            m.d.sync += held.eq(Cat(advance, held))
            self.valid[1:] = list(held)

    def between(self, first: int, last: int) -> Value:
        """1 where a step is at one of these stages."""
        return Cat(*self.valid[first : last + 1]).any()
