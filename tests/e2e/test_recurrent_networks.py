"""Recurrent float layers become one region, exact to the bit, with weights shared by all steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.importing import recurrent
from byoc.compiler import compile
from byoc.estimate.constants import ATTEMPTS
from byoc.importing import import_model
from byoc.scheduling import memplan
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from isa.arch import Arch
from tests.byoc.oracle_check import random_feeds
from tests.byoc.test_recurrent_passes import network
from tests.e2e.harness import compare

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {"direction": "bidirectional", "states": True}),
    "gru": ("GRU", {}),
    "gru of before": ("GRU", {"linear_before_reset": 1, "direction": "reverse"}),
    "rnn": ("RNN", {"layout": 0}),
}


@pytest.mark.parametrize("case", LAYERS)
def test_one_region(case: str) -> None:
    kind, options = LAYERS[case]
    model = network(kind, **options)
    feeds = random_feeds(model, 2)
    package = import_model(model, case, calibration=[feeds])
    for arch in (Arch(isa="v4"), Arch(isa="v4", sram_bytes=8192, sram_banks=2)):
        for schedule in ("default", "seed"):
            found = compare(package, feeds, arch, schedule)
            assert (found.mismatches, len(found.partition.regions)) == (0, 1)
            assert {place.op_type for place in found.partition.placement if place.on == "cpu"} <= {
                "QuantizeLinear",
                "DequantizeLinear",
            }


def test_steps_share_their_weights() -> None:
    """Four steps of an RNN store the weights of one step, 25 bytes and 5 records.

    Three more copies would be 384 bytes.
    """
    model = network("RNN")
    package = import_model(model, "rnn", calibration=[{"x": np.ones((4, 2, 3), np.float32)}])
    (program,) = compare(package, random_feeds(model, 1), Arch(isa="v4")).network.programs.values()
    packed = sum(segment.data.size for segment in program.segments)
    assert packed == 4 * 256 + 2 * 128 - 64, (
        "a table a step, and two products, the last of which need not be filled up"
    )


def test_more_steps_try_no_more_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors of 64 steps do not fill 4 KiB of banked memory, so that the first order fits.

    When the inputs of all steps were copied before the first step, 2,182 orders were tried.
    """
    tried: list[int] = []
    place = memplan._first_fit

    def count(*args: Any) -> int | None:
        tried.append(len(args[0]))
        return place(*args)

    monkeypatch.setattr(memplan, "_first_fit", count)
    model = recurrent(64)
    feeds = random_feeds(model, 1)
    package = import_model(model, "steps", calibration=[feeds])
    assert compare(package, feeds, Arch(isa="v5", sram_bytes=4096)).mismatches == 0
    assert len(tried) <= ATTEMPTS


def test_more_memory_costs_a_bidirectional_layer_no_cycles() -> None:
    """20 steps of 64 took 35,885 cycles with 64 KiB, and 35,912 with 512 KiB."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.standard_normal((2, 192, 64)) * 0.2,
        "r": random.standard_normal((2, 192, 64)) * 0.1,
        "b": random.standard_normal((2, 384)) * 0.1,
    }
    node = helper.make_node(
        "GRU", ["x", *constants], ["y"], "gru", hidden_size=64, direction="bidirectional"
    )
    graph = helper.make_graph(
        [node],
        "steps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (20, 1, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (20, 2, 1, 64))],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    package = import_model(model, "steps", calibration=[random_feeds(model, 1)])
    cycles = []
    for kib in (64, 512):
        compiled = compile(package, Arch(isa="v5", sram_bytes=kib << 10), data=False)
        (program,) = compiled.programs.values()
        cycles.append(ProgramTiming(program).run(Timing()).cycles)
    assert cycles[1] < cycles[0] <= 35_885


@pytest.mark.parametrize("isa", ["v4", "v5"])
def test_results_of_steps_between_constants_are_exact(isa: str) -> None:
    """The tensor that joins the steps is not stored only if its consumer reads all steps."""
    model = recurrent(5)
    steps = model.graph.output.pop()
    model.graph.initializer.append(
        numpy_helper.from_array(np.full((1, 1, 1, 8), 0.5, np.float32), "k")
    )
    model.graph.node.append(
        helper.make_node("Concat", ["k", steps.name, "k"], ["all"], "all", axis=0)
    )
    shape = (7, 1, 1, 8)
    model.graph.output.append(helper.make_tensor_value_info("all", TensorProto.FLOAT, shape))
    feeds = random_feeds(model, 1)
    package = import_model(model, "between", calibration=[feeds])
    found = compare(package, feeds, Arch(isa=isa))
    assert (found.mismatches, len(found.partition.regions)) == (0, 1)
