"""Random quantised graphs of current operators equal ONNX Runtime at every region output."""

from __future__ import annotations

import numpy as np
import pytest

from byoc.compiler import compile
from byoc.host.runtime import Runtime
from dla_sim.device import Device
from experiments.running.check import check_values
from tests.e2e.random_graphs import LEFT_OUT, Tally, random_graph, random_machine
from tests.e2e.random_quantisation import random_package
from tests.rotation import choose_cases


@pytest.mark.slow
@pytest.mark.parametrize("block", choose_cases(range(4), 2))
def test_random_graphs_are_exact(block: int) -> None:
    """Fifty of a hundred at a turn; ``python -m tests.e2e.random_graphs`` draws any number."""
    tally = Tally()
    for seed in range(25 * block, 25 * block + 25):
        tally.add(seed)
    assert tally.counts["exact"] + tally.counts["refused"] == 25
    assert tally.counts["refused"] <= 1
    assert tally.share_on_cpu < 0.25
    # a wrong pass that only moves rounding would be, where that is seen
    assert tally.counts[LEFT_OUT] == 0


@pytest.mark.parametrize("seed", range(6))
def test_integers_in_and_out_are_those_of_the_run_with_real_numbers(seed: int) -> None:
    """A run with integer inputs and outputs gives the numbers of the float run.

    The inputs may be real numbers or integers, and the check reports no mismatch.
    """
    model, feeds = random_graph(seed)
    arch, schedule = random_machine(seed)
    package = random_package(model, feeds, seed)
    networks = [
        compile(package, arch, schedule=schedule, integer_io=integer) for integer in (False, True)
    ]
    real, quantised = (Runtime(network, Device(arch)).run(feeds) for network in networks)
    interface = networks[1].interface
    given = interface.take_arrays(feeds)
    integers = Runtime(networks[1], Device(arch)).run(given)
    for name, numbers in interface.real(integers.outputs).items():
        np.testing.assert_array_equal(numbers, real.outputs[name])
        np.testing.assert_array_equal(integers.outputs[name], quantised.outputs[name])
    check = check_values(networks[1], given, integers)
    assert check.mismatches == 0
