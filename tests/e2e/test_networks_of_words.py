"""Networks on machines with banked memory (variant v5) are exact at every region output."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from onnx import ModelProto

from byoc.compiler import compile
from byoc.importing import import_model
from experiments.models import MODELS as ZOO
from experiments.models.builder import NetworkBuilder
from isa.arch import Arch, PeArray
from tests.cycles.cases import NETWORKS
from tests.e2e.harness import compare, package
from tests.e2e.random_graphs import random_graph
from tests.e2e.random_quantisation import random_package
from tests.rotation import TURN, choose_cases, rotate

MACHINES = {
    f"{size}x{size}-{kib}k": Arch(isa="v5", pe=PeArray(ic=size, oc=size), sram_bytes=kib << 10)
    for size, kib in ((8, 64), (16, 64), (16, 512))
}
LARGE = ("mobilenet-v1", "mobilenet-v2", "shufflenet-v2", "light-densenet121")
GRAPHS = 10
BLOCKS = 10


def _shuffled() -> ModelProto:
    """Return a network with grouped channels that are shuffled and split into two paths."""
    net = NetworkBuilder("shuffled", "image", (1, 3, 16, 16), 0)
    value = net.layer("first", "image", (3, 24), 3)
    value = net.layer("grouped", value, (24, 24), 3, groups=4)
    value = net.layer("strided", value, (24, 20), 3)
    narrow = net.layer("narrow", value, (20, 5), 1)
    pooled = net.node("MaxPool", "pooled", value, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    wide = net.layer("wide", pooled, (20, 7), 1)
    value = net.concat("unaligned", narrow, wide)
    mean = net.node("AveragePool", "mean", value, kernel_shape=[2, 2], strides=[2, 2])
    return net.model(net.layer("last", mean, (12, 10), 1), (1, 10, 8, 8))


def _enlarged() -> ModelProto:
    """A picture of one channel, which is made by moving elements alone."""
    net = NetworkBuilder("enlarged", "image", (1, 3, 12, 12), 0)
    value = net.layer("parts", "image", (3, 9), 3)
    return net.model(net.node("DepthToSpace", "picture", value, blocksize=3), (1, 1, 36, 36))


MODELS: dict[str, tuple[Callable[[], ModelProto], tuple[int, ...]]] = {
    "shuffled": (_shuffled, (1, 3, 16, 16)),
    "enlarged": (_enlarged, (1, 3, 12, 12)),
    **{name: NETWORKS[name] for name in ("squeezed", "decoder", "branches")},
}


@pytest.mark.parametrize("machine", rotate([*MACHINES], 3))
@pytest.mark.parametrize("name", MODELS)
def test_small_networks_are_exact(name: str, machine: str) -> None:
    """Small networks with unaligned concatenations, groups and pools are exact.

    They also have weighted channels and transposed convolutions.
    """
    build, shape = MODELS[name]
    random = np.random.default_rng(0)
    samples = [{"image": random.standard_normal(shape, np.float32)} for _ in range(2)]
    found = compare(
        import_model(build(), name, calibration=iter(samples)), samples[0], MACHINES[machine]
    )
    assert found.mismatches == 0
    assert any(place.on == "dla" for place in found.partition.placement)


def test_an_edge_that_is_only_moved_lies_dense() -> None:
    """One channel of 36 x 36 positions is 1,296 bytes, not that many atoms."""
    samples = [{"image": np.zeros((1, 3, 12, 12), np.float32)}]
    arch = MACHINES["8x8-64k"]
    (program,) = compile(
        import_model(_enlarged(), "enlarged", calibration=iter(samples)), arch
    ).programs.values()
    assert [tensor.shape for tensor in program.outputs] == [(162, 1, 8)]


def _exact(name: str, machine: str) -> None:
    assert compare(package(name), ZOO[name].sample_input(), MACHINES[machine]).mismatches == 0


@pytest.mark.parametrize("machine", rotate([*MACHINES], 3))
@pytest.mark.parametrize("name", ["digits-cnn", "resnet-8", "lstm-small"])
def test_networks_are_exact(name: str, machine: str) -> None:
    _exact(name, machine)


def test_a_convolution_with_rows_larger_than_the_scratchpad_is_cut_into_columns() -> None:
    """It is not cut along its channels, because v5 has no instruction that adds partial sums."""
    arch = Arch(isa="v5", pe=PeArray(ic=32, oc=32), sram_bytes=32 << 10, sram_banks=4)
    net = NetworkBuilder("large", "image", (1, 32, 4, 512), 0)
    model = net.model(net.layer("large", "image", (32, 8), 3), (1, 8, 4, 512))
    sample = {"image": np.random.default_rng(0).standard_normal((1, 32, 4, 512), np.float32)}
    found = compare(import_model(model, "large", calibration=iter([sample])), sample, arch)
    assert found.mismatches == 0
    assert {place.on for place in found.partition.placement if place.op_type == "Conv"} == {"dla"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "machine"), choose_cases([*product(LARGE, MACHINES)], 3))
def test_large_networks_are_exact(name: str, machine: str) -> None:
    _exact(name, machine)


def _random_machine(rng: np.random.Generator) -> Arch:
    sizes = {"ic": (1, 3, 8, 16), "oc": (2, 8, 16), "ow": (1, 2, 3)}
    array = {axis: int(rng.choice(some)) for axis, some in sizes.items()}
    return Arch(
        isa="v5",
        pe=PeArray(**array),
        sram_bytes=int(rng.choice([1 << 14, 1 << 16, 1 << 20])),
        sram_banks=4,
    )


@pytest.mark.parametrize("block", rotate(choose_cases(range(BLOCKS), 3), 3, TURN // 3))
def test_random_graphs_are_exact(block: int) -> None:
    """Random graphs with movement, repeats, divisions and look-ups are exact.

    Operators that do not fit banked memory run on the CPU.
    """
    for seed in range(block * GRAPHS, (block + 1) * GRAPHS):
        model, feeds = random_graph(seed)
        quantised = random_package(model, feeds, seed)
        given = {name: feeds[name] for name in quantised.graph.inputs}
        assert (
            compare(quantised, given, _random_machine(np.random.default_rng([seed, 5]))).mismatches
            == 0
        ), seed
