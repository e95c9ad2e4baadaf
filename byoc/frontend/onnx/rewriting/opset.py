"""Brings a model to a current operator set, by onnx's version converter."""

from __future__ import annotations

import onnx
from onnx import ModelProto, version_converter

from byoc.frontend.onnx.rewriting.edit import copy_model, without_large_constants
from isa.errors import InputError

OLDEST_OPSET = 9
PLAIN_OPSET = 13  # from here on per-channel DequantizeLinear exists and models are usable as they are
TARGET_OPSET = 21
TARGET_IR_VERSION = 10


def opset_of(model: ModelProto) -> int:
    """Version of the default operator set; 0 when the model imports none."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def convert_opset(model: ModelProto) -> ModelProto:
    """A copy of the model at opset 21 and IR version 10, at least.

    Models of opset 9 to 20 are converted; one of opset 13 to 20 that the converter cannot handle stays as it is.

    Raises:
        InputError: opset below 9, above what the installed onnx knows, or below 13 and not convertible.
    """
    opset = opset_of(model)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise InputError(f"unsupported opset {opset}: export the model with an opset from {OLDEST_OPSET} to {newest}")
    result = _converted(model, opset) if opset < TARGET_OPSET else copy_model(model)
    result.ir_version = max(result.ir_version, TARGET_IR_VERSION)
    return result


def _convert(model: ModelProto) -> ModelProto:
    # Below IR version 4 the converter only finds initialisers that are inputs too.
    model.ir_version = max(model.ir_version, TARGET_IR_VERSION)
    return version_converter.convert_version(model, TARGET_OPSET)


def _converted(model: ModelProto, opset: int) -> ModelProto:
    try:
        return without_large_constants(model, _convert)
    except Exception as error:  # the C++ converter raises RuntimeError and its own classes, without a common base
        if opset >= PLAIN_OPSET:
            return copy_model(model)
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"unsupported opset {opset}: conversion to opset {TARGET_OPSET} failed ({reason}); use a newer opset"
        ) from error
