"""Whole programs whose cycles were worked out by hand from docs/machine.md.

The arithmetic is in the comments.

Notation: a beat is one bus word; G is the burst gap, ceil((dram_latency + burst_beats) /
outstanding_bursts).
"""

from __future__ import annotations

from collections.abc import Mapping

from dla_sim.device import Device, Trace
from dla_sim.timing import Timing
from isa.assembler import assemble


def trace_of(text: str, timing: Timing, arch: str = "{}") -> Trace:
    """The trace of a program that moves no data."""
    program = assemble(f".arch {arch}\n.memory 0x4000 commands 0x0\n" + text)
    return Device(program.arch, timing).run(program, {}, timing_only=True).trace


def spans(trace: Trace) -> list[tuple[int, int, int]]:
    """(arrival, start, end) of each command."""
    times = trace.times
    return list(zip(times.arrival.tolist(), times.start.tolist(), times.end.tolist(), strict=True))


def present(causes: Mapping[str, int]) -> dict[str, int]:
    """The causes that occur."""
    return {cause: cycles for cause, cycles in causes.items() if cycles}


def test_one_transfer() -> None:
    """One DMA of three rows of eight bytes, each in a burst of its own, and the end."""
    text = """
        SET LD_DRAM_ADDRESS, 0x1000     # word 0
        SET LD_BYTES, 8                 # word 1
        SET LD_COUNT_1, 3               # word 2
        SET LD_DRAM_STRIDE_1, 32        # word 3
        SET LD_SRAM_STRIDE_1, 8         # word 4
        OP_DMA_READ                     # word 5
        OP_END                          # word 6
    """
    trace = trace_of(text, Timing())
    # Defaults: burst of 64 / 8 = 8 beats, G = ceil((100 + 8) / 16) = 7. Fetch: 7 words = 56 bytes
    # at 0, one burst of 7 beats, max(7, 7) = 7 slots. Requested at 0, data from 100 on, ready at
    # 107. Word 0 executes at 107, word 5 at 112, so the command is in the queue from 113 on and
    # starts. It takes 4 setup, 100 latency, then rows at 0x1000, 0x1020, 0x1040: one beat each,
    # max(1, 7) = 7 slots each, 21 slots with the bus to itself, 4 drain: 129 cycles, until 242.
    # OP_END executes at 242: 243 cycles in all.
    assert spans(trace) == [(113, 113, 242)]
    assert trace.cycles == 243
    # Busy: 4 + 3 beats + 4 = 11. System memory: 100 + 21 - 3 = 118. 113 + 11 + 118 + 1 = 243.
    assert present(trace.units["LD"]) == {"queue_empty": 113, "busy": 11, "dram": 118, "drained": 1}
    assert present(trace.units["EX"]) == {"drained": 243}
    assert present(trace.units["ST"]) == {"drained": 243}
    assert present(trace.kinds) == {"ISSUE": 113 + 1, "DMA": 129}


