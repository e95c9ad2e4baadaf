"""Every rewrite rule alone, on random models.

A rule keeps the results, its condition refuses other models, and a wrong rule is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, helper

from byoc import importing
from byoc.checking.fidelity import TOLERANCE
from byoc.frontend.onnx.rewriting.law import ANY, GraphView, Law, count_applied, make_pass
from byoc.frontend.onnx.rewriting.linear import (
    MeanAsPool,
    MergeProducts,
    ScaleAsDepthwise,
    ScaleBeforeProduct,
    ScaleBehindProduct,
)
from byoc.frontend.onnx.rewriting.movement import (
    ClampBeforeChoice,
    ComposeMovement,
    ComputeBeforeMoving,
    ShareEqual,
)
from byoc.frontend.onnx.rewriting.paddings import PadIntoConv, PadIntoPool
from byoc.frontend.onnx.rewriting.prepare import LAWS
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.runtimes.protobuf import remove_initializers
from tests.byoc.float_models import make_model, operators, random_arrays, run

node = helper.make_node
DRAWS = 60


class Drawing:
    """A chain of nodes on one tensor, whose shape is known."""

    def __init__(self, seed: int, shape: Sequence[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.given = tuple(shape)
        self.shape = tuple(shape)
        self.name = "x"
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Any] = {}

    def add(
        self, op_type: str, *others: Any, shape: Sequence[int] | None = None, **options: Any
    ) -> str:
        """Add a node on the tensor; ``others`` are its other operands: names, or constants."""
        number = len(self.nodes)
        names = []
        for position, other in enumerate(others):
            if not isinstance(other, str):
                self.constants[f"c{number}_{position}"] = other
            names.append(other if isinstance(other, str) else f"c{number}_{position}")
        self.nodes.append(node(op_type, [self.name, *names], [f"t{number}"], **options))
        self.name, self.shape = f"t{number}", tuple(self.shape if shape is None else shape)
        return self.name

    def numbers(self, *shape: int) -> np.ndarray:
        """Random numbers, none of them near 0."""
        signs = self.random.choice([-1.0, 1.0], shape)
        return np.asarray(signs * self.random.uniform(0.5, 2, shape), np.float32)

    def move(self) -> None:
        """Some Reshape, Flatten or Transpose."""
        kind = self.random.choice(["Reshape", "Transpose", "Flatten"])
        if kind == "Transpose":
            perm = self.random.permutation(len(self.shape)).tolist()
            self.add("Transpose", perm=perm, shape=[self.shape[axis] for axis in perm])
        elif kind == "Flatten":
            axis = int(self.random.integers(0, len(self.shape) + 1))
            rows = int(np.prod(self.shape[:axis]))
            self.add("Flatten", axis=axis, shape=(rows, int(np.prod(self.shape)) // rows))
        else:
            left = int(np.prod(self.shape))
            dims = []
            for _ in range(self.random.integers(0, 4)):
                dims.append(
                    int(self.random.choice([n for n in range(1, left + 1) if left % n == 0]))
                )
                left //= dims[-1]
            self.add("Reshape", np.array([*dims, left], np.int64), shape=(*dims, left))

    def scale(self) -> None:
        """Some scale or shift, a number a channel or one."""
        channels = self.shape[1]
        planes = (1,) * (len(self.shape) - 2)
        op_type = str(self.random.choice(["Mul", "Add", "Sub", "Div", "BatchNormalization"]))
        if op_type == "BatchNormalization":
            self.add(
                op_type, *(self.numbers(channels) for _ in range(3)), np.abs(self.numbers(channels))
            )
        else:
            self.add(
                op_type, self.numbers(*((channels, *planes) if self.random.random() < 0.6 else ()))
            )

    def product(
        self, *, pointwise: bool = False, grouped: bool = False, padded: bool = True
    ) -> None:
        """A Conv of planes, a Gemm of rows, of few output channels."""
        channels = self.shape[1]
        made = int(self.random.integers(1, 5)) * 2
        if len(self.shape) == 2:
            turned = int(self.random.integers(0, 2))
            weights = self.numbers(*((made, channels) if turned else (channels, made)))
            self.add(
                "Gemm", weights, self.numbers(made), transB=turned, shape=(self.shape[0], made)
            )
            return
        groups = 2 if grouped and channels % 2 == 0 else 1
        kernel, pad = (1, 0) if pointwise else (3, int(padded and self.random.integers(0, 2)))
        biases = [self.numbers(made)] * int(self.random.integers(0, 2))
        plane = [size + 2 * pad - kernel + 1 for size in self.shape[2:]]
        weights = self.numbers(made, channels // groups, *(kernel for _ in plane))
        pads = [pad] * (2 * len(plane))
        self.add(
            "Conv", weights, *biases, group=groups, pads=pads, shape=(self.shape[0], made, *plane)
        )

    def model(self, *outputs: str) -> ModelProto:
        """Return the drawn model, with the last tensor and ``outputs`` as outputs."""
        self.add("Neg")
        return infer_shapes(
            make_model(self.nodes, self.given, self.constants, outputs=(self.name, *outputs))
        )


def drawn_planes(seed: int) -> Drawing:
    sizes = np.random.default_rng(seed).integers(1, 4, 2) * 2
    return Drawing(seed, (1 + seed % 2, int(sizes[0]), 5, 4 + int(sizes[1])))


def moved(seed: int) -> ModelProto:
    drawing = Drawing(
        seed, np.random.default_rng(seed).choice([1, 2, 3, 4, 6], 1 + seed % 4).tolist()
    )
    for _ in range(2 + seed % 4):
        drawing.move()
    return drawing.model(*([drawing.nodes[0].output[0]] if seed % 3 == 0 else []))


def computed_behind_movement(seed: int) -> ModelProto:
    drawing = Drawing(seed, (3, 3, 3, 3) if seed % 5 == 0 else (2, 4, 3, 2 + seed % 3))
    drawing.move()
    kind = drawing.random.choice(["Sigmoid", "Clip", "Add", "Mul", "square", "pair"])
    rank = len(drawing.shape)
    if seed % 10 == 0 or kind == "pair":
        again = NodeProto.FromString(drawing.nodes[0].SerializeToString())
        drawing.nodes.insert(0, node("Abs", ["x"], ["a"]))
        again.input[0] = "a"
        again.output[0] = "m"
        if seed % 5 == 0 and again.op_type == "Transpose":
            again.attribute[0].ints[:] = [2, 0, 1, 3]  # another movement
        drawing.nodes.append(again)
        drawing.add("Sub", "m")
    elif kind == "square":
        drawing.add("Mul", drawing.name)
    elif kind in ("Add", "Mul"):
        some = int(drawing.random.integers(0, rank + 1))
        drawing.add(kind, drawing.numbers(*drawing.shape[rank - some :]))
    else:
        drawing.add(kind, *([np.float32(-0.5), np.float32(0.5)] if kind == "Clip" else []))
    return drawing.model()


def clamped_choice(seed: int) -> ModelProto:
    drawing = drawn_planes(seed)
    if seed % 2:
        drawing.add("MaxPool", kernel_shape=[2, 3], pads=[seed % 4 // 3] * 4)
    else:
        drawing.nodes.append(node("Abs", ["x"], ["a"]))
        drawing.add("Concat", "a", "a", axis=int(drawing.random.integers(1, 4)))
    choice = drawing.name
    drawing.add("Relu") if seed % 3 else drawing.add("Clip", np.float32(-0.5), np.float32(0.25))
    return drawing.model(*([choice] if seed % 5 == 0 else []))


def computed_twice(seed: int) -> ModelProto:
    drawing = drawn_planes(seed)
    if seed % 2:
        drawing.product()
    else:
        drawing.add("Transpose", perm=[0, 2, 3, 1])
    again = NodeProto.FromString(drawing.nodes[0].SerializeToString())
    again.output[0] = "again"
    if seed % 4 == 2:
        again.attribute[0].ints[:] = [0, 3, 2, 1]
    if seed % 4 == 3:
        drawing.constants["other"] = drawing.numbers(*drawing.constants[again.input[1]].shape)
        again.input[1] = "other"
    drawing.nodes.append(again)
    if seed % 4 == 2:
        return drawing.model("again")
    drawing.add("Sub", "again")
    return drawing.model(*(["again"] if seed % 5 == 0 else []))


def scaled_product(seed: int) -> ModelProto:
    drawing = Drawing(seed, (3, 4)) if seed % 3 == 0 else drawn_planes(seed)
    if seed % 3 == 1:
        weights = drawing.numbers(drawing.shape[1], 4, 2, 2)
        plane = [2 * size for size in drawing.shape[2:]]
        drawing.add("ConvTranspose", weights, strides=[2, 2], shape=(drawing.shape[0], 4, *plane))
    else:
        drawing.product(grouped=True)
    product = drawing.name
    for _ in range(1 + seed % 3):
        drawing.scale()
    return drawing.model(*([product] if seed % 5 == 0 else []))


def product_of_scaled(seed: int) -> ModelProto:
    drawing = Drawing(seed, (3, 4)) if seed % 3 == 0 else drawn_planes(seed)
    for _ in range(1 + seed % 3):
        drawing.scale()
    drawing.product(grouped=True)
    return drawing.model()


def scaled_planes(seed: int) -> ModelProto:
    drawing = drawn_planes(seed)
    drawing.add("Abs")
    for _ in range(1 + seed % 3):
        drawing.scale()
    return drawing.model()


def two_products(seed: int) -> ModelProto:
    drawing = Drawing(seed, (3, 12)) if seed % 3 == 0 else Drawing(seed, (1, 3, 6, 7))
    drawing.product(pointwise=seed % 2 == 0, padded=seed % 4 > 1)
    drawing.product(pointwise=seed % 2 == 1)
    return drawing.model()


def mean_of_planes(seed: int) -> ModelProto:
    drawing = Drawing(seed, (1 + seed % 2, 3, 5, 4)[: 3 + seed % 4 // 2])
    axes = [*range(2, len(drawing.shape))] if seed % 5 else [1, 2]
    drawing.add("ReduceMean", np.array(axes, np.int64), keepdims=seed % 2)
    return drawing.model()


def padded_conv(seed: int) -> ModelProto:
    drawing = drawn_planes(seed)
    pads = [
        0,
        0,
        *drawing.random.integers(0, 3, 2).tolist(),
        0,
        0,
        *drawing.random.integers(0, 3, 2).tolist(),
    ]
    if seed % 4 == 0:
        pads[1] = 2
    (images, channels, *plane) = drawing.shape
    size = len(pads) // 2
    shape = [
        images,
        channels + pads[1],
        *(n + a + b for n, a, b in zip(plane, pads[2:], pads[size + 2 :], strict=False)),
    ]
    value = [np.float32(seed % 5 == 0)] if seed % 3 else []
    drawing.add("Pad", np.array(pads, np.int64), *value, shape=shape)
    drawing.product(grouped=True)
    return drawing.model()


def padded_pool(seed: int) -> ModelProto:
    """MaxPool with padding of its own after a Pad, mostly with -inf and less than the window."""
    drawing = drawn_planes(seed)
    before, after = drawing.random.integers(0, 2 + (seed % 5 == 0), (2, 2)).tolist()
    shape = [*drawing.shape[:2], *map(sum, zip(drawing.shape[2:], before, after, strict=True))]
    pads = np.array([0, 0, *before, 0, 0, *after], np.int64)
    drawing.add("Pad", pads, np.float32(-np.inf if seed % 4 else 0), shape=shape)
    own = drawing.random.integers(0, 2, 4).tolist()
    size = [n + a + b - 2 for n, a, b in zip(shape[2:], own[:2], own[2:], strict=True)]
    options = {"ceil_mode": 1} if seed % 7 == 0 else {}
    drawing.add("MaxPool", kernel_shape=[3, 3], pads=own, shape=[*shape[:2], *size], **options)
    drawing.add("Exp")  # 0 where a window sees padding alone
    return drawing.model()


DRAWN: Mapping[type[Law], Callable[[int], ModelProto]] = {
    ComposeMovement: moved,
    ComputeBeforeMoving: computed_behind_movement,
    PadIntoConv: padded_conv,
    PadIntoPool: padded_pool,
    ClampBeforeChoice: clamped_choice,
    ShareEqual: computed_twice,
    ScaleBehindProduct: scaled_product,
    ScaleBeforeProduct: product_of_scaled,
    ScaleAsDepthwise: scaled_planes,
    MergeProducts: two_products,
    MeanAsPool: mean_of_planes,
}


def test_every_law_has_a_proof() -> None:
    assert {type(law) for law in LAWS} == DRAWN.keys()
    assert len({law.name for law in LAWS}) == len(LAWS)


def differences(before: ModelProto, after: ModelProto, seed: int) -> float:
    """The largest difference of any output, as a share of the largest number of that."""
    onnx.checker.check_model(infer_shapes(after), full_check=True)
    shape = [dim.dim_value for dim in before.graph.input[0].type.tensor_type.shape.dim]
    feeds = random_arrays(seed, x=shape)
    pairs = list(zip(numbers_of(before, feeds), numbers_of(after, feeds), strict=True))
    assert all(old.shape == new.shape for old, new in pairs)
    return max(
        float(np.abs(old - new).max(initial=0) / max(np.abs(old).max(initial=0), 1e-30))
        for old, new in pairs
    )


def numbers_of(model: ModelProto, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs."""
    return [np.asarray(array, np.float64) for array in run(model, feeds)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_keeps_what_a_model_computes(law: Law) -> None:
    """To the bit where it is exact, else but for rounding.

    And the law itself finds nothing more to do.
    """
    times = 0
    for seed in range(DRAWS):
        before = DRAWN[type(law)](seed)
        saved = before.SerializeToString(deterministic=True)
        after = make_pass("law", [law])(before)
        assert before.SerializeToString(deterministic=True) == saved
        times += count_applied(before, after).get(law.name, 0)
        assert differences(before, after, seed) <= (0 if law.exact else TOLERANCE), seed
        assert count_applied(after, make_pass("law", [law])(after)) == {}
    assert times > DRAWS // 4


def refusals(model: ModelProto, law: Law) -> dict[str, str]:
    """By node, why the condition of ``law`` does not hold where its left side stands."""
    start = remove_initializers(model)
    graph = GraphView(start, model)
    roots = (node for node in start.graph.node if node.op_type in law.roots or law.roots == ANY)
    found = {node.name or node.output[0]: law.match(graph, node) for node in roots}
    return {name: reason for name, reason in found.items() if isinstance(reason, str)}


def refused(
    law: Law, nodes: Sequence[NodeProto], shape: Sequence[int], outputs: Sequence[str] = ("y",)
) -> str:
    """Why the law does not hold in a model of these nodes.

    The constants have their shape in their name.
    """
    names = {name for item in nodes for name in item.input if name.startswith("c")}
    shapes = {
        name: [int(size) for size in name[1:].split("_")[0].split("x") if size] for name in names
    }
    model = infer_shapes(make_model(nodes, shape, random_arrays(0, **shapes), outputs=outputs))
    assert make_pass("law", [law])(model) is model
    return "; ".join(refusals(model, law).values())


PLANES = [1, 4, 6, 6]


@pytest.mark.parametrize(
    ("law", "nodes", "shape", "outputs", "reason"),
    [
        (
            ComputeBeforeMoving(),
            [node("Transpose", ["x"], ["a"]), node("Exp", ["a"], ["y"]), node("Neg", ["a"], ["z"])],
            [3, 4],
            ("y", "z"),
            "others read what is moved; others read what is moved",
        ),
        (
            ComputeBeforeMoving(),
            [node("Flatten", ["x"], ["a"], axis=2), node("Add", ["a", "c24"], ["y"])],
            [2, 3, 4, 6],
            ("y",),
            "its constant is moved, too",
        ),
        (
            ComputeBeforeMoving(),
            [
                node("Transpose", ["x"], ["a"], perm=[0, 2, 1]),
                node("Transpose", ["x"], ["b"], perm=[2, 1, 0]),
                node("Add", ["a", "b"], ["y"]),
            ],
            [3, 3, 3],
            ("y",),
            "its operands are moved differently",
        ),
        (
            ClampBeforeChoice(),
            [node("Concat", ["x", "c1x4x6x6"], ["a"], axis=1), node("Relu", ["a"], ["y"])],
            PLANES,
            ("y",),
            "an operand is constant",
        ),
        (
            ClampBeforeChoice(),
            [node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2]), node("Relu", ["a"], ["y"])],
            PLANES,
            ("a", "y"),
            "others read what it clamps",
        ),
        (
            ScaleBehindProduct(),
            [node("Conv", ["x", "c2x4x1x1"], ["a"]), node("Mul", ["a", "c2x1x1"], ["y"])],
            PLANES,
            ("a", "y"),
            "others read the product",
        ),
        (
            ScaleBeforeProduct(),
            [
                node("Add", ["x", "c"], ["a"]),
                node("Conv", ["a", "c2x4x3x3"], ["y"], pads=[1, 0, 0, 0]),
            ],
            PLANES,
            ("y",),
            "a shift does not go through padding",
        ),
        (
            ScaleBeforeProduct(),
            [
                node("HardSwish", ["x"], ["h"]),
                node("Mul", ["h", "c"], ["a"]),
                node("Conv", ["a", "c2x4x3x3"], ["y"]),
            ],
            PLANES,
            ("y",),
            "a table scales what is computed element by element",
        ),
        (
            ScaleBeforeProduct(),
            [node("Mul", ["x", "c"], ["a"]), node("Conv", ["a", "c2x4x3x3"], ["y"])],
            PLANES,
            ("a", "y"),
            "others read what is scaled",
        ),
        (
            MergeProducts(),
            [node("Conv", ["x", "c2x4x1x1"], ["a"]), node("Conv", ["a", "c8x2x1x1"], ["y"])],
            PLANES,
            ("y",),
            "1,152 multiplications are no fewer than 864",
        ),
        (
            MergeProducts(),
            [node("Conv", ["x", "c9x4x3x3"], ["a"]), node("Conv", ["a", "c2x9x3x3"], ["y"])],
            PLANES,
            ("y",),
            "neither of both is 1×1",
        ),
        (
            MergeProducts(),
            [
                node("Conv", ["x", "c9x4x1x1", "c9"], ["a"]),
                node("Conv", ["a", "c2x9x3x3"], ["y"], auto_pad="SAME_UPPER"),
            ],
            PLANES,
            ("y",),
            "the first one's bias does not go through padding",
        ),
        (
            MeanAsPool(),
            [node("ReduceMean", ["x"], ["y"])],
            PLANES,
            ("y",),
            "",
        ),
    ],
)
def test_a_condition_refuses(
    law: Law, nodes: list[NodeProto], shape: list[int], outputs: tuple[str, ...], reason: str
) -> None:
    assert refused(law, nodes, shape, outputs) == reason


