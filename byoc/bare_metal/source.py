"""C source of one network of a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from byoc.bare_metal.calls import (
    BufferArgument,
    CArgument,
    CCall,
    ConstantArgument,
    DimensionsArgument,
    c_float,
    c_type,
    count_bytes,
    to_bytes,
)
from byoc.bare_metal.plan import NetworkPlan, PlannedPort, RegionCall
from byoc.graph import Value

LINE_BYTES = 24
"""Bytes of constant data per line of C."""
Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class NetworkSample:
    """Recorded inference: arrays of the ports by name, and cycles by region index.

    A region that did not run has no cycles.
    """

    inputs: Arrays
    outputs: Arrays
    cycles: Mapping[int, int]


@dataclass(eq=False)
class _CWriter:
    """Statements of a network's function, and the constants that they use."""

    prefix: str
    plan: NetworkPlan
    constants: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def add_call(self, call: CCall, indent: str = "    ") -> None:
        """Append the statement of a call."""
        arguments = ", ".join(self._spell(one) for one in call.arguments)
        text = f"{call.function}({arguments})"
        self.statements.append(
            f"{indent}if ({text} != 0) {{\n{indent}    return DLA_ERROR_INDEX;\n{indent}}}"
            if call.checked
            else f"{indent}{text};"
        )

    def add_region(self, region: RegionCall, number: int) -> None:
        """Append the statements of a region: layout changes, the run, and skipped outputs."""
        tests = [
            f"dla_any({self._spell(buffer)}, {size}u) == {int(wanted)}"
            for buffer, size, wanted in region.guards
        ]
        indent = "    "
        if tests:
            self.statements.append(f"    if ({' && '.join(tests)}) {{")
            indent = "        "
        for call in region.packs:
            self.add_call(call, indent)
        window = self._spell(BufferArgument(region.window, written=True))
        self.statements += [
            f"{indent}status = dla_run(port, &{self.prefix}_program{number}, {window}, NULL,",
            f"{indent}                 counters == NULL ? NULL : &counters[{number}]);",
            f"{indent}if (status != DLA_OK) {{",
            f"{indent}    return status;",
            f"{indent}}}",
        ]
        for call in region.unpacks:
            self.add_call(call, indent)
        if tests:
            self.statements.append("    } else {")
            for buffer, size in region.skipped:
                zero = ConstantArgument(np.zeros(1, np.uint8))
                self.add_call(CCall("dla_fill", (buffer, zero, f"{size}u", "1u")), indent)
            self.statements.append("    }")

    def _spell(self, argument: CArgument) -> str:
        """Return the C expression of an argument; declare the constant that it needs."""
        if isinstance(argument, str):
            return argument
        if isinstance(argument, BufferArgument):
            place = self.plan.offsets[argument.name] + argument.offset
            if argument.target == "uint8_t":
                return f"arena + {place}u"
            const = "" if argument.written else "const "
            through = "" if argument.target == "void" else f"({const}void *)"
            return f"({const}{argument.target} *){through}(arena + {place}u)"
        name = f"{self.prefix}_data{len(self.constants)}"
        if isinstance(argument, ConstantArgument):
            self.constants.append(declare_bytes(name, argument.data, "DLA_CONSTANTS"))
            return (
                name
                if argument.target == "uint8_t"
                else (f"(const {argument.target} *)(const void *){name}")
            )
        if isinstance(argument, DimensionsArgument):
            if not argument.dims:
                return "NULL"
            rows = ", ".join(f"{{{count}u, {one}, {two}}}" for count, one, two in argument.dims)
            self.constants.append(f"static const struct dla_dimension {name}[] = {{{rows}}};\n")
            return name
        numbers = ", ".join(map(str, argument.fields))
        self.constants.append(f"static const struct {argument.name} {name} = {{{numbers}}};\n")
        return f"&{name}"


def identifier_of(name: str) -> str:
    """Return the part of a C identifier for a network's name.

    It has small letters only, so that macros and file names of two networks differ.
    """
    return re.sub(r"\W", "_", name, flags=re.ASCII).lower()


