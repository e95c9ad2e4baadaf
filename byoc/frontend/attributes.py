"""Canonical attributes of integer units: everything a pattern needs, nothing that depends on the opset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from byoc.frontend.units import Unit, clip_bounds
from byoc.frontend.view import OnnxView
from byoc.frontend.window import window_attributes
from byoc.patterns.registry import installed

WINDOWED = frozenset({"Conv", "MaxPool", "AveragePool"})


def canonical_attributes(view: OnnxView, unit: Unit) -> dict[str, Any]:
    """Attributes of the canonical node of ``unit``: Python numbers, text and tuples only.

    ``activation`` is absent, ``"Relu"`` or ``("Clip", low, high)`` in real numbers; ``plain`` marks operators on bare
    integers; windows have ``kernel``, ``strides``, ``dilations`` and ``pads``; integer products have the zero points
    of both operands.
    """
    attributes: dict[str, Any] = {}
    source = unit.node.attributes
    if unit.plain:
        attributes["plain"] = True
    if unit.activation is not None:
        bounds = clip_bounds(view, unit.activation)
        attributes["activation"] = "Relu" if unit.activation.op_type == "Relu" else ("Clip", *(bounds or ()))
    if unit.op_type in WINDOWED:
        attributes |= _window(view, unit)
    if unit.op_type == "Conv":
        attributes["group"] = int(source.get("group", 1))
    if unit.op_type == "AveragePool":
        attributes["count_include_pad"] = bool(source.get("count_include_pad", 0))
        attributes["ceil_mode"] = bool(source.get("ceil_mode", 0))
    if unit.op_type == "Gemm":
        attributes["alpha"] = float(source.get("alpha", 1.0))
        attributes["beta"] = float(source.get("beta", 1.0))
        attributes["transA"] = int(source.get("transA", 0))
    if unit.op_type == "LeakyRelu":
        attributes["alpha"] = float(np.float32(source.get("alpha", 0.01)))
    if unit.op_type == "Clip":
        bounds = clip_bounds(view, unit.node)
        if bounds is not None:
            attributes["bounds"] = bounds
    attributes |= _as_written(source) if unit.op_type in installed().quantised else _axes(view, unit)
    if unit.node.op_type in ("ConvInteger", "MatMulInteger"):
        attributes["zero_points"] = tuple(_zero_points(view, unit.node.input(index)) for index in (2, 3))
    return attributes


def _window(view: OnnxView, unit: Unit) -> dict[str, Any]:
    source = view.shape(unit.operands[0])[2:]
    result = view.shape(unit.result)[2:]
    declared = unit.node.attributes.get("kernel_shape")
    kernel = tuple(declared) if declared else view.shape(unit.operands[1])[2:]
    return dict(window_attributes(unit.node.attributes, kernel, source, result))


def _axes(view: OnnxView, unit: Unit) -> dict[str, Any]:
    rank = len(view.shape(unit.operands[0]))
    if unit.op_type == "Concat":
        axis = int(unit.node.attributes["axis"])
        return {"axis": axis + rank if axis < 0 else axis}
    if unit.op_type == "Transpose":
        return {"perm": tuple(unit.node.attributes.get("perm", tuple(reversed(range(rank)))))}
    return {}


def _as_written(source: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that are numbers, texts or lists of them, of operators that only packages outside know."""
    return {key: found for key, found in source.items() if isinstance(found, str | int | float | tuple)}


def _zero_points(view: OnnxView, name: str) -> tuple[int, ...]:
    if not name:
        return (0,)
    return tuple(int(number) for number in view.constants[name].reshape(-1))
