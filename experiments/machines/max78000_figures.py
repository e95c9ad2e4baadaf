"""Published figures of MAX78000, and the layers of their networks.

The networks are restated from ``models/`` of analogdevicesinc/ai8x-training; the times are those of
the examples in analogdevicesinc/msdk at a CNN clock of 50 MHz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod

from experiments.machines.description import LayerWork, PoolWork, PublishedFigure, Role, Shape
from experiments.machines.max78000_passes import PassWork, count_cycles, plan_layer

EXAMPLES = "github.com/analogdevicesinc/msdk, Examples/MAX78000/CNN/{}/README.md"
CASES = "github.com/analogdevicesinc/ai8x-synthesis, izer/test/test_cycles.py"
STREAMED = "github.com/Analog-Devices-MSDK/MAX78000_SDK/issues/74"
CLOCK_MHZ = 50
START = "the measured time includes the interrupt, which the formula does not count"
RISCV = "the RISC-V core starts the accelerator and waits for it"
LOADED = "the timer starts when the last word is in the FIFO, so that start-up is not in the time"
STREAMING = (
    "the vendor has no cycle formula for layers that stream. In the model, the second layer works "
    "in every second row of the first, and in the other rows the chip waits for the CPU. The "
    "vendor's own estimate, 1.5 times the cycles of both layers, is 21 to 25 % too high"
)
TAIL = "the rows of the two layers that stream after the last word is loaded are not counted"
FIFO_US_PER_WORD = (4252 - 2667) / 3072
"""Time in which the CPU writes a word to a FIFO: rps with and without loading its 3,072 words."""
Row = tuple[int, int, int, int]
"""Layer: outputs, kernel (0 if fully connected), padding, and window and stride of its pool."""


def chain_layers(shape: Shape, rows: Iterable[Row]) -> tuple[LayerWork, ...]:
    """Return layers that follow each other, from the shape of the input and a row for each.

    A maximum stands for every pool, because an average takes the same cycles.
    """
    layers = []
    for index, (outputs, kernel, padding, window) in enumerate(rows):
        sides = shape[1:]
        pooled = tuple(side // window for side in sides)
        result = tuple(side - kernel + 1 + 2 * padding for side in pooled)
        planar = len(sides) == 2
        spread = (1 if planar else 0, 1)
        around = (spread[0] * padding, padding)
        layers.append(
            LayerWork(
                f"layer {index}",
                (*("MaxPool",) * (window > 1), *(("Conv",) if kernel else ("Flatten", "MatMul"))),
                (),
                (shape,),
                (outputs, *result) if kernel else (outputs,),
                kernel=(kernel if planar else 1, kernel),
                padding=(*around, *around),
                pool=_pool(window, planar, (shape[0], *pooled)) if window > 1 else None,
            )
        )
        shape = layers[-1].output
    return tuple(layers)


def _pool(window: int, planar: bool, output: Shape) -> PoolWork:
    sides = (window if planar else 1, window)
    return PoolWork("MaxPool", sides, sides, (0, 0, 0, 0), output)


_FIVE = ((60, 3, 1, 1), (60, 3, 1, 2), (56, 3, 1, 2), (12, 3, 1, 2), (10, 0, 0, 1))
NETWORKS = {
    "mnist": chain_layers((1, 28, 28), (_FIVE[0], (60, 3, 2, 2), *_FIVE[2:])),
    "cifar-10": chain_layers((3, 32, 32), _FIVE),
    "cifar-100": chain_layers(
        (3, 32, 32),
        (
            (16, 3, 1, 1),
            (20, 3, 1, 1),
            (20, 3, 1, 1),
            (20, 3, 1, 1),
            (20, 3, 1, 2),
            (20, 3, 1, 1),
            (44, 3, 1, 1),
            (48, 3, 1, 2),
            (48, 3, 1, 1),
            (96, 3, 1, 2),
            (512, 1, 0, 2),
            (128, 1, 0, 1),
            (128, 3, 1, 2),
            (100, 1, 0, 1),
        ),
    ),
    "kws20_v3": chain_layers(
        (128, 128),
        (
            (100, 1, 0, 1),
            (96, 3, 0, 1),
            (64, 3, 1, 2),
            (48, 3, 0, 1),
            (64, 3, 1, 2),
            (96, 3, 0, 1),
            (100, 3, 1, 2),
            (64, 6, 1, 2),
            (21, 0, 0, 1),
        ),
    ),
    "rps": chain_layers(
        (3, 64, 64),
        (
            (16, 3, 1, 1),
            (32, 3, 1, 2),
            (60, 3, 1, 2),
            (32, 3, 1, 2),
            (32, 3, 1, 2),
            (32, 3, 1, 1),
            (3, 0, 0, 1),
        ),
    ),
    "cats-dogs": chain_layers(
        (3, 128, 128),
        (
            (16, 3, 1, 1),
            (32, 3, 1, 2),
            (64, 3, 1, 2),
            (32, 3, 1, 2),
            (32, 3, 1, 2),
            (16, 3, 1, 1),
            (2, 0, 0, 1),
        ),
    ),
    "faceid": (
        *chain_layers(
            (3, 160, 120),
            (
                (16, 3, 1, 1),
                (32, 3, 1, 2),
                (32, 3, 1, 2),
                (64, 3, 1, 2),
                (64, 3, 1, 2),
                (64, 3, 1, 1),
                (64, 3, 1, 1),
                (512, 1, 0, 2),
            ),
        ),
        LayerWork(
            "layer 8",
            ("AveragePool",),
            (),
            ((512, 5, 3),),
            (512, 1, 1),
            pool=PoolWork("AveragePool", (5, 3), (1, 1), (0, 0, 0, 0), (512, 1, 1)),
        ),
    ),
}
"""Layers of the networks with published times; rps as its generated ``cnn.c`` lists them."""

ASSERTED = (
    ("64x20x20, max 2x2, padding 2, 16 outputs", 3049, PassWork((10, 10), 16, (3, 3), (2, 2), 4)),
    ("3x65x65, max 16x16 stride 4", 49010, PassWork((13, 13), 32, (3, 3), (1, 1), 256)),
    ("3x32x32, 64 outputs", 67981, PassWork((32, 32), 64, (3, 3), (1, 1))),
    ("3x32x32, padding 0", 59773, PassWork((32, 32), 64, (3, 3))),
    ("3x32x32, max 2x2, padding 0", 13885, PassWork((16, 16), 64, (3, 3), (0, 0), 4)),
    ("128x8x8, max 2x2", 773, PassWork((4, 4), 16, (3, 3), (1, 1), 4, 2)),
    ("128x8x8", 2485, PassWork((8, 8), 16, (3, 3), (1, 1), passes=2)),
    ("128x8x8, padding 0", 1437, PassWork((8, 8), 16, (3, 3), passes=2)),
    ("1x28x28, 8 outputs", 8189, PassWork((28, 28), 8, (3, 3), (1, 1))),
    ("add 4x12x12", 721, PassWork((12, 12), 4, operands=2, slots=1)),
    ("transposed 3x7x9, 64 outputs", 16837, PassWork((14, 18), 64, (3, 3), (1, 1))),
    ("fully connected 12x4x4", 193, PassWork((4, 4), 10)),
    ("add 4x12x12, two passes", 1441, PassWork((12, 12), 4, passes=2, operands=2, slots=1)),
    ("79x11x11, 1 output", 687, PassWork((11, 11), 1, (3, 3), passes=2)),
    (
        "add 8x17x17, then max 2x2",
        705,
        PassWork((8, 8), 8, window=4, operands=2, pool_first=False, slots=2),
    ),
    ("fully connected 12x8x8", 770, PassWork((8, 8), 10, flattened=1)),
    ("1x1x1", 29, PassWork((1, 1), 1, (3, 3), (1, 1))),
    ("fully connected 12x1x1", 20, PassWork((1, 1), 17)),
    ("5x211, dilation 7", 3062, PassWork((31, 7), 11, (3, 3), (1, 1))),
)
"""The vendor's asserted cases: layer, cycles with one for the start, and passes."""