def network_header(identifier: str, name: str, plan: NetworkPlan) -> str:
    """Return the header of a network: its object, its sizes, and an index of every port."""
    prefix = f"network_{identifier}"
    upper = prefix.upper()
    lines = [
        f"/* {one_line(name)}: generated by dla export --bare-metal. */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        '#include "dla_network.h"',
        "",
        f"#define {upper}_ARENA_BYTES {plan.arena_bytes}u",
        f"#define {upper}_REGIONS {len(plan.regions)}u",
    ]
    for role, ports in (("INPUT", plan.inputs), ("OUTPUT", plan.outputs)):
        for number, port in enumerate(ports):
            lines.append(
                f"/* {role.lower()} {number}: {one_line(port.name)}, {port.value.dtype} "
                f"{list(port.value.shape)} */"
            )
            lines.append(f"#define {upper}_{role}{number}_OFFSET {plan.offsets[port.buffer]}u")
            lines.append(f"#define {upper}_{role}{number}_BYTES {count_bytes(port.value)}u")
    lines += ["", f"extern const struct dla_network {prefix};", "", "#endif", ""]
    return "\n".join(lines)


def network_source(
    identifier: str, name: str, plan: NetworkPlan, samples: Sequence[NetworkSample]
) -> Iterator[str]:
    """Yield the C source of a network: constants, command streams, ports and the function."""
    prefix = f"network_{identifier}"
    writer = _CWriter(prefix, plan)
    numbers = iter(range(len(plan.regions)))
    for on_device, calls in groupby(plan.calls, lambda call: isinstance(call, RegionCall)):
        events = [] if on_device else ["BEGINS", "ENDS"]
        profile = "    dla_profile_host(port, DLA_HOST_{}, " + quote(name) + ");"
        writer.statements += [profile.format(event) for event in events[:1]]
        for call in calls:
            if isinstance(call, RegionCall):
                writer.add_region(call, next(numbers))
            else:
                writer.add_call(call)
        writer.statements += [profile.format(event) for event in events[1:]]
    yield f'/* {one_line(name)}: generated by dla export --bare-metal. */\n#include "{prefix}.h"\n'
    for number, region in enumerate(plan.regions):
        yield from _program_text(prefix, number, region)
    yield from writer.constants
    for role, ports in (("inputs", plan.inputs), ("outputs", plan.outputs)):
        yield _ports_text(f"{prefix}_{role}", plan, ports)
    yield from _reset_text(prefix, plan)
    unused = "" if plan.regions else "    (void)port;\n    (void)counters;\n"
    status = "    enum dla_status status;\n" if plan.regions else ""
    body = "\n".join(writer.statements)
    yield f"""
static enum dla_status {prefix}_run(const struct dla_port *port, void *memory,
                                    struct dla_counters *counters) {{
    uint8_t *const arena = (uint8_t *)memory;
{status}{unused}    (void)arena;
{body}
    return DLA_OK;
}}
"""
    yield from _samples_text(prefix, plan, samples)
    yield f"""
const struct dla_network {prefix} = {{
    .name = {quote(name)},
    .arena_bytes = {plan.arena_bytes}u,
    .input_count = {len(plan.inputs)}u,
    .output_count = {len(plan.outputs)}u,
    .region_count = {len(plan.regions)}u,
    .sample_count = {len(samples)}u,
    .inputs = {prefix}_inputs,
    .outputs = {prefix}_outputs,
    .samples = {f"{prefix}_samples" if samples else "NULL"},
    .reset = {prefix}_reset,
    .run = {prefix}_run,
}};
"""


def _program_text(prefix: str, number: int, region: RegionCall) -> Iterator[str]:
    image = region.image
    words = [f"0x{word:016x}u" for word in image.words.tolist()]
    lines = [", ".join(words[at : at + 4]) for at in range(0, len(words), 4)]
    text = ",\n    ".join(lines)
    yield (
        f"\nstatic const uint64_t {prefix}_words{number}[{len(words)}] DLA_COMMANDS = {{\n"
        f"    {text},\n}};\n"
    )
    yield declare_bytes(f"{prefix}_constants{number}", image.constants, "DLA_CONSTANTS")
    hashes = ", ".join(f"0x{word:08x}u" for word in image.arch_hash)
    yield f"""static const struct dla_program {prefix}_program{number} = {{
    .hash = {{{hashes}}},
    .words = {prefix}_words{number},
    .word_count = {len(words)}u,
    .constants = {prefix}_constants{number},
    .command_start = {image.command_start}u,
    .constant_bytes = {image.constants.size}u,
    .constant_start = {image.constant_start}u,
    .activation_bytes = {image.activation_bytes}u,
    .activation_start = {image.activation_start}u,
    .name = {quote(region.name)},
}};
"""


