"""Level 10: seeded random instructions on random machines with random timings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE, MAX
from tests.golden_cases.operations import Convolution, Pooling, Resizing, Window, int8
from tests.golden_cases.tensor_operations import (
    Addition,
    DynamicProduct,
    LookUp,
    OnRows,
    Permutation,
    Product,
    Repeating,
    Requantisation,
    Unary,
    pair_case,
    shift_case,
)

CASES = 120
Rng = np.random.Generator
Draw = Callable[[Rng, str, Arch, Timing], GoldenCase]


LATER = 128
"""Cases with these, those of instructions that came after the first 120."""


def cases() -> Iterator[GoldenCase]:
    """:data:`LATER` cases; number n is drawn from the seed n and does not depend on the others."""
    for seed in range(LATER):
        rng = np.random.default_rng(1000 + seed)
        name, draw = list(DRAWS.items())[seed % len(DRAWS)] if seed < CASES else ("lut", _look_up)
        arch = random_arch(rng) if seed < CASES else random_arch(rng, "v4")
        yield draw(rng, f"L10/{seed:03}-{name}", arch, _timing(rng))
    for name, draw in YOUNGER.items():
        for number in range(8):
            rng = np.random.default_rng([number, *name.encode()])
            yield draw(rng, f"L10/{name}-{number}", random_arch(rng, "v4"), _timing(rng))


def _pick(rng: Rng, *values: int) -> int:
    return int(values[rng.integers(len(values))])


def random_arch(rng: Rng, isa: str = "v3") -> Arch:
    """A machine with an array of any shape."""
    pe = {
        axis: _pick(rng, *sizes)
        for axis, sizes in (("ic", (1, 3, 8, 16)), ("oc", (1, 5, 8, 16)), ("ow", (1, 1, 2)))
    }
    numerics = ("onnxruntime", "fixed")[rng.integers(2)]
    lanes = (None, 1, 6, 64)[rng.integers(4)]
    banks = _pick(rng, 1, 4, 16)
    values = {"isa": isa, "pe": pe, "numerics": numerics, "post_lanes": lanes, "sram_banks": banks}
    return Arch.model_validate({**values, "sram_bytes": 65536})


def _timing(rng: Rng) -> Timing:
    bus = _pick(rng, 1, 4, 8, 16)
    return Timing(
        bus_bytes=bus,
        burst_bytes=bus * _pick(rng, 1, 4, 8),
        dram_latency=_pick(rng, 0, 13, 100, 250),
        outstanding_bursts=_pick(rng, 1, 3, 16),
        queue_depth=_pick(rng, 1, 2, 5),
        fetch_bytes=_pick(rng, 8, 40, 512),
        fetch_buffers=_pick(rng, 1, 3),
        sram_read_bytes=_pick(rng, 0, 0, 5, 32),
        sram_write_bytes=_pick(rng, 0, 0, 3, 16),
        bank_ports=_pick(rng, 1, 2, 4),
    )


def _zero(rng: Rng) -> int:
    return int(rng.integers(-128, 128))


def _limits(rng: Rng, least: int = -128) -> tuple[int, int]:
    """Clamp limits; the upper one is at least ``least``, for the zero point that ReLU clamps to."""
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    return (-128, 127) if rng.integers(2) else (low, max(high, least))


def _window(rng: Rng, channels: int) -> Window:
    """A window whose padded input holds it at least once."""
    kernel = _pick(rng, 1, 2, 3, 5), _pick(rng, 1, 3, 3, 4)
    dilation = _pick(rng, 1, 1, 2), _pick(rng, 1, 1, 3)
    stride = _pick(rng, 1, 1, 2, 3), _pick(rng, 1, 2, 4)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rows, columns = (int(size + rng.integers(0, 6)) for size in reach)
    top, left, bottom, right = rng.integers(0, 4, 4).tolist()
    return Window((channels, rows, columns), kernel, stride, dilation, (top, left, bottom, right))


def _convolution(groups: int) -> Draw:
    def draw(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
        count = {0: 1, -1: 1}.get(groups) or _pick(rng, 1, 2, 3)
        inputs = count * int(rng.integers(1, 9))
        outputs = inputs * _pick(rng, 1, 2) if groups == -1 else count * int(rng.integers(1, 9))
        relu = bool(rng.integers(2))
        zero = _zero(rng)
        convolution = Convolution(
            _window(rng, inputs), outputs, count if groups > 0 else groups, bool(rng.integers(4)),
            relu,
            (_zero(rng), zero), _limits(rng, zero if relu else -128),
        )  # fmt: skip
        return convolution.case(name, f"seeded {convolution.mnemonic}", arch, timing)

    return draw


def _pool(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    mode = _pick(rng, MAX, AVERAGE, GLOBAL_AVERAGE)
    window = _window(rng, int(rng.integers(1, 9)))
    if mode == GLOBAL_AVERAGE:
        window = Window(window.shape, window.shape[1:], padding=(0, 0, 0, 0))
    scales = float(rng.uniform(0.01, 0.1)), float(rng.uniform(0.01, 0.1))
    pooling = Pooling(
        mode, window, scales, (_zero(rng), _zero(rng)), _limits(rng), count_include_pad=True
    )
    return pooling.case(name, "seeded OP_POOL", arch, timing)


def _product(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    m, k, n = (int(rng.integers(1, limit)) for limit in (7, 80, 20))
    relu = bool(rng.integers(2))
    zero = _zero(rng)
    product = Product(
        (m, k, n), bool(rng.integers(4)), relu, zero, _limits(rng, zero if relu else -128)
    )
    return product.case(name, "seeded OP_MAT_MUL", arch, timing)


def _requant(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    rows, channels, length = (int(rng.integers(1, limit)) for limit in (4, 9, 30))
    requantisation = Requantisation((rows, channels, length), _zero(rng), _limits(rng))
    return requantisation.case(name, "seeded OP_REQUANT", arch, timing)


def _unary(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    mnemonic = ("OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS")[rng.integers(3)]
    scales = float(rng.uniform(0.01, 0.1)), float(rng.uniform(0.01, 0.1))
    zeros = _zero(rng), _zero(rng)
    unary = Unary(
        mnemonic, int(rng.integers(1, 300)), scales, float(rng.uniform(0, 1)), zeros, _limits(rng)
    )
    return unary.case(name, f"seeded {mnemonic}", arch, timing)


def _look_up(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    shape = int(rng.integers(1, 4)), _pick(rng, 1, 1, 3, 8), _pick(rng, 1, 30, 300)
    return LookUp(shape).case(name, "seeded OP_LUT", arch, timing)


def _dynamic(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    m, k, n = (int(rng.integers(1, limit)) for limit in (7, 80, 20))
    zeros = (_zero(rng), _zero(rng), _zero(rng))
    limits = _limits(rng)
    product = DynamicProduct(
        (m, k, n), bool(rng.integers(2)), bool(rng.integers(4)), 0.0002, zeros, limits
    )
    return product.case(name, "seeded OP_DYN_MAT_MUL", arch, timing)


def _permute(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    """Draw a transposition of up to four dimensions that repeats or omits some sources."""
    counts = [_pick(rng, 1, 2, 3, 7, 20) for _ in range(4)]
    steps = [0] * 4
    leaps = [0] * 4
    source = result = 1
    for dimension in range(4):
        leaps[dimension] = result
        result = result * counts[dimension]
    for dimension in rng.permutation(4):
        stride = _pick(rng, 0, 1, 1, 1, 2)
        steps[dimension] = stride * source
        source = max(source, stride * source * counts[dimension])
    fill = _pick(rng, -128, 0, 127) if rng.random() < 0.2 else None
    dims = tuple(zip(counts, steps, leaps, strict=True))
    return Permutation(source, result, dims, fill).case(name, "seeded OP_PERMUTE", arch, timing)


def _repeating(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    mnemonic = ("OP_E_MUL", "OP_E_SUB", "OP_B_ADD", "OP_B_MIN", "OP_B_MAX")[rng.integers(5)]
    a, b, y = (float(rng.uniform(0.01, 0.1)) for _ in range(3))
    offset = _pick(rng, 0, 128)
    shape = (int(rng.integers(1, 9)), _pick(rng, 1, 30, 170))
    first, second, third = (_zero(rng) + offset for _ in range(3))
    repeats = (int(rng.integers(4)), int(rng.integers(4)))
    zeros = (first, second, third)
    made = Repeating(mnemonic, shape, repeats, (a, b, y), zeros, offset, _limits(rng))
    return made.case(name, f"seeded {mnemonic}", arch, timing)


def _rows(mnemonic: str, **fields: int) -> Draw:
    """Rows of any shape; every field below its number of values."""

    def draw(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
        shape = int(rng.integers(1, 4)), _pick(rng, 2, 9, 40, 200), _pick(rng, 1, 1, 8, 33)
        scales = float(rng.uniform(0.005, 0.2)), float(rng.uniform(0.004, 0.05))
        zeros = int(rng.integers(-128, 128)), int(rng.integers(-128, 128))
        planes = _pick(rng, 0, shape[2] + 3), _pick(rng, 0, shape[2] + 1)
        chosen = {field: int(rng.integers(count)) for field, count in fields.items()}
        dense = mnemonic == "OP_NORM"
        on_rows = OnRows(mnemonic, shape, chosen, scales, zeros, planes=(0, 0) if dense else planes)
        return on_rows.case(name, f"seeded {mnemonic}", arch, timing)

    return draw


def _resize(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    height = int(rng.integers(1, 12))
    width = int(rng.integers(1, 12))
    rows, columns = (
        tuple(np.sort(rng.uniform(-0.5, size, rng.integers(1, 14))).astype(np.float32).tolist())
        for size in (height, width)
    )
    scales = float(rng.uniform(0.005, 0.2)), float(rng.uniform(0.005, 0.2))
    shape = (int(rng.integers(1, 6)), height, width)
    zeros = (_zero(rng), _zero(rng))
    return Resizing(shape, rows, columns, scales, zeros).case(
        name, "seeded OP_RESIZE", arch, timing
    )


def _addition(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    a, b, y = (float(rng.uniform(0.01, 0.1)) for _ in range(3))
    offset = _pick(rng, 0, 128)
    first, second, third = (_zero(rng) + offset for _ in range(3))
    added = Addition(
        int(rng.integers(1, 300)), (a, b, y), (first, second, third), offset, _limits(rng)
    )
    return added.case(name, "seeded OP_E_ADD", arch, timing)


def _pair(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    mnemonic = ("OP_C_MIN", "OP_C_MAX", "OP_E32_ADD")[rng.integers(3)]
    length = int(rng.integers(1, 200))
    if mnemonic == "OP_E32_ADD":
        wide = rng.integers(-(2**30), 2**30, (2, length), dtype=np.int32)
        return pair_case(
            name, f"seeded {mnemonic}", arch, mnemonic, (wide[0], wide[1]), None, timing
        )
    return pair_case(
        name,
        f"seeded {mnemonic}",
        arch,
        mnemonic,
        (int8(rng, length), int8(rng, length)),
        None,
        timing,
    )


def _shift(rng: Rng, name: str, arch: Arch, timing: Timing) -> GoldenCase:
    data = rng.integers(-(2**31), 2**31, int(rng.integers(1, 100)), dtype=np.int32)
    return shift_case(
        name, "seeded OP_E32_SHIFT", arch, data, int(rng.integers(0, 32)), 1, int(rng.integers(3))
    )


DRAWS: dict[str, Draw] = {
    "conv": _convolution(0), "depth": _convolution(-1), "group": _convolution(1), "pool": _pool,
    "matmul": _product,
    "conv-again": _convolution(0), "requant": _requant, "unary": _unary, "add": _addition,
    "pair": _pair,
    "shift": _shift, "pool-again": _pool,
}  # fmt: skip
"""What is drawn, in turn."""
YOUNGER: Mapping[str, Draw] = {
    "permute": _permute,
    "product": _dynamic,
    "repeating": _repeating,
    "reduce": _rows("OP_REDUCE", mode=3),
    "softmax": _rows("OP_SOFTMAX"),
    "norm": _rows("OP_NORM", centred=2, by_row=2),
    "resize": _resize,
}
"""Instructions whose cases are drawn by their own names: another one changes none of them."""
