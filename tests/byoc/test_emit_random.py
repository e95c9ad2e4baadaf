"""Programs of random small regions on random machines are legal and equal the records to the bit.

They are executed in stream order.
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from byoc.emission.region import shortage
from byoc.operators.operator import Operator
from byoc.operators.records import Operand
from byoc.options import SCHEDULES, Schedule
from isa.arch import Arch, PeArray
from tests.byoc import region_cases as cases
from tests.byoc.ordering import unordered_conflicts
from tests.isa.legality import check_legality

ARCHS = st.builds(
    lambda ic, oc, ow, sram, alignment: Arch(
        pe=PeArray(ic=ic, oc=oc, ow=ow), sram_bytes=sram, sram_banks=1, alignment=alignment
    ),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([1, 4, 64]),
    st.sampled_from([1, 3]),
    st.sampled_from([600, 1100, 1700, 2600, 5000, 60_000]),
    st.sampled_from([4, 8, 64]),
)
STEPS = st.lists(
    st.sampled_from(["conv", "strided", "depthwise", "pool", "average", "add", "relu", "concat"]),
    max_size=6,
)


def _next(
    kind: str, source: Operand, earlier: list[Operand], name: str, random: np.random.Generator
) -> Operator:
    """Return an operation on ``source`` with a window that fits its shape."""
    channels = int(random.integers(1, 9))
    if kind == "conv":
        return cases.convolution(random, source, name, channels, pads=(1, 1, 1, 1))
    if kind == "strided":
        return cases.convolution(
            random, source, name, channels, kernel=(2, 1), strides=(2, 2), pads=(1, 0, 1, 0)
        )
    if kind == "depthwise":
        many = source.shape[0] * int(random.integers(1, 3))
        return cases.convolution(random, source, name, many, pads=(1, 1, 1, 1), depthwise=True)
    if kind in ("pool", "average"):
        mode = "max" if kind == "pool" else "average"
        return cases.pool(
            source, name, mode, kernel=(2, 2), strides=(1, 2), pads=(1, 1, 0, 0), offset=128
        )
    same = [operand for operand in earlier if operand.shape == source.shape]
    if kind == "add" and same:
        return cases.add(source, same[int(random.integers(len(same)))], name)
    if kind == "concat":
        other = next(operand for operand in earlier if operand.shape[1:] == source.shape[1:])
        depth, *plane = other.shape[0] + source.shape[0], *source.shape[1:]
        return cases.alias((other, source), cases.operand(name, depth, *plane), (0, other.elements))
    return cases.unary(source, name, "relu")


@given(
    ARCHS,
    STEPS,
    st.tuples(st.integers(1, 6), st.integers(1, 14), st.integers(1, 12)),
    st.integers(0, 999),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_random_regions(
    arch: Arch, kinds: list[str], shape: tuple[int, int, int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    earlier = [cases.operand("x", *shape)]
    operations: list[Operator] = []
    for number, kind in enumerate(["conv", *kinds]):
        operations.append(_next(kind, earlier[-1], earlier, f"v{number}", random))
        earlier.append(operations[-1].output)
    outputs = {earlier[-1].value, earlier[int(random.integers(1, len(earlier)))].value}
    made, values = cases.region(tuple(operations), ("x",), tuple(sorted(outputs)))
    inputs = cases.random_inputs(made, values, seed)
    wanted = cases.expected(made, values, inputs)
    schedules: tuple[Schedule, ...] = SCHEDULES
    fitting = [
        s
        for s in schedules
        if all(shortage(operation, arch, s) is None for operation in operations)
    ]
    assume(fitting)
    for schedule in fitting:
        program = cases.compile_case(made, values, arch, schedule)
        check_legality(program.commands)
        assert unordered_conflicts(program.commands, arch) == []
        results = cases.execute(program, inputs, seed)
        for name in made.outputs:
            np.testing.assert_array_equal(
                results[name], wanted[name], err_msg=f"{name} with {schedule}"
            )