def test_load_compute_store() -> None:
    """The three units one after the other, held together by tokens."""
    text = """
        SET LD_DRAM_ADDRESS, 0x1000     # word 0
        SET LD_BYTES, 64                # word 1
        OP_DMA_READ push.EX             # word 2
        SET EX_LENGTH, 1000             # word 3
        SET EX_OUTPUT_ADDRESS, 1000     # word 4
        OP_E_ABS pop.LD push.ST         # word 5
        SET ST_DRAM_ADDRESS, 0x1803     # word 6
        SET ST_SRAM_ADDRESS, 1000       # word 7
        SET ST_BYTES, 64                # word 8
        OP_DMA_WRITE pop.EX             # word 9
        OP_END                          # word 10
    """
    trace = trace_of(text, Timing())
    # Fetch: 11 words = 88 bytes at 0: bursts of 8 and 3 beats, max(8, 7) + max(3, 7) = 15 slots;
    # ready at 115. LD: word 2 executes at 117. 118 + 4 + 100 + 8 slots + 4 = 234. EX: word 5
    # executes at 120, arrives at 121, waits for LD until 234. 1000 elements on 64 lanes are 16
    # cycles. 234 + 8 + 16 + 8 = 266. ST: word 9 executes at 124, arrives at 125, waits for EX until
    # 266. 64 bytes from 0x1803 on touch 61 bytes of one block (bus words 0 to 7: 8 beats) and 3 of
    # the next (1 beat): max(8, 7) + max(1, 7) = 15 slots, 9 beats. 266 + 4 + 15 + 100 + 4 = 389.
    # OP_END executes at 389.
    assert spans(trace) == [(118, 118, 234), (121, 234, 266), (125, 266, 389)]
    assert trace.cycles == 390
    assert present(trace.units["LD"]) == {
        "queue_empty": 118,
        "busy": 16,
        "dram": 100,
        "drained": 156,
    }
    assert present(trace.units["EX"]) == {
        "queue_empty": 121,
        "token_LD": 113,
        "busy": 32,
        "drained": 124,
    }
    # ST is busy for 4 + 9 beats + 4 = 17 cycles and waits for the memory for 100 + 15 - 9 = 106.
    assert present(trace.units["ST"]) == {
        "queue_empty": 125, "token_EX": 141, "busy": 17, "dram": 106, "drained": 1,
    }  # fmt: skip
    # EX executes for 32 cycles, LD or ST alone for 116 + 123; the rest are 118 before LD and 1 at
    # the end.
    assert present(trace.kinds) == {"ELTWISE": 32, "DMA": 239, "ISSUE": 119}


def test_two_transfers_and_the_fetch_share_the_bus() -> None:
    """LD, ST and the second chunk of command words are in their data phases together."""
    text = """
        SET LD_BYTES, 64                # word 0
        SET LD_DRAM_ADDRESS, 0x1000     # word 1
        SET LD_SRAM_ADDRESS, 64         # word 2
        OP_DMA_READ                     # word 3
        SET ST_BYTES, 64                # word 4
        SET ST_DRAM_ADDRESS, 0x1800     # word 5
        OP_DMA_WRITE                    # word 6
        SET LD_BYTES, 8                 # word 7, the last of chunk 0
        OP_END                          # word 8, chunk 1
    """
    timing = Timing(dram_latency=10, fetch_bytes=64, fetch_buffers=1, dma_setup=2, dma_drain=3)
    trace = trace_of(text, timing)
    # G = ceil((10 + 8) / 16) = 2, so a whole burst takes 8 slots. Chunk 0 is one burst: data in
    # 10..17, ready at 18. Word 3 executes at 21: LD starts at 22, sets up in 22..23, waits for the
    # memory in 24..33, data phase from 34 on. Word 6 executes at 24: ST starts at 25, sets up in
    # 25..26, data phase from 27 on. Word 7 executes at 25, so chunk 1 is requested at 26; its data
    # phase, max(1 beat, 2) = 2 slots, begins at 36. The bus: 27..33 ST (7 of its 8 slots); 34 LD,
    # the first after ST; 35 ST, its last, data phase over at 36; 36 fetch, the first after ST; 37
    # LD; 38 fetch, its last, so chunk 1 is ready at 39; 39..44 LD, its last 6, over at 45. LD ends
    # at 45 + 3 = 48, ST at 36 + 10 + 3 = 49. OP_END is there at 39, waits until 49 and executes
    # then.
    assert spans(trace) == [(22, 22, 48), (25, 25, 49)]
    assert trace.cycles == 50
    # LD: 2 + 8 beats + 3 busy; of its 11 cycles in the data phase it was served in 8. ST: 8 of 9.
    assert present(trace.units["LD"]) == {
        "queue_empty": 22,
        "busy": 13,
        "dram": 10,
        "bus": 3,
        "drained": 2,
    }
    assert present(trace.units["ST"]) == {
        "queue_empty": 25,
        "busy": 13,
        "dram": 10,
        "bus": 1,
        "drained": 1,
    }
    assert present(trace.kinds) == {"ISSUE": 22 + 1, "DMA": 27}


