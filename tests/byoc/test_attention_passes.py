"""Attention and related operators, decomposed into other operators, equal ONNX Runtime's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from byoc.frontend.onnx.rewriting.composites import decompose_attention
from byoc.frontend.onnx.rewriting.einsums import write_out_einsums
from byoc.frontend.onnx.rewriting.shapes import infer_shapes

MICROSOFT = "com.microsoft"
B = 2
S = 5
L = 7
H = 4
D = 16


def _random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(
    op_type: str,
    inputs: dict[str, Any],
    constants: dict[str, Any] | None = None,
    names: str = "",
    domain: str = "",
    outputs: int = 1,
    **attributes: Any,
) -> list[str]:
    """The operators that are left.

    What they make is what ONNX Runtime makes of the one operator.
    """
    constants = constants or {}
    listed = names.split(" ") if names else [*inputs, *constants]
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(
        op_type,
        ["" if name == "-" else name for name in listed],
        results,
        "op",
        domain=domain,
        **attributes,
    )
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in arrays.items()
    ]
    graph = helper.make_graph(
        [node],
        "one",
        values,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opset = 23 if op_type in ("Attention", "RotaryEmbedding") and not domain else 21
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    after = decompose_attention(infer_shapes(write_out_einsums(infer_shapes(model))))
    for before, made in zip(_run(model, arrays), _run(after, arrays), strict=True):
        assert before.shape == made.shape
        np.testing.assert_allclose(made, before, rtol=1e-5, atol=2e-5)
    return [item.op_type for item in after.graph.node]


def _run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


QKV = {"q": _random(B, S, D), "k": _random(B, L, D), "v": _random(B, L, 2 * D)}
FOUR = {"q": _random(B, H, S, 4), "k": _random(B, H, L, 4), "v": _random(B, H, L, 6)}
HEADS = {"q_num_heads": H, "kv_num_heads": H}
NOTHING = np.arange(S)[:, None] > np.arange(L)
STANDARD: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "three dimensions": (QKV, {}, HEADS),
    "four dimensions": (FOUR, {}, {"scale": 0.3}),
    "groups": ({"q": FOUR["q"], "k": FOUR["k"][:, :2], "v": FOUR["v"][:, :2]}, {}, {}),
    "one group": ({"q": FOUR["q"], "k": FOUR["k"][:, :1], "v": FOUR["v"][:, :1]}, {}, {}),
    "causal": ({name: _random(1, S, D) for name in "qkv"}, {}, {**HEADS, "is_causal": 1}),
    "mask to add": (FOUR, {"m": _random(S, L)}, {}),
    "mask of truths": (FOUR, {"m": _random(S, L) < 1}, {}),
    "computed mask": ({**FOUR, "m": _random(B, 1, S, L) < 1}, {}, {}),
    "rows that attend to nothing": ({**FOUR, "m": NOTHING}, {}, {}),
    "constant rows that attend to nothing": (FOUR, {"m": NOTHING}, {}),
    "capped": (FOUR, {}, {"softcap": 2.0}),
}


@pytest.mark.parametrize("case", STANDARD)
def test_attention(case: str) -> None:
    inputs, constants, attributes = STANDARD[case]
    found = check("Attention", inputs, constants, **attributes)
    assert found.count("MatMul") == 2
    assert "Attention" not in found


def test_attention_with_a_cache() -> None:
    past = {"pk": _random(B, H, 3, 4), "pv": _random(B, H, 3, 6)}
    for causal in (0, 1):
        found = check(
            "Attention", {**FOUR, **past}, names="q k v - pk pv", outputs=3, is_causal=causal
        )
        assert found.count("Concat") == 2
    three = {"q": _random(B, S, D), "k": _random(B, S, D), "v": _random(B, S, D)}
    pasts = {"pk": _random(B, H, 3, 4), "pv": _random(B, H, 3, 4)}
    check("Attention", {**three, **pasts}, names="q k v - pk pv", outputs=3, **HEADS)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [False, True])
def test_packed_attention(causal: int, mask: bool) -> None:
    inputs = {"x": _random(B, S, D)}
    if mask:
        inputs["m"] = np.array([[1] * S, [1] * (S - 2) + [0] * 2], np.int32)
    constants = {"w": _random(D, 3 * D), "b": _random(3 * D)}
    names = "x w b m" if mask else "x w b"
    found = check(
        "Attention", inputs, constants, names, MICROSOFT, num_heads=H, unidirectional=causal
    )
    assert found.count("MatMul") == 5


def test_multi_head_attention() -> None:
    options = {"num_heads": H, "domain": MICROSOFT}
    assert check("MultiHeadAttention", QKV, **options).count("MatMul") == 2
    check("MultiHeadAttention", QKV, {"b": _random(4 * D)}, "q k v b", **options)
    mask = {"m": np.array([[1] * L, [1] * (L - 3) + [0] * 3], np.int32)}
    check("MultiHeadAttention", QKV, mask, "q k v - m", **options)
    check("MultiHeadAttention", {**QKV, **mask}, {}, "q k v - m", **options)
    check(
        "MultiHeadAttention", QKV, {"a": _random(1, H, S, L)}, "q k v - - a", scale=0.2, **options
    )
    check("MultiHeadAttention", {"q": _random(B, S, D), "k": FOUR["k"], "v": -FOUR["k"]}, **options)
    same = {name: _random(B, S, D) for name in "qkv"}
    check("MultiHeadAttention", same, unidirectional=1, **options)


def test_fused_operators() -> None:
    pair = {"a": _random(2, 5, 7), "b": _random(2, 3, 7)}
    assert check("FusedMatMul", pair, transB=1, alpha=0.5, domain=MICROSOFT) == [
        "Transpose",
        "MatMul",
        "Mul",
    ]
    row = {"g": _random(D), "h": _random(D), "c": _random(D)}
    sums = {"x": _random(B, S, D), "s": -_random(B, S, D)[::-1]}
    check("SkipLayerNormalization", sums, row, domain=MICROSOFT, epsilon=1e-6)
    check("SkipLayerNormalization", sums, {"g": row["g"]}, domain=MICROSOFT)
    for name in ("BiasGelu", "FastGelu"):
        assert check(name, {"x": _random(B, S, D)}, {"c": row["c"]}, domain=MICROSOFT) == [
            "Add",
            "Gelu",
        ]


EQUATIONS = {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5), ["MatMul"]),
    "bqhd,bkhd->bhqk": ((2, 5, 3, 4), (2, 6, 3, 4), ["Transpose", "Transpose", "MatMul"]),
    "bhqk,bkhd->bqhd": ((2, 3, 5, 6), (2, 6, 3, 4), ["Transpose", "MatMul", "Transpose"]),
    "bhd,hde->bhe": ((2, 3, 4), (3, 4, 5), None),
    "abc,cde->abde": ((2, 3, 4), (4, 5, 6), None),
    "ab,ab->a": ((3, 4), (3, 4), None),
    "a,b->ab": ((3,), (4,), None),
    "ij,jk->ki": ((3, 4), (4, 5), None),
    "ijk,ij->i": ((3, 4, 5), (3, 4), ["ReduceSum", "Reshape", "Reshape", "MatMul", "Reshape"]),
    "...ij,jk": ((2, 3, 4), (4, 5), None),
    "bchw,bc->bchw": ((2, 3, 4, 5), (2, 3), ["Reshape", "Mul"]),
    "ij,ij": ((3, 4), (3, 1), None),
    "ii,ij->j": ((3, 3), (3, 4), ["Einsum"]),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_of_two_operands(equation: str) -> None:
    first, second, expected = EQUATIONS[equation]
    found = check("Einsum", {"a": _random(*first), "b": _random(*second)}, equation=equation)
    assert found == expected or (expected is None and "Einsum" not in found)
