"""Sliding windows: strides, dilations and explicit pads from ONNX's attributes, ``auto_pad`` and ``ceil_mode``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def window_attributes(
    attributes: Mapping[str, Any], kernel: tuple[int, ...], source: tuple[int, ...], result: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """``kernel``, ``strides``, ``dilations`` and ``pads`` (all begins, then all ends, as ONNX) of one window operator.

    ``source`` and ``result`` are the spatial shapes. Pads are chosen so that the plain floor formula gives ``result``:
    ``auto_pad`` is resolved and the last window of ``ceil_mode`` becomes padding at the end.
    """
    rank = len(kernel)
    strides = tuple(attributes.get("strides", (1,) * rank))
    dilations = tuple(attributes.get("dilations", (1,) * rank))
    explicit = tuple(attributes.get("pads", (0,) * (2 * rank)))
    auto_pad = attributes.get("auto_pad", "NOTSET")
    begins, ends = [], []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        needed = (result[axis] - 1) * strides[axis] + reach - source[axis]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = max(needed, 0)
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (explicit[axis], explicit[rank + axis])
            end = max(end, needed - begin)
        begins.append(begin)
        ends.append(end)
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": (*begins, *ends)}