def predict_time(network: str, start_cycles: int, first: int = 0) -> float:
    """Return the microseconds of a network, layer after layer from the layer ``first``."""
    return (1 + start_cycles + sum(_count_layers(network)[first:])) / CLOCK_MHZ


def predict_loaded_time(network: str, start_cycles: int) -> float:
    """Return the microseconds of a network that begins when its input is in the FIFO's memory.

    The input has a word for every four pixels of a channel.
    """
    words = prod(NETWORKS[network][0].inputs[0]) // 4
    return words * FIFO_US_PER_WORD + predict_time(network, start_cycles)


def predict_streamed_time(network: str, start_cycles: int) -> float:
    """Return the microseconds of a network whose first two layers stream.

    The CPU writes a word for each pixel. Both layers share the processors. The second pools, and
    works in one of ``stride`` rows of the first; the chip waits for the CPU in the other rows.
    """
    first, second, *_ = NETWORKS[network]
    assert second.pool is not None
    stride = second.pool.stride[0]
    loading = prod(first.inputs[0][1:]) * FIFO_US_PER_WORD / stride
    alone, pooling = (cycles / CLOCK_MHZ for cycles in _count_layers(network)[:2])
    waiting = (stride - 1) * max(loading, alone / stride)
    working = max(loading, alone / stride + pooling)
    return waiting + working + predict_time(network, start_cycles, 2)


