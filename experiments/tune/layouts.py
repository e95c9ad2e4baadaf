"""Layouts of a layer's operands on banked memory, and the cost of the copies between layouts."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, NamedTuple, cast

from byoc.compiled import Region
from byoc.estimate.matrices import CONVOLUTIONS, Layouts, layouts_of
from byoc.graph import Value
from byoc.layout.region import has_stated_layouts, layout_text, operand_text
from byoc.operators.convolution import Convolution
from byoc.operators.layer import OperatorLayer
from byoc.scheduling.lowering import Lowered, value_bytes
from dla_sim.engine.times import compute_times
from dla_sim.engine.workload import Workload
from dla_sim.prepared import prepare
from dla_sim.timing import Timing
from isa.arch import Arch
from isa.ops.convolution import MAPPING
from isa.program import Program

MOVEMENT = "OP_PERMUTE"


class LayoutsOfLayer(NamedTuple):
    """Operation of a layer with the layouts of its operands.

    The result is the last operand. Each operand is a pair (value, layout).
    """

    operation: str
    operands: tuple[tuple[str, str], ...]


class PermuteTotal(NamedTuple):
    """Total over a layer's ``OP_PERMUTE`` commands.

    It has the bytes of their results, and their EX cycles including waits.
    """

    commands: int
    nbytes: int
    cycles: int


class Edge(NamedTuple):
    """Input or output of a region with the cost of its transfer.

    ``nbytes`` are the bytes of the model's tensor, ``packed`` its packed bytes, and ``slots`` the
    bus slots of each transfer.
    """

    value: str
    side: str
    layout: str
    nbytes: int
    packed: int
    slots: int


@dataclass(frozen=True)
class LayerLayouts:
    """Layouts of a layer: its operations, its copies and its choice of layout.

    ``convolution`` has both possible layouts with estimates; it is None for other layers.
    """

    operations: tuple[LayoutsOfLayer, ...]
    moved: PermuteTotal
    convolution: Layouts | None

    def content(self) -> dict[str, Any]:
        found = asdict(self)
        return found | {
            "operations": [
                {"operation": one.operation, "operands": [list(pair) for pair in one.operands]}
                for one in self.operations
            ],
            "moved": self.moved._asdict(),
            "convolution": None if self.convolution is None else self.convolution._asdict(),
        }

    def lines(self) -> Iterator[str]:
        for one in self.operations:
            lie = "; ".join(f"{value}: {layout}" for value, layout in one.operands)
            yield f"{one.operation}: {lie}"
        moved = self.moved
        yield (
            f"copied for it by {MOVEMENT}: {moved.nbytes:,} bytes in {moved.commands:,} commands, "
            f"{moved.cycles:,} "
            "cycles of EX"
            if moved.commands
            else "no copies are made for it"
        )
        found = self.convolution
        if found is not None:
            less = (
                "which is less, but not done"
                if found.matrix < found.direct
                else "so that it is direct"
            )
            yield (
                f"layout: direct with mapping {found.mapping}, {found.direct:,} cycles of EX by "
                "the formulas; as a "
                f"product of matrices {found.product:,} and {found.conversion:,} for the copy into "
                f"one, {less}"
            )


def layer_layouts(
    program: Program, layers: Sequence[OperatorLayer], arch: Arch, timing: Timing
) -> Mapping[str, LayerLayouts]:
    """Return the operand layouts of each layer on banked memory, by layer.

    None of ideal memory, where all tensors are dense.
    """
    if not has_stated_layouts(arch.memory):
        return {}
    overhead = timing.ex_fill + timing.ex_drain
    moved = _count_moved(program, timing)
    found: dict[str, LayerLayouts] = {}
    for layer in layers:
        operation = layer.operation
        listed = LayoutsOfLayer(
            operation.mnemonic or type(operation).__name__,
            tuple((one.value, operand_text(one)) for one in (*operation.inputs, operation.output)),
        )
        mapping = dict(layer.geometry.fields).get(MAPPING.name, 0)
        product = None
        if operation.mnemonic in CONVOLUTIONS:
            product = layouts_of(cast(Convolution, operation), mapping, arch, overhead)
        known = found.get(
            layer.name, LayerLayouts((), moved.get(layer.name, PermuteTotal(0, 0, 0)), None)
        )
        found[layer.name] = LayerLayouts(
            (*known.operations, listed), known.moved, known.convolution or product
        )  # fmt: skip
    return found


def _count_moved(program: Program, timing: Timing) -> dict[str, PermuteTotal]:
    prepared = prepare(program)
    times = compute_times(Workload(prepared.demands, timing))
    cycles = (times.end - times.start).tolist()
    begins = [source.first for source in program.provenance]
    found: dict[str, PermuteTotal] = {}
    for number, command in enumerate(prepared.commands):
        if command.instruction.mnemonic != MOVEMENT:
            continue
        name = program.provenance[bisect_right(begins, command.index) - 1].layer
        before = found.get(name, PermuteTotal(0, 0, 0))
        nbytes = sum(access.total for access in prepared.operands[number].writes)
        found[name] = PermuteTotal(
            before.commands + 1, before.nbytes + nbytes, before.cycles + cycles[number]
        )
    return found


def edges(
    region: Region, lowered: Lowered, values: Mapping[str, Value], timing: Timing
) -> Iterator[Edge]:
    """Yield the inputs and outputs of a region, which the host packs and unpacks."""
    for side, names in (("input", region.inputs), ("output", region.outputs)):
        for name in names:
            layout = lowered.layouts[name]
            value = values[name]
            packed = value_bytes(value, layout)
            plain = prod(value.shape) * (4 if value.dtype == "int32" else 1)
            yield Edge(
                name, side, layout_text(layout), plain, packed, timing.main.least_slots(packed)
            )


def edge_line(edge: Edge) -> str:
    verb = "packs" if edge.side == "input" else "unpacks"
    return (
        f"{edge.side} {edge.value}: {edge.layout}; the host {verb} {edge.nbytes:,} bytes as "
        f"{edge.packed:,}, "
        f"{edge.slots:,} slots of the bus each time they are moved"
    )
