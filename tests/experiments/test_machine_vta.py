"""VTA: published cycles, cycles of bursts against its state machines, and larger machines."""

import pytest

from experiments.machines.description import UnitTask
from experiments.machines.evaluate import Evaluator
from experiments.machines.vta import MACHINE as VTA
from experiments.machines.vta import describe_convolution
from experiments.machines.vta_figures import (
    NETWORKS,
    count_convolution,
    count_network,
    list_convolutions,
    publish_figures,
)
from experiments.machines.vta_program import list_instructions, simulate_instructions
from experiments.machines.vta_tiles import (
    TOPHUB,
    VtaConvolution,
    VtaParameters,
    VtaTile,
    count_read,
    count_write,
    find_tile,
)
from experiments.running.given import Given
from experiments.running.network import load

MACHINE = VtaParameters()


@pytest.mark.parametrize("network", NETWORKS)
def test_cycles_agree_with_the_rtl_simulation(network: str) -> None:
    """Baseline within 0.1 %, pipelined within 2 % of the RTL; nothing is fitted."""
    baseline, pipelined = NETWORKS[network][3]
    assert count_network(network, VtaParameters(pipelined=0)) == pytest.approx(baseline, rel=1e-3)
    assert count_network(network, MACHINE) == pytest.approx(pipelined, rel=0.02)


def test_published_figures_are_within_their_claims() -> None:
    figures = [figure for figure in publish_figures() if figure.role == "held out"]
    assert len(figures) == 12
    for figure in figures:
        assert figure.predict() == pytest.approx(figure.value, rel=figure.claim)


def test_biases_cost_what_the_published_networks_differ_by() -> None:
    """Versions 1 and 2 of ResNet-18 differ in biases alone: 120,535 cycles, both by RTL."""
    ours = count_network("resnet18_v1", VtaParameters(pipelined=0)) - count_network(
        "resnet18_v2", VtaParameters(pipelined=0)
    )
    published = NETWORKS["resnet18_v1"][3][0] - NETWORKS["resnet18_v2"][3][0]
    assert ours == pytest.approx(published, rel=0.01)


def _step_read_burst(beats: int) -> int:
    """Return the cycles from a command to the next one, by the state machines of the RTL.

    VME: idle, address, data. Memory: idle, address, data, its valid signal delayed by two cycles.
    """
    engine = memory = "idle"
    left = received = 0
    valid = [False, False]
    cycle = 0
    while True:
        cycle += 1
        after = engine, memory
        if engine == "idle" and cycle == 1:
            after = "address", memory
        if engine == "idle" and received:
            return cycle - 1
        if memory == "idle" and engine == "address":
            after = after[0], "address"
        if memory == "address":
            after = "data", "data"
        arrived = valid[1]
        valid = [memory == "data" and left > 0, valid[0]]
        left -= valid[0]
        if memory == "address":
            left = beats
        if arrived:
            received += 1
            if received == beats:
                after = "idle", "idle"
        engine, memory = after


def _step_write_burst(beats: int) -> int:
    """Return the same of a write; the store reads its buffer before every two beats."""
    engine = memory = "idle"
    store = "command"
    sent = cycle = 0
    while True:
        cycle += 1
        if store == "command" and sent:
            return cycle - 1
        after = engine, memory, store
        if engine == "idle" and store == "command":
            after = "address", memory, "data"
        if engine == "address" and memory == "idle":
            after = engine, "address", store
        if memory == "address":
            after = "data", "data", store
        if memory == "data" and store == "read":
            after = engine, memory, "data"
        elif memory == "data" and store == "data":
            sent += 1
            after = engine, memory, "read" if sent % 2 == 0 else "data"
            if sent == beats:
                after = "response", "response", "acknowledge"
        if memory == "response":
            after = "idle", "idle", "command"
        engine, memory, store = after