def test_constants_come_from_a_flash() -> None:
    """Two loads and a store; the first load is one of constants, for it begins in the segment."""
    text = """
        SET LD_BYTES, 40                # word 0
        SET LD_DRAM_ADDRESS, 0x1000     # word 1
        OP_DMA_READ                     # word 2: constants
        SET LD_DRAM_ADDRESS, 0x2000     # word 3
        OP_DMA_READ                     # word 4
        SET ST_BYTES, 160               # word 5
        SET ST_DRAM_ADDRESS, 0x3000     # word 6
        SET ST_SRAM_ADDRESS, 1024       # word 7
        OP_DMA_WRITE                    # word 8
        OP_END                          # word 9
    """
    timing = Timing(
        dram_latency=10,
        flash_bytes=2,
        flash_burst_bytes=32,
        flash_latency=20,
        flash_outstanding_bursts=3,
    )
    trace = trace_of(".image 0x1000\n.data AA==\n" + text, timing)
    # G = ceil((10 + 8) / 16) = 2; a burst of the flash has 32 / 2 = 16 beats, and its gap is
    # ceil((20 + 16) / 3) = 12. Fetch, from the flash: 80 bytes are bursts of 16, 16 and 8 beats: 16
    # + 16 + 12 = 44 slots from 20 on, ready at 64. Word 2 executes at 66: LD sets up in 67..70,
    # waits for the flash in 71..90, data phase from 91 on: 40 bytes are bursts of 16 and 4 beats,
    # 16 + 12 = 28 slots. Word 8 executes at 72: ST sets up in 73..76, data phase from 77 on: 160
    # bytes are bursts of 8, 8 and 4 beats. The bus: 77..90 ST (14 of its 20 slots); from 91 on LD
    # and ST by turns; 102 ST, its last, over at 103, where LD has had 91, 93, ..., 101, 6 of its 28
    # slots; 103..124 LD, its last 22, over at 125. ST ends at 103 + 10 + 4 = 117, LD at 125 + 4 =
    # 129. Word 4's load, of the main memory: 129 + 4 + 10 + 5 + 4 = 152.
    assert spans(trace) == [(67, 67, 129), (69, 129, 152), (73, 73, 117)]
    assert trace.cycles == 153
    # LD: 8 + 20 beats and 8 + 5 beats busy; 20 of latency and 12 - 4 of the gap for the flash, 10
    # for the main memory.
    assert present(trace.units["LD"]) == {
        "queue_empty": 67, "busy": 41, "bus": 6, "dram": 10, "flash": 28, "drained": 1,
    }  # fmt: skip
    assert present(trace.units["ST"]) == {
        "queue_empty": 73,
        "busy": 28,
        "bus": 6,
        "dram": 10,
        "drained": 36,
    }
    assert (trace.dram_read_bytes, trace.flash_read_bytes) == (80, 40)
    assert trace.layers[0].stalls["LD"]["flash"] == 28


def test_full_queue_holds_the_command_processor() -> None:
    """With queues of one entry the second command of a unit waits in the command processor."""
    text = """
        SET EX_LENGTH, 64               # word 0
        OP_E_ABS                        # word 1
        OP_E_ABS                        # word 2
        OP_SYNC unit=LD                 # word 3
        OP_END                          # word 4
    """
    trace = trace_of(text, Timing(dram_latency=0, queue_depth=1))
    # G = ceil(8 / 16) = 1. Fetch: 5 words = 40 bytes, 5 beats and slots, from 0 on: ready at 5.
    # Word 1 executes at 6. EX: 7 + 8 + 1 + 8 = 24. Word 2 could execute at 7, waits until the queue
    # is free at 24, starts at 25, ends at 42. Word 3 executes at 25: SYNC in cycle 26. OP_END
    # executes at 42.
    assert spans(trace) == [(7, 7, 24), (25, 25, 42), (26, 26, 27)]
    assert trace.cycles == 43
    assert present(trace.units["EX"]) == {"queue_empty": 8, "busy": 34, "drained": 1}


def test_narrow_scratchpad_ports_stall_the_array() -> None:
    """Ports and banks: the compute cycles of 640 elements on 64 lanes are 10.

    The scratchpad asks for more.
    """
    text = """
        SET EX_LENGTH, 640
        SET EX_OUTPUT_ADDRESS, 640
        OP_E_ABS
        OP_END
    """
    # 512 KiB in 16 banks: both streams are in bank 0, and one port makes 2 accesses a cycle take 2:
    # 10 * 2 - 10 = 10.
    assert trace_of(text, Timing(bank_ports=1)).units["EX"]["sram"] == 10
    # 640 bytes read 16 at a time are 40 cycles, 30 more than 10; written 4 at a time 160, 150 more.
    assert trace_of(text, Timing(sram_read_bytes=16)).units["EX"]["sram"] == 30
    assert (
        trace_of(text, Timing(sram_read_bytes=16, sram_write_bytes=4, bank_ports=1)).units["EX"][
            "sram"
        ]
        == 150
    )
    assert trace_of(text, Timing()).units["EX"]["sram"] == 0


