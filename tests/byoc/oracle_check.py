"""One question for every small model: does the accelerator's part equal ONNX Runtime to the bit?"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from byoc.compiled import Partition
from byoc.host.sessions import Oracle
from byoc.importing import package_of
from byoc.partitioning.partition import Target, partition
from isa.arch import IDEAL
from tests.byoc.reference_execution import run_partition

V2 = Target(frozenset({"OP_DEPTH_CONV", "OP_E32_ADD"}), "v2", IDEAL)
V1 = Target(frozenset({"OP_E32_ADD"}), "v1", IDEAL)


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    """Draw inputs of a model.

    Integers cover their whole range, floats are standard normal times 3, and half of the flags are
    set.
    """
    generator = np.random.default_rng(seed)
    feeds: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            feeds[value.name] = generator.integers(limits.min, limits.max + 1, shape, dtype)
        elif dtype == np.bool_:
            feeds[value.name] = np.asarray(generator.random(shape) < 0.5)
        else:
            feeds[value.name] = (3 * generator.standard_normal(shape)).astype(dtype)
    return feeds


def check_against_onnxruntime(
    model: onnx.ModelProto, seed: int = 0, target: Target = V2
) -> Partition:
    """Run both, compare every boundary tensor without tolerance, and return the partition."""
    package = package_of(model, "test")
    parts = partition(package.graph, target, annotations=package.annotations)
    feeds = random_feeds(model, seed)
    found = run_partition(parts, package.model, feeds)
    names = [name for part in parts.parts for name in part.outputs]
    expected = Oracle(package.model, package.graph, names).values(feeds)
    for name in names:
        assert found[name].dtype == expected[name].dtype, name
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    return parts


def placed(parts: Partition) -> dict[str, str]:
    """Operator or reason by node name: ``dla``, or why it is on the CPU."""
    return {place.node: place.reason or place.on for place in parts.placement}
