"""More memory, banks, array and a wider bus cost no cycles, where they once did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from byoc import import_model
from tests.e2e.more_hardware import DrawnMachine
from tests.e2e.more_memory import KINDS, LIMIT, package_of
from tests.e2e.random_networks import random_network


@pytest.mark.parametrize(
    ("kind", "number", "smaller", "more"),
    [
        ("matmul-activations", 0, DrawnMachine("v4", (1, 64, 1), 16, 4, 4), {"bus": 8}),
        ("conv-1d", 3, DrawnMachine("v4", (1, 64, 1), 32, 4, 4), {"array": (1, 64, 2)}),
        ("conv-transposed", 1, DrawnMachine("v5", (16, 16, 1), 128, 4, 16), {"kib": 512}),
        ("concat", 0, DrawnMachine("v5", (8, 8, 1), 32, 8, 8), {"array": (16, 8, 1)}),
    ],
)
def test_a_layer_takes_no_more_cycles(kind: str, number: int, smaller: DrawnMachine, more: dict[str, object]) -> None:
    """The product took 16 % more with the wider bus, the convolution 373 % with two columns.

    The transposed convolution took 15 % more with four times the memory, and the concatenation of 24 and 48 channels
    103 % more with atoms of 16.
    """
    package, larger = package_of(KINDS[kind][number]), replace(smaller, **more)
    (nodes, before), (others, after) = smaller.cycles(package), larger.cycles(package)
    assert nodes == others
    assert after <= (1 + LIMIT) * before


@pytest.mark.parametrize(("seed", "kib", "banks"), [(15, 64, 8), (43, 32, 4)])
def test_more_banks_cost_a_network_no_cycles(seed: int, kib: int, banks: int) -> None:
    """The places of four times the banks took 7 % and 21 % more cycles: loads waited for stores."""
    model, inputs = random_network(seed)
    package = import_model(model, calibration=iter([inputs]))
    machine = DrawnMachine("v5", (16, 16, 1) if seed == 15 else (1, 64, 1), kib, banks, 4 if seed == 15 else 8)
    before, after = (one.cycles(package)[1] for one in (machine, replace(machine, banks=4 * banks)))
    assert after <= (1 + LIMIT) * before
