"""The passes on ONNX models in their order: what every model goes through before quantisation and import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from byoc.frontend.onnx.rewriting.affine import fold_affine
from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs, fold_constants
from byoc.frontend.onnx.rewriting.edit import copy_model, remove_dead_code, without_large_constants
from byoc.frontend.onnx.rewriting.gemm import canonicalise_gemm
from byoc.frontend.onnx.rewriting.hoist import hoist_activations
from byoc.frontend.onnx.rewriting.opset import convert_opset
from byoc.frontend.onnx.rewriting.shapes import fix_shapes, infer_shapes
from byoc.frontend.onnx.rewriting.tidy import drop_unit_dilations, name_nodes, remove_identities


def prepare(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelProto:
    """A copy at a current opset with static shapes, folded constants and, where float, folded BatchNormalization.

    Serves float and quantised models: what stands between quantised values is left as it is. ``shapes`` gives
    dynamic inputs their dimensions. The argument is not changed.

    Raises:
        InputError: unsupported opset; an input that is dynamic; ``shapes`` that do not fit the model.
    """
    plain = fix_shapes(drop_initializer_inputs(model), shapes)
    # Passes that never look at weights run without them: copying half a gigabyte each time is what takes long.
    current = without_large_constants(plain, lambda m: infer_shapes(convert_opset(m)))
    folded = canonicalise_gemm(fold_affine(remove_identities(fold_constants(current))))
    return without_large_constants(_tidy(folded), _finish)


def _finish(model: ModelProto) -> ModelProto:
    return name_nodes(infer_shapes(hoist_activations(drop_unit_dilations(model))))


def _tidy(model: ModelProto) -> ModelProto:
    result = copy_model(model)
    remove_dead_code(result.graph)
    del result.graph.value_info[:]
    return result
