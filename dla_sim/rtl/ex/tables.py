"""The last step of many instructions: results looked up in tables of 256 bytes (isa.ops.lookup)."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Value

from dla_sim.rtl.building import stage
from dla_sim.rtl.ports import ReadPort, Serves
from isa.ops.lookup import TABLE_BYTES

TABLE_SHIFT = TABLE_BYTES.bit_length() - 1


class Tables:
    """A read of a byte a lane: one stage of the pipeline, whether or not results are looked up."""

    def __init__(self, name: str, lanes: int, domain: str | None, serves: Serves) -> None:
        self.port = ReadPort(f"{name}_table", lanes, 1, domain, serves)

    def looked_up(
        self, m: Module, results: Sequence[Value], there: Value, tables: Sequence[Value], wanted: Value, domain: str
    ) -> list[Value]:
        """What the tables that begin at the addresses ``tables`` have for ``results``, a stage later.

        The results themselves where they are not ``wanted`` looked up. ``there``: a bit a lane.
        """
        m.d.comb += self.port.enable.eq(Mux(wanted, there, 0))
        found = []
        for lane, (result, table) in enumerate(zip(results, tables, strict=True)):
            m.d.comb += self.port.address[lane].eq(table + result[:8].as_unsigned())
            held = stage(m, result, pipelined=self.port.domain is not None, domain=domain, name="result")
            found.append(Mux(wanted, self.port.data[lane], held))
        return found
