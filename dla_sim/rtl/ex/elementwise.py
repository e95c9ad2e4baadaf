"""Engine of instructions with one result per element.

These are requantisation, element-wise work and look-up.

Each step processes ``lanes`` elements in address order. The instructions differ in how they find an
element's operands and in their lane of arithmetic. Each lane type has its own clock, so only one
type is active.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Value, ValueLike

from dla_sim.rtl.arithmetic.elementwise import (
    Addition,
    AddShift,
    Choice,
    Division,
    Multiplication,
    Subtraction,
    Unary,
    UnaryFunction,
)
from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.arithmetic.lane import Requantise, command_constants
from dla_sim.rtl.building import Library, choose_clock, gated_clock, stage
from dla_sim.rtl.ex.counting import Group, Level, Nest, NestWalk, Odometer, Position, delayed
from dla_sim.rtl.ex.engine import TABLE_SHIFT, Engine, Steps, Tables
from dla_sim.rtl.parameters import Configuration, Limits
from dla_sim.rtl.ports import ADDRESS_BITS, CommandView, ReadPort, Stream, WritePort, drive_clocks
from isa.ops.lookup import LOOK_UP
from isa.ops.pairs import ALONG_CHANNELS, ALONG_LENGTH, MAXIMUM, REPEAT_A, REPEAT_B, SQUARED

CHANNELLED = ("OP_REQUANT", "OP_LUT")
"""Instructions whose elements have the shape (rows, channels, length)."""
PAIRS = ("OP_E_MUL", "OP_E_SUB", "OP_B_ADD", "OP_B_MIN", "OP_E_DIV")
"""Instructions whose elements have the shape (channels, length) and whose operands may repeat."""
DENSE_PAIRS = ("OP_C_MIN", "OP_C_MAX", "OP_E_ADD", "OP_E32_ADD")
WORDS = ("OP_E32_ADD", "OP_E32_SHIFT")


@dataclass(frozen=True)
class Function:
    """Element-wise function: its lane of arithmetic and the instructions that use it.

    Attributes:
        name: name of the lane.
        mnemonics: instructions that use it.
        make: constructor for given limits.
        inputs: the lane's inputs from the bits of operands a and b.
        settings: inputs that are fields and registers of the command, except those in the lane's
            ``constants``.
    """

    name: str
    mnemonics: tuple[str, ...]
    make: Callable[[Limits], Any]
    inputs: Callable[[Value, Value], dict[str, ValueLike]]
    settings: Callable[[CommandView], dict[str, ValueLike]] = lambda command: {}


def _bytes(a: Value, b: Value) -> dict[str, ValueLike]:
    return {"a": a[:8].as_signed(), "b": b[:8].as_signed()}


def _accumulator(a: Value, b: Value) -> dict[str, ValueLike]:
    found: dict[str, ValueLike] = {"accumulator": a.as_signed(), "scale": b[32:64]}
    return found | ({"shift": b[64:96].as_signed()} if len(b) > 64 else {})


def _limits(command: CommandView) -> dict[str, ValueLike]:
    names = {"zero_point": "OUTPUT_ZERO_POINT", "low": "CLAMP_LOW", "high": "CLAMP_HIGH"}
    return {port: command.register(f"EX_{name}") for port, name in names.items()}


def _choice(command: CommandView) -> dict[str, ValueLike]:
    maximum = command.is_("OP_C_MAX") | (
        command.is_("OP_B_MIN") & command.field("OP_B_MIN", MAXIMUM.name)
    )
    return {"first": command.is_("OP_LUT"), "maximum": maximum}


def _wide(command: CommandView) -> dict[str, ValueLike]:
    return {
        "shifts": command.is_("OP_E32_SHIFT"),
        "right": command.field("OP_E32_SHIFT", "direction"),
        "rounding": command.field("OP_E32_SHIFT", "rounding"),
        "amount": command.register("EX_SHIFT_A")[:5],
    }


def _unary(command: CommandView) -> dict[str, ValueLike]:
    others = Mux(command.is_("OP_ACT_LRELU"), UnaryFunction.LEAKY_RELU, UnaryFunction.ABSOLUTE)
    return {"function": Mux(command.is_("OP_ACT_RELU"), UnaryFunction.RELU, others)}


def _lane(make: Callable[..., Any]) -> Callable[[Limits], Any]:
    return lambda limits: make(fixed=limits.fixed, pipelined=limits.pipelined)


FUNCTIONS = (
    Function("requantise", ("OP_REQUANT",), _lane(Requantise), _accumulator, _limits),
    Function(
        "choice", ("OP_LUT", "OP_C_MIN", "OP_C_MAX", "OP_B_MIN"), lambda limits: Choice(),
        _bytes, _choice,
    ),
    Function(
        "wide", WORDS, lambda limits: AddShift(pipelined=limits.pipelined),
        lambda a, b: {"a": a.as_signed(), "b": b[:32].as_signed()}, _wide,
    ),
    Function(
        "unary", ("OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS"), _lane(Unary),
        lambda a, b: {"value": a[:8].as_signed()}, _unary,
    ),
    Function("addition", ("OP_E_ADD", "OP_B_ADD"), _lane(Addition), _bytes),
    Function(
        "subtraction", ("OP_E_SUB",), _lane(Subtraction), _bytes,
        lambda command: {"squared": command.field("OP_E_SUB", SQUARED.name)},
    ),
    Function("multiplication", ("OP_E_MUL",), _lane(Multiplication), _bytes),
    Function("division", ("OP_E_DIV",), _lane(Division), _bytes),
)  # fmt: skip


class Elementwise(Engine):
    """Engine of element-wise instructions: a loop over groups of lanes.

    Stages: 0 counts; 1 computes positions and starts the reads; 2 routes operands to their lane;
    then follow arithmetic, tables and the write.
    """

    mnemonics = tuple(name for function in FUNCTIONS for name in function.mnemonics)

    def __init__(
        self, limits: Limits, configuration: Configuration, command: CommandView, library: Library
    ) -> None:
        super().__init__(limits, configuration, command, library)
        self.pipelined = limits.pipelined
        self.lanes = limits.lanes
        self.made = {
            one.name: library.component(f"lane_{one.name}", partial(one.make, limits))
            for one in FUNCTIONS
        }
        self.work = max(lane.latency for lane in self.made.values())
        self.latency = 4 + self.work if self.pipelined else 0
        self.record_bytes = 12 if limits.fixed else 8
        domain = self.name if self.pipelined else None
        second = {"EX_OPERAND_ADDRESS": (*DENSE_PAIRS, *PAIRS), "EX_CHANNEL_ADDRESS": ()}
        self.a = ReadPort(f"{self.name}_a", self.lanes, 4, domain, {"EX_INPUT_ADDRESS": ()})
        self.b = ReadPort(f"{self.name}_b", self.lanes, self.record_bytes, domain, second)
        self.tables = Tables(
            self.name,
            self.lanes,
            domain,
            {"EX_TABLE_ADDRESS": (), "EX_OPERAND_ADDRESS": ("OP_LUT",)},
        )
        self.write = WritePort(
            f"{self.name}_write", self.lanes, 4, f"{self.name}_write", {"EX_OUTPUT_ADDRESS": ()}
        )
        self.read_ports, self.write_ports = [self.a, self.b, self.tables.port], [self.write]
        self.length = command.register("EX_LENGTH")
        self.channels = command.register("EX_OUTPUT_CHANNELS")
        self.words = command.is_(*WORDS)
        self.count = self._count()
        self.look_up = self._look_up()
        self.streams = self._streams()

    # Properties of the command

    def _count(self) -> Value:
        rows = Mux(self.command.is_(*CHANNELLED), self.command.register("EX_ROWS"), 1)
        channels = Mux(self.command.is_(*CHANNELLED, *PAIRS), self.channels, 1)
        return ((rows * channels)[:ADDRESS_BITS] * self.length)[:ADDRESS_BITS]

    def _look_up(self) -> Value:
        """Return the command's table look-up mode, or 0 for instructions without a look-up.

        1 uses one table for all results, 2 one table per channel.
        """
        found: Value = Const(0, LOOK_UP.width)
        for name in self.mnemonics:
            if any(item.name == LOOK_UP.name for item in self.command.instruction(name).layout):
                found = Mux(self.command.is_(name), self.command.field(name, LOOK_UP.name), found)
        return found

    def _repeat(self, register: str) -> Value:
        """Return how an element-wise operand is repeated (broadcast); ``register`` selects it.

        The result is 0 for instructions whose operands do not repeat.
        """
        name = {"EX_INPUT_ADDRESS": REPEAT_A.name, "EX_OPERAND_ADDRESS": REPEAT_B.name}[register]
        return Mux(self.command.is_(*PAIRS), self.command.field(PAIRS[0], name), 0)

    def _streams(self) -> list[Stream]:
        command = self.command
        tables = self.channels << TABLE_SHIFT
        wide = Mux(self.words, self.count << 2, self.count)
        a = Mux(command.is_("OP_REQUANT"), self.count << 2, wide)
        b = Mux(command.is_(*DENSE_PAIRS), wide, Mux(command.is_("OP_LUT"), tables, 0))
        requantises = command.is_("OP_REQUANT")
        bytes_of = {
            "EX_INPUT_ADDRESS": Mux(
                command.is_(*PAIRS), self._repeat_register("EX_INPUT_ADDRESS"), a
            ),
            "EX_OPERAND_ADDRESS": Mux(
                command.is_(*PAIRS), self._repeat_register("EX_OPERAND_ADDRESS"), b
            ),
            "EX_CHANNEL_ADDRESS": Mux(requantises, self.channels * self.record_bytes, 0),
            "EX_TABLE_ADDRESS": Mux(
                self.look_up == 0, 0, Mux(self._per_channel, tables, 1 << TABLE_SHIFT)
            ),
            "EX_OUTPUT_ADDRESS": wide,
        }
        return [self._stream(register, nbytes) for register, nbytes in bytes_of.items()]

    @property
    def _per_channel(self) -> Value:
        """1 if looked-up results use one table per channel.

        Instructions without channels use one table.
        """
        return ((self.look_up == 2) & self.command.is_(*CHANNELLED, *PAIRS)) | self.command.is_(
            "OP_LUT"
        )

    def _repeat_register(self, register: str) -> Value:
        repeat = self._repeat(register)
        channels = Mux((repeat & ALONG_CHANNELS).any(), 1, self.channels)
        length = Mux((repeat & ALONG_LENGTH).any(), 1, self.length)
        return Mux(self.count == 0, 0, (channels * length)[:ADDRESS_BITS])

    def _stream(self, register: str, nbytes: Value) -> Stream:
        first = self.command.register(register)
        last = (first + nbytes - 1)[:ADDRESS_BITS]
        return Stream(
            nbytes != 0, first, last, nbytes[:ADDRESS_BITS], register == "EX_OUTPUT_ADDRESS"
        )

    # Hardware

    def elaborate(self, platform: object) -> Module:
        m = Module()
        name = self.name
        nest = Nest(
            m, name, self.advance, [Level(self.count, self.configuration.lanes)], domain=name
        )
        m.d.comb += [self.empty.eq(self.count == 0), self.last.eq(nest.last)]
        self.steps = Steps(m, self.advance, 4 + self.work, pipelined=self.pipelined)
        gated_clock(m, name, self.steps.between(0, 3 + self.work), cleared=True)
        gated_clock(m, f"{name}_begin", self.advance & nest.first)
        gated_clock(m, self.write.domain, self.steps.valid[-1])
        drive_clocks(m, (*self.read_ports, *self.write_ports))
        odometer = Odometer([self.length, self.channels])
        group = Group.build_group(
            m, odometer, self.configuration.lanes, pipelined=self.pipelined, domain=f"{name}_begin"
        )
        walk = NestWalk(self.advance, nest.first, nest.ends)
        left = self.count - nest.index[0]
        lanes = self.configuration.lanes
        number = wire(m, Mux(left < lanes, left, lanes)[: len(lanes)], "number")
        number, base = (self._delay_value(m, value, 1) for value in (number, nest.index[0]))
        there = wire(m, Cat(*(lane < number for lane in range(self.lanes))), "there")
        self._read(
            m,
            base,
            there,
            self._positions(m, group, walk, 1, self.command.is_("OP_REQUANT", *PAIRS)),
        )
        results = self._compute(m, self._delay_value(m, there, 2 + self.work))
        self._finish(
            m,
            results,
            self._positions(m, group, walk, 3 + self.work, self._per_channel),
            base,
            there,
        )
        return m

    def _positions(
        self, m: Module, group: Group, walk: NestWalk, at: int, wanted: Value
    ) -> list[Position]:
        """Return the element positions of all lanes at pipeline stage ``at``.

        If not ``wanted`` they are undefined and cost nothing.
        """
        domain = f"{self.name}_positions_{at}"
        choose_clock(m, domain, self.name, wanted)
        walk = walk.later(m, at - 1, pipelined=self.pipelined, domain=self.name)
        walk = walk.later(m, 1, pipelined=self.pipelined, domain=domain)
        return group.positions(m, self.lanes, walk.valid, walk.first, domain=domain)

    def _read(self, m: Module, base: Value, there: Value, positions: Sequence[Position]) -> None:
        """Drive the read addresses of both operands of an element-wise command.

        ``base`` is the first lane's element.
        """
        command = self.command
        requantises = self.command.is_("OP_REQUANT")
        for port, register, wide in (
            (self.a, "EX_INPUT_ADDRESS", self.words | requantises),
            (self.b, "EX_OPERAND_ADDRESS", self.words),
        ):
            m.d.comb += port.enable.eq(there)
            repeat = self._repeat(register)
            start = wire(m, command.register(register), "start")
            dense = wire(m, start + Mux(wide, base << 2, base), "dense")
            for lane, position in enumerate(positions):
                length, channel = position.digits
                straight = dense + Mux(wide, 4 * lane, lane)
                repeated = start + Mux(
                    (repeat & ALONG_LENGTH).any(), Mux(repeat[1], 0, channel), length
                )
                address: Value = Mux(repeat == 0, straight, repeated)
                if port is self.b:
                    record = command.register("EX_CHANNEL_ADDRESS") + channel * self.record_bytes
                    address = Mux(requantises, record, address)
                m.d.comb += port.address[lane].eq(address)

    def _compute(self, m: Module, there: Value) -> list[Value]:
        """Return the results of the command's element-wise function, ``work`` stages later."""
        results: list[Value] = [Const(0, 32)] * self.lanes
        constants = command_constants(m, self.command.register, fixed=self.limits.fixed)
        for function in FUNCTIONS:
            chosen = self.command.is_(*function.mnemonics)
            domain = f"{self.name}_{function.name}"
            choose_clock(m, domain, self.name, chosen)
            lanes = [self._lane(m, function, constants, domain, lane) for lane in range(self.lanes)]
            results = [
                Mux(chosen, lane["result"], other)
                for lane, other in zip(lanes, results, strict=True)
            ]
            if "overflow" in lanes[0]:
                overflows = (Cat(*(lane["overflow"] for lane in lanes)) & there).any()
                with m.If(overflows & chosen & self.steps.valid[3 + self.work]):
                    m.d.sync += self.fault.eq(1)
        return [wire(m, result, "result") for result in results]

    def _lane(
        self, m: Module, function: Function, constants: Mapping[str, Value], domain: str, lane: int
    ) -> dict[str, Value]:
        """Return one lane's outputs for a function, delayed to the slowest function's latency."""
        made = self.made[function.name]
        operands = (
            stage(
                m,
                port.data[lane],
                pipelined=self.pipelined,
                domain=domain,
                name=f"operand_{port.name}",
            )
            for port in (self.a, self.b)
        )
        inputs = function.inputs(*operands) | function.settings(self.command)
        inputs |= {name: constants[name] for name in getattr(made, "constants", ())}
        outputs = self.modules.instance(
            m, f"lane_{function.name}", partial(function.make, self.limits), inputs, domain=domain
        )
        wait = self.work - made.latency
        return {
            name: delayed(m, value, wait, pipelined=self.pipelined, domain=domain, name=name)
            for name, value in outputs.items()
        }

    def _finish(
        self,
        m: Module,
        results: Sequence[Value],
        positions: Sequence[Position],
        base: Value,
        there: Value,
    ) -> None:
        """Apply the table look-up to the results of all lanes and write them to the scratchpad.

        ``base`` and ``there`` belong to stage 1.
        """
        command = self.command
        looks_up = wire(m, (self.look_up != 0) | command.is_("OP_LUT"), "looks_up")
        start = Mux(
            command.is_("OP_LUT"),
            command.register("EX_OPERAND_ADDRESS"),
            command.register("EX_TABLE_ADDRESS"),
        )
        start = wire(m, start, "tables")
        tables = [
            start + Mux(self._per_channel, position.digits[1] << TABLE_SHIFT, 0)
            for position in positions
        ]
        found = self.tables.look_up(
            m, results, self._delay_value(m, there, 2 + self.work), tables, looks_up, self.name
        )
        there = self._delay_value(m, there, 3 + self.work)
        base = self._delay_value(m, base, 3 + self.work)
        first = wire(
            m, command.register("EX_OUTPUT_ADDRESS") + Mux(self.words, base << 2, base), "target"
        )
        for lane, value in enumerate(found):
            m.d.comb += [
                self.write.enable[lane].eq(Mux(there[lane], Mux(self.words, 15, 1), 0)),
                self.write.address[lane].eq(first + Mux(self.words, 4 * lane, lane)),
                self.write.data[lane].eq(value),
            ]
