"""Published cycles on Cortex-M4 and M55 with CMSIS-NN, and the estimates of the CPU model.

The constants of a CPU are fitted to one source, and no more of its networks than the constants
need. All other figures are held out: of the same source, and of every other one that was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import dla
from byoc.graph import Graph, Node, Value
from byoc.host.sessions import estimate_microcontroller_cycles

TINY = "mlcommons/tiny_results_v{}, closed/{}"
KERNELS = "AmbiqAI/ns-cmsis-nn, kernel benchmarks: Apollo510, 250 MHz, GCC 14.3, MVE"
PERSON = "shanemmattner/embedded-agent-bridge: STM32N6, TensorFlow Lite Micro, GCC 12.2"
TESTS = ("autoencoder", "resnet-8", "keyword-spotting", "visual-wake-words")
"""The networks of MLPerf Tiny, in the order of the rates below."""
FITTED_TESTS = ("resnet-8", "keyword-spotting")
"""Two constants: dense convolutions alone, and the smaller network with depthwise ones."""

SUBMISSIONS = (
    ("1.1", "Krai", "STM32L4R5, microTVM", 120, (116.212, 2.567, 10.019, 3.324)),
    ("1.1", "Skymizer", "STM32L4R5, ONNC, mbed OS", 120, (123.875, 3.348, 12.195, 5.808)),
    ("1.1", "Skymizer", "STM32L4R5, ONNC, Zephyr", 120, (124.906, 3.372, 10.679, 5.056)),
    ("1.1", "Nuvoton", "M467, ONNC, Zephyr", 200, (204.635, 5.833, 21.652, 10.129)),
    ("0.5", "reference", "STM32L4R5, TensorFlow Lite Micro", 120, (99.487, 1.420, 5.497, 1.665)),
)
"""Release, submitter, chip and software, MHz, and inferences a second of :data:`TESTS`."""
FIRST_LAYER = (27, 32, 112, 1, 13_754_047)
LAYERS = (
    (32, 16, 112, 1, 4_915_937),
    (16, 96, 112, 1, 24_249_462),
    (96, 24, 56, 1, 2_791_555),
    (24, 144, 56, 1, 10_329_014),
    (9, 32, 112, 32, 13_715_766),
    (9, 96, 56, 96, 10_286_711),
    (9, 144, 56, 144, 15_319_785),
)
"""MACs per result, channels, rows, groups, and cycles of MobileNetV2's layers on an Alif E8.

They are measured on its Cortex-M55 (pytorch/executorch#17651). :data:`FIRST_LAYER` has three input
channels, which CMSIS-NN computes with other code; it is not part of the fit.
"""
KERNEL_ROWS = (
    ("convolution 3 x 3", 576, 64, 32, 1, 7_855_297),
    ("convolution 1 x 1", 64, 64, 32, 1, 1_839_405),
    ("depthwise convolution 3 x 3", 9, 64, 32, 64, 1_751_320),
    ("matrix product 64 x 512 x 256", 512, 256, 8, 1, 2_452_107),
    ("vector product 512 x 256", 512, 256, 1, 1, 105_856),
    ("average pooling 3 x 3", 0, 64, 32, 1, 2_153_231),
    ("addition of 4,096 elements", 0, 4, 32, 1, 61_572),
)
"""Kernel, MACs per result, channels, rows, groups and cycles; an image is square."""


class MicrocontrollerFigure(NamedTuple):
    """Published cycles and the estimate of them."""

    cpu: str
    what: str
    condition: str
    source: str
    role: str
    published: float
    ours: int

    @property
    def error(self) -> float:
        return self.ours / self.published - 1


@cache
def read_graph(name: str) -> Graph:
    """Return the graph of a built-in network."""
    return dla.import_model(name).graph


def estimate_network(name: str, cpu: str) -> int:
    """Return the cycles of a network's convolutions and matrix products.

    All others together are below 1 % of the cycles.
    """
    graph = read_graph(name)
    products = [node for node in graph.nodes if node.macs]
    return estimate_microcontroller_cycles(graph, products, cpu)


def estimate_kernel(depth: int, channels: int, rows: int, groups: int) -> int:
    """Return the cycles on Cortex-M55 of one operator with ``depth`` MACs for each result."""
    value = Value("y", (1, channels, rows, rows), "int8")
    macs = depth * value.elements
    node = Node("layer", "Conv", (), ("y",), {"group": groups}, macs=macs, integer=True)
    graph = Graph("one", (), ("y",), {"y": value}, (node,))
    return estimate_microcontroller_cycles(graph, [node], "Cortex-M55")


def list_figures() -> Iterator[MicrocontrollerFigure]:
    """Yield all figures, those of the fit first for each CPU."""
    for release, submitter, condition, clock, rates in SUBMISSIONS:
        for name, rate in zip(TESTS, rates, strict=True):
            fitted = submitter == "Krai" and name in FITTED_TESTS
            role = "fitted" if fitted else "held out"
            source = TINY.format(release, submitter)
            cycles = clock * 1e6 / rate
            ours = estimate_network(name, "Cortex-M4")
            yield MicrocontrollerFigure("Cortex-M4", name, condition, source, role, cycles, ours)
    for layer in (*LAYERS, FIRST_LAYER):
        depth, channels, rows, groups, cycles = layer
        first = layer == FIRST_LAYER
        kind = "first" if first else "depthwise" if groups > 1 else "pointwise"
        yield MicrocontrollerFigure(
            "Cortex-M55", f"MobileNetV2, {kind}, {channels} channels of {rows} x {rows}",
            "Alif E8, ExecuTorch", "pytorch/executorch, issue 17651",
            "held out" if first else "fitted", cycles,
            estimate_kernel(depth, channels, rows, groups),
        )  # fmt: skip
    for name, *shape, cycles in KERNEL_ROWS:
        ours = estimate_kernel(*shape)
        condition, source = KERNELS.split(": ")[::-1]
        yield MicrocontrollerFigure("Cortex-M55", name, condition, source, "held out", cycles, ours)
    for name, cycles in (("person-detection", 132_413_647), ("micro-speech", 10_818_194)):
        condition, source = PERSON.split(": ")[::-1]
        ours = estimate_network(name, "Cortex-M55")
        yield MicrocontrollerFigure("Cortex-M55", name, condition, source, "held out", cycles, ours)