def test_only_the_end() -> None:
    # One word, max(1, 7) = 7 slots after 100 cycles: ready at 107, where OP_END executes.
    trace = trace_of("    OP_END", Timing())
    assert trace.cycles == 108
    assert present(trace.kinds) == {"ISSUE": 108}


def test_rows_transposed_shared_and_summed() -> None:
    """OP_PERMUTE, OP_SOFTMAX and OP_REDUCE, one after the other."""
    text = """
        SET EX_COUNT_1, 40              # word 0
        SET EX_COUNT_2, 3               # word 1
        SET EX_INPUT_STRIDE_1, 3        # word 2
        SET EX_INPUT_STRIDE_2, 1        # word 3
        SET EX_OUTPUT_STRIDE_1, 1       # word 4
        SET EX_OUTPUT_STRIDE_2, 40      # word 5
        SET EX_OUTPUT_ADDRESS, 1024     # word 6
        OP_PERMUTE                      # word 7
        SET EX_INPUT_ADDRESS, 1024      # word 8
        SET EX_OPERAND_ADDRESS, 4096    # word 9
        SET EX_OUTPUT_ADDRESS, 2048     # word 10
        SET EX_ROWS, 3                  # word 11
        SET EX_INPUT_CHANNELS, 40       # word 12
        SET EX_LENGTH, 1                # word 13
        OP_SOFTMAX                      # word 14
        SET EX_OUTPUT_ADDRESS, 3072     # word 15
        OP_REDUCE mode=1                # word 16
        OP_END                          # word 17
    """
    trace = trace_of(text, Timing(), '{"isa": "v4"}')
    # Fetch: 18 words = 144 bytes: bursts of 8, 8 and 2 beats, 8 + 8 + max(2, 7) = 23 slots, ready
    # at 123. Word 7 executes at 130. Separate bytes come from 16 banks, one each: 3 rows of
    # ceil(40 / 16) = 3 cycles. 131 + 8 + 9 + 8 = 156. Word 14 executes at 137, starts at 156. 120
    # elements on 64 lanes are 2 cycles, twice; 40 sums, 3 rows at a time. 156 + 8 + 2 + 40 + 2 + 8
    # = 216. Word 16 waits for room in the queue until 156, is there at 157, starts at 216: 120
    # elements are 2 cycles. 216 + 8 + 2 + 8 = 234, where OP_END executes.
    assert spans(trace) == [(131, 131, 156), (138, 156, 216), (157, 216, 234)]
    assert trace.cycles == 235
    assert present(trace.units["EX"]) == {"queue_empty": 131, "busy": 25 + 60 + 18, "drained": 1}


