"""How components are built: pipeline registers that may be left out, gated clocks, and modules that many share."""

from __future__ import annotations

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
    "delete t:$meminit*", "proc -norom", "attrmap -remove init", "opt_expr", "opt_merge", "opt_dff", "opt_clean",
    "opt_expr", "opt_clean", "memory_collect",
)  # fmt: skip
"""Of Yosys, on what Amaranth gives it."""


def stage(m: Module, value: ValueLike, *, pipelined: bool, domain: str = "sync", name: str | None = None) -> Signal:
    """``value`` one cycle later, in ``domain``; the value itself where hardware is built without pipeline registers.

    The register has no reset: what flows through it is accompanied by a valid bit that has one, or is not looked at.
    """
    source = Value.cast(value)
    held = Signal(source.shape(), reset_less=True, name=name, src_loc_at=1)
    m.d["comb" if not pipelined else domain] += held.eq(source)
    return held


def gated_clock(m: Module, name: str, enable: ValueLike, *, cleared: bool = False) -> None:
    """Declare the clock domain ``name`` of module ``m``: it ticks at the end of the cycles in which ``enable`` is 1.

    ``enable`` comes from registers of ``sync``. It is held by a flip-flop on the falling edge, so that the gate needs
    no latch and gives no glitch. The domain has no reset: its registers hold what a valid bit in ``sync`` speaks of.
    With ``cleared`` it has that of ``sync``, and ticks with it; it takes two cycles.
    """
    falling, held = f"{name}_falling", Signal(name=f"{name}_enable")
    m.domains += ClockDomain(falling, clk_edge="neg", reset_less=True, local=True)
    m.domains += ClockDomain(name, reset_less=not cleared, local=True)
    if cleared:
        m.d.comb += ResetSignal(name).eq(ResetSignal("sync"))
        enable = Value.cast(enable).any() | ResetSignal("sync")
    m.d.comb += ClockSignal(falling).eq(ClockSignal("sync"))
    m.d[falling] += held.eq(enable)
    m.d.comb += ClockSignal(name).eq(ClockSignal("sync") & held)


def chosen_clock(m: Module, name: str, parent: str, chosen: ValueLike) -> None:
    """Declare the clock domain ``name`` of module ``m``: it ticks as the gated domain ``parent`` while ``chosen`` is 1.

    ``chosen`` is steady from the first of the parent's ticks to half a cycle behind the last one, as what a command
    says is: then a gate without a flip-flop gives no glitch. It is as good as free where gated clocks are simulated.
    """
    m.domains += ClockDomain(name, reset_less=True, local=True)
    m.d.comb += ClockSignal(name).eq(ClockSignal(parent) & Value.cast(chosen).any())


def verilog_text(component: Elaboratable, name: str, ports: Sequence[Signal] | None = None) -> str:
    """The Verilog of ``component`` as the module ``name``, with ``ports``, or those of its signature.

    Amaranth's own conversion writes a flip-flop's enable and reset as logic before it, which a simulator evaluates in
    every cycle, that of the reset at both edges. Here they are the flip-flop's own, and no register and no memory has a
    value that nothing gave it: what needs one has a reset. Names that Amaranth made up are numbers, for Icarus' sake.
    Raises InputError where Yosys breaks off.
    """
    text = rtlil.convert(component, name=name, ports=ports, emit_src=False)
    script = (f"read_rtlil <<rtlil\n{text}\nrtlil", *_PASSES, "write_verilog -noattr -noparallelcase")
    try:
        yosys = find_yosys(lambda version: version >= (0, 40))
        return str(yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True))
    except YosysError as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"Yosys breaks off at {name} ({reason}); that of Amaranth has 4 GiB of memory: choose a smaller array or "
            "fewer lanes, or have a Yosys of version 0.40 or newer on the PATH"
        ) from error


class Library:
    """Components that are there many times, each converted to Verilog once and instantiated by name.

    With ``convert`` False every instance is a submodule of its own: for Amaranth's simulator, which knows no Verilog.
    """

    def __init__(self, *, convert: bool = True) -> None:
        self.convert = convert
        self._components: dict[str, wiring.Component] = {}
        self._modules: dict[str, str] = {}
        """Verilog by name; without conversion only the names of what has been instantiated."""

    @property
    def text(self) -> str:
        """The Verilog of all modules so far."""
        return "\n".join(self._modules[name] for name in sorted(self._modules))

    def component(self, name: str, make: Callable[[], wiring.Component]) -> wiring.Component:
        """What :meth:`instance` of that name and ``make`` adds, for what it says of itself, as its latency."""
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
        """Add one more component of ``make`` (clocked by ``sync`` alone) to ``m``, clocked by ``domain``.

        ``name`` names the module: equal names mean equal components. ``inputs`` by port; the outputs by port come back.
        """
        component = self.component(name, make) if self.convert or name not in self._modules else make()
        if name not in self._modules:
            self._modules[name] = verilog_text(component, name) if self.convert else ""
        signature = component.signature
        ports = {port: Signal(member.shape, name=f"{name}_{port}") for port, member in signature.members.items()}
        m.d.comb += [ports[port].eq(value) for port, value in inputs.items()]
        outputs = {port: ports[port] for port, member in signature.members.items() if member.flow is wiring.Out}
        if self.convert:
            wires = {f"{'o' if port in outputs else 'i'}_{port}": signal for port, signal in ports.items()}
            if re.search(r"^ *input clk;", self._modules[name], re.MULTILINE):
                wires["i_clk"] = ClockSignal(domain)
            m.submodules += Instance(name, **wires)
        else:
            m.submodules += component if domain == "sync" else DomainRenamer(domain)(component)
            m.d.comb += [getattr(component, port).eq(ports[port]) for port in inputs]
            m.d.comb += [signal.eq(getattr(component, port)) for port, signal in outputs.items()]
        return outputs
