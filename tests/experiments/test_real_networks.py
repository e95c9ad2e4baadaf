"""The record of real networks is complete, within its limits, and shown in the documentation.

``python -m benchmarks.real_networks`` measures it; this needs packages that CI does not have.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from benchmarks.real_networks import (
    RealNetwork,
    count_mismatches,
    draw,
    find_file,
    format_table,
    measure_noise,
    read_networks,
    read_record,
    write_record,
)

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks/real_networks.csv"
RECORD = read_record(FILE)
RAN = [found for found in RECORD.values() if not found.error]


def test_every_network_has_a_row() -> None:
    networks = read_networks()
    assert [network.title for network in networks] == list(RECORD)
    assert all(bool(network.file) != bool(network.make) for network in networks)


def test_networks_run_without_mismatch_in_few_regions() -> None:
    """The accelerator's outputs are those of sessions that the script opens by itself."""
    assert len(RAN) >= 40
    assert all(found.mismatches == 0 < found.elements for found in RAN)
    assert median(found.regions for found in RAN) == 1
    assert sum(found.regions <= 2 for found in RAN) >= 0.9 * len(RAN)


def test_the_cpu_has_little_to_do_between_integer_inputs_and_outputs() -> None:
    assert sum(found.integer_share <= 0.05 for found in RAN) >= 0.9 * len(RAN)


def test_the_document_shows_the_record(tmp_path: Path) -> None:
    """docs/validation.md has the table that ``--table benchmarks/real_networks.csv`` prints."""
    assert format_table(RECORD) in (ROOT / "docs/validation.md").read_text()
    write_record(tmp_path / "again.csv", RECORD)
    assert (tmp_path / "again.csv").read_text() == FILE.read_text()


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    network = RealNetwork("a network", "not-a-package", make=("keras", "MobileNet", "32"))
    pythons = [sys.executable]  # the project's own installation has no TensorFlow
    with pytest.raises(LookupError, match="not installed: pip install not-a-package"):
        find_file(network, tmp_path, pythons)


def test_outputs_are_compared_bit_by_bit_and_by_noise() -> None:
    a = np.array([1.0, np.nan, 2.0], np.float32)
    b = np.array([1.0, np.nan, np.nextafter(np.float32(2), np.float32(3))], np.float32)
    assert count_mismatches([a], [a]) == 0
    assert count_mismatches([a], [b]) == 1
    assert math.isclose(measure_noise([np.full(4, 1.1)], [np.ones(4)]), 20.0)
    assert measure_noise([np.zeros(4, np.int64)], [np.ones(4, np.int64)]) == 0.0


@pytest.mark.parametrize("kind", ["photograph", "words"])
@pytest.mark.parametrize("shape", [(1, 3, 32, 48), (1, 32, 48, 3), (1, 1, 40, 24)])
def test_drawn_images_have_the_shape_of_the_input(kind: str, shape: tuple[int, ...]) -> None:
    first, second = draw(kind, shape, 2)
    assert first.shape == second.shape == shape
    assert (first != second).any()
    assert (first == draw(kind, shape, 1)[0]).all()


def test_drawn_indices_are_below_the_limit() -> None:
    (ids,) = draw("ids:7", (1, 200), 1)
    assert set(ids.reshape(-1)) == set(range(7))
