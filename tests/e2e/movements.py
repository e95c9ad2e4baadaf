"""Random data movement between two quantised operators, on the device against ONNX Runtime.

``python -m tests.e2e.movements FIRST END`` runs these seeds and prints what differs and what falls
back.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.importing import package_of
from isa.arch import Arch
from tests.byoc.small_models import ModelBuilder
from tests.e2e.harness import Comparison, compare

ARCHS = {
    "ample": Arch(isa="v4"),
    "small": Arch(isa="v4", sram_bytes=1024, sram_banks=2),
    "odd": Arch.model_validate(
        {"isa": "v4", "pe": {"ic": 3, "oc": 5, "ow": 2}, "sram_bytes": 4096, "sram_banks": 4}
    ),
}


class Drawn(NamedTuple):
    """A tensor that is about to be moved."""

    rng: np.random.Generator
    builder: ModelBuilder
    name: str
    shape: tuple[int, ...]
    dtype: str

    def numbers(self, values: Any) -> str:
        return self.builder.constant(np.asarray(values), "int64")

    def move(self, operator: str, *parameters: str, **attributes: Any) -> str:
        return self.builder.node(operator, self.name, *parameters, name="moved", **attributes)


def _slice(x: Drawn) -> str:
    starts = [int(x.rng.integers(0, size)) for size in x.shape]
    ends = [
        int(x.rng.integers(start + 1, size + 1))
        for start, size in zip(starts, x.shape, strict=True)
    ]
    steps = [int(x.rng.choice([1, 1, 2, 3])) for _ in x.shape]
    if x.rng.random() < 0.2:
        axis = int(x.rng.integers(4))
        starts[axis] = x.shape[axis] - 1
        ends[axis] = -1000
        steps[axis] = -1
    return x.move(
        "Slice", x.numbers(starts), x.numbers(ends), x.numbers(range(4)), x.numbers(steps)
    )


def _pad(x: Drawn) -> str:
    mode = str(x.rng.choice(["constant", "constant", "reflect", "edge"]))
    if mode != "constant":
        _, _, h, w = x.shape
        border = [0, 0, min(h - 1, 2), min(w - 1, 1), 0, 0, min(h - 1, 1), min(w - 1, 3)]
        return x.move("Pad", x.numbers(border), mode=mode)
    value = float(x.rng.uniform(-3, 3)) if x.dtype == "float32" else int(x.rng.integers(0, 100))
    return x.move("Pad", x.numbers(x.rng.integers(0, 3, 8)), x.builder.constant(value, x.dtype))


def _resize(x: Drawn) -> str:
    if x.rng.random() < 0.4:
        return x.move("Resize", "", x.builder.constant([1, 1, 2, 2], "float32"), mode="nearest")
    sizes = x.numbers([*x.shape[:2], *x.rng.integers(1, 20, 2)])
    coordinates = str(
        x.rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    )
    rounding = str(x.rng.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]))
    how = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    return x.move("Resize", "", "", sizes, mode="nearest", **how)


def _concat(x: Drawn) -> str:
    axis = int(x.rng.integers(4))
    other = x.name
    if x.dtype == "float32":
        scale = float(x.rng.choice([0.05, 0.03]))
        other = x.builder.quantize(x.builder.node("Relu", x.name), scale, 3, "int8")
        other = x.builder.dequantize(other, scale, 3, "int8")
    return (
        x.move("Concat", other, axis=axis)
        if x.rng.random() < 0.5
        else x.move("Concat", other, x.name, axis=axis)
    )


def _gather_elements(x: Drawn) -> str:
    axis = int(x.rng.integers(4))
    shape = [int(x.rng.integers(1, size + 1)) for size in x.shape]
    size = x.shape[axis]
    return x.move("GatherElements", x.numbers(x.rng.integers(-size, size, shape)), axis=axis)


def _gather_nd(x: Drawn) -> str:
    depth = int(x.rng.integers(1, 5))
    places = np.stack([x.rng.integers(-size, size, (3, 4)) for size in x.shape[:depth]], axis=-1)
    return x.move("GatherND", x.numbers(places))


def _reverse(x: Drawn) -> str:
    lengths = x.numbers(x.rng.integers(1, x.shape[1] + 1, x.shape[0]))
    return x.move("ReverseSequence", lengths, batch_axis=0, time_axis=1)


KINDS: Mapping[str, Callable[[Drawn], str]] = {
    "Transpose": lambda x: x.move("Transpose", perm=[int(axis) for axis in x.rng.permutation(4)]),
    "Slice": _slice,
    "Pad": _pad,
    "DepthToSpace": lambda x: x.move(
        "DepthToSpace", blocksize=2, mode=str(x.rng.choice(["DCR", "CRD"]))
    ),
    "SpaceToDepth": lambda x: x.move("SpaceToDepth", blocksize=2),
    "Resize": _resize,
    "Tile": lambda x: x.move("Tile", x.numbers(x.rng.integers(1, 3, 4))),
    "Expand": lambda x: x.move(
        "Expand", x.numbers([3 if x.shape[0] == 1 else 1, 1, x.shape[2], 1])
    ),
    "Gather": lambda x: x.move("Gather", x.numbers(x.rng.integers(0, x.shape[1], 5)), axis=1),
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ReverseSequence": _reverse,
    "Trilu": lambda x: x.move(
        "Trilu", x.numbers(int(x.rng.integers(-3, 4))), upper=int(x.rng.integers(2))
    ),
    "CenterCropPad": lambda x: x.move(
        "CenterCropPad", x.numbers(x.rng.integers(1, 15, 2)), axes=[2, 3]
    ),
    "Concat": _concat,
}
FLOAT_ONLY = ("Trilu",)
"""What ONNX Runtime has no integers of 8 bits for."""


def draw(seed: int, kind: str) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """Draw a movement between two quantised operators, and its input.

    The movement is between two scales or on plain integers.
    """
    rng = np.random.default_rng([seed, *kind.encode()])
    builder = ModelBuilder(
        opset=int(rng.choice([18, 19, 21] if kind == "CenterCropPad" else [17, 19, 21]))
    )
    dtype = "int8" if kind == "Concat" else str(rng.choice(["int8", "uint8"]))
    numbers = float(np.float32(rng.uniform(0.01, 0.1))), int(rng.integers(0, 100)), dtype
    batch = int(rng.choice([1, 1, 2]))
    channels = int(rng.choice([4, 8, 12] if kind == "DepthToSpace" else [1, 4, 6]))
    even = 2 if kind == "SpaceToDepth" else 1
    shape = batch, channels, even * int(rng.integers(1, 12)), even * int(rng.integers(1, 14))
    x = builder.dequantize(builder.quantize(builder.input("x", shape), *numbers), *numbers)
    x = builder.quantize(builder.node("LeakyRelu", x, alpha=0.5), *numbers)
    plain = rng.random() < 0.3 and kind not in FLOAT_ONLY
    moved = Drawn(
        rng,
        builder,
        x if plain else builder.dequantize(x, *numbers),
        shape,
        dtype if plain else "float32",
    )
    y = KINDS[kind](moved)
    after = (
        numbers if plain or rng.random() < 0.7 else (0.06, 7, str(rng.choice(["int8", "uint8"])))
    )
    y = builder.dequantize(y if plain else builder.quantize(y, *after), *after)
    builder.dequantize(
        builder.quantize(builder.node("LeakyRelu", y, alpha=0.25), *numbers), *numbers
    )
    builder.nodes[-1].output[0] = "y"
    builder.output("y")
    return builder.model(), {"x": (3 * rng.standard_normal(shape)).astype(np.float32)}


def run(seed: int, kind: str, arch: str, schedule: str) -> Comparison:
    """The comparison of a drawn model."""
    model, feeds = draw(seed, kind)
    return compare(package_of(model, "movement"), feeds, ARCHS[arch], schedule)


def reasons(found: Comparison) -> list[str]:
    """Why what should move on the accelerator does not."""
    return [
        place.reason or ""
        for place in found.partition.placement
        if place.node == "moved" and place.on == "cpu"
    ]


def main(first: int, end: int) -> int:
    """Run all kinds with the seeds and return 1 if any differs."""
    elements = 0
    different = 0
    fallen = Counter[str]()
    for seed in range(first, end):
        for number, kind in enumerate(KINDS):
            arch = list(ARCHS)[(seed + number) % 3]
            schedule = ("default", "seed")[(seed + number) % 2]
            found = run(seed, kind, arch, schedule)
            elements = elements + found.elements
            different = different + found.mismatches
            fallen.update(f"{kind}: {reason}" for reason in reasons(found))
            if found.mismatches:
                print(
                    f"seed {seed}, {kind} on {arch}, schedule {schedule}: {found.mismatches} "
                    "elements differ"
                )
    print(f"{different} of {elements} elements of {(end - first) * len(KINDS)} models differ")
    print("\n".join(f"{count:6} {reason}" for reason, count in fallen.most_common()))
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