@pytest.mark.parametrize("beats", [2, 4, 10, 16])
def test_bursts_take_the_cycles_of_the_state_machines(beats: int) -> None:
    """A client sends its next command one cycle after the memory is free."""
    for count, step in ((count_read, _step_read_burst), (count_write, _step_write_burst)):
        cycles, bursts = count(0, 8 * beats, MACHINE)
        assert bursts == 1
        assert cycles + bursts == step(beats)


def test_rows_that_cross_a_burst_boundary_take_two_bursts() -> None:
    assert count_read(112, 32, MACHINE) == (4 + 2 * 4, 2)
    assert count_read(0, 32, MACHINE) == (4 + 4, 1)


def test_tiles_of_tophub_cover_the_published_networks() -> None:
    for network in NETWORKS:
        for shape in list_convolutions(network):
            key = (shape.inputs, shape.height, shape.outputs, shape.kernel, shape.stride)
            assert find_tile(shape, MACHINE) == TOPHUB[key]


def test_wider_buses_imply_the_published_bytes() -> None:
    """tvm-vta#32: C2 takes 97, 58, 39 and 29 M cycles at 64 to 512 bits, in five runs.

    Twice the width halves the beats, so the differences are the bytes of the untuned schedule.
    """
    shape = VtaConvolution(4, 56, 56, 4, 3, 1, 1, bias=True, relu=False)
    tasks = list_instructions(shape, MACHINE, VtaTile(1, 1, 1, 1, 1, 1))
    moved = 5 * sum(task.bytes for task in tasks)
    published = (97e6, 58e6, 39e6, 29e6)
    for width, slow, fast in zip((8, 16, 32), published, published[1:], strict=False):
        assert moved / width / 2 == pytest.approx(slow - fast, abs=1.1e6)  # rounded to a million


@pytest.mark.parametrize("network", ["resnet18_v1", "resnet50_v2"])
def test_larger_machines_are_never_slower(network: str) -> None:
    """Pipelined core, wider bus, second thread, larger buffers with tiles of the estimate."""
    assert count_network(network, VtaParameters(pipelined=0)) > count_network(network, MACHINE)
    for shape in set(list_convolutions(network)):
        widths = [count_convolution(shape, VtaParameters(bus_bytes=one)) for one in (8, 16, 32)]
        assert widths == sorted(widths, reverse=True)
        assert count_convolution(shape, MACHINE) < count_convolution(
            shape, VtaParameters(threads=1)
        )
        small, large = (
            VtaParameters(
                tophub=0, input_bytes=1 << bits, weight_bytes=8 << bits, sum_bytes=4 << bits
            )
            for bits in (14, 15)
        )
        assert count_convolution(shape, large) <= count_convolution(shape, small)


def test_loads_overlap_only_with_the_gemm_of_the_other_thread() -> None:
    """Units wait for each other, and busy and waiting cycles add up."""
    shape = list_convolutions("resnet18_v1")[0]
    times = simulate_instructions(list_instructions(shape, MACHINE))
    for account in times.units.values():
        assert account.busy + sum(account.waiting.values()) == times.total
    assert times.units["load"].waiting["compute"] > 0
    steps = shape.rows * shape.columns * shape.outputs * shape.inputs * shape.kernel**2
    assert steps < times.units["compute"].busy < times.total


def test_tasks_need_only_earlier_tasks() -> None:
    tasks: list[UnitTask] = list_instructions(list_convolutions("resnet18_v1")[0], MACHINE)
    assert all(need < number for number, task in enumerate(tasks) for need in task.needs)


def test_networks_run_on_the_description() -> None:
    """ResNet-8: cycles are those of its convolutions; the first one and the classifier do not."""
    package = load(Given("resnet-8", cache=False)).package
    found = Evaluator(package.graph, package.annotations, VTA).evaluate(MACHINE)
    assert [layer.operation for layer in found.layers] == ["convolution"] * len(found.layers)
    for layer in found.layers:
        assert layer.work is not None
        assert layer.cycles == count_convolution(describe_convolution(layer.work), MACHINE)
    assert found.cycles == sum(layer.cycles for layer in found.layers)
    assert "3 input channels are not a multiple of 16" in {
        reason for reason, _ in found.refused.values()
    }
