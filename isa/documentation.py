"""Generator of ``docs/isa.md`` from the declarations: words, variants, registers and instructions.

The formulas come from an instruction's ``semantics`` and ``cycles``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from isa.encoding import SET_LAYOUT
from isa.instruction import OPCODE, TOKENS, Instruction, Unit, formula_of
from isa.plugins import PROJECT, Table
from isa.registers import COMMON, Field, Register

_INTRODUCTION = """\
# The instruction set

Generated from the declarations in `isa/` by `dla isa --format markdown --built-in`;
edits are overwritten. When things happen is in [machine.md](machine.md);
the same constants are in [isa/dla_isa.h](isa/dla_isa.h) and [isa/dla_isa.vh](isa/dla_isa.vh).

A program is a sequence of 64-bit little-endian words that ends with `OP_END`.
`SET` writes a register; registers keep their values. Every other word is an operation,
which takes a snapshot of its registers, waits for the tokens that it pops,
and gives those that it pushes when it completes. Reserved bits are 0.

In the formulas a, b, c are the processing elements along input channels,
output channels and output columns, N = a·b·c; `post_lanes` is N unless the Arch says otherwise;
⌈x⌉ rounds up. Tensors are dense, channels outermost, unless a plane register says otherwise.
A channel record is int32 bias and float32 scale, or with numerics fixed int32 bias,
int32 multiplier and int32 shift of -31 to 30, little-endian; a last word above 30 is no shift,
but the upper half of a float64 factor, by which accumulators are multiplied and rounded once
(TensorFlow Lite's FullyConnected).
"""

_EXTENDING = """\
Packages outside this repository add instructions and variants through the entry point group
`dla.isa` (`isa/plugins.py`). `NAME+OP_X` is a variant, too: `NAME` and the instruction `OP_X`.
Opcodes and register indices from 0x80 up are never used by this project.
"""


def markdown(table: Table) -> str:
    """Return the instruction set reference as GitHub Markdown, ending in a newline.

    Equal tables give equal text.
    """
    parts = [_INTRODUCTION, "## Words", *_words(), "## Variants", *_variants(table), _EXTENDING]
    parts += ["## Registers", *_registers(table), "## Instructions"]
    for instruction in table.instructions:
        parts += _instruction(instruction, table)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def rows(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _words() -> list[str]:
    return [
        "`SET register, value`:",
        _layout(SET_LAYOUT),
        "Operations (each instruction lists its further fields):",
        _layout((OPCODE, *TOKENS)),
    ]


def _layout(fields: Sequence[Field]) -> str:
    body = []
    for field in fields:
        high = field.low + field.width - 1
        bits = str(high) if field.width == 1 else f"{high}:{field.low}"
        meaning = (
            field.description
            if field.constant is None
            else f"{field.constant:#04x}"
            if field.constant
            else "0"
        )
        body.append((bits, f"`{field.name}`", meaning))
    return rows(("bits", "field", "meaning"), body)


def _variants(table: Table) -> list[str]:
    names = [variant.name for variant in table.variants]
    described = [(f"`{item.name}`", item.description) for item in table.variants]
    matrix = [
        (
            f"`{item.mnemonic}`",
            f"{item.opcode:#04x}",
            *("yes" if item.mnemonic in v.mnemonics else "–" for v in table.variants),
        )
        for item in table.instructions
    ]
    return [
        rows(("variant", "what it is"), described),
        rows(("instruction", "opcode", *names), matrix),
    ]


def _registers(table: Table) -> list[str]:
    users: dict[str, list[str]] = {}
    for item in table.instructions:
        for register in item.adds_registers:
            if register.name not in COMMON.by_name:
                users.setdefault(register.name, []).append(item.mnemonic)
    body = [
        _register(register, users.get(register.name, []), table) for register in table.registers
    ]
    note = (
        f"Every variant has {len(COMMON.registers)} of them; others come with the instructions of "
        "the last column."
    )
    return [
        note,
        rows(("index", "register", "bits", "form", "reset", "meaning", "only with"), body),
    ]


def _register(register: Register, users: Sequence[str], table: Table) -> tuple[str, ...]:
    reset = register.format(register.reset) if register.form != "float32" else str(register.reset)
    only = ", ".join(f"`{name}`" for name in users)
    name = f"`{register.name}`"
    width = str(register.width)
    first = COMMON.by_name.get(register.name, register).width
    if first != register.width:
        files = {
            variant.name: variant.register_file.by_name[register.name] for variant in table.variants
        }
        width += (
            f" ({first} in "
            f"{', '.join(name for name, other in files.items() if other.width == first)})"
        )
    return f"{register.index:#04x}", name, width, register.form, reset, register.description, only


def _instruction(item: Instruction, table: Table) -> list[str]:
    parts = [
        f"### `{item.mnemonic}`",
        item.description,
        rows(("property", "value"), _properties(item, table)),
    ]
    if item.fields:
        parts.append(_layout(item.fields))
    parts += _formula("Result", item.semantics)
    parts += _formula("Compute cycles", item.cycles)
    if item.unit is not Unit.EX and item.kind == "DMA":
        parts.append(
            "Cycles follow from the rows in system memory: [machine.md](machine.md), "
            "sections 5 and 6."
        )
    return parts


def _properties(item: Instruction, table: Table) -> list[tuple[str, str]]:
    found = [("opcode", f"{item.opcode:#04x}"), ("unit", _unit(item))]
    found.append(("account", item.kind))
    if item.inputs or item.outputs:
        found.append(
            (
                "operands",
                f"{', '.join(map(str, item.inputs))} → {', '.join(map(str, item.outputs))}",
            )
        )
    for alias, settings in item.aliases.items():
        values = " ".join(f"{name}={value}" for name, value in settings.items())
        found.append(("also written", f"`{alias}` for `{item.mnemonic} {values}`"))
    having = [variant for variant in table.variants if item.mnemonic in variant.mnemonics]
    found.append(
        ("variants", ", ".join(v.name for v in having) or "only as in `v2+" + item.mnemonic + "`")
    )
    for number, form in enumerate(item.forms[:-1]):
        before = item.forms[number + 1]
        fields = [f"field `{one.name}`" for one in form.fields if one not in before.fields]
        registers = [
            f"register `{name}`" for name in form.registers if name not in before.registers
        ]
        later = ", ".join(
            v.name for v in having if not {*v.instructions}.isdisjoint(item.forms[: number + 1])
        )
        found.append((f"only in {later}", ", ".join((*fields, *registers))))
    if item.registers:
        found.append(("registers", ", ".join(f"`{name}`" for name in item.registers)))
    if table.owner(item.mnemonic) != PROJECT:
        found.append(("added by", table.owner(item.mnemonic)))
    return found


def _unit(item: Instruction) -> str:
    if item.unit is not None:
        return item.unit.name
    return (
        "named by the word"
        if any(field.name == "unit" for field in item.fields)
        else "none: the command processor"
    )


def _formula(title: str, function: Callable[..., Any]) -> list[str]:
    text = formula_of(function)
    return [f"{title}: {text}"] if text else []
