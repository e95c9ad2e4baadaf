"""Passes on ONNX models: their changes, equal results, and an unmodified argument."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs, fold_constants
from byoc.frontend.onnx.rewriting.form import convert_opset, name_nodes, remove_identities
from byoc.frontend.onnx.rewriting.gemm import canonicalise_gemm
from byoc.frontend.onnx.rewriting.linear import fold_affine
from byoc.frontend.onnx.rewriting.prepare import exact_laws, prepare
from byoc.frontend.onnx.rewriting.shapes import fix_shapes, infer_shapes
from byoc.runtimes.protobuf import opset_of
from byoc.runtimes.session import OnnxRuntimeSession
from isa.errors import InputError
from tests.byoc.float_models import make_model, operators, random_arrays, run

node = helper.make_node


def check_equal(
    before: ModelProto,
    change: Callable[[ModelProto], ModelProto],
    tolerance: float = 0.0,
    shape: tuple[int, ...] = (),
) -> ModelProto:
    """Apply a pass.

    The argument is unchanged and the outputs are those of before, within ``tolerance``.
    """
    saved = before.SerializeToString(deterministic=True)
    after = change(before)
    assert before.SerializeToString(deterministic=True) == saved
    onnx.checker.check_model(infer_shapes(after), full_check=True)
    dims = shape or tuple(dim.dim_value for dim in before.graph.input[0].type.tensor_type.shape.dim)
    feeds = random_arrays(1, **{value.name: dims for value in before.graph.input[:1]})
    for old, new in zip(run(before, feeds), run(after, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=tolerance, atol=tolerance)
    return after


def batch_norm(source: str, output: str) -> onnx.NodeProto:
    return node(
        "BatchNormalization", [source, "gamma", "beta", "mean", "variance"], [output], epsilon=1e-3
    )


def batch_norm_constants(channels: int) -> dict[str, np.ndarray]:
    arrays = random_arrays(
        3, gamma=[channels], beta=[channels], mean=[channels], variance=[channels]
    )
    return {**arrays, "variance": np.abs(arrays["variance"]) + np.float32(0.5)}


def affine_model(nodes: list[onnx.NodeProto], **shapes: list[int]) -> ModelProto:
    return infer_shapes(
        make_model(nodes, [1, 4, 5, 5], {**batch_norm_constants(4), **random_arrays(2, **shapes)})
    )


def test_batch_norm_folds_into_the_convolution_before_it() -> None:
    model = affine_model(
        [node("Conv", ["x", "w", "b"], ["c"]), batch_norm("c", "y")], w=[4, 4, 3, 3], b=[4]
    )
    after = check_equal(model, fold_affine, 1e-5)
    assert operators(after) == {"Conv": 1}
    weights, bias = (onnx.numpy_helper.to_array(tensor) for tensor in after.graph.initializer)
    c = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
    scale = c["gamma"] / np.sqrt(c["variance"] + np.float32(1e-3))
    np.testing.assert_array_equal(weights, (c["w"] * scale[:, None, None, None]).astype(np.float32))
    np.testing.assert_array_equal(
        bias, (c["b"] * scale + (c["beta"] - c["mean"] * scale)).astype(np.float32)
    )


def test_scale_and_shift_behind_batch_norm_fold_too() -> None:
    model = affine_model(
        [
            *(
                node("Conv", ["x", "w"], ["c"]),
                batch_norm("c", "n"),
                node("Mul", ["n", "scale"], ["m"]),
            ),
            *(
                node("Add", ["shift", "m"], ["a"]),
                node("Div", ["a", "scale"], ["d"]),
                node("Sub", ["d", "shift"], ["y"]),
            ),
        ],
        w=[4, 4, 1, 1],
        scale=[4, 1, 1],
        shift=[1, 4, 1, 1],
    )
    assert operators(check_equal(model, fold_affine, 1e-5)) == {"Conv": 1}


@pytest.mark.parametrize(
    ("product", "shape", "constants"),
    [
        (
            node("ConvTranspose", ["x", "w"], ["c"], strides=[2, 2]),
            [1, 3, 5, 5],
            {"w": [3, 4, 2, 2]},
        ),
        (
            node("ConvTranspose", ["x", "w", "b"], ["c"]),
            [1, 3, 5, 5],
            {"w": [3, 4, 3, 3], "b": [4]},
        ),
        (node("Gemm", ["x", "w", "b"], ["c"], transB=1), [2, 3], {"w": [4, 3], "b": [4]}),
        (node("Gemm", ["x", "w"], ["c"]), [2, 3], {"w": [3, 4]}),
    ],
)
def test_batch_norm_folds_into_every_product(
    product: onnx.NodeProto, shape: list[int], constants: dict[str, list[int]]
) -> None:
    arrays = {**batch_norm_constants(4), **random_arrays(2, **constants)}
    model = infer_shapes(make_model([product, batch_norm("c", "y")], shape, arrays))
    assert operators(check_equal(model, fold_affine, 1e-5)) == {product.op_type: 1}


@pytest.mark.parametrize(
    "product",
    [
        node("Gemm", ["x", "w", "b"], ["c"], alpha=0.5),
        node("Gemm", ["x", "w", "rows"], ["c"]),
        node("Relu", ["x"], ["c"]),
    ],
)
def test_batch_norm_of_rows_behind_anything_else_stays(product: onnx.NodeProto) -> None:
    arrays = {**batch_norm_constants(4), **random_arrays(2, w=[4, 4], b=[4], rows=[2, 4])}
    model = infer_shapes(make_model([product, batch_norm("c", "y")], [2, 4], arrays))
    assert operators(check_equal(model, fold_affine, 1e-5)) == {
        product.op_type: 1,
        "BatchNormalization": 1,
    }


def test_batch_norm_behind_a_shared_convolution_becomes_depthwise() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        batch_norm("c", "n"),
        node("Relu", ["c"], ["r"]),
        node("Add", ["n", "r"], ["y"]),
    ]
    after = check_equal(affine_model(nodes, w=[4, 4, 1, 1]), fold_affine, 1e-5)
    assert operators(after) == {"Conv": 2, "Relu": 1, "Add": 1}
    assert [helper.get_node_attr_value(n, "group") for n in after.graph.node[1:2]] == [4]


def test_convolution_that_is_an_output_itself_is_not_folded() -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), batch_norm("c", "y")]
    constants = {**batch_norm_constants(4), **random_arrays(2, w=[4, 4, 1, 1])}
    model = infer_shapes(make_model(nodes, [1, 4, 5, 5], constants, outputs=["c", "y"]))
    assert operators(check_equal(model, fold_affine, 1e-5)) == {"Conv": 2}


def test_pre_activation_batch_norm_becomes_depthwise() -> None:
    after = check_equal(
        affine_model([batch_norm("x", "n"), node("Relu", ["n"], ["y"])]), fold_affine, 1e-5
    )
    assert operators(after) == {"Conv": 1, "Relu": 1}


@pytest.mark.parametrize("shape", [[], [1], [5], [4, 1, 5]])
def test_scalars_and_other_broadcasts_without_convolution_stay(shape: list[int]) -> None:
    after = check_equal(affine_model([node("Mul", ["x", "k"], ["y"])], k=shape), fold_affine)
    assert operators(after) == {"Mul": 1}


def test_training_batch_norm_stays() -> None:
    training = node(
        "BatchNormalization",
        ["x", "gamma", "beta", "mean", "variance"],
        ["y", "m", "v"],
        training_mode=1,
    )
    assert operators(fold_affine(affine_model([training]))) == {"BatchNormalization": 1}


def test_constant_nodes_fold_into_initialisers() -> None:
    nodes = [
        node("Constant", [], ["dims"], value_ints=[2, 3]),
        node(
            "ConstantOfShape",
            ["dims"],
            ["k"],
            value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5]),
        ),
        node("Identity", ["k"], ["k2"]),
        node("Shape", ["x"], ["size"]),
        node("Reshape", ["x", "size"], ["r"]),
        node("Add", ["r", "k2"], ["y"]),
    ]
    after = check_equal(infer_shapes(make_model(nodes, [2, 3], {})), fold_constants)
    assert operators(after) == {"Reshape": 1, "Add": 1}
    assert {tensor.name for tensor in after.graph.initializer} == {"k2", "size"}


def test_quantised_constants_stay_quantised_in_quantised_models_alone() -> None:
    constants = {"q": np.ones((2, 3), np.int8), "s": np.float32(0.5), "z": np.int8(0)}
    model = make_model(
        [node("DequantizeLinear", ["q", "s", "z"], ["d"]), node("Add", ["x", "d"], ["y"])],
        [2, 3],
        constants,
    )
    assert operators(check_equal(model, fold_constants)) == {"DequantizeLinear": 1, "Add": 1}
    assert operators(check_equal(model, prepare)) == {"Add": 1}


def test_initialisers_listed_as_inputs_become_constants() -> None:
    model = make_model([node("Add", ["x", "k"], ["y"])], [2], {"k": np.ones(2, np.float32)})
    model.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [2]))
    assert [value.name for value in drop_initializer_inputs(model).graph.input] == ["x"]
    assert len(model.graph.input) == 2


def test_identities_go_and_sums_become_additions() -> None:
    constants = {"ratio": np.float32(0.5), "off": np.array(False)}
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Dropout", ["i", "ratio", "off"], ["d"]),
        node("Sum", ["d"], ["s"]),
        node("Sum", ["s", "x"], ["t"]),
        node("Sum", ["s", "t", "x"], ["u"]),
        node("Identity", ["u"], ["y"]),
    ]
    after = check_equal(make_model(nodes, [2, 3], constants), remove_identities)
    assert [n.op_type for n in after.graph.node] == ["Add", "Add", "Add", "Identity"]


@pytest.mark.parametrize(("ratio", "training"), [(0.5, False), (0.0, True), (0.5, True)])
def test_the_mask_of_a_dropout_that_drops_nothing_is_constant(ratio: float, training: bool) -> None:
    constants = {"ratio": np.float32(ratio), "training": np.bool_(training)}
    model = make_model([node("Dropout", ["x", "ratio", "training"], ["y", "mask"])], [2], constants)
    model.graph.output.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, [2]))
    after = remove_identities(model)
    drops = bool(ratio and training)
    assert operators(after) == ({"Dropout": 1} if drops else {"Identity": 2})
    feed = {"x": np.float32([3, -2])}
    assert drops or OnnxRuntimeSession(after).run(["mask"], feed)["mask"].tolist() == [True, True]


@pytest.mark.parametrize("bias", [[], [1], [3], [1, 3]])
def test_gemm_factors_and_bias_shapes_are_folded(bias: list[int]) -> None:
    gemm = node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=2.0, transB=1)
    after = check_equal(
        make_model([gemm], [2, 4], random_arrays(2, w=[3, 4], b=bias)), canonicalise_gemm, 1e-6
    )
    assert [item.name for item in after.graph.node[0].attribute] == ["transB"]
    assert [list(tensor.dims) for tensor in after.graph.initializer] == [[3], [3, 4]]


def test_product_and_row_become_gemm() -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"], name="fc"), node("Add", ["b", "m"], ["y"])]
    model = infer_shapes(make_model(nodes, [2, 4], random_arrays(2, w=[4, 3], b=[3])))
    after = check_equal(model, canonicalise_gemm, 1e-6)
    assert [(n.name, n.op_type) for n in after.graph.node] == [("fc", "Gemm")]


def test_products_of_any_rank_become_gemm_under_new_names() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y_product"]), node("Add", ["y_product", "b"], ["y"])]
    model = infer_shapes(make_model(nodes, [2, 3, 4], random_arrays(2, w=[1, 4, 3], b=[1, 1, 3])))
    after = check_equal(model, canonicalise_gemm, 1e-6)
    assert [n.op_type for n in after.graph.node] == ["Reshape", "Gemm", "Reshape"]
    assert "y_product" not in {name for n in after.graph.node for name in n.output}


def test_any_number_but_0_transposes() -> None:
    model = make_model(
        [node("Gemm", ["x", "w"], ["y"], transB=-2)], [2, 3], random_arrays(2, w=[4, 3])
    )
    (gemm,) = check_equal(model, canonicalise_gemm, 0).graph.node
    assert [(item.name, item.i) for item in gemm.attribute] == [("transB", 1)]


def test_what_is_no_plain_gemm_is_written_out() -> None:
    gemm = node("Gemm", ["x", "w", "b"], ["y"], beta=2.0, transA=1)
    model = infer_shapes(make_model([gemm], [4, 2], random_arrays(2, w=[4, 3], b=[2, 1])))
    after = check_equal(model, canonicalise_gemm, 1e-6)
    assert [n.op_type for n in after.graph.node] == ["Transpose", "Gemm", "Add"]


def test_activations_move_before_what_they_commute_with() -> None:
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Relu", ["f"], ["y"], name="act"),
    ]
    after = check_equal(infer_shapes(make_model(nodes, [1, 2, 4, 4], {})), exact_laws)
    assert [n.op_type for n in after.graph.node] == ["Relu", "MaxPool", "Flatten"]


def test_activations_move_before_concatenations() -> None:
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Concat", ["a", "x"], ["c"], axis=1),
        node("Clip", ["c", "lo", "hi"], ["y"]),
    ]
    model = make_model(nodes, [1, 2, 4, 4], {"lo": np.float32(0), "hi": np.float32(0.5)})
    after = check_equal(model, exact_laws)
    assert [n.op_type for n in after.graph.node] == ["Abs", "Clip", "Clip", "Concat"]


def test_nodes_get_unique_names() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="n"),
        node("Relu", ["a"], ["b"], name="n"),
        node("Relu", ["b"], ["y"]),
    ]
    assert [n.name for n in name_nodes(make_model(nodes, [2], {})).graph.node] == ["n", "b", "y"]


def test_old_models_are_converted() -> None:
    unsqueeze = node("Unsqueeze", ["x"], ["u"], axes=[0])
    squeeze = node("Squeeze", ["u"], ["y"], axes=[0])
    model = make_model([unsqueeze, squeeze], [2, 3], {}, opset=9)
    model.ir_version = 3
    after = check_equal(model, convert_opset)
    assert opset_of(after) == 21
    assert after.ir_version == 10


def test_quantised_models_are_converted_no_further_than_needed() -> None:
    """Newer versions of an average may round otherwise."""
    arrays = {"scale": np.array(0.1, np.float32), "zero": np.array(3, np.uint8)}
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("AveragePool", ["d"], ["y"], kernel_shape=[2, 3]),
    ]
    assert opset_of(prepare(make_model(nodes, [1, 3, 4, 4], arrays, opset=12))) == 13


@pytest.mark.parametrize("opset", [8, 1000])
def test_unsupported_opset(opset: int) -> None:
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(InputError) as error:
        convert_opset(make_model([node("Relu", ["x"], ["y"])], [2], {}, opset=opset))
    assert (
        str(error.value)
        == f"unsupported opset {opset}: export the model with an opset from 9 to {newest}"
    )


def test_dynamic_shapes_are_fixed_and_inferred() -> None:
    model = make_model([node("Relu", ["x"], ["y"])], ["N", 3, None, 8], {})
    fixed = infer_shapes(fix_shapes(model, {"x": (2, 3, 4, 8)}))
    assert [dim.dim_value for dim in fixed.graph.output[0].type.tensor_type.shape.dim] == [
        2,
        3,
        4,
        8,
    ]


@pytest.mark.parametrize(
    ("shape", "given", "message"),
    [
        (
            ["N", 3, None, None],
            {},
            "input 'x' has the dynamic shape (N, 3, ?, ?): fix it, for example with --shape "
            "x=1,3,224,224",
        ),
        (
            ["N", 10],
            {},
            "input 'x' has the dynamic shape (N, 10): fix it, for example with --shape x=1,10",
        ),
        (None, {}, "input 'x' has no shape: fix it, for example with --shape x=1,3,224,224"),
        (["N", 3], {"z": (1, 3)}, "--shape names 'z', which is no input: the inputs are x"),
        (["N", 3], {"x": (1, 4)}, "--shape x=1,4 does not fit: the model's shape is (N, 3)"),
        (["N", 3], {"x": (1,)}, "--shape x=1 does not fit: the model's shape is (N, 3)"),
        (["N", 3], {"x": (0, 3)}, "--shape x=0,3 does not fit: the model's shape is (N, 3)"),
    ],
)
def test_bad_shapes(
    shape: list[int | str | None], given: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(InputError) as error:
        fix_shapes(make_model([node("Relu", ["x"], ["y"])], shape, {}), given)
    assert str(error.value) == message
