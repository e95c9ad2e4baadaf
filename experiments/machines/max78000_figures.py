"""Published figures of MAX78000, and the layers of their networks.

The networks are restated from ``models/`` of analogdevicesinc/ai8x-training; the times are those of
the examples in analogdevicesinc/msdk at a CNN clock of 50 MHz.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from experiments.machines.description import LayerWork, PoolWork, PublishedFigure, Role, Shape
from experiments.machines.max78000_passes import PassWork, count_cycles, plan_layer

EXAMPLES = "github.com/analogdevicesinc/msdk, Examples/MAX78000/CNN/{}/README.md"
CASES = "github.com/analogdevicesinc/ai8x-synthesis, izer/test/test_cycles.py"
STREAMED = "github.com/Analog-Devices-MSDK/MAX78000_SDK/issues/74"
CLOCK_MHZ = 50
START = "the measured time includes the interrupt, which the formula does not count"
SEQUENCES = (
    "the vendor's test cases have no convolution in one dimension; with two passes, the chip "
    "probably takes longer than the formula"
)
RISCV = "the RISC-V core starts the accelerator and waits for it"
STREAMING = "the CPU fills the FIFO and two layers stream, which the description does not model"
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
"""Layers of the networks with published times."""

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


def predict_time(network: str, start_cycles: int) -> float:
    """Return the microseconds of a network, layer after layer."""
    layers = NETWORKS[network]
    cycles = sum(sum(count_cycles(plan_layer(layer))) for layer in layers)
    return (1 + start_cycles + cycles) / CLOCK_MHZ


def _predict_case(work: PassWork) -> float:
    return 1 + sum(count_cycles(work))


def publish_figures(start_cycles: int) -> tuple[PublishedFigure, ...]:
    """Return the published figures of MAX78000; ``start_cycles`` is the fitted start-up."""

    def measure(
        network: str, value: float, condition: str, role: Role, claim: float, note: str = ""
    ) -> PublishedFigure:
        constant = 0 if condition == plain else start_cycles
        folder = "mnist-riscv" if condition == riscv else network
        source = STREAMED if role == "not comparable" else EXAMPLES.format(folder)
        predict = partial(predict_time, network, constant)
        return PublishedFigure(network, condition, value, "us", source, role, claim, predict, note)

    plain = "nothing fitted"
    fitted = "start-up fitted"
    riscv = "start-up fitted, RISC-V core"
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
    return (
        *asserted,
        measure("mnist", 1410, plain, "held out", 0.006, START),
        measure("cifar-10", 1712, plain, "held out", 0.006, START),
        measure("mnist", 1410, fitted, "fitted", 0.001),
        measure("cifar-10", 1712, fitted, "fitted", 0.001),
        measure("cifar-100", 2593, fitted, "held out", 0.025),
        measure("kws20_v3", 1442, fitted, "held out", 0.025, SEQUENCES),
        measure("mnist", 1423, riscv, "held out", 0.025, RISCV),
        measure("cats-dogs", 12481, fitted, "not comparable", 0, STREAMING),
        measure("faceid", 14001, fitted, "not comparable", 0, STREAMING),
    )
