"""Golden cases of level 1 that test streams: transfers, pipelines, tokens and queues."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa.arch import Arch
from tests.golden_cases.builder import Builder
from tests.golden_cases.level1 import STRIDES
from tests.golden_cases.machines import BALANCED, FIXED, TIMINGS
from tests.golden_cases.operations import (
    Window,
    generator,
    int8,
    records,
)


def streams() -> Iterator[GoldenCase]:
    """Transfers, tokens, pipelines."""
    for name in STRIDES:
        yield _gather(name)
        yield _scatter(name)
    for name, timing in {
        "": Timing(),
        **{f"-{name}": timing for name, timing in TIMINGS.items()},
    }.items():
        yield _pipeline(f"L1/pipeline{name}", 6, timing)
        yield _unaligned(f"L1/unaligned{name}", timing)
    yield _tokens("L1/tokens-all-ways", BALANCED)
    yield _interleaved("L1/interleaved-rows")
    yield _unfused("L1/unfused", BALANCED)
    yield _unfused("L1/unfused-fixed", FIXED)
    yield _queue("L1/queue-full", Timing(queue_depth=2))
    yield _queue("L1/queue-of-one", Timing(queue_depth=1))
    yield _long("L1/long-stream", Timing(fetch_bytes=64, fetch_buffers=2))


def _gather(name: str) -> GoldenCase:
    """Rows apart in system memory come together; a whole copy goes back."""
    builder = Builder(BALANCED, f"gather-{name}")
    source = builder.input("input", int8(generator(name), 640))
    target = builder.output("result", "int8", (320,))
    builder.read(source + 3, builder.scratch(320), 7, "push.EX", **STRIDES[name])
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.write(target, 0, 320, "pop.EX")
    return builder.case(f"L1/read-{name}", f"OP_DMA_READ in strides, {name}")


def _scatter(name: str) -> GoldenCase:
    builder = Builder(BALANCED, f"scatter-{name}")
    source = builder.input("input", int8(generator(name), 320))
    target = builder.output("result", "int8", (640,))
    builder.read(source, builder.scratch(320), 320, "push.EX")
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.write(target + 5, 0, 7, "pop.EX", **STRIDES[name])
    return builder.case(f"L1/write-{name}", f"OP_DMA_WRITE in strides, {name}")


def _unaligned(name: str, timing: Timing) -> GoldenCase:
    """Rows of 7 bytes that straddle bursts, both ways at once."""
    builder = Builder(BALANCED, "unaligned")
    source = builder.input("input", int8(generator("unaligned"), 640))
    target = builder.output("result", "int8", (640,))
    here = builder.scratch(128)
    there = builder.scratch(128)
    strides = {"count_1": 9, "dram_stride_1": 67, "sram_stride_1": 7}
    builder.read(source + 61, here, 7, "push.EX", **strides)
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.read(source + 1, there, 7, "push.EX", **strides)
    builder.write(target + 63, here, 7, "pop.EX", **strides)
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.write(target + 2, there, 7, "pop.EX", **strides)
    return builder.case(name, "unaligned rows in both directions at once", timing)


def _pipeline(name: str, tiles: int, timing: Timing) -> GoldenCase:
    """Double-buffered ReLU tiles: load, compute and store of different tiles overlap."""
    builder = Builder(BALANCED, "pipeline")
    size = 96
    source = builder.input("input", int8(generator("pipeline"), tiles * size))
    target = builder.output("result", "int8", (tiles * size,))
    loaded = [builder.scratch(size), builder.scratch(size)]
    made = [builder.scratch(size), builder.scratch(size)]
    scales = {
        "EX_SCALE_A": 0x3D4CCCCD,
        "EX_SCALE_Y": 0x3D23D70A,
        "EX_LENGTH": size,
        "EX_INPUT_ZERO_POINT": 3,
    }
    for tile in range(tiles):
        again = tile >= 2
        builder.layer = f"tile{tile % 2}"
        builder.read(
            source + tile * size, loaded[tile % 2], size, "pop.EX push.EX" if again else "push.EX"
        )
        places = {"EX_INPUT_ADDRESS": loaded[tile % 2], "EX_OUTPUT_ADDRESS": made[tile % 2]}
        flags = (
            "pop.LD push.ST"
            + (" pop.ST" if again else "")
            + (" push.LD" if tile < tiles - 2 else "")
        )
        builder.operation("OP_ACT_RELU", {**places, **scales}, flags)
        done = "pop.EX push.EX" if tile < tiles - 2 else "pop.EX"
        builder.write(target + tile * size, made[tile % 2], size, done)
    return builder.case(name, "double-buffered tiles: the three units overlap", timing)


def _tokens(name: str, arch: Arch) -> GoldenCase:
    """Every token queue, and a store that a later load waits for through EX."""
    builder = Builder(arch, "tokens")
    source = builder.input("input", int8(generator("tokens"), 64))
    target = builder.output("result", "int8", (128,))
    first = builder.scratch(64)
    second = builder.scratch(64)
    builder.read(source, first, 64, "push.EX")
    builder.operation("OP_SYNC", {}, "pop.LD push.ST", unit=1)
    builder.write(target, first, 64, "pop.EX push.EX")
    builder.operation("OP_SYNC", {}, "pop.ST push.LD", unit=1)
    builder.operation("OP_SYNC", {}, "pop.EX", unit=0)
    builder.read(target, second, 64, "push.EX")
    builder.operation("OP_C_MAX", _pair(first, second, first, 64), "pop.LD push.ST")
    builder.operation("OP_SYNC", {}, "pop.EX", unit=2)
    builder.write(target + 64, first, 64)
    return builder.case(name, "tokens on every queue; a store is read back")


def _interleaved(name: str) -> GoldenCase:
    """Return a program whose LD, ST and EX use adjacent rows at the same time without a hazard.

    LD fills the even rows while ST stores the odd ones and EX reads them.
    """
    builder = Builder(BALANCED, "interleaved")
    source = builder.input("input", int8(generator("interleaved"), 512))
    target = builder.output("result", "int8", (512,))
    rows = builder.scratch(512)
    made = builder.scratch(256)
    strides = {"count_1": 16, "dram_stride_1": 16, "sram_stride_1": 32}
    builder.read(source, rows + 16, 16, "push.EX", **strides)
    builder.operation("OP_SYNC", {}, "pop.LD push.ST push.LD", unit=1)
    builder.read(source + 256, rows, 16, "pop.EX", **strides)
    builder.write(target, rows + 16, 16, "pop.EX", **strides)
    builder.operation("OP_C_MAX", _pair(rows + 16, rows + 48, made, 16))
    builder.operation("OP_SYNC", {}, "push.ST", unit=1)
    builder.write(target + 256, made, 16, "pop.EX", count_1=1)
    return builder.case(name, "rows of two commands side by side")


def _pair(a: int, b: int, result: int, length: int) -> dict[str, int]:
    values = {"EX_INPUT_ADDRESS": a, "EX_OPERAND_ADDRESS": b, "EX_OUTPUT_ADDRESS": result}
    return {**values, "EX_LENGTH": length}


def _unfused(name: str, arch: Arch) -> GoldenCase:
    """Accumulators, requantised in place, then an activation: the published system's way."""
    builder = Builder(arch, "unfused")
    rng = generator("unfused")
    window = Window((3, 5, 5))
    source = builder.input("input", int8(rng, 3, 5, 5))
    weights = builder.image(int8(rng, 4, 27))
    scales = builder.image(records(rng, 4, 27, arch))
    target = builder.output("result", "int8", (4, 5, 5))
    places = [builder.scratch(75), builder.scratch(108), builder.scratch(48), builder.scratch(400)]
    builder.read(source, places[0], 75)
    builder.read(weights, places[1], 108)
    builder.read(scales, places[2], 4 * arch.channel_record_bytes, "push.EX")
    names = ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_OUTPUT_ADDRESS")
    builder.operation(
        "OP_CONV", {**window.registers(4), **dict(zip(names, places, strict=True))}, "pop.LD"
    )
    builder.layer = "unfused-requantise"
    builder.operation(
        "OP_REQUANT", {"EX_INPUT_ADDRESS": places[3], "EX_LENGTH": 25, "EX_OUTPUT_ZERO_POINT": -7}
    )
    same = _pair(places[3], places[3], places[3], 100)
    builder.operation("OP_C_MAX", same, "push.ST")
    builder.layer = "unfused-store"
    builder.write(target, places[3], 100, "pop.EX")
    return builder.case(
        name, "convolution to accumulators, requantised in place, element-wise in place"
    )