def test_a_product_of_two_tensors_that_is_looked_up() -> None:
    """OP_DYN_MAT_MUL with a table as its last step, between a load of both operands and a store."""
    text = """
        SET LD_DRAM_ADDRESS, 0x1000                             # word 0
        SET LD_BYTES, 576                                       # word 1: 4 x 24 and 24 x 20
        OP_DMA_READ push.EX                                     # word 2
        SET EX_ROWS, 4                                          # word 3
        SET EX_INPUT_CHANNELS, 24                               # word 4
        SET EX_OUTPUT_CHANNELS, 20                              # word 5
        SET EX_OPERAND_ADDRESS, 96                              # word 6
        SET EX_OUTPUT_ADDRESS, 1024                             # word 7
        SET EX_TABLE_ADDRESS, 2048                              # word 8
        OP_DYN_MAT_MUL requantise=1 look_up=1 pop.LD push.ST    # word 9
        SET ST_DRAM_ADDRESS, 0x2000                             # word 10
        SET ST_SRAM_ADDRESS, 1024                               # word 11
        SET ST_BYTES, 80                                        # word 12
        OP_DMA_WRITE pop.EX                                     # word 13
        OP_END                                                  # word 14
    """
    trace = trace_of(text, Timing(), '{"isa": "v4"}')
    # Fetch: 15 words = 120 bytes: bursts of 8 and 7 beats, 15 slots, ready at 115. LD: word 2
    # executes at 117. 576 bytes are 9 bursts of 8 beats: 118 + 4 + 100 + 72 + 4 = 298. EX: word 9
    # executes at 124, waits for LD until 298. 4 rows, ceil(24 / 8) = 3, ceil(20 / 8) = 3: 36
    # cycles; the 80 results take 2 on 64 lanes meanwhile. Four streams in bank 0 have its four
    # ports. 298 + 8 + 36 + 8 = 350. ST: word 13 executes at 128, waits for EX until 350. 80 bytes:
    # 8 beats and 2, 8 + max(2, 7) = 15 slots. 350 + 4 + 15 + 100 + 4 = 473, where OP_END executes.
    assert spans(trace) == [(118, 118, 298), (125, 298, 350), (129, 350, 473)]
    assert trace.cycles == 474
    assert present(trace.units["LD"]) == {
        "queue_empty": 118,
        "busy": 80,
        "dram": 100,
        "drained": 176,
    }
    assert present(trace.units["EX"]) == {
        "queue_empty": 125,
        "token_LD": 173,
        "busy": 52,
        "drained": 124,
    }
    assert present(trace.units["ST"]) == {
        "queue_empty": 129, "token_EX": 221, "busy": 18, "dram": 105, "drained": 1,
    }  # fmt: skip


def test_normalised_multiplied_and_looked_up_through_few_ports() -> None:
    """OP_NORM, OP_E_MUL by one value a channel, and OP_LUT share few ports.

    There are 16 lanes, and banks serve two streams a cycle.
    """
    text = """
        SET EX_INPUT_CHANNELS, 30       # word 0
        SET EX_ROWS, 6                  # word 1
        SET EX_LENGTH, 1                # word 2
        SET EX_OPERAND_ADDRESS, 4096    # word 3
        SET EX_OUTPUT_ADDRESS, 1024     # word 4
        OP_NORM centred=1               # word 5
        SET EX_INPUT_ADDRESS, 1024      # word 6
        SET EX_OUTPUT_CHANNELS, 6       # word 7
        SET EX_LENGTH, 30               # word 8
        SET EX_OUTPUT_ADDRESS, 2048     # word 9
        OP_E_MUL repeat_b=1             # word 10
        SET EX_INPUT_ADDRESS, 2048      # word 11
        SET EX_OPERAND_ADDRESS, 65536   # word 12
        SET EX_ROWS, 1                  # word 13
        SET EX_OUTPUT_CHANNELS, 1       # word 14
        SET EX_LENGTH, 180              # word 15
        SET EX_OUTPUT_ADDRESS, 3072     # word 16
        OP_LUT                          # word 17
        OP_END                          # word 18
    """
    trace = trace_of(text, Timing(bank_ports=2), '{"isa": "v4", "post_lanes": 16}')
    # Fetch: 19 words = 152 bytes: bursts of 8, 8 and 3 beats, 8 + 8 + 7 = 23 slots, ready at 123.
    # Word 5 executes at 128. 180 elements on 16 lanes are 12 cycles, twice, and a root for each of
    # 6 rows: 30. Three streams in bank 0 with two ports take every cycle twice: 30 more. 129 + 8 +
    # 60 + 8 = 205. Word 10 executes at 133, starts at 205: 12 cycles, three streams in bank 0: 205
    # + 8 + 24 + 8 = 245. Word 17 waits for room in the queue until 205, starts at 245: 12 cycles,
    # the table is in bank 2. 245 + 8 + 12 + 8 = 273, where OP_END executes.
    assert spans(trace) == [(129, 129, 205), (134, 205, 245), (206, 245, 273)]
    assert trace.cycles == 274
    assert present(trace.units["EX"]) == {
        "queue_empty": 129, "busy": 46 + 28 + 28, "sram": 30 + 12, "drained": 1,
    }  # fmt: skip
