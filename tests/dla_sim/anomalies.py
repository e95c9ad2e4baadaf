"""Scheduling anomalies: programs that are slower on a better machine.

docs/machine.md, section 8, lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isa.assembler import assemble
from isa.program import Program

_COMPUTE = """
    SET EX_LENGTH, 65536
    SET EX_OUTPUT_ADDRESS, 65536
    SET EX_SCALE_A, 0x3f800000
    SET EX_SCALE_Y, 0x3f800000
    OP_ACT_RELU pop.LD              # 1024 cycles that need the load
"""

_SHORT_STORE = """
    SET ST_DRAM_ADDRESS, 0x40000
    SET ST_SRAM_ADDRESS, 262144
    SET ST_BYTES, {bytes}
    SET ST_COUNT_1, {rows}
    SET ST_DRAM_STRIDE_1, {stride}
    SET ST_SRAM_STRIDE_1, {bytes}
"""

_LONG_STORE = """
    SET ST_COUNT_1, 1
    SET ST_DRAM_ADDRESS, 0x50000
    SET ST_BYTES, 4096
    OP_DMA_WRITE                    # that nobody waits for
    OP_END
"""

_LOAD = """
    SET LD_DRAM_ADDRESS, 0x10000
    SET LD_BYTES, {bytes}
    SET LD_COUNT_1, {rows}
    SET LD_DRAM_STRIDE_1, {stride}
    SET LD_SRAM_STRIDE_1, {bytes}
    OP_DMA_READ push.EX
"""


@dataclass(frozen=True)
class Anomaly:
    """A program that takes ``before`` cycles under ``timing``, and more with ``better`` added.

    ``after`` is the second number.
    """

    name: str
    text: str
    timing: Mapping[str, int]
    better: Mapping[str, int]
    before: int
    after: int

    @property
    def program(self) -> Program:
        """The program for the default Arch."""
        return assemble(f".arch {{}}\n.memory 0x80000 commands 0x0\n{self.text}", self.name)


QUEUE = (
    _LOAD.format(bytes=4096, rows=1, stride=0)
    + _COMPUTE
    + """
    SET LD_SRAM_ADDRESS, 131072
    SET LD_BYTES, 8
    OP_DMA_READ                     # waits for room in the queue, and the store behind it
    SET ST_SRAM_ADDRESS, 262144
"""
    + _LONG_STORE
)
LATENCY = (
    _LOAD.format(bytes=4480, rows=1, stride=0)
    + _COMPUTE
    + _SHORT_STORE.format(bytes=8, rows=1, stride=0)
    + "    OP_DMA_WRITE\n" * 6
    + _LONG_STORE
)
BURSTS = (
    _SHORT_STORE.format(bytes=8, rows=12, stride=512)
    + "    OP_DMA_WRITE\n"
    + _LOAD.format(bytes=2560, rows=1, stride=0)
    + _COMPUTE
    + _LONG_STORE
)
WIDTH = (
    _SHORT_STORE.format(bytes=768, rows=1, stride=0)
    + "    OP_DMA_WRITE\n"
    + _LOAD.format(bytes=8, rows=100, stride=64)
    + _COMPUTE
    + _LONG_STORE
)
RATE = (
    _SHORT_STORE.format(bytes=448, rows=1, stride=0)
    + "    OP_DMA_WRITE\n"
    + _LOAD.format(bytes=4, rows=200, stride=64)
    + _COMPUTE
    + _LONG_STORE
)

ANOMALIES = (
    Anomaly("queue_depth", QUEUE, {"queue_depth": 1}, {"queue_depth": 2}, 1790, 2215),
    Anomaly("dram_latency", LATENCY, {"dram_latency": 100}, {"dram_latency": 0}, 1881, 2149),
    Anomaly(
        "outstanding_bursts",
        BURSTS,
        {"burst_bytes": 512, "dram_latency": 400},
        {"outstanding_bursts": 32},
        2211,
        2343,
    ),
    Anomaly("bus_bytes", WIDTH, {"outstanding_bursts": 128}, {"bus_bytes": 16}, 1387, 1424),
    Anomaly(
        "dram_rate",
        RATE,
        {"outstanding_bursts": 128, "dram_rate": 4},
        {"dram_rate": 8},
        1600,
        1627,
    ),
)
