"""Work of a multiply-accumulate command, and its assignment to processing elements.

Convolutions and matrix products share the same loops and strides. Element (i, j, k) computes one
product of a sum along i, one output channel along j and one output column along k. If a sum has at
most half as many products as there are lanes along i, or the output channels are that few along j,
the array holds several blocks. Each block computes another group or, with mappings 2 and 3, other
columns.
"""

from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value, ValueLike

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.building import stage
from dla_sim.rtl.ex.counting import Level, Nest, Odometer
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, Stream
from isa.ops.lookup import TABLE_BYTES

CONVOLUTIONS = ("OP_CONV", "OP_DEPTH_CONV", "OP_GROUP_CONV")
PRODUCTS = ("OP_MAT_MUL", "OP_DYN_MAT_MUL")
MNEMONICS = (*CONVOLUTIONS, *PRODUCTS)
COUNT_BITS = 20
"""Bits of channel, row and column counts."""
BYTES_BITS = 40


class Work:
    """Signals of a multiply-accumulate command that are constant during its execution.

    :meth:`drive` assigns them. A product of (M, K) by (K, N) is a convolution with one row of M
    columns, K input channels, N output channels and one tap. Strides are in bytes, modulo 2^32.

    - ``group_stride``: distance between the input channels of neighbouring groups; ``shares``
      groups of ``OP_DEPTH_CONV`` read the same channel.
    - ``weight_in``, ``weight_out``: distance between products that are summed in one step, and
      between output channels.
    - ``output_*``, ``partial_*``: distances of results and of the partial sums to start from.
    """

    def __init__(self, limits: Limits, command: CommandView) -> None:
        self.command = command
        self._statements: list[tuple[Signal, Value]] = []
        register = command.register
        is_ = command.is_
        self.depth = is_("OP_DEPTH_CONV")
        self.grouped = is_("OP_GROUP_CONV")
        self.convolution = is_(*CONVOLUTIONS)
        self.dynamic = is_("OP_DYN_MAT_MUL")
        self.requantise = self._field("requantise", 1)
        self.relu = self._field("relu", 1)
        self.accumulate = self._field("accumulate", 1)
        self.look_up = self._field("look_up", 2)
        self.mapping = self._field("mapping", 2)
        self.transposed = self._field("transposed", 1)
        self.record_bytes = 12 if limits.fixed else 8
        self.input_channels = register("EX_INPUT_CHANNELS")
        self.output_channels = register("EX_OUTPUT_CHANNELS")
        self._loops()
        self._input_strides()
        self._weight_strides()
        self._output_strides()

    def _wire(self, name: str, bits: int, value: ValueLike) -> Signal:
        held = Signal(bits, name=f"mac_{name}")
        self._statements.append((held, Value.cast(value)))
        return held

    def _field(self, name: str, bits: int) -> Signal:
        """Return a field of the command word; 0 for instructions without the field."""
        found: Value = Const(0, bits)
        for mnemonic in MNEMONICS:
            if any(item.name == name for item in self.command.instruction(mnemonic).layout):
                found = Mux(self.command.is_(mnemonic), self.command.field(mnemonic, name), found)
        return self._wire(name, bits, found)

    def _loops(self) -> None:
        register = self.command.register
        convolution = self.convolution
        divisor = Mux(self.depth, self.input_channels, register("EX_GROUPS"))
        share = self._wire("share", COUNT_BITS, self.output_channels // divisor)
        group_inputs = Mux(
            self.grouped, self.input_channels // register("EX_GROUPS"), self.input_channels
        )
        self.shares = self._wire("shares", COUNT_BITS, Mux(self.depth, share, 1))
        groups = Mux(self.depth, self.output_channels, Mux(self.grouped, register("EX_GROUPS"), 1))
        self.groups = self._wire("groups", COUNT_BITS, groups)
        self.inputs = self._wire("inputs", COUNT_BITS, Mux(self.depth, 1, group_inputs))
        outputs = Mux(self.depth, 1, Mux(self.grouped, share, self.output_channels))
        self.outputs = self._wire("outputs", COUNT_BITS, outputs)
        self.rows = self._wire("rows", 16, Mux(convolution, register("EX_OUTPUT_HEIGHT"), 1))
        columns = Mux(convolution, register("EX_OUTPUT_WIDTH"), register("EX_ROWS"))
        self.columns = self._wire("columns", COUNT_BITS, columns)
        kernel = (register("EX_KERNEL_HEIGHT"), register("EX_KERNEL_WIDTH"))
        self.kernel = [
            self._wire(f"kernel_{n}", 11, Mux(convolution, one, 1)) for n, one in enumerate(kernel)
        ]
        self.taps = self._wire("taps", 22, self.kernel[0] * self.kernel[1])
        self.side_by_side = self.mapping[0]
        """1 if the taps of a window are processed side by side, like input channels."""
        sums = Mux(self.side_by_side, self.inputs * self.taps, self.inputs)
        self.sums = self._wire("sums", ADDRESS_BITS, sums)
        """Products of a result that are summed before the next tap."""
        self.count = self._wire(
            "count", BYTES_BITS, self.output_channels * self.rows * self.columns
        )

    def _input_strides(self) -> None:
        register = self.command.register
        convolution = self.convolution
        width = register("EX_INPUT_WIDTH")
        plane = self._wire("input_dense", ADDRESS_BITS, register("EX_INPUT_HEIGHT") * width)
        given = register("EX_INPUT_PLANE")
        channel = Mux(convolution, Mux(given == 0, plane, given), 1)
        self.input_channel = self._wire("input_channel", ADDRESS_BITS, channel)
        column = Mux(convolution, register("EX_STRIDE_WIDTH"), self.input_channels)
        self.input_column = self._wire("input_column", COUNT_BITS, column)
        self.input_row = self._wire("input_row", ADDRESS_BITS, register("EX_STRIDE_HEIGHT") * width)
        group = Mux(self.depth, self.input_channel, self.inputs * self.input_channel)
        self.group_stride = self._wire("group_stride", ADDRESS_BITS, group)
        self.top = self._wire("top", 11, Mux(convolution, register("EX_PAD_TOP"), 0))
        self.left = self._wire("left", 11, Mux(convolution, register("EX_PAD_LEFT"), 0))
        origin = register("EX_INPUT_ADDRESS") - self.top * width - self.left
        self.origin = self._wire("origin", ADDRESS_BITS, origin)
        """Address of the first result's window, including padding."""

    def _weight_strides(self) -> None:
        along = Mux(self.transposed, 1, self.output_channels)
        across = Mux(self.transposed, self.input_channels, 1)
        inner = Mux(self.convolution, Mux(self.side_by_side, 1, self.taps), along)
        self.weight_in = self._wire("weight_in", 22, inner)
        outer = Mux(self.convolution, self.inputs * self.taps, across)
        self.weight_out = self._wire("weight_out", ADDRESS_BITS, outer)

    def _output_strides(self) -> None:
        register = self.command.register
        convolution = self.convolution
        dense = self._wire("output_dense", ADDRESS_BITS, self.rows * self.columns)
        shift = Mux(self.requantise, 0, 2)
        given = register("EX_OUTPUT_PLANE")
        self.output_column = self._wire(
            "output_column", 22, Mux(convolution, 1, self.output_channels) << shift
        )
        self.output_row = self._wire("output_row", 22, self.columns << shift)
        channel = Mux(convolution, Mux(given == 0, dense << shift, given), 1 << shift)
        self.output_channel = self._wire("output_channel", ADDRESS_BITS, channel)
        self.partial_column = self._wire(
            "partial_column", 22, Mux(convolution, 4, self.output_channels << 2)
        )
        self.partial_row = self._wire("partial_row", 22, self.columns << 2)
        self.partial_channel = self._wire(
            "partial_channel", ADDRESS_BITS, Mux(convolution, dense << 2, 4)
        )

    @property
    def empty(self) -> Value:
        """1 if the multiply-accumulate command has nothing to multiply."""
        return (self.sums == 0) | (self.columns == 0) | (self.outputs == 0)

    @property
    def results(self) -> Value:
        """Number of elements that pass the post-processing lanes."""
        return Mux(self.requantise | self.accumulate | self.look_up.any(), self.count, 0)

    @property
    def streams(self) -> list[Stream]:
        """Operands in order: input, weights, records, partial sums, tables, and the result."""
        register = self.command.register
        count = self.count
        plane = Mux(
            self.convolution, register("EX_INPUT_HEIGHT") * register("EX_INPUT_WIDTH"), self.columns
        )
        channels = self.input_channels
        span = Mux(
            self.convolution, (channels - 1) * self.input_channel, (channels - 1) * self.columns
        )
        weights = self.groups * self.outputs * self.inputs * self.taps
        tables = Mux(self.look_up[1], self.output_channels, self.look_up[0]) * TABLE_BYTES
        shift = Mux(self.requantise, 0, 2)
        block = Mux(self.convolution, (self.rows * self.columns) << shift, count << shift)
        behind = Mux(self.convolution, (self.output_channels - 1) * self.output_channel, 0)
        return [
            self._stream("INPUT", channels * plane, span + plane),
            self._stream("OPERAND", weights),
            self._stream("CHANNEL", Mux(self.dynamic, 0, self.output_channels * self.record_bytes)),
            self._stream("PARTIAL", Mux(self.accumulate, count << 2, 0)),
            self._stream("TABLE", tables),
            self._stream("OUTPUT", count << shift, behind + block, write=True),
        ]

    def _stream(
        self, name: str, nbytes: Value, span: Value | None = None, *, write: bool = False
    ) -> Stream:
        first = self.command.register(f"EX_{name}_ADDRESS")
        label = name.lower()
        total = self._wire(f"{label}_bytes", BYTES_BITS, nbytes)
        last = self._wire(
            f"{label}_last", ADDRESS_BITS, first + (total if span is None else span) - 1
        )
        return Stream(total != 0, first, last, total, write)

    def drive(self, m: Module) -> None:
        m.d.comb += [held.eq(value) for held, value in self._statements]


class Axis:
    """An axis of the array cut into blocks of ``size`` lanes.

    ``block`` and ``within`` give each lane's block and its index in it; ``blocks`` is the number of
    whole blocks.
    """

    def __init__(self, m: Module, name: str, lanes: int, configured: Value, wanted: Value) -> None:
        bits = lanes.bit_length()
        self.size = wire(m, Mux(wanted < configured, wanted, configured)[:bits], f"{name}_size")
        odometer = Odometer([self.size], bits)
        powers = odometer.power(m, max(1, (lanes - 1).bit_length()))
        positions = [odometer.zero()]
        for lane in range(1, lanes):
            power = lane.bit_length() - 1
            positions.append(odometer.sum(m, positions[lane - (1 << power)], powers[power]))
        self.within = [position.digits[0] for position in positions]
        self.block = [position.digits[1] for position in positions]
        self.blocks = wire(m, (configured // self.size)[:bits], f"{name}_blocks")


class Mapping:
    """Assignment of lanes to groups, channels and columns for a command.

    By (i, j), ``group`` is the lane's group and ``used`` is 1 if its block has work. A step
    computes ``parallel`` groups and ``columns`` columns. ``channel`` by (i, j) and ``column`` by
    (i, j, k) are the output channel and column in the first step.
    """

    def __init__(self, m: Module, limits: Limits, configuration: Configuration, work: Work) -> None:
        self.deep = Axis(m, "deep", limits.ic, configuration.ic, work.sums)
        self.wide = Axis(m, "wide", limits.oc, configuration.oc, work.outputs)
        bits = (limits.ic * limits.oc).bit_length()
        blocks = wire(m, (self.deep.blocks * self.wide.blocks)[:bits], "blocks")
        fits = work.groups < blocks
        self.parallel = wire(m, Mux(fits, work.groups, blocks)[:bits], "parallel")
        sets = wire(m, Mux(work.mapping[1], blocks // self.parallel, 1)[:bits], "sets")
        self.columns = wire(m, sets * configuration.ow, "columns_a_step")
        self.split, self.several = self.deep.blocks > 1, self.wide.blocks > 1
        self.group: dict[tuple[int, int], Value] = {}
        self.used: dict[tuple[int, int], Value] = {}
        self.channel: dict[tuple[int, int], Value] = {}
        self.column: dict[tuple[int, int, int], Value] = {}
        for i in range(limits.ic):
            for j in range(limits.oc):
                number = self.deep.block[i] * self.wide.blocks + self.wide.block[j]
                block = wire(m, number[:bits], f"block_{i}_{j}")
                self.group[i, j] = wire(m, block % self.parallel, f"group_{i}_{j}")
                own = wire(m, block // self.parallel, f"set_{i}_{j}")
                inside = (self.deep.block[i] < self.deep.blocks) & (
                    self.wide.block[j] < self.wide.blocks
                )
                self.used[i, j] = wire(m, inside & (own < sets), f"used_{i}_{j}")
                channel = self.group[i, j] * work.outputs + self.wide.within[j]
                self.channel[i, j] = wire(m, channel, f"channel_{i}_{j}")
                for k in range(limits.ow):
                    self.column[i, j, k] = wire(
                        m, own * configuration.ow + k, f"column_{i}_{j}_{k}"
                    )


OUTER = 3
"""Level of the loop over columns; the levels within it are the loops over a sum."""


def loops(
    m: Module,
    work: Work,
    mapping: Mapping,
    configuration: Configuration,
    advance: Value,
    domain: str,
) -> Nest:
    """Return all loops of a command: taps, products of a step, and :func:`outer_levels`."""
    kernel = [Mux(work.side_by_side, 1, size) for size in reversed(work.kernel)]
    inner = [*map(Level, kernel), Level(work.sums, configuration.ic)]
    return Nest(
        m, "mac_loop", advance, [*inner, *outer_levels(work, mapping, configuration)], domain=domain
    )


def outer_levels(work: Work, mapping: Mapping, configuration: Configuration) -> list[Level]:
    """Return a command's loops over results: columns, rows, output channels and groups."""
    return [
        Level(work.columns, mapping.columns),
        Level(work.rows),
        Level(work.outputs, configuration.oc),
        Level(work.groups, mapping.parallel),
    ]


@dataclass(frozen=True, eq=False)
class ArrayStep:
    """Loop state at stage 1: ``valid`` marks a step, ``first`` the first step of its sums."""

    valid: Value
    first: Value
    tap_column: Value
    tap_row: Value
    """Tap's column and row in the kernel."""
    left: Value
    """Products of the sum that remain."""
    channel: Value
    """Offset of the step's input channels."""
    weight: Value
    """Address of the step's weights."""
    column: Value
    row: Value
    """Window position in the input, including padding: offset of the column, and rows."""
    row_offset: Value


def begin(
    m: Module,
    work: Work,
    mapping: Mapping,
    configuration: Configuration,
    nest: Nest,
    *,
    pipelined: bool,
    domain: str,
) -> ArrayStep:
    """Return the loop state at stage 1, registered in ``domain``.

    Counters are in the domain of ``nest``.
    """
    register = work.command.register
    none = [None] * OUTER
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
        "column": nest.offset(
            m, "mac_column", [*none, mapping.columns * work.input_column, None, None, None]
        ),
        "row": nest.offset(m, "mac_row", [*none, None, register("EX_STRIDE_HEIGHT"), None, None]),
        "row_offset": nest.offset(m, "mac_row_offset", [*none, None, work.input_row, None, None]),
    }
    return ArrayStep(
        **{
            name: stage(
                m, value[:ADDRESS_BITS], pipelined=pipelined, domain=domain, name=f"step_{name}"
            )
            for name, value in parts.items()
        }
    )


class Groups:
    """Input-channel offsets of each (i, j)'s group; they advance after all other loops.

    ``shares`` groups read the same channel; each (i, j) counts how many of them are done. ``fresh``
    marks the first step of a set of groups, ``final`` the last set. ``domain`` ticks with ``fresh``
    and has a reset.
    """

    def __init__(
        self,
        m: Module,
        limits: Limits,
        work: Work,
        mapping: Mapping,
        domain: str,
        fresh: Value,
        final: Value,
    ) -> None:
        self.limits = limits
        self.work = work
        self.domain = domain
        self.fresh = fresh
        self.started = Signal(name="groups_started")
        m.d[domain] += self.started.eq(~final)
        most = (1 << (limits.ic * limits.oc).bit_length()) - 1
        self.few = wire(
            m, Mux(work.shares > most, most, work.shares)[: most.bit_length()], "few_shares"
        )
        self.rest = wire(m, mapping.parallel % self.few, "rest")
        self.on = wire(m, (mapping.parallel // self.few * work.group_stride)[:ADDRESS_BITS], "on")
        self.further = wire(m, (self.on + work.group_stride)[:ADDRESS_BITS], "further")
        self.offset = {place: self._offset(m, group) for place, group in mapping.group.items()}

    def _offset(self, m: Module, group: Value) -> Value:
        work = self.work
        behind = Signal(COUNT_BITS, name="shares_behind")
        offset = Signal(ADDRESS_BITS, name="group_offset")
        total = wire(m, behind + self.rest, "total")
        wraps = wire(m, total >= work.shares, "wraps")
        start = (group // self.few * work.group_stride)[:ADDRESS_BITS]
        on = (Mux(wraps, total - work.shares, total), offset + Mux(wraps, self.further, self.on))
        begin = (group % self.few, start)
        now = [
            wire(m, Mux(self.started, after, before)[: len(held)], "now")
            for held, before, after in zip((behind, offset), begin, on, strict=True)
        ]
        m.d[self.domain] += [behind.eq(now[0]), offset.eq(now[1])]
        return (
            offset if self.limits.pipelined else wire(m, Mux(self.fresh, now[1], offset), "offset")
        )
