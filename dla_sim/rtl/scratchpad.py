"""The scratchpad: a Verilog model of the memory macros behind the ports of the engines and the DMA.

The model is not synthesised. Only one engine of EX is active at a time, so a memory implementation
may merge the ports of different engines. LD and ST have separate ports.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from amaranth.hdl import Instance, Module

from dla_sim.rtl.ports import ReadPort, WritePort
from isa.errors import InputError

NAME = "dla_scratchpad"
ARRAY = "bytes"
"""Name of the array in the module; test benches may read it."""


MOST_READ_BITS = 1 << 16
"""Maximum bits that all read ports return: the outputs of an instance in Amaranth
(``hdl._nir.Net``).
"""


def add_scratchpad(m: Module, reads: Sequence[ReadPort], writes: Sequence[WritePort]) -> None:
    """Instantiate the scratchpad memory with all its ports.

    Raise InputError if they read more bits than allowed.
    """
    bits = sum(8 * read.width * read.lanes for read in reads)
    if bits > MOST_READ_BITS:
        raise InputError(
            f"the engines of this machine have ports that read {bits:,} bits of the scratchpad in "
            "a cycle, and "
            f"Amaranth writes hardware of {MOST_READ_BITS:,} at most; choose a smaller array (pe) "
            "or fewer post_lanes"
        )
    wires: dict[str, Any] = {}
    for read in reads:
        wires |= {f"i_{signal.name}": signal for signal in (read.enable, *read.address)}
        wires |= {f"o_{signal.name}": signal for signal in read.data}
        wires |= {f"i_{read.clock.name}": read.clock} if read.domain is not None else {}
    for write in writes:
        wires |= {
            f"i_{signal.name}": signal for signal in (*write.enable, *write.address, *write.data)
        }
        wires[f"i_{write.clock.name}"] = write.clock
    m.submodules.scratchpad = Instance(NAME, **wires)


def scratchpad_verilog(nbytes: int, reads: Sequence[ReadPort], writes: Sequence[WritePort]) -> str:
    """Return Verilog of a zero-initialised array of at least ``nbytes`` bytes.

    The size is rounded up to a power of two.
    """
    bits = max(1, (nbytes - 1).bit_length())
    ports: tuple[ReadPort | WritePort, ...] = (*reads, *writes)
    declarations = ",\n".join(f"  {text}" for port in ports for text in _declarations(port))
    lines = [
        f"module {NAME}(\n{declarations}\n);",
        f"  reg [7:0] {ARRAY} [0:{(1 << bits) - 1}] /* verilator public_flat_rd */;",
    ]
    for read in reads:
        lines += _read(read, bits)
    for write in writes:
        lines += _write(write, bits)
    lines += [
        "  integer place;",
        f"  initial for (place = 0; place < {1 << bits}; place = place + 1) {ARRAY}[place] = "
        "8'h00;",
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _declarations(port: ReadPort | WritePort) -> Iterator[str]:
    if port.domain is not None:
        yield f"input {port.clock.name}"
    yield from (f"input [31:0] {signal.name}" for signal in port.address)
    if isinstance(port, ReadPort):
        yield f"input [{port.lanes - 1}:0] {port.enable.name}"
        kind = "wire" if port.domain is None else "reg"
        yield from (f"output {kind} [{8 * port.width - 1}:0] {signal.name}" for signal in port.data)
    else:
        yield from (f"input [{port.width - 1}:0] {signal.name}" for signal in port.enable)
        yield from (f"input [{8 * port.width - 1}:0] {signal.name}" for signal in port.data)


def _byte(address: str, number: int, bits: int) -> str:
    return (
        f"{ARRAY}[{address}[{bits - 1}:0] + {bits}'d{number}]"
        if number
        else f"{ARRAY}[{address}[{bits - 1}:0]]"
    )


def _word(address: str, width: int, bits: int) -> str:
    return "{" + ", ".join(_byte(address, number, bits) for number in reversed(range(width))) + "}"


def _read(port: ReadPort, bits: int) -> Iterator[str]:
    pairs = list(zip(port.address, port.data, strict=True))
    if port.domain is None:
        for address, data in pairs:
            yield f"  assign {data.name} = {_word(address.name, port.width, bits)};"
        return
    yield f"  always @(posedge {port.clock.name}) begin"
    for lane, (address, data) in enumerate(pairs):
        yield (
            f"    if ({port.enable.name}[{lane}]) {data.name} <= "
            f"{_word(address.name, port.width, bits)};"
        )
    yield "  end"


def _write(port: WritePort, bits: int) -> Iterator[str]:
    yield f"  always @(posedge {port.clock.name}) begin"
    for enable, address, data in zip(port.enable, port.address, port.data, strict=True):
        for number in range(port.width):
            bit = f"[{number}]" if port.width > 1 else ""
            low = 8 * number
            place = _byte(address.name, number, bits)
            yield f"    if ({enable.name}{bit}) {place} <= {data.name}[{low} +: 8];"
    yield "  end"
