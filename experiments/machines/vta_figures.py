"""Published cycles of VTA, and the convolutions of their networks.

The networks are those of MXNet's model zoo (``gluon/model_zoo/vision/resnet.py``). In version 2 a
bottleneck has its stride in the 3 x 3 convolution, and the convolutions before a sum have no bias.
TVM runs the first and the last layer, pools and residual sums on the CPU.
"""

from __future__ import annotations

from functools import cache, partial

from experiments.machines.description import PublishedFigure
from experiments.machines.vta_program import list_instructions, simulate_instructions
from experiments.machines.vta_tiles import VtaConvolution, VtaParameters

PULL_30 = "github.com/apache/tvm-vta/pull/30"
CORES = ("GEMM core of four cycles a step", "pipelined GEMM core")
NETWORKS = {
    "resnet18_v1": ((2, 2, 2, 2), 1, False, (27_679_515, 7_729_601)),
    "resnet34_v1": ((3, 4, 6, 3), 1, False, (57_471_735, 15_736_441)),
    "resnet18_v2": ((2, 2, 2, 2), 2, False, (27_558_980, 7_608_808)),
    "resnet34_v2": ((3, 4, 6, 3), 2, False, (57_270_321, 15_534_528)),
    "resnet50_v2": ((3, 4, 6, 3), 2, True, (68_187_407, 22_012_906)),
    "resnet101_v2": ((3, 4, 23, 3), 2, True, (129_263_035, 39_182_158)),
}
"""Blocks of each stage, version, bottlenecks, and cycles of both cores."""
CLAIM = 0.02
SHARED = "VTA's units share the memory burst by burst, the units of the model cycle by cycle"
NOTES = {
    True: f"in the model, loads delay 1 x 1 convolutions too much. {SHARED}. If a read burst took "
    "one cycle less, two thirds of the error would disappear; the order of two clocked blocks in "
    "VTAMemDPI.v decides whether it does",
    False: SHARED,
}
"""Causes of errors by whether the network has bottlenecks and the core is pipelined."""


def list_convolutions(network: str) -> list[VtaConvolution]:
    """Return the convolutions of a ResNet except the first, in order of execution."""
    blocks, version, bottleneck, _ = NETWORKS[network]
    layers = []
    inputs, side = 4, 56
    for stage, count in enumerate(blocks):
        outputs = (16 if bottleneck else 4) << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            first = version == 1
            after = side // stride
            if bottleneck:
                middle = outputs // 4
                layers += [
                    VtaConvolution(inputs, side, side, middle, 1, 1, 0, True, True),
                    VtaConvolution(middle, side, side, middle, 3, stride, 1, True, True),
                    VtaConvolution(middle, after, after, outputs, 1, 1, 0, first, False),
                ]
            else:
                layers += [
                    VtaConvolution(inputs, side, side, outputs, 3, stride, 1, True, True),
                    VtaConvolution(outputs, after, after, outputs, 3, 1, 1, first, False),
                ]
            if inputs != outputs:
                layers.append(
                    VtaConvolution(inputs, side, side, outputs, 1, stride, 0, first, False)
                )
            inputs, side = outputs, after
    return layers


@cache
def count_convolution(shape: VtaConvolution, machine: VtaParameters) -> int:
    """Return the cycles of one convolution, from its launch to its end."""
    return simulate_instructions(list_instructions(shape, machine)).total


def count_network(network: str, machine: VtaParameters) -> int:
    """Return the cycles of a network's convolutions, which are launched one after another."""
    return sum(count_convolution(shape, machine) for shape in list_convolutions(network))


def publish_figures() -> tuple[PublishedFigure, ...]:
    """Return the published figures of VTA; nothing is fitted to them."""
    compared = [
        PublishedFigure(
            network,
            core,
            cycles[pipelined],
            "cycles",
            PULL_30,
            "held out",
            CLAIM,
            partial(count_network, network, VtaParameters(pipelined=pipelined)),
            NOTES[bottleneck and bool(pipelined)],
        )
        for network, (_, _, bottleneck, cycles) in NETWORKS.items()
        for pipelined, core in enumerate(CORES)
    ]
    return tuple(compared)
