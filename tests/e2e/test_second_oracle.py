"""``onnx.reference`` agrees with every unit on the accelerator within one step."""

from __future__ import annotations

import pytest

from byoc.importing import import_model
from experiments.models import MODELS
from isa.arch import Arch
from tests.e2e.harness import package
from tests.e2e.modern_network import modern_network
from tests.e2e.second_oracle import steps_apart, told

V4 = Arch(isa="v4")


@pytest.mark.parametrize("name", ["digits-cnn", "resnet-8", "resnext-11"])
def test_built_in_networks(name: str) -> None:
    found = steps_apart(package(name), MODELS[name].sample_input(), V4)
    assert found[0] > 5000
    assert set(found) <= {0, 1}, told(found)


def test_a_network_with_the_instructions_of_v4() -> None:
    model, feed = modern_network()
    found = steps_apart(import_model(model, "modern", calibration=[feed]), feed, V4)
    assert found[0] > 2000
    assert set(found) <= {0, 1}, told(found)
