"""The loops of a command, and what of them the data path sees."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value

from dla_sim.rtl.building import stage
from dla_sim.rtl.ex.counting import Level, Nest
from dla_sim.rtl.ex.mac.mapping import Mapping
from dla_sim.rtl.ex.mac.work import Work
from dla_sim.rtl.parameters import Configuration
from dla_sim.rtl.ports import ADDRESS_BITS

OUTER = 3
"""Level of the loops over columns; within it are those over a sum."""


def loops(m: Module, work: Work, mapping: Mapping, configuration: Configuration, advance: Value, domain: str) -> Nest:
    """All loops of a command: taps, products summed at once, and those of :func:`outer_levels`."""
    kernel = [Mux(work.side_by_side, 1, size) for size in reversed(work.kernel)]
    inner = [*map(Level, kernel), Level(work.sums, configuration.ic)]
    return Nest(m, "mac_loop", advance, [*inner, *outer_levels(work, mapping, configuration)], domain=domain)


def outer_levels(work: Work, mapping: Mapping, configuration: Configuration) -> list[Level]:
    """The loops over results: columns, rows, output channels, groups."""
    return [
        Level(work.columns, mapping.columns),
        Level(work.rows),
        Level(work.outputs, configuration.oc),
        Level(work.groups, mapping.parallel),
    ]


@dataclass(frozen=True, eq=False)
class Step:
    """Stage 1: whether a step is there, whether it is the ``first`` one of its sums, and where the loops are."""

    valid: Value
    first: Value
    tap_column: Value
    tap_row: Value
    """In the kernel."""
    left: Value
    """Products of a sum that are still to come."""
    channel: Value
    """Offset of its input channels."""
    weight: Value
    """Address of its weights."""
    column: Value
    row: Value
    """Of the window in the input, padding included: an offset, and rows."""
    row_offset: Value


def begin(
    m: Module, work: Work, mapping: Mapping, configuration: Configuration, nest: Nest, *, pipelined: bool, domain: str
) -> Step:
    """What stage 1 sees: counts and offsets in ``nest``'s domain, then registers of ``domain``."""
    register, none = work.command.register, [None] * OUTER
    apart = Mux(work.side_by_side, 0, (configuration.ic * work.input_channel)[:ADDRESS_BITS])
    blocks = configuration.ic * work.weight_in, configuration.oc * work.weight_out
    groups = (mapping.parallel * work.outputs * work.weight_out)[:ADDRESS_BITS]
    weights = [Const(1), work.kernel[1], blocks[0], None, None, blocks[1], groups]
    first = Signal(name="sum_begins", init=1)
    with m.If(nest.advance):
        m.d[nest.domain] += first.eq(nest.ends[OUTER - 1])
    parts = {
        "valid": nest.advance,
        "first": first,
        "tap_column": nest.index[0],
        "tap_row": nest.index[1],
        "left": work.sums - nest.index[2],
        "channel": nest.offset(m, "mac_channel", [None, None, apart, None, None, None, None]),
        "weight": nest.offset(m, "mac_weight", weights) + register("EX_OPERAND_ADDRESS"),
        "column": nest.offset(m, "mac_column", [*none, mapping.columns * work.input_column, None, None, None]),
        "row": nest.offset(m, "mac_row", [*none, None, register("EX_STRIDE_HEIGHT"), None, None]),
        "row_offset": nest.offset(m, "mac_row_offset", [*none, None, work.input_row, None, None]),
    }
    return Step(
        **{
            name: stage(m, value[:ADDRESS_BITS], pipelined=pipelined, domain=domain, name=f"step_{name}")
            for name, value in parts.items()
        }
    )