def _ports_text(name: str, plan: NetworkPlan, ports: Sequence[PlannedPort]) -> str:
    rows = []
    for port in ports:
        dims = ", ".join(f"{size}u" for size in port.value.shape) or "0u"
        rows.append(
            f"    {{{quote(port.name)}, {c_type(port.value)}, {len(port.value.shape)}u, {{{dims}}},"
            f" {plan.offsets[port.buffer]}u, {count_bytes(port.value)}u, "
            f"{_scale_text(port.value)}}},\n"
        )
    return f"\nstatic const struct dla_tensor {name}[] = {{\n{''.join(rows)}}};\n"


def _scale_text(value: Value) -> str:
    found = value.quantization
    if found is None or not found.per_tensor:
        return "0.0f, 0"
    return f"{c_float(float(found.scale.item()))}, {int(found.zero_point.item())}"


def _reset_text(prefix: str, plan: NetworkPlan) -> Iterator[str]:
    lines = []
    for number, (state, buffer) in enumerate(plan.state):
        data = to_bytes(state.initial)
        yield declare_bytes(f"{prefix}_state{number}", data, "DLA_CONSTANTS")
        place = f"(uint8_t *)memory + {plan.offsets[buffer]}u"
        lines.append(f"    dla_fill({place}, {prefix}_state{number}, 1u, {data.size}u);\n")
    body = "".join(lines) or "    (void)memory;\n"
    yield f"\nstatic void {prefix}_reset(void *memory) {{\n{body}}}\n"


def _samples_text(
    prefix: str, plan: NetworkPlan, samples: Sequence[NetworkSample]
) -> Iterator[str]:
    """Yield the recorded samples, if there are any."""
    if not samples:
        return
    rows = []
    for number, sample in enumerate(samples):
        groups = (("inputs", plan.inputs, sample.inputs), ("outputs", plan.outputs, sample.outputs))
        for role, ports, arrays in groups:
            names = []
            for place, port in enumerate(ports):
                name = f"{prefix}_sample{number}_{role}{place}"
                names.append(name)
                yield declare_bytes(name, to_bytes(arrays[port.name]), "DLA_CONSTANTS")
            yield (
                f"static const void *const {prefix}_sample{number}_{role}[] = "
                f"{{{', '.join(names)}}};\n"
            )
        cycles = [f"{sample.cycles.get(region.index, 0)}u" for region in plan.regions] or ["0u"]
        yield f"static const uint64_t {prefix}_sample{number}_cycles[] = {{{', '.join(cycles)}}};\n"
        fields = ", ".join(
            f"{prefix}_sample{number}_{role}" for role in ("inputs", "outputs", "cycles")
        )
        rows.append(f"    {{{fields}}},\n")
    yield f"static const struct dla_sample {prefix}_samples[] = {{\n{''.join(rows)}}};\n"


def declare_bytes(name: str, data: NDArray[np.uint8], section: str) -> str:
    """Return the definition of a constant byte array as string literals.

    Compilers read strings many times faster than lists of numbers.
    """
    digits = _octal_digits()[data]
    lines = [
        f'    "{digits[at : at + LINE_BYTES].tobytes().decode()}"'
        for at in range(0, max(data.size, 1), LINE_BYTES)
    ]
    text = "\n".join(lines)
    return f"static const uint8_t {name}[{data.size + 1}] {section} =\n{text};\n"


@cache
def _octal_digits() -> NDArray[np.bytes_]:
    return np.array([f"\\{byte:03o}".encode() for byte in range(256)])


def quote(text: str) -> str:
    """Return a text as a C string literal."""
    escaped = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{"".join(escaped)}"'


def one_line(text: str) -> str:
    """Return a text that cannot end a C comment."""
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *")
