"""Loop nests that count atoms: groups of channels that share atoms are tiled together or merged."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from byoc.emission.region import layers_of
from byoc.operators.nest import LoopNest
from byoc.operators.packing import _split_into_atoms
from isa.arch import Arch
from isa.layout import Layout
from tests.byoc import region_cases as cases


@pytest.mark.parametrize("atom", [4, 8, 16])
def test_groups_end_with_atoms(atom: int) -> None:
    """There are as many groups as possible, all of whole atoms.

    On both sides each has several channels.
    """
    for groups, inputs, outputs in product(
        (2, 3, 4, 5, 6, 10, 12), (1, 2, 3, 4, 6, 8, 12), (1, 2, 4, 6, 8)
    ):
        if inputs == outputs == 1:
            continue
        plain = LoopNest(groups * outputs, 5, 5, groups * inputs, 5, 5, groups=groups)
        nest = _split_into_atoms(plain, atom)
        able = [
            count
            for count in range(1, groups + 1)
            if groups % count == 0
            and (
                count == 1
                or groups // count * inputs % atom == groups // count * outputs % atom == 0
            )
        ]
        assert nest.channels == -(-groups * outputs // atom)
        assert nest.input_channels == -(-groups * inputs // atom)
        assert nest.groups == max(able), (groups, inputs, outputs)
        shared = any(size % atom for size in (inputs, outputs))
        assert nest.channel_step == (nest.group_outputs if shared else 0)


def test_depthwise_channels_stay_apart() -> None:
    """Each atom of a depthwise convolution is a group, including the last, partly filled one."""
    nest = _split_into_atoms(LoopNest(20, 5, 5, 20, 5, 5, groups=20), 8)
    assert (nest.channels, nest.input_channels, nest.groups, nest.channel_step) == (3, 3, 3, 0)


@pytest.mark.parametrize("images", [1, 3])
def test_element_wise_operations_compute_all_bytes_of_all_images(images: int) -> None:
    """The atoms of each image are complete, padding included: a row of the nest is an atom."""
    layout = Layout(5, 6, 8, images=images)
    plain = cases.add(cases.operand("a", images, 5, 6), cases.operand("b", images, 5, 6), "y")
    inputs = tuple(replace(one, assigned=layout) for one in plain.inputs)
    operation = replace(plain, inputs=inputs, output=replace(plain.output, assigned=layout))
    region, values = cases.region((operation,), ("a", "b"), ("y",))
    _, (layer,) = layers_of(region, values, Arch(isa="v5", atom=8))
    nest = layer.geometry.nest
    assert (
        nest.rows * nest.columns
        == nest.input_rows * nest.input_columns
        == images * layout.image_bytes
    )
    assert nest.columns == layout.atom