def _queue(name: str, timing: Timing) -> GoldenCase:
    """More loads than a queue holds, with slow compute behind them: the command processor waits."""
    builder = Builder(BALANCED, "queue")
    source = builder.input("input", int8(generator("queue"), 512))
    target = builder.output("result", "int8", (64,))
    places = [builder.scratch(64) for _ in range(8)]
    for number, place in enumerate(places):
        builder.read(source + 64 * number, place, 64, "push.EX")
    for place in places:
        builder.operation("OP_C_MIN", _pair(places[0], place, places[0], 64), "pop.LD")
    builder.operation("OP_SYNC", {}, "push.ST", unit=1)
    builder.write(target, places[0], 64, "pop.EX")
    return builder.case(name, "more commands than the queues hold", timing)


def _long(name: str, timing: Timing) -> GoldenCase:
    """Return many short commands, which command fetch limits."""
    builder = Builder(BALANCED, "long")
    source = builder.input("input", np.arange(64, dtype=np.int8))
    target = builder.output("result", "int8", (64,))
    place = builder.scratch(128)
    builder.read(source, place, 64, "push.EX")
    for number in range(24):
        registers = {
            **_pair(place + number % 5, place + 2, place + 64, 16 + number % 3),
            "EX_OFFSET": number % 2,
        }
        builder.operation("OP_C_MAX", registers, "pop.LD" if number == 0 else "")
    builder.operation("OP_SYNC", {}, "push.ST", unit=1)
    builder.write(target, place + 64, 64, "pop.EX")
    return builder.case(name, "many short commands: fetch bound", timing)