def test_a_reshape_that_cuts_unevenly_ends_a_chain() -> None:
    shape = np.array([4, 3], np.int64)
    nodes = [
        node("Transpose", ["x"], ["a"]),
        node("Reshape", ["a", "s"], ["b"]),
        node("Transpose", ["b"], ["y"]),
    ]
    model = infer_shapes(make_model(nodes, [2, 6], {"s": shape}))
    assert refusals(model, ComposeMovement()) == dict.fromkeys(
        "by", "a reshape cuts a dimension unevenly"
    )


@pytest.mark.parametrize(
    ("pads", "left"), [([0, 0, 0, 0], {"Conv": 1}), ([1, 0, 0, 0], {"Conv": 2})]
)
def test_a_scale_before_a_product_is_depthwise_only_where_that_cannot_take_it(
    pads: list[int], left: dict[str, int]
) -> None:
    arrays = random_arrays(0, scale=[4, 1, 1], shift=[4, 1, 1], w=[2, 4, 3, 3])
    nodes = [
        node("Mul", ["x", "scale"], ["a"]),
        node("Add", ["a", "shift"], ["b"]),
        node("Conv", ["b", "w"], ["y"], pads=pads),
    ]
    before = infer_shapes(make_model(nodes, PLANES, arrays))
    after = make_pass("law", [law for law in LAWS if not law.exact])(before)
    assert operators(after) == left
    assert differences(before, after, 0) <= TOLERANCE


def test_random_numbers_are_not_shared() -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["a"]),
        node("RandomNormalLike", ["x"], ["b"]),
        node("Sub", ["a", "b"], ["y"]),
    ]
    model = infer_shapes(make_model(nodes, [8], {}))
    assert make_pass("law", [ShareEqual()])(model) is model


def test_a_law_that_runs_in_a_circle_is_named() -> None:
    class Back(ClampBeforeChoice):
        name = "there-and-back"
        roots = frozenset({"Neg"})

        def match(self, graph: GraphView, node: NodeProto) -> NodeProto:
            return node

        def apply(self, graph: GraphView, node: NodeProto, found: NodeProto) -> list[NodeProto]:
            return [helper.make_node("Neg", list(node.input), list(node.output))]

    with pytest.raises(
        RuntimeError, match=r"the laws \{'there-and-back': 65\} run in a circle; please report"
    ):
        make_pass("law", [Back()])(make_model([node("Neg", ["x"], ["y"])], [2], {}))


# Seeded faults: laws that are wrong.
# --------------------------------------------------------------------------------


def test_how_often_laws_were_applied_is_said() -> None:
    found = importing.import_model(scaled_product(2)).fidelity
    assert found is not None
    assert found.laws == {"scale-behind-product": 1}
