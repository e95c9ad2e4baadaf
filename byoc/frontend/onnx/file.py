"""Reads ONNX files, with one clear line for whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from isa.errors import InputError

MAXIMUM_CHECKED_BYTES = 1 << 31


def load_model(path: str | Path) -> ModelProto:
    """The model in ``path``, checked, with its external data (files beside it) loaded.

    Raises:
        InputError: no such file, a directory, not an ONNX model, a truncated or inconsistent one, no external data.
    """
    import onnx

    file = Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file; 'dla models' lists the built-in names")
    if not file.is_file():
        raise InputError(f"{file}: not a file; give the path of an .onnx file")
    model = _parse(file)
    try:
        onnx.load_external_data_for_model(model, str(file.resolve().parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise InputError(
            f"{file}: external data cannot be read ({_first_line(error)}); keep it beside the model"
        ) from error
    _check(file, model)
    return model


def _parse(file: Path) -> ModelProto:
    import onnx

    try:
        model = onnx.load_model_from_string(file.read_bytes())
    except Exception as error:  # protobuf's DecodeError, which has no type information to name it by
        raise InputError(f"{file}: not an ONNX model, or a truncated one; export or copy it again") from error
    if not model.HasField("graph") or not model.graph.node or not model.opset_import:
        raise InputError(f"{file}: not an ONNX model, or a truncated one; export or copy it again")
    return model


def _check(file: Path, model: ModelProto) -> None:
    """onnx's own checker, as far as protobuf can serialise the model for it."""
    import onnx

    if model.ByteSize() >= MAXIMUM_CHECKED_BYTES:
        raise InputError(f"{file}: the model has {model.ByteSize()} bytes; models of 2 GiB and more are not supported")
    try:
        onnx.checker.check_model(_with_shapes(model))
    except onnx.checker.ValidationError as error:
        raise InputError(f"{file}: inconsistent ONNX model ({_first_line(error)}); export it again") from error


def _with_shapes(model: ModelProto) -> ModelProto:
    """The model, or a copy with shapes of no dimension on inputs and outputs without one, which the checker rejects.

    Such files are common enough, and shapes are inferred later.
    """
    values = (*model.graph.input, *model.graph.output)
    if all(value.type.tensor_type.HasField("shape") for value in values if value.type.HasField("tensor_type")):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    for value in (*result.graph.input, *result.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return result


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