def _count_layers(network: str) -> list[int]:
    return [sum(count_cycles(plan_layer(layer))) for layer in NETWORKS[network]]


def _predict_case(work: PassWork) -> float:
    return 1 + sum(count_cycles(work))


def publish_figures(start_cycles: int) -> tuple[PublishedFigure, ...]:
    """Return the published figures of MAX78000; ``start_cycles`` is the fitted start-up."""
    asserted = (
        PublishedFigure(
            name,
            "vendor's case",
            value,
            "cycles",
            CASES,
            "asserted",
            0,
            partial(_predict_case, work),
        )
        for name, value, work in ASSERTED
    )
    predict = partial(predict_time, start_cycles=start_cycles)
    plain = partial(
        _measure, condition="nothing fitted", predict=partial(predict_time, start_cycles=0)
    )
    fitted = partial(_measure, condition="start-up fitted", predict=predict)
    loaded = partial(_measure, condition="after loading", predict=predict)
    return (
        *asserted,
        plain("mnist", 1410, "held out", 0.006, START),
        plain("cifar-10", 1712, "held out", 0.006, START),
        fitted("mnist", 1410, "fitted", 0.001),
        fitted("cifar-10", 1712, "fitted", 0.001),
        fitted("cifar-100", 2593, "held out", 0.001),
        fitted("kws20_v3", 1442, "held out", 0.001),
        fitted(
            "mnist",
            1423,
            "held out",
            0.025,
            RISCV,
            EXAMPLES.format("mnist-riscv"),
            condition="start-up fitted, RISC-V core",
        ),
        loaded("rps", 2667, "held out", 0.005, LOADED, EXAMPLES.format("rps-demo")),
        loaded("faceid", 1882, "held out", 0.065, TAIL, predict=partial(predict, first=2)),
        *_list_fifo_figures(start_cycles),
    )


def _list_fifo_figures(start_cycles: int) -> tuple[PublishedFigure, ...]:
    """Return the times that include loading the input through the FIFO."""
    streamed = partial(
        _measure,
        role="held out",
        claim=0.05,
        note=STREAMING,
        source=STREAMED,
        condition="two layers stream from the FIFO",
        predict=partial(predict_streamed_time, start_cycles=start_cycles),
    )
    return (
        _measure(
            "rps",
            4252,
            "fitted",
            0.005,
            LOADED,
            condition="with loading the FIFO",
            predict=partial(predict_loaded_time, start_cycles=start_cycles),
        ),
        streamed("cats-dogs", 12481),
        streamed("faceid", 14001),
    )


def _measure(
    network: str,
    value: float,
    role: Role,
    claim: float,
    note: str = "",
    source: str = "",
    *,
    condition: str,
    predict: Callable[[str], float],
) -> PublishedFigure:
    """Return a measured time; the default source is the network's example."""
    return PublishedFigure(
        network,
        condition,
        value,
        "us",
        source or EXAMPLES.format(network),
        role,
        claim,
        partial(predict, network),
        note,
    )
