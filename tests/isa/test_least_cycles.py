"""No grid of commands takes fewer cycles than the least cycles of a convolution.

Each command has its best mapping.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np

from isa.arch import Arch, PeArray
from isa.instruction import Command, Unit, ceil_div
from isa.ops.convolution import (
    MAPPING,
    ConvolutionWork,
    best_mapping,
    compute_mapped_cycles,
    least_mapped_cycles,
)
from isa.plugins import variant
from isa.registers import RESET

Random = np.random.Generator


def best(work: ConvolutionWork, arch: Arch) -> int:
    return min(compute_mapped_cycles(work, mapping, arch) for mapping in range(MAPPING.maximum + 1))


def parts(random: Random, size: int) -> list[int]:
    """``size`` in pieces of any sizes."""
    cuts = sorted({0, size, *random.integers(0, size + 1, int(random.integers(0, 4))).tolist()})
    return [stop - start for start, stop in pairwise(cuts)]


def grid(random: Random, work: ConvolutionWork, arch: Arch) -> int:
    """Return the cycles of work that is split along every dimension, with the best mappings.

    Rows count as one dimension.
    """
    dimensions = [parts(random, size) for size in work[:-1]]
    return sum(
        best(ConvolutionWork._make((*sizes, work.taps)), arch) for sizes in product(*dimensions)
    )


def test_no_grid_of_commands_takes_less() -> None:
    random = np.random.default_rng(3)
    ratios = []
    for _ in range(700):
        pe = PeArray(
            **{name: int(random.choice([1, 2, 3, 4, 7, 16, 32])) for name in ("ic", "oc")}, ow=1
        )
        arch = Arch(isa="v4", pe=pe.model_copy(update={"ow": int(random.integers(1, 4))}))
        groups = int(random.choice([1, 1, 2, 5, 12]))
        inputs, outputs, rows, columns = random.integers(1, (12, 40, 4, 30)).tolist()
        work = ConvolutionWork(
            groups, inputs, outputs, rows, columns, int(random.choice([1, 3, 9]))
        )
        least = least_mapped_cycles(work, arch)
        whole = best(work, arch)
        assert ceil_div(prod(work), arch.pe.count) <= least <= whole
        assert all(least <= grid(random, work, arch) for _ in range(4))
        ratios.append(whole / least)
    assert np.median(ratios) < 1.25  # it is no bound for its own sake


def test_where_nothing_is_idle_one_command_takes_the_least() -> None:
    arch = Arch(isa="v4", pe=PeArray(ic=4, oc=16))
    assert least_mapped_cycles(ConvolutionWork(1, 64, 128, 14, 14, 1), arch) == best(
        ConvolutionWork(1, 64, 128, 14, 14, 1), arch
    )
    # 16 channels, then 8 with two columns at once.
    assert (
        least_mapped_cycles(ConvolutionWork(1, 4, 24, 1, 10, 1), arch),
        best(ConvolutionWork(1, 4, 24, 1, 10, 1), arch),
    ) == (15, 20)


def test_of_equal_mappings_the_one_is_best_that_serves_parts_of_the_work_too() -> None:
    arch = Arch(isa="v4", pe=PeArray(ic=8, oc=8))
    whole = ConvolutionWork(1, 8, 16, 4, 6, 9)
    assert {compute_mapped_cycles(whole, mapping, arch) for mapping in range(4)} == {2 * 9 * 4 * 6}
    assert best_mapping(whole, arch) == 3
    narrow = whole._replace(outputs=2)  # four columns at once
    assert [compute_mapped_cycles(narrow, mapping, arch) for mapping in range(4)] == [
        216,
        216,
        72,
        72,
    ]


def test_copies_may_choose_the_order_of_their_dimensions() -> None:
    instruction, _ = variant("v4").by_mnemonic["OP_PERMUTE"]
    arch = Arch(isa="v4")
    registers = {**RESET, **variant("v4").register_file.reset}
    registers |= {
        "EX_COUNT_1": 3,
        "EX_COUNT_2": 100,
        "EX_INPUT_STRIDE_1": 1,
        "EX_OUTPUT_STRIDE_1": 1,
    }
    command = Command(0, instruction, Unit.EX, False, False, False, False, {"fill": 0}, registers)
    assert (instruction.cycles(command, arch), instruction.least_cycles(command, arch)) == (100, 5)
