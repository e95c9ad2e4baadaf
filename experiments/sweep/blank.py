"""Regions without their weights: small enough to send to any worker, and all that a compilation without data needs."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from byoc.graph import Value
from byoc.partition import Region

Blank = tuple[tuple[Region, ...], dict[str, Value]]


def blank_regions(regions: Iterable[Region], values: Mapping[str, Value]) -> bytes:
    """The regions and their boundary values, pickled; every array of numbers has its shape and holds zeros.

    Made here and read back by our own workers: such bytes are never taken from a file.
    """
    bare = tuple(replace(region, nodes=()) for region in regions)
    boundary = {name: values[name] for region in bare for name in (*region.inputs, *region.outputs)}
    stream = io.BytesIO()
    _Blanking(stream, protocol=pickle.HIGHEST_PROTOCOL).dump((bare, boundary))
    return stream.getvalue()


def read_blank(data: bytes) -> Blank:
    """What :func:`blank_regions` wrote."""
    found: Blank = pickle.loads(data)
    return found


class _Blanking(pickle.Pickler):
    def reducer_override(self, item: Any) -> Any:
        if type(item) is np.ndarray:
            return np.broadcast_to, (item.dtype.type(0), item.shape)
        return NotImplemented
