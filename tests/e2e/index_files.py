"""Random networks with run-time indices, conditions and masks, against ONNX Runtime.

``python -m tests.e2e.index_files --count N --seed S`` prints a line for each network that differs,
and a summary. The float model after all passes is compared with the file, and every tensor that
leaves a region with ONNX Runtime's integers. A node on the CPU without a reason counts as silent.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from byoc.frontend.onnx.rewriting.prepare import prepare
from byoc.importing import import_model
from byoc.quantisation.calibrate import default_feeds
from isa.arch import Arch
from tests.e2e.harness import compare
from tests.e2e.index_networks import FLOAT, INT64, IndexNetwork

Tensors = dict[str, NDArray[Any]]
MACHINES = (Arch(isa="v4"), Arch(isa="v4", sram_bytes=65536), Arch(isa="v5"), Arch(isa="v2"))


def run_file(model: onnx.ModelProto, feed: Tensors) -> list[NDArray[Any]]:
    """Run a model as given, without optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(found) for found in session.run(None, feed)]


class RandomIndices:
    """Writer of a random network of rows; every step keeps the tensor at (rows, columns)."""

    def __init__(self, seed: int) -> None:
        self.w = IndexNetwork(seed)
        self.random = self.w.random
        self.rows = int(self.random.choice([3, 8, 17, 40, 80]))
        self.columns = int(self.random.choice([4, 8, 12]))
        self._inputs = 0

    def build(self) -> onnx.ModelProto:
        """Return a model of two to five steps between products."""
        x = self.w.input("x", (self.rows, self.columns))
        x = self.w.linear(x, self.columns, self.columns)
        steps = [
            self.gather, self.gather_elements, self.scatter, self.scatter_nd, self.replace,
            self.gates, self.masked, self.divide, self.condition, self.accumulate, self.one_hot,
            self.sample, self.search, self.sort, self.gather_nd, self.exchange,
        ]  # fmt: skip
        for _ in range(self.random.integers(2, 6)):
            x = steps[self.random.integers(len(steps))](x)
            if self.random.random() < 0.5:
                x = self.w.linear(x, self.columns, self.columns)
        return self.w.model(x)

    def indices(self, count: int) -> str:
        """Return indices of rows, that are an input or, some of them, constant."""
        self._inputs += 1
        if self.random.random() < 0.2:
            return self.w.ints(*self.random.integers(-self.rows, self.rows, count))
        return self.w.input(f"ids{self._inputs}", (count,), INT64)

    def gather(self, x: str) -> str:
        return self.w.add("Gather", x, self.indices(self.rows), axis=0)

    def gather_elements(self, x: str) -> str:
        op = "Tile" if self.random.random() < 0.5 else "Expand"
        sizes = (1, self.columns) if op == "Tile" else (self.rows, self.columns)
        column = self.w.add("Unsqueeze", self.indices(self.rows), self.w.ints(1))
        spread = self.w.add(op, column, self.w.ints(*sizes))
        return self.w.add("GatherElements", x, spread, axis=0)

    def scatter(self, x: str) -> str:
        count = int(self.random.integers(1, 30))
        rows = self.w.ints(*self.random.integers(0, self.rows, count))
        column = self.w.add("Unsqueeze", self.indices(count), self.w.ints(1))
        spread = self.w.add("Expand", column, self.w.ints(count, self.columns))
        updates = self.w.add("Gather", x, rows, axis=0)
        zeros = self.w.constant(np.zeros((self.rows, self.columns)))
        data = x if self.random.random() < 0.5 else zeros
        return self.w.add("ScatterElements", data, spread, updates, axis=0, reduction="add")

    def scatter_nd(self, x: str) -> str:
        count = int(self.random.integers(1, 30))
        rows = self.w.ints(*self.random.integers(0, self.rows, count))
        column = self.w.add("Unsqueeze", self.indices(count), self.w.ints(1))
        updates = self.w.add("Gather", x, rows, axis=0)
        way = str(self.random.choice(["add", "max", "min"]))
        return self.w.add("ScatterND", x, column, updates, reduction=way)

    def replace(self, x: str) -> str:
        place = self.w.add("Unsqueeze", self.indices(1), self.w.ints(1))
        row = self.w.add("Gather", x, self.w.ints(0), axis=0)
        return self.w.add("ScatterND", x, place, self.w.add("Relu", row))

    def gates(self, x: str) -> str:
        ranks = int(self.random.integers(1, min(6, self.columns + 1)))
        if self.random.random() < 0.3:  # ties
            x = self.w.add("Relu", x)
        values, places = self.w.add_many("TopK", 2, x, self.w.ints(ranks), axis=-1)
        shares = self.w.add("Softmax", values, axis=-1)
        data = x if self.random.random() < 0.3 else self.w.add("Mul", x, self.w.constant(0.0))
        return self.w.add("ScatterElements", data, places, shares, axis=1)

    def masked(self, x: str) -> str:
        self._inputs += 1
        mask = self.w.input(f"mask{self._inputs}", (1, self.columns), INT64)
        kept = self.w.add("Cast", mask, to=onnx.TensorProto.BOOL)
        lowest = -np.inf if self.random.random() < 0.7 else -3.4e38
        added = self.w.add("Where", kept, self.w.constant(0.0), self.w.constant(lowest))
        soft = self.w.add("Softmax", self.w.add("Add", x, added), axis=-1)
        return self.w.add("Where", self.w.add("IsNaN", soft), self.w.constant(0.0), soft)

    def divide(self, x: str) -> str:
        positive = self.w.add("Relu", x)
        total = self.w.add("ReduceSum", positive, self.w.ints(1), keepdims=1)
        nothing = self.w.add("Equal", total, self.w.constant(0.0))
        return self.w.add(
            "Where", nothing, self.w.constant(0.0), self.w.add("Div", positive, total)
        )

    def condition(self, x: str) -> str:
        mean = self.w.add("ReduceMean", x, keepdims=0)
        chosen = self.w.add("Greater", mean, self.w.constant(0.0))
        branches = []
        for number in range(2):
            body = IndexNetwork(int(self.random.integers(1 << 30)))
            body.start(1000 * (self._inputs + 1) + 500 * number + len(self.w.nodes) * 10_000)
            y = body.linear(x, self.columns, self.columns) if number else body.add("Tanh", x)
            if self.random.random() < 0.5:  # enough work for a region of its own
                y = body.add("Relu", body.linear(y, self.columns, 96))
                y = body.linear(y, 96, self.columns)
            result = onnx.helper.make_tensor_value_info(y, FLOAT, None)
            name = f"branch{number}"
            branches.append(onnx.helper.make_graph(body.nodes, name, [], [result], body.constants))
        return self.w.add("If", chosen, then_branch=branches[0], else_branch=branches[1])

    def accumulate(self, x: str) -> str:
        flags = {name: int(self.random.integers(2)) for name in ("exclusive", "reverse")}
        return self.w.add("CumSum", x, self.w.constant(1, np.int64), **flags)

    def one_hot(self, x: str) -> str:
        values = self.w.constant([0, 1])
        depth = self.w.constant(self.columns, np.int64)
        self._inputs += 1
        classes = self.w.input(f"class{self._inputs}", (self.rows,), INT64)
        hot = self.w.add("OneHot", classes, depth, values, axis=-1)
        return (
            self.w.add("Mul", x, hot) if self.random.random() < 0.5 else self.w.add("Add", x, hot)
        )

    def sample(self, x: str) -> str:
        image = self.w.add("Reshape", x, self.w.ints(1, 1, self.rows, self.columns))
        grid = self.w.add("Tanh", self.w.linear(x, self.columns, 2 * self.columns))
        # Tanh saturates at 1, where the nearest element is a tie that any rounding decides.
        grid = self.w.add("Mul", grid, self.w.constant(0.93))
        grid = self.w.add("Reshape", grid, self.w.ints(1, self.rows, self.columns, 2))
        mode = str(self.random.choice(["linear", "nearest"]))
        padding = str(self.random.choice(["zeros", "border", "reflection"]))
        found = self.w.add("GridSample", image, grid, mode=mode, padding_mode=padding)
        return self.w.add("Reshape", found, self.w.ints(self.rows, self.columns))

    def sort(self, x: str) -> str:
        axis = int(self.random.integers(2))
        count = self.w.ints(self.columns if axis else self.rows)
        largest = int(self.random.integers(2))
        values, places = self.w.add_many("TopK", 2, x, count, axis=axis, largest=largest)
        if self.random.random() < 0.5:
            return values
        picked = self.w.add("GatherElements", x, places, axis=axis)
        return self.w.add("Sub", picked, self.w.constant(0.5))

    def gather_nd(self, x: str) -> str:
        pairs = self.random.integers(0, self.columns, (self.rows, self.columns, 1))
        row = self.w.add("Reshape", self.indices(self.rows), self.w.ints(self.rows, 1, 1))
        row = self.w.add("Expand", row, self.w.ints(self.rows, self.columns, 1))
        places = self.w.add("Concat", row, self.w.constant(pairs, np.int64), axis=2)
        return self.w.add("GatherND", x, places)

    def exchange(self, x: str) -> str:
        self._inputs += 1
        places = self.w.input(f"at{self._inputs}", (self.rows, 2), INT64)
        updates = self.w.add("Slice", x, self.w.ints(0), self.w.ints(2), self.w.ints(1))
        way = str(self.random.choice(["none", "add", "max"]))
        return self.w.add("ScatterElements", x, places, updates, axis=1, reduction=way)

    def search(self, x: str) -> str:
        axis = int(self.random.integers(2))
        found = self.w.add("ArgMax", x, axis=axis, keepdims=0)
        if axis:
            table = self.w.weights(self.columns, self.columns)
            return self.w.add("Add", x, self.w.add("Gather", table, found, axis=0))
        rows = self.w.add("Gather", x, found, axis=0)
        total = self.w.add("ReduceMax", rows, self.w.ints(0), keepdims=1)
        return self.w.add("Max", x, total)


@dataclass(frozen=True)
class Outcome:
    """Differences of one network: elements that differ from the file and from the integers."""

    passes: int
    integers: int
    silent: int


def check_network(seed: int) -> Outcome:
    """Draw, import and run the network of a seed."""
    model = RandomIndices(seed).build()
    prepared = prepare(model)
    feeds: list[Tensors] = [dict(feed) for feed in default_feeds(prepared, seed, 2)]
    passes = 0
    for feed in feeds:
        (one,), (other,) = run_file(model, feed), run_file(prepared, feed)
        passes += int((np.abs(one - other) > 1e-3 * max(1.0, float(np.abs(one).max()))).sum())
    package = import_model(model, calibration=iter(feeds))
    found = compare(package, feeds[seed % 2], MACHINES[seed % len(MACHINES)])
    placed = found.partition.placement
    return Outcome(passes, found.mismatches, sum(p.on == "cpu" and not p.reason for p in placed))


def main() -> None:
    """Check the networks of ``--count`` seeds from ``--seed`` on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wrong = 0
    for seed in range(given.seed, given.seed + given.count):
        found = check_network(seed)
        if found != Outcome(0, 0, 0):
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
    print(f"{given.count} networks, {wrong} with a mismatch or a node without a reason")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
