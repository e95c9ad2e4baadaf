"""Load pairs of models that differ in one number and check that they share no cached result.

The number is a weight, a bias, an attribute or a zero point. ``python -m tests.e2e.pairs_of_models
--count N --seed S`` draws quantised files, changes one number of each, and loads both versions from
one path through the cache of the commands. The second must give its own package with its own
digest, also if the first is loaded again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from experiments.running.given import Given
from experiments.running.network import load
from isa.errors import InputError
from tests.e2e.shared_tensor_files import Writer

Random = np.random.Generator


def _number(
    model: onnx.ModelProto, random: Random, wanted: Callable[[onnx.TensorProto], bool]
) -> bool:
    """Move one number of one of the constants ``wanted`` by 1, in place; whether there is one."""
    found = [tensor for tensor in model.graph.initializer if wanted(tensor)]
    if not found:
        return False
    tensor = found[int(random.integers(len(found)))]
    array = numpy_helper.to_array(tensor).copy()
    place = int(random.integers(array.size))
    array.flat[place] = int(array.flat[place]) + (1 if array.flat[place] < 100 else -1)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


def weight(model: onnx.ModelProto, random: Random) -> bool:
    """One weight."""
    return _number(
        model,
        random,
        lambda tensor: len(tensor.dims) == 4 and tensor.data_type == onnx.TensorProto.INT8,
    )


def bias(model: onnx.ModelProto, random: Random) -> bool:
    """One bias."""
    read = {node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return _number(
        model,
        random,
        lambda tensor: tensor.name in read and tensor.data_type == onnx.TensorProto.INT32,
    )


def zero_point(model: onnx.ModelProto, random: Random) -> bool:
    """The zero point of one tensor, wherever it stands."""
    makers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    node = makers[int(random.integers(len(makers)))]
    return _number(model, random, lambda tensor: tensor.name == node.input[2])


def attribute(model: onnx.ModelProto, random: Random) -> bool:
    """One attribute: what is padded in front is padded behind, or a slope is another."""
    found = [
        item
        for node in model.graph.node
        for item in node.attribute
        if item.name == "pads" and len(item.ints) == 4 and item.ints[0] != item.ints[2]
    ]
    if not found:
        slopes = [node for node in model.graph.node if node.op_type == "LeakyRelu"]
        for node in slopes[:1]:
            node.attribute.append(
                onnx.helper.make_attribute("alpha", float(random.uniform(0.1, 0.5)))
            )
        return bool(slopes)
    chosen = found[int(random.integers(len(found)))]
    top, left, bottom, right = chosen.ints
    chosen.ints[:] = [bottom, left, top, right]
    return True


KINDS = (weight, bias, zero_point, attribute)


def digest(path: Path, model: onnx.ModelProto) -> str:
    """Return the digest of the package that all commands load for a model written to ``path``."""
    path.write_bytes(model.SerializeToString())
    return load(Given(model=path)).package.digest


def alike(seed: int, folder: Path) -> tuple[str, str]:
    """Load the pair of ``seed``; return the kind of change and the error.

    The kind is empty if nothing could be changed, and the error if there is none.
    """
    random = np.random.default_rng([seed, 27])
    model = Writer(seed).write()
    if not model.graph.node:
        return "", ""
    other = onnx.ModelProto.FromString(model.SerializeToString())
    start = int(random.integers(len(KINDS)))
    kind = next((one for one in KINDS[start:] + KINDS[:start] if one(other, random)), None)
    if kind is None:
        return "", ""
    path = folder / "model.onnx"
    first, second, again = (digest(path, version) for version in (model, other, model))
    wrong = "" if first != second else "both have one package"
    return (
        kind.__name__,
        wrong if first == again else "the first version is another when it is loaded again",
    )


def main() -> int:
    """Draw pairs; exit status 1 where two versions have one package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DLA_CACHE_DIR"] = str(Path(folder) / "cache")
        seed = given.seed
        while counts.total() < given.count:
            try:
                kind, problem = alike(seed, Path(folder))
            except InputError as error:
                print(f"{seed} refused: {error}", flush=True)
                kind = ""
                problem = ""
            if kind:
                counts[kind] += 1
            if problem:
                wrong += 1
                print(f"{seed}: {kind}: {problem}", flush=True)
            seed += 1
    print(", ".join(f"{count} of one {kind}" for kind, count in counts.items()), f": {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
