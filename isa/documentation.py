"""Generator of ``docs/isa.md`` from the declarations: words, variants, registers and instructions.

The formulas come from an instruction's ``semantics`` and ``cycles``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from isa.encoding import SET_LAYOUT
from isa.instruction import OPCODE, TOKENS, Instruction, Unit, formula_of
from isa.plugins import PROJECT, Table
from isa.registers import COMMON, Field, Register

_INTRODUCTION = """\
# The instruction set

The command `dla isa --format markdown --built-in` generates this page from the declarations
in `isa/`. Do not edit it. The page [machine.md](machine.md) defines in which cycle each command
acts. The headers [isa/dla_isa.h](isa/dla_isa.h) and [isa/dla_isa.vh](isa/dla_isa.vh) contain the
constants of this page.

A program is a sequence of 64-bit little-endian words that ends with `OP_END`. A `SET` word writes
a register, which keeps its value until the next `SET`. Every other word is an operation. Reserved
bits are 0.

An operation takes a snapshot of its registers and waits for the tokens that it pops. It pushes
tokens when it completes.

The formulas of this page use the following symbols:

| symbol | meaning |
| --- | --- |
| a, b, c | processing elements of the array along input channels, output channels, output columns |
| N | a·b·c, the number of processing elements |
| `post_lanes` | results that the post-processing lanes finish in a cycle; N by default |
| ⌈x⌉, ⌊x⌋ | x rounded up, x rounded down |
| A, W, L | with banked memory: bytes of an atom, bytes of a memory word, `post_lanes` |

Tensors are dense, with channels outermost, unless a plane register gives another distance
between two channels.

A channel record belongs to one output channel. Its values are little-endian and depend on the
numerics of the machine:

| numerics | channel record |
| --- | --- |
| onnxruntime | int32 bias, float32 scale |
| fixed | int32 bias, int32 multiplier, int32 shift of -31 to 30 |
| fixed, last word above 30 | int32 bias, float64 factor: the accumulator is multiplied by the \
factor and rounded once, as in LiteRT's FullyConnected |
"""

_EXTENDING = """\
Packages outside this repository add instructions and variants through the entry point group
`dla.isa` (`isa/plugins.py`). For such packages, this project never uses opcodes and register
indices from 0x80 up.

The name `NAME+OP_X` is also the name of a variant: the variant `NAME` with the instruction `OP_X`.
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
        "The word `SET register, value` has these fields:",
        _layout(SET_LAYOUT),
        "Every operation has these fields. The section of an instruction lists its further fields:",
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
        rows(("variant", "description"), described),
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
        f"Every variant has {len(COMMON.registers)} of the registers in the table. A variant has "
        "each other register if it has an instruction that the last column names."
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
            "The cycles of a transfer follow from its rows in system memory "
            "([machine.md](machine.md), sections 5 and 6)."
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
