"""Plans in unlimited banks are the plans of every scratchpad for which they are said to hold."""

from __future__ import annotations

import numpy as np
import pytest

from byoc.compiler import CompilerPool, compile
from byoc.estimate.constants import UNLIMITED
from byoc.scheduling import default
from byoc.scheduling.unlimited import UnlimitedPlan
from experiments.running.network import load_network
from isa.arch import Arch, PeArray
from tests.rotation import rotate

SIZES = (48, 64, 80, 112, 160, 256, 416, 640, 1024, 4096, 65536)
ARRAYS = (PeArray(ic=4, oc=16), PeArray(ic=8, oc=8, ow=2), PeArray(ic=16, oc=1))


def _compare(monkeypatch: pytest.MonkeyPatch, network: str, array: PeArray) -> int:
    """Compare programs with those of plans for each size alone; return how many plans held."""
    package = load_network(network).package
    pool = CompilerPool()
    used: list[UnlimitedPlan] = []
    is_valid_for = UnlimitedPlan.is_valid_for

    def count(plan: UnlimitedPlan, arch: Arch, most: int) -> bool:
        held = is_valid_for(plan, arch, most)
        used.extend([plan] * held)
        return held

    for size in SIZES:
        arch = Arch(isa="v5", pe=array, sram_bytes=size << 10)
        with monkeypatch.context() as patch:
            patch.setattr(UnlimitedPlan, "is_valid_for", count)
            found = compile(package, arch, data=False, pool=pool)
            patch.setattr(default, "plan_unlimited", lambda *given: None)
            expected = compile(package, arch, data=False)
        for program, other in zip(found.programs.values(), expected.programs.values(), strict=True):
            assert np.array_equal(program.words, other.words)
            assert program.provenance == other.provenance
        assert found.reports == expected.reports
    return len(used)


@pytest.mark.parametrize("array", rotate(ARRAYS, len(ARRAYS)))
def test_unlimited_plans_hold(monkeypatch: pytest.MonkeyPatch, array: PeArray) -> None:
    assert _compare(monkeypatch, "digits-cnn", array) > len(SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("network", ["keyword-spotting", "resnet-8", "autoencoder"])
def test_unlimited_plans_of_networks_hold(
    monkeypatch: pytest.MonkeyPatch, network: str, array: PeArray
) -> None:
    assert _compare(monkeypatch, network, array) > 0


def test_a_smaller_bank_needs_its_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[UnlimitedPlan] = []
    is_valid_for = UnlimitedPlan.is_valid_for

    def collect(plan: UnlimitedPlan, arch: Arch, most: int) -> bool:
        found.append(plan)
        return is_valid_for(plan, arch, most)

    monkeypatch.setattr(UnlimitedPlan, "is_valid_for", collect)
    compile(load_network("digits-cnn").package, Arch(isa="v5"), data=False)
    plans = tuple(found)  # each question appends to the list
    assert plans
    for plan in plans:
        machine = Arch(isa="v5")
        banks = [machine.granule * (plan.least_bank // machine.granule + one) for one in (0, 1)]
        sizes = [machine.model_copy(update={"sram_bytes": 16 * bank}) for bank in banks]
        ahead = plan.placed.most_ahead
        assert [plan.is_valid_for(size, ahead) for size in sizes] == [
            banks[0] == plan.least_bank,
            True,
        ]
        assert not plan.is_valid_for(sizes[1], ahead - 1)
        assert max(address % UNLIMITED for address in plan.placed.addresses) < plan.least_bank
        assert max(plan.resize(sizes[1])) < sizes[1].sram_bytes
