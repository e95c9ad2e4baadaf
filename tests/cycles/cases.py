"""The layers, chains of layers and small networks whose cycles are recorded, and the machines.

Each case is there for a decision of the compiler: which tiles, in which order, with how many
buffers; what stays in the scratchpad, what is computed band by band, what rides on what, what is
loaded ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from onnx import ModelProto

from byoc.compiler import compile
from byoc.emission.region import compile_region
from byoc.importing import import_model
from byoc.operators.operator import Operator
from byoc.operators.records import Operand
from byoc.package.package import Package
from experiments.models import MODELS
from experiments.models.builder import NetworkBuilder
from experiments.models.sequences import vit_tiny, wavenet
from isa.arch import PACKED, Arch, PeArray
from isa.program import Program
from tests.byoc import region_cases as cases

Compile = Callable[[Arch], list[Program]]
Random = np.random.Generator

PAD1 = (1, 1, 1, 1)
PAD2 = (2, 2, 2, 2)
MACHINES: Mapping[str, Arch] = {
    f"{ic}x{oc}-{kib}k": Arch(isa="v4", pe=PeArray(ic=ic, oc=oc), sram_bytes=kib << 10)
    for ic, oc, kib in (
        (4, 16, 64),
        (4, 16, 512),
        (8, 8, 64),
        (16, 16, 512),
        (32, 32, 64),
        (1, 256, 512),
    )
}
"""The default array with little and with much memory, a square one, larger ones, and one over
output channels alone.
"""

ZOO = ("keyword-spotting", "streaming-wake-word", "micro-speech", "resnet-8", "visual-wake-words")
ON_WORDS = ("network-squeezed", "network-decoder", "network-branches", "network-attention",
            "network-lines", "network-shuffled", "zoo-resnet-8",
            "zoo-visual-wake-words")  # fmt: skip
"""What is compiled for the same machines with words (v5), too."""


def all_cases() -> Mapping[str, Callable[[], Compile]]:
    """Return the function that makes each case, by name.

    Its result is compiled for one machine after another.
    """
    random = np.random.default_rng(0)
    layers = {**dict(_layers(random)), **dict(_chains(random))}
    made = {
        name: partial(partial, _compile_layers, operations) for name, operations in layers.items()
    }
    networks = {
        f"network-{name}": partial(_network, *network) for name, network in NETWORKS.items()
    }
    found = {**made, **networks, **{f"zoo-{name}": partial(_zoo, name) for name in ZOO}}
    found |= {f"words-{name}": partial(_on_words, found[name]) for name in ON_WORDS}
    # Steps that are unrolled, in little memory: banks of their own would keep loads waiting.
    return {**found, "words-zoo-lstm-small": partial(_on_words, partial(_zoo, "lstm-small"))}


def _on_words(make: Callable[[], Compile]) -> Compile:
    compiled = make()
    return lambda arch: compiled(arch.model_copy(update={"isa": PACKED}))


def _compile_layers(operations: tuple[Operator, ...], arch: Arch) -> list[Program]:
    made = {operation.output.value for operation in operations}
    read = {source.value for operation in operations for source in operation.inputs}
    inputs = dict.fromkeys(
        source.value
        for operation in operations
        for source in operation.inputs
        if source.value not in made
    )
    outputs = tuple(
        operation.output.value for operation in operations if operation.output.value not in read
    )
    region, values = cases.region(operations, tuple(inputs), outputs)
    return [compile_region(region, values, arch, "default", data=False)[0]]


def _zoo(name: str) -> Compile:
    model = MODELS[name]
    return partial(
        _compile_package, import_model(model.build(0), name, calibration=model.calibration(0))
    )


def _network(build: Callable[[], ModelProto], shape: tuple[int, ...]) -> Compile:
    model = build()
    random = np.random.default_rng(0)
    name = model.graph.input[0].name
    calibration = [{name: random.standard_normal(shape, np.float32)} for _ in range(2)]
    return partial(_compile_package, import_model(model, "network", calibration=iter(calibration)))


def _compile_package(package: Package, arch: Arch) -> list[Program]:
    return list(compile(package, arch).programs.values())


def _x(*shape: int) -> Operand:
    return cases.operand("x", *shape)


def _layers(random: Random) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    """Single layers, each alone in its region: tiles, their order, their buffers."""
    conv = partial(cases.convolution, random)
    matmul = partial(cases.matmul, random)
    pool = cases.pool
    yield "conv-3x3-64", (conv(_x(64, 56, 56), "y", 64, pads=PAD1),)
    yield "conv-3x3-many-weights", (conv(_x(256, 7, 7), "y", 512, pads=PAD1),)
    yield "conv-3x3-stride-2-rgb", (conv(_x(3, 112, 112), "y", 32, strides=(2, 2), pads=PAD1),)
    yield (
        "conv-7x7-stride-2-rgb",
        (conv(_x(3, 112, 112), "y", 64, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),),
    )
    yield "conv-3x3-dilated", (conv(_x(48, 28, 28), "y", 48, dilations=(2, 2), pads=PAD2),)
    yield "conv-1x9", (conv(_x(40, 1, 300), "y", 96, kernel=(1, 9), pads=(0, 4, 0, 4)),)
    yield "conv-wide-result", (conv(_x(32, 28, 28), "y", 40, pads=PAD1, wide=True),)
    yield "pointwise-128-256", (conv(_x(128, 28, 28), "y", 256, kernel=(1, 1)),)
    yield "pointwise-512-512", (conv(_x(512, 14, 14), "y", 512, kernel=(1, 1)),)
    yield "pointwise-deep", (conv(_x(2048, 7, 7), "y", 64, kernel=(1, 1)),)
    yield "pointwise-stride-2", (conv(_x(128, 28, 28), "y", 64, kernel=(1, 1), strides=(2, 2)),)
    yield "pointwise-narrow", (conv(_x(32, 112, 112), "y", 10, kernel=(1, 1)),)
    yield "depthwise-128", (conv(_x(128, 56, 56), "y", 128, pads=PAD1, depthwise=True),)
    yield (
        "depthwise-stride-2",
        (conv(_x(48, 112, 112), "y", 48, strides=(2, 2), pads=PAD1, depthwise=True),),
    )
    yield (
        "depthwise-5x5",
        (conv(_x(240, 14, 14), "y", 240, kernel=(5, 5), pads=PAD2, depthwise=True),),
    )
    yield (
        "depthwise-emulated",
        (conv(_x(24, 28, 28), "y", 24, pads=PAD1, depthwise=True, emulated=True),),
    )
    yield "connected-1024-1000", (matmul(_x(1, 1024), "y", 1000),)
    yield "connected-4096-64", (matmul(_x(1, 4096), "y", 64),)
    yield "matmul-197-192-576", (matmul(_x(197, 192), "y", 576),)
    yield "matmul-many-rows", (matmul(_x(4000, 24), "y", 48),)
    yield "pool-max-3x3", (pool(_x(24, 56, 56), "y", "max", kernel=(3, 3), pads=PAD1),)
    yield "pool-global", (pool(_x(160, 7, 7), "y", "global_average"),)
    yield "add-64", (cases.add(_x(64, 56, 56), cases.operand("z", 64, 56, 56), "y"),)
    yield "leaky-relu", (cases.unary(_x(64, 56, 56), "y", "leaky_relu"),)


def _chains(random: Random) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    """Layers after one another: what stays, what is fused, what is loaded ahead."""
    conv = partial(cases.convolution, random)
    matmul = partial(cases.matmul, random)
    pool = cases.pool

    first = conv(_x(32, 56, 56), "a", 64, pads=PAD1, depthwise=False, kernel=(3, 3), strides=(2, 2))
    yield "chain-conv-pool", (first, pool(first.output, "y", "max"))

    a = conv(_x(32, 28, 28), "a", 96, kernel=(1, 1))
    b = conv(a.output, "b", 96, pads=PAD1, depthwise=True)
    c = conv(b.output, "c", 32, kernel=(1, 1))
    yield "chain-inverted-residual", (a, b, c, cases.add(_x(32, 28, 28), c.output, "y"))

    a = conv(_x(16, 112, 112), "a", 16, pads=PAD1, depthwise=True)
    yield "chain-separable-112", (a, conv(a.output, "y", 32, kernel=(1, 1)))

    a = conv(_x(24, 48, 48), "a", 24, pads=PAD1)
    b = conv(a.output, "b", 24, pads=PAD1)
    yield "chain-residual", (a, b, cases.add(_x(24, 48, 48), b.output, "y"))

    a = conv(_x(3, 96, 96), "a", 16, pads=PAD1)
    b = conv(a.output, "b", 16, pads=PAD1)
    c = conv(b.output, "c", 24, strides=(2, 2), pads=PAD1)
    yield "chain-three-3x3", (a, b, c)

    a = matmul(_x(1, 512), "a", 512)
    b = matmul(a.output, "b", 512)
    yield "chain-connected", (a, b, matmul(b.output, "y", 256))

    a = conv(_x(64, 28, 28), "a", 64, kernel=(1, 1))
    yield "chain-two-readers", (
        a, conv(a.output, "b", 48, kernel=(1, 1)), conv(a.output, "c", 48, pads=PAD1),
        pool(a.output, "d", "max", strides=(1, 1)),
    )  # fmt: skip

    a = conv(_x(32, 56, 56), "a", 32, kernel=(1, 1))
    yield "chain-add-rides", (a, cases.add(a.output, cases.operand("z", 32, 56, 56), "y"))

    a = conv(_x(256, 14, 14), "a", 256, pads=PAD1, depthwise=True)
    b = conv(a.output, "b", 512, kernel=(1, 1), strides=(1, 1))
    c = conv(b.output, "c", 512, pads=PAD1, depthwise=True, strides=(2, 2))
    yield "chain-mobilenet-14", (a, b, c, conv(c.output, "y", 512, kernel=(1, 1)))


def _squeezed() -> ModelProto:
    """An inverted residual whose channels are weighed, as in MobileNetV3."""
    net = NetworkBuilder("squeezed", "image", (1, 24, 28, 28), 0)
    value = net.layer("expand", "image", (24, 72), 1, activation="hardswish")
    value = net.layer("depthwise", value, (72, 72), 5, groups=72, activation="hardswish")
    weight = net.node("GlobalAveragePool", "mean", value)
    weight = net.activation(
        "relu", "down_relu", net.convolution("down", weight, (72, 24), 1, bias=0.0)
    )
    weight = net.node("HardSigmoid", "weight", net.convolution("up", weight, (24, 72), 1, bias=0.0))
    value = net.layer(
        "project", net.node("Mul", "weighed", value, weight), (72, 24), 1, activation="linear"
    )
    return net.model(net.node("Add", "sum", "image", value), (1, 24, 28, 28))


def _decoder() -> ModelProto:
    """Return a level of a U-Net: down, up by a transposed convolution, and a concatenation.

    A convolution follows.
    """
    net = NetworkBuilder("decoder", "image", (1, 16, 48, 48), 0)
    kept = net.layer("kept", "image", (16, 24), 3)
    value = net.layer(
        "below", net.node("MaxPool", "down", kept, kernel_shape=[2, 2], strides=[2, 2]), (24, 48), 3
    )
    value = net.concat("beside", kept, net.add_transposed("up", value, (48, 24), 2))
    return net.model(net.layer("joined", value, (48, 16), 3), (1, 16, 48, 48))


def _branches() -> ModelProto:
    """An Inception module: four ways of different depth, side by side."""
    net = NetworkBuilder("branches", "image", (1, 96, 28, 28), 0)
    first = net.layer("first", "image", (96, 32), 1)
    second = net.layer("second", net.layer("second_before", "image", (96, 48), 1), (48, 64), 3)
    third = net.layer("third", net.layer("third_before", "image", (96, 8), 1), (8, 16), 5)
    pooled = net.node(
        "MaxPool", "pooled", "image", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4
    )
    return net.model(
        net.concat("all", first, second, third, net.layer("fourth", pooled, (96, 16), 1)),
        (1, 128, 28, 28),
    )


def _attention() -> ModelProto:
    """Return one block of a vision transformer: row products, softmax, normalisation, copies.

    The copies transpose.
    """
    return vit_tiny(0, size=112, blocks=1, width=64, heads=2)


def _shuffled() -> ModelProto:
    """Return a unit of ShuffleNet: grouped convolutions around a channel shuffle.

    A depthwise convolution follows the shuffle.
    """
    net = NetworkBuilder("shuffled", "image", (1, 24, 56, 56), 0)
    value = net.layer("first", "image", (24, 112), 1, groups=4)
    value = net.node(
        "Transpose",
        "shuffle",
        net.reshape("apart", value, (1, 4, 28, 56, 56)),
        perm=[0, 2, 1, 3, 4],
    )
    value = net.layer(
        "depthwise", net.reshape("shuffled", value, (1, 112, 56, 56)), (112, 112), 3, groups=112
    )
    return net.model(net.layer("second", value, (112, 112), 1, groups=4), (1, 112, 56, 56))


def _lines() -> ModelProto:
    """Dilated convolutions of one long line, whose tiles are cut along it."""
    return wavenet(0, channels=32, doublings=2, length=4096)


NETWORKS: Mapping[str, tuple[Callable[[], ModelProto], tuple[int, ...]]] = {
    "squeezed": (_squeezed, (1, 24, 28, 28)),
    "decoder": (_decoder, (1, 16, 48, 48)),
    "branches": (_branches, (1, 96, 28, 28)),
    "attention": (_attention, (1, 3, 112, 112)),
    "shuffled": (_shuffled, (1, 24, 56, 56)),
    "lines": (_lines, (1, 1, 4096)),
}
