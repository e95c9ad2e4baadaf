"""Streams of many inferences: each computes the same in the same number of cycles."""

from __future__ import annotations

import numpy as np

from benchmarks.repetition import repeated
from dla_sim.device import Device
from tests.dla_sim.compiled import compiled_program

SHARE = 100
"""Cycles may differ by one in so many from one inference to the next: chunks of commands end at
other places.
"""


def test_repeated_inferences_give_the_same_results() -> None:
    program = compiled_program("digits-cnn", "default")
    stream = repeated(program, 3)
    rng = np.random.default_rng(0)
    inputs = {
        tensor.name: rng.integers(-128, 128, tensor.shape, dtype=np.int8).astype(tensor.dtype)
        for tensor in program.inputs
    }
    device = Device(program.arch, sram_reset=0x5A)
    once = device.run(program, inputs)
    thrice = device.run(stream, inputs)
    for name, expected in once.outputs.items():
        assert np.array_equal(thrice.outputs[name], expected)
    assert thrice.trace.macs == 3 * once.trace.macs
    assert [layer.name for layer in thrice.trace.layers] == [
        *(layer.name for layer in once.trace.layers),
        "",
    ]


def test_cycles_grow_with_the_number_of_inferences() -> None:
    for network in ("digits-cnn", "mobilenet-v1"):
        program = compiled_program(network, "default")
        totals = []
        for count in (1, 2, 4, 8):
            stream = repeated(program, count)
            totals.append(Device(stream.arch).run(stream, {}, timing_only=True).trace.cycles)
        period = totals[1] - totals[0]
        assert 0 < period <= totals[0] * (1 + 1 / SHARE)
        for count, total in zip((4, 8), totals[2:], strict=True):
            expected = totals[0] + (count - 1) * period
            assert abs(total - expected) * SHARE <= expected
