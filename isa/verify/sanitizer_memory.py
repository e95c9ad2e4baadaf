"""Unwritten bytes: what commands read, and the host takes as output, that nobody has written.

One flag a byte says whether it holds data. Commands are followed in an order that respects happens-before: in a
stream without races every such order gives the same flags, and a race is reported as one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isa.access import Access, Space
from isa.instruction import Operands
from isa.program import Tensor
from isa.verify.sanitizer_findings import Finding, Range, ranges_text
from isa.verify.sanitizer_order import Order
from isa.verify.sanitizer_stream import Stream

Flags = NDArray[np.bool_]


def check_unwritten(stream: Stream, operands: Sequence[Operands], order: Order) -> list[Finding]:
    """Reads of bytes that hold no data, each byte once, and bytes of outputs that are never written.

    Inputs, constants, given bytes and command words hold data from the start; the scratchpad holds none. Outputs are
    looked at only if all commands complete. All accesses must lie inside the memories.
    """
    written = _initial(stream, operands)
    findings: list[Finding] = []
    for number in order.linear:
        for access in operands[number].reads:
            flags = _flags(written[access.space], access)
            if not flags.all():
                findings.append(_unwritten(stream, number, access, _missing(written[access.space], access)))
                flags[...] = True
        for access in operands[number].writes:
            _flags(written[access.space], access)[...] = True
    if len(order.linear) == len(stream.commands):
        findings += _unwritten_outputs(stream.program.outputs, written["dram"])
    return findings


def _initial(stream: Stream, operands: Sequence[Operands]) -> dict[Space, Flags]:
    program = stream.program
    accesses = (access for item in operands for access in (*item.reads, *item.writes) if access.space == "sram")
    highest = max((access.end for access in accesses), default=0)
    dram = np.zeros(program.dram_bytes, dtype=np.bool_)
    parts = [(tensor.address, tensor.nbytes) for tensor in program.inputs]
    parts += [(segment.address, segment.data.size) for segment in (*program.segments, *stream.given)]
    for address, nbytes in [*parts, (program.command_address, 8 * len(program.words))]:
        dram[address : address + nbytes] = True
    return {"sram": np.zeros(highest, dtype=np.bool_), "dram": dram}


def _flags(memory: Flags, access: Access) -> Flags:
    """The flags of an access, as a view with its dimensions; bytes of overlapping rows occur more than once."""
    if not access.dims:
        return memory[access.address : access.end]
    shape, strides = zip(*access.dims, strict=True)
    return np.ndarray((*shape, access.nbytes), np.bool_, memory, access.address, (*strides, 1))


def _missing(memory: Flags, access: Access) -> tuple[Range, ...]:
    """The runs of bytes of ``access`` that hold no data."""
    touched = np.zeros(access.end, dtype=np.bool_)
    _flags(touched, access)[...] = True
    return _runs(touched[access.address :] & ~memory[access.address : access.end], access.address)


def _runs(flags: Flags, base: int) -> tuple[Range, ...]:
    """Maximal runs of true flags as half-open ranges; flag 0 is byte ``base``."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))) + base
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _unwritten(stream: Stream, number: int, access: Access, missing: tuple[Range, ...]) -> Finding:
    site = stream.site(number)
    message = f"{site} reads {ranges_text(access.space, missing)} that nothing has written"
    return Finding("read of unwritten bytes", message, (site,), access.space, missing)


def _unwritten_outputs(outputs: Sequence[Tensor], dram: Flags) -> list[Finding]:
    findings = []
    for tensor in outputs:
        missing = _runs(~dram[tensor.address : tensor.address + tensor.nbytes], tensor.address)
        if missing:
            message = f"output '{tensor.name}': nothing writes {ranges_text('dram', missing)}"
            findings.append(Finding("output not written", message, (), "dram", missing))
    return findings
