"""Brings a model to a current operator set, by onnx's version converter."""

from __future__ import annotations

import onnx
from onnx import ModelProto, helper, version_converter

from byoc.frontend.onnx.rewriting.edit import (
    ConstantArrays,
    all_nodes,
    array_of,
    attributes,
    copy_model,
    without_large_constants,
)
from byoc.session import NEWEST_IR_VERSION
from isa.errors import InputError

OLDEST_OPSET = 9
PLAIN_OPSET = 13  # from here on per-channel DequantizeLinear exists and models are usable as they are
TARGET_OPSET = 21
TARGET_IR_VERSION = 10


def opset_of(model: ModelProto) -> int:
    """Version of the default operator set; 0 when the model imports none."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def convert_opset(model: ModelProto, target: int = TARGET_OPSET) -> ModelProto:
    """A copy of the model at opset ``target`` and IR version 10, at least.

    Models of opset 9 and above are converted; one of opset 13 or above that the converter cannot handle stays as it is.

    Raises:
        InputError: opset below 9, above what the installed onnx knows, or below 13 and not convertible.
    """
    opset = opset_of(model)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise InputError(f"unsupported opset {opset}: export the model with an opset from {OLDEST_OPSET} to {newest}")
    result = _converted(model, opset, target) if opset < target else copy_model(model)
    result.ir_version = min(max(result.ir_version, TARGET_IR_VERSION), NEWEST_IR_VERSION)
    return result


def _converted(model: ModelProto, opset: int, target: int) -> ModelProto:
    def convert(light: ModelProto) -> ModelProto:
        # Below IR version 4 the converter only finds initialisers that are inputs too.
        light.ir_version = max(light.ir_version, TARGET_IR_VERSION)
        converted = version_converter.convert_version(light, target)
        _place_as_before(light, converted, opset)
        return converted

    try:
        return without_large_constants(model, convert)
    except Exception as error:  # the C++ converter raises RuntimeError and its own classes, without a common base
        if opset >= PLAIN_OPSET:
            return copy_model(model)
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"unsupported opset {opset}: conversion to opset {target} failed ({reason}); use a newer opset"
        ) from error


_PLACED = 11
"""From this opset on a Resize says where its elements are; before, the first ones of both tensors lie on each other."""


def _place_as_before(old: ModelProto, new: ModelProto, opset: int) -> None:
    """Let every Resize of ``new``, in place, that ``old`` has of an older opset, place its elements as that does.

    The converter leaves that to the default of today. To the nearest element ONNX Runtime rounded downwards where it
    enlarged, and upwards where not (0 of 200 drawn models differ).
    """
    if opset >= _PLACED:
        return
    scales = ConstantArrays(old.graph, lambda tensor: len(tensor.dims) == 1)
    for node in all_nodes(old.graph):
        if node.op_type == "Constant" and "value" in attributes(node):
            scales[node.output[0]] = array_of(attributes(node)["value"])
    before = {node.output[0]: node for node in all_nodes(old.graph) if node.op_type in ("Resize", "Upsample")}
    for node in all_nodes(new.graph):
        if node.op_type != "Resize" or node.output[0] not in before:
            continue
        given = next((scales[name] for name in before[node.output[0]].input[1:] if name in scales), None)
        smaller = given is not None and bool((given <= 1).all())
        chosen = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil" if smaller else "floor"}
        node.attribute.extend(helper.make_attribute(name, text) for name, text in chosen.items())
