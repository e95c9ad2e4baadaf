"""Whole networks equal ONNX Runtime's integer operators at every region output, exactly."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from byoc.compiler import compile
from byoc.host.runtime import Runtime
from byoc.host.sessions import Oracle
from dla_sim.device import Device
from dla_sim.timing import Timing
from experiments.models import MODELS
from isa.arch import Arch, PeArray
from tests.e2e.harness import Comparison, compare, package
from tests.rotation import choose_cases

KIB = 1 << 10
MIB = 1 << 20
INPUT_PARALLEL, OUTPUT_PARALLEL = PeArray(ic=64, oc=1, ow=1), PeArray(ic=1, oc=64, ow=1)
SCENARIOS = {"cpu": ("v1", False), "emulated": ("v1", True), "native": ("v2", False)}
LIGHT = sorted(name for name in MODELS if name.startswith("light-"))


def simulate(
    name: str, arch: Arch, schedule: str = "default", emulate_depthwise: bool = False
) -> Comparison:
    inputs = MODELS[name].sample_input()
    return compare(package(name), inputs, arch, schedule, emulate_depthwise=emulate_depthwise)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "schedule", "sram", "side"),
    choose_cases([*product(SCENARIOS, ("seed", "default"), (512 * KIB, MIB, 256 * MIB), "IO")], 3),
)
def test_mobilenet_is_exact(scenario: str, schedule: str, sram: int, side: str) -> None:
    pe = INPUT_PARALLEL if side == "I" else OUTPUT_PARALLEL
    isa, emulate = SCENARIOS[scenario]
    result = simulate("mobilenet-v1", Arch(isa=isa, pe=pe, sram_bytes=sram), schedule, emulate)
    assert result.mismatches == 0
    assert result.elements >= 1000
    assert len(result.partition.regions) == (14 if scenario == "cpu" else 1)


@pytest.mark.slow
def test_the_seed_schedule_holds_every_convolution_at_512_kib() -> None:
    result = simulate("mobilenet-v1", Arch(sram_bytes=512 * KIB), "seed")
    assert {place.on for place in result.partition.placement if place.op_type == "Conv"} == {"dla"}


@pytest.mark.slow
def test_the_first_pointwise_layer_falls_back_at_256_kib_and_says_why() -> None:
    """input 32·112·112 = 401,408.

    One int32 output channel 112·112·4 = 50,176; 32 weights and a record of 8.
    """
    missing = 401_408 + 50_176 + 32 + 8 - 262_144
    result = simulate("mobilenet-v1", Arch(sram_bytes=256 * KIB), "seed")
    assert result.mismatches == 0
    fallen = [p for p in result.partition.placement if p.on == "cpu" and p.op_type == "Conv"]
    assert fallen[0].node == "conv1_pw"
    assert fallen[0].reason == (
        "does not fit in 262144 bytes of SRAM: input 401408 + output channel (int32) 50176 + "
        "weights 32 "
        f"+ channel record 8 = 451624 bytes, {missing} missing"
    )


@pytest.mark.parametrize(
    "name", ["digits-cnn", "resnet-8", "autoencoder", "lstm-small", "shufflenet-v2"]
)
def test_no_pass_moves_rounding_so_far_that_it_is_left_out(name: str) -> None:
    fidelity = package(name).fidelity
    assert fidelity is not None
    assert fidelity.left_out == ()


@pytest.mark.parametrize("schedule", ["seed", "default"])
@pytest.mark.parametrize(
    "name", ["digits-cnn", "resnet-8", pytest.param("resnet-18", marks=pytest.mark.slow)]
)
def test_residual_and_trained_networks_are_exact(name: str, schedule: str) -> None:
    result = simulate(name, Arch(sram_bytes=4 * MIB), schedule)
    assert result.mismatches == 0
    assert len(result.partition.regions) == 1
    assert {place.op_type for place in result.partition.placement if place.on == "cpu"} <= {
        "QuantizeLinear",
        "DequantizeLinear",
    }


def test_all_held_out_digits_agree_with_onnx_runtime() -> None:
    dataset = MODELS["digits-cnn"].dataset()
    assert dataset is not None
    network = compile(package("digits-cnn"), Arch())
    runtime = Runtime(network, Device(Arch(), Timing()))
    graph = network.graph
    oracle = Oracle(network.package.model, graph, graph.outputs)
    name, *_ = graph.inputs
    correct = 0
    for image, label in zip(*dataset, strict=True):
        feed = {name: image[np.newaxis]}
        found = runtime.run(feed).outputs
        expected = oracle.values(feed)
        for output in graph.outputs:
            np.testing.assert_array_equal(found[output], expected[output])
        correct += int(found[graph.outputs[0]].argmax() == label)
    assert correct / len(dataset[1]) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("name", choose_cases(LIGHT, 2))
def test_the_networks_of_the_onnx_package_are_exact_and_mostly_on_the_dla(name: str) -> None:
    result = simulate(name, Arch(sram_bytes=256 * MIB))
    package.cache_clear()
    assert result.mismatches == 0
    assert result.tensors
    on = {place.node for place in result.partition.placement if place.on == "dla"}
    macs = {node.name: node.macs for node in result.network.graph.nodes}
    assert sum(macs[name] for name in on) > 0.95 * sum(macs.values())
