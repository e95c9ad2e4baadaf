"""Random small quantised networks on random machines equal ONNX Runtime to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from byoc.importing import import_model
from isa.arch import Arch, PeArray
from tests.banked_machines import either_memory
from tests.e2e.harness import compare
from tests.e2e.random_networks import random_network


def random_arch(seed: int) -> Arch:
    """A machine: small scratchpads too, so that layers tile or fall back.

    Half have banked memory.
    """
    rng = np.random.default_rng(seed)
    pe = PeArray(**{axis: int(rng.choice([1, 2, 3, 8, 16])) for axis in ("ic", "oc", "ow")})
    sram = int(rng.choice([1 << 9, 1 << 11, 1 << 13, 1 << 16, 1 << 20]))
    lanes = None if rng.random() < 0.5 else int(rng.integers(1, 17))
    alignment = int(rng.choice([4, 8, 64]))
    isa = str(rng.choice(["v1", "v2", "v3", "v1+OP_GROUP_CONV"]))
    ideal = Arch(isa=isa, pe=pe, sram_bytes=sram, post_lanes=lanes, alignment=alignment)
    return either_memory(ideal, rng)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["seed", "default"]),
    st.booleans(),
    st.sampled_from(["auto", "auto", "cpu", "per-group", "native"]),
)
def test_random_networks_are_exact(seed: int, schedule: str, emulate: bool, grouped: str) -> None:
    model, feed = random_network(seed)
    package = import_model(model, calibration=[feed])
    arch = random_arch(seed)
    schedule = "default" if arch.words else schedule
    result = compare(package, feed, arch, schedule, emulate_depthwise=emulate, grouped=grouped)
    assert result.mismatches == 0
