"""Accounts by kind and layer, by hand.

Tests against the tick model compare them on random programs.
"""

from __future__ import annotations

import pytest

from dla_sim.device import Device
from dla_sim.timing import Timing
from isa.assembler import assemble
from isa.errors import InputError
from isa.instruction import KINDS

TWO_LAYERS = """
.arch {}
.memory 0x4000 commands 0x0
.source [3,"dw1","DEPTH","load",0,["conv_1"]]
    SET LD_DRAM_ADDRESS, 0x1000
    SET LD_BYTES, 64
    OP_DMA_READ push.EX
.source [8,"dw1","DEPTH","conv",0,["conv_1","relu_1"]]
    SET EX_OUTPUT_ADDRESS, 1024
    SET EX_OPERAND_ADDRESS, 512
    SET EX_CHANNEL_ADDRESS, 768
    SET EX_KERNEL_HEIGHT, 20
    OP_CONV pop.LD push.ST
.source [10,"dw1","DEPTH","conv",1,[]]
    SET EX_OUTPUT_CHANNELS, 2
    OP_CONV
.source [14,"add","ELTWISE","store",0,["add_1"]]
    SET ST_DRAM_ADDRESS, 0x1800
    SET ST_BYTES, 64
    SET ST_SRAM_ADDRESS, 2048
    OP_DMA_WRITE pop.EX
    OP_END
"""


def test_two_layers_by_hand() -> None:
    program = assemble(TWO_LAYERS)
    trace = Device(program.arch, Timing(dram_latency=20)).run(program, {}, timing_only=True).trace
    # G = ceil((20 + 8) / 16) = 2. Fetch: 15 words = 120 bytes, 8 + 7 slots, ready at 35. LD arrives
    # at 38: 38 + 4 + 20 + 8 + 4 = 74. EX: 74 + 8 + 20 + 8 = 110, then 20 cycles again (2 channels
    # are as fast as 1): 146. ST starts at 110 (arrived long since) and takes 4 + 8 + 20 + 4 = 36:
    # 146. End at 146: 147 cycles.
    assert trace.cycles == 147
    # ISSUE: 38 before LD and 1 at the end. DMA: LD alone 36. DEPTH, by provenance: EX executes from
    # 74 to 146.
    assert {kind: cycles for kind, cycles in trace.kinds.items() if cycles} == {
        "ISSUE": 39,
        "DMA": 36,
        "DEPTH": 72,
    }
    assert {kind: cycles for kind, cycles in trace.ex_cycles.items() if cycles} == {"DEPTH": 72}
    first, second = trace.layers
    assert (first.name, first.kind, first.onnx_nodes, first.tiles) == (
        "dw1",
        "DEPTH",
        ("conv_1", "relu_1"),
        2,
    )
    # All but the last cycle: the commands of the first layer are the oldest unfinished, or on EX.
    assert (first.cycles, first.ex_cycles, second.cycles, second.ex_cycles) == (146, 72, 1, 0)
    assert (first.macs, first.dram_read_bytes, first.dram_write_bytes) == (20 + 40, 64, 0)
    assert (second.name, second.kind, second.tiles, second.dram_write_bytes) == (
        "add",
        "DMA",
        0,
        64,
    )
    # The first convolution is executed at 42, in the queue from 43 on, and waits for LD until 74.
    assert first.stalls["EX"] == {
        "token_LD": 31, "token_EX": 0, "token_ST": 0, "bus": 0, "dram": 0, "sram": 0,
        "queue_empty": 43,
    }  # fmt: skip
    assert (first.stalls["LD"]["dram"], first.stalls["LD"]["queue_empty"]) == (20, 38)
    # The store is executed at 48 and waits from 49 until the first convolution is done at 110.
    assert (second.stalls["ST"]["token_EX"], second.stalls["ST"]["dram"]) == (61, 20)


def test_unknown_kinds_are_refused() -> None:
    program = assemble(TWO_LAYERS.replace("DEPTH", "CONVOLUTION"))
    message = (
        f"word 7: provenance kind 'CONVOLUTION' does not exist; choose one of {', '.join(KINDS)}"
    )
    with pytest.raises(InputError, match=f"^{message}$"):
        Device(program.arch).load(program)
