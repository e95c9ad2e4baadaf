"""Building blocks for components: optional pipeline registers, gated clocks and shared modules."""

import re
from collections.abc import Callable, Mapping, Sequence

from amaranth._toolchain.yosys import YosysError, find_yosys
from amaranth.back import rtlil
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib import wiring

from isa.errors import InputError

_PASSES = (
    "delete t:$meminit*", "proc -norom", "attrmap -remove init", "opt_expr", "opt_merge", "opt_dff",
    "opt_clean",
    "opt_expr", "opt_clean", "memory_collect",
)  # fmt: skip
"""Yosys passes applied to Amaranth's RTLIL before it is written as Verilog."""


def stage(
    m: Module, value: ValueLike, *, pipelined: bool, domain: str = "sync", name: str | None = None
) -> Signal:
    """Return ``value`` delayed by one cycle of ``domain``, or unchanged if ``pipelined`` is False.

    The register has no reset. Its value is only meaningful together with a valid bit that has a
    reset.
    """
    source = Value.cast(value)
    held = Signal(source.shape(), reset_less=True, name=name, src_loc_at=1)
    m.d["comb" if not pipelined else domain] += held.eq(source)
    return held


def gated_clock(m: Module, name: str, enable: ValueLike, *, cleared: bool = False) -> None:
    """Declare the clock domain ``name``, which ticks at the end of cycles with ``enable`` = 1.

    ``enable`` must come from registers of ``sync``. A flip-flop on the falling edge stores it, so
    the gate needs no latch and produces no glitch.

    The domain has no reset, because a valid bit in ``sync`` qualifies its registers. With
    ``cleared`` it uses the reset of ``sync`` and also ticks during reset; the reset must then last
    at least two cycles.
    """
    falling = f"{name}_falling"
    held = Signal(name=f"{name}_enable")
    m.domains += ClockDomain(falling, clk_edge="neg", reset_less=True, local=True)
    m.domains += ClockDomain(name, reset_less=not cleared, local=True)
    if cleared:
        m.d.comb += ResetSignal(name).eq(ResetSignal("sync"))
        enable = Value.cast(enable).any() | ResetSignal("sync")
    m.d.comb += ClockSignal(falling).eq(ClockSignal("sync"))
    m.d[falling] += held.eq(enable)
    m.d.comb += ClockSignal(name).eq(ClockSignal("sync") & held)


def choose_clock(m: Module, name: str, parent: str, chosen: ValueLike) -> None:
    """Declare the clock domain ``name``, which ticks with ``parent`` while ``chosen`` is 1.

    ``parent`` is a gated domain. ``chosen`` must be stable from the parent's first tick until half
    a cycle after its last one, as the fields of a command are. Then a gate without a flip-flop
    produces no glitch. The domain costs almost nothing in simulators of gated clocks.
    """
    m.domains += ClockDomain(name, reset_less=True, local=True)
    m.d.comb += ClockSignal(name).eq(ClockSignal(parent) & Value.cast(chosen).any())


def verilog_text(component: Elaboratable, name: str, ports: Sequence[Signal] | None = None) -> str:
    """Return the Verilog of ``component`` as the module ``name``.

    Amaranth's own conversion turns a flip-flop's enable and reset into logic in front of it. A
    simulator evaluates that logic in every cycle, and the reset logic at both edges. This
    conversion keeps enable and reset on the flip-flop. Registers and memories get no initial value;
    a register that needs one has a reset. Numbers replace the names that Amaranth generates, for
    compatibility with Icarus Verilog.

    Args:
        component: the component to convert.
        name: name of the Verilog module.
        ports: the module's ports; by default those of the component's signature.

    Raises:
        InputError: Yosys fails.
    """
    text = rtlil.convert(component, name=name, ports=ports, emit_src=False)
    script = (
        f"read_rtlil <<rtlil\n{text}\nrtlil",
        *_PASSES,
        "write_verilog -noattr -noparallelcase",
    )
    try:
        yosys = find_yosys(lambda version: version >= (0, 40))
        return str(yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True))
    except YosysError as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"Yosys breaks off at {name} ({reason}); that of Amaranth has 4 GiB of memory: choose "
            "a smaller array or "
            "fewer lanes, or have a Yosys of version 0.40 or newer on the PATH"
        ) from error


class Library:
    """Modules with many instances, each converted to Verilog once and instantiated by name.

    With ``convert`` False every instance is a separate submodule, because Amaranth's simulator
    cannot run Verilog.
    """

    def __init__(self, *, convert: bool = True) -> None:
        self.convert = convert
        self._components: dict[str, wiring.Component] = {}
        self._modules: dict[str, str] = {}
        """Verilog text by module name.

        With ``convert`` False only the names of the instantiated modules.
        """

    @property
    def text(self) -> str:
        """Verilog of all modules instantiated so far."""
        return "\n".join(self._modules[name] for name in sorted(self._modules))

    def component(self, name: str, make: Callable[[], wiring.Component]) -> wiring.Component:
        """Return the component that :meth:`instance` uses for ``name``.

        Callers need its properties, such as its latency.
        """
        if name not in self._components:
            self._components[name] = make()
        return self._components[name]

    def instance(
        self,
        m: Module,
        name: str,
        make: Callable[[], wiring.Component],
        inputs: Mapping[str, ValueLike],
        *,
        domain: str = "sync",
    ) -> dict[str, Signal]:
        """Add an instance of the component ``make()`` to ``m``, clocked by ``domain``.

        Args:
            m: the module to extend.
            name: name of the Verilog module; equal names mean equal components.
            make: constructor of the component, which uses no clock domain but ``sync``.
            inputs: values by input port.
            domain: clock domain of the instance.

        Returns:
            The signals of the output ports, by port.
        """
        component = (
            self.component(name, make) if self.convert or name not in self._modules else make()
        )
        if name not in self._modules:
            self._modules[name] = verilog_text(component, name) if self.convert else ""
        signature = component.signature
        ports = {
            port: Signal(member.shape, name=f"{name}_{port}")
            for port, member in signature.members.items()
        }
        m.d.comb += [ports[port].eq(value) for port, value in inputs.items()]
        outputs = {
            port: ports[port]
            for port, member in signature.members.items()
            if member.flow is wiring.Out
        }
        if self.convert:
            wires = {
                f"{'o' if port in outputs else 'i'}_{port}": signal
                for port, signal in ports.items()
            }
            if re.search(r"^ *input clk;", self._modules[name], re.MULTILINE):
                wires["i_clk"] = ClockSignal(domain)
            m.submodules += Instance(name, **wires)
        else:
            m.submodules += component if domain == "sync" else DomainRenamer(domain)(component)
            m.d.comb += [getattr(component, port).eq(ports[port]) for port in inputs]
            m.d.comb += [signal.eq(getattr(component, port)) for port, signal in outputs.items()]
        return outputs
