"""Generated files are as committed and complete; their C and Verilog have the declared values."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cli.main import main
from isa.documentation import markdown
from isa.encoding import encode_operation, encode_set
from isa.errors import InputError
from isa.headers import c_header, sections, verilog_header
from isa.instruction import Unit
from isa.ops import ALL
from isa.plugins import Extension, Table, get_built_in_table
from isa.registers import Field
from isa.variants import VARIANTS

ROOT = Path(__file__).parents[2]
FILES = {
    "markdown": "docs/isa.md",
    "c": "docs/isa/dla_isa.h",
    "verilog": "docs/isa/dla_isa.vh",
    "device-h": "docs/isa/dla_device.h",
}


@pytest.mark.parametrize("form", FILES)
def test_the_committed_file_is_what_the_command_writes(form: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert main(["isa", "--format", form, "--built-in", "-o", str(made)]) == 0
    committed = ROOT / FILES[form]
    message = f"{FILES[form]} is stale: run dla isa --format {form} --built-in -o {FILES[form]}"
    assert made.read_bytes() == committed.read_bytes(), message


def test_a_table_does_not_go_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa", "-o", "x.txt"]) == 2
    expected = (
        "error: --format table is for the terminal; choose markdown, c, verilog or device-h "
        "for x.txt\n"
    )
    assert capsys.readouterr().err == expected


def test_every_compute_instruction_documents_its_result_and_its_cycles() -> None:
    text = markdown(get_built_in_table())
    for mnemonic, instruction in ALL.items():
        section = text.partition(f"### `{mnemonic}`\n")[2].partition("\n### ")[0]
        assert instruction.description in section
        assert all(
            f"`{field.name}` | {field.description}" in section for field in instruction.fields
        )
        assert all(f"`{name}`" in section for name in instruction.registers)
        if instruction.unit is Unit.EX:
            assert "Result: " in section
            assert "Compute cycles: " in section


def test_the_text_is_the_same_without_docstrings() -> None:
    code = (
        "from isa.documentation import markdown; from isa.plugins import get_built_in_table; "
        "print(markdown(get_built_in_table()), end='')"
    )
    found = subprocess.run(
        [sys.executable, "-OO", "-c", code], check=True, capture_output=True, cwd=ROOT
    )
    assert found.stdout.decode() == markdown(get_built_in_table())


def c_values(text: str) -> dict[str, int]:
    """Macros of a C header that are numbers."""
    found = re.findall(
        r"^#define (\w+) (0x[0-9a-f]+|\d+)(?:u|ull)?(?: /\*.*\*/)?$", text, re.MULTILINE
    )
    return {name: int(value, 0) for name, value in found}


def verilog_values(text: str) -> dict[str, int]:
    """Text macros of a Verilog header that are numbers."""
    found = re.findall(r"^`define (\w+) (?:(\d+)'h([0-9a-f]+)|(\d+))$", text, re.MULTILINE)
    for _, bits, digits, _ in found:
        assert not bits or int(digits, 16) < 1 << int(bits)
    return {
        name: int(digits, 16) if bits else int(decimal) for name, bits, digits, decimal in found
    }


def declared() -> dict[str, int]:
    """Return the values that the headers must have, computed independently of the generator."""
    values: dict[str, int] = {}
    for register in VARIANTS["v4"].register_file.registers:
        name = f"DLA_REG_{register.name}"
        word = encode_set(register.name, register.reset, VARIANTS["v4"].register_file)
        values |= {
            name: register.index,
            f"{name}_WIDTH": register.width,
            f"{name}_RESET": word & 0xFFFFFFFF,
        }
        values[f"{name}_FORM"] = ["unsigned", "signed", "float32"].index(register.form)
    for mnemonic, (instruction, implied) in VARIANTS["v4"].by_mnemonic.items():
        values[f"DLA_WORD_{mnemonic}"] = encode_operation(instruction, implied)
        if mnemonic != instruction.mnemonic:
            continue
        values[f"DLA_{mnemonic}"] = instruction.opcode
        for field in instruction.fields:
            mask = field.maximum << field.low
            name = f"DLA_{mnemonic}_{field.name.upper()}"
            shift = (mask & -mask).bit_length() - 1
            values |= {
                f"{name}_MASK": mask,
                f"{name}_SHIFT": shift,
                f"{name}_WIDTH": mask.bit_count(),
            }
        for name, isa in VARIANTS.items():
            values[f"DLA_ISA_{name.upper()}_HAS_{mnemonic}"] = int(mnemonic in isa.mnemonics)
    return values


def test_headers_have_the_values_of_the_declarations() -> None:
    common = {
        name: value
        for name, value in c_values(c_header(get_built_in_table())).items()
        if name not in declared()
    }
    assert c_values(c_header(get_built_in_table())) == common | declared()
    assert verilog_values(verilog_header(get_built_in_table())) == common | declared()
    assert {
        "DLA_OPCODE_SHIFT": 56,
        "DLA_SET": 1,
        "DLA_SET_VALUE_MASK": 0xFFFFFFFF,
        "DLA_UNIT_ST": 2,
    }.items() <= common.items()
    flags = ("POP_PREVIOUS", "POP_NEXT", "PUSH_PREVIOUS", "PUSH_NEXT")
    assert [common[f"DLA_{flag}_SHIFT"] for flag in flags] == [55, 54, 53, 52]
    assert len(common) == sum(
        len(constants) for _, constants in sections(get_built_in_table())
    ) - len(declared())


COMPILER = shutil.which("gcc")
ICARUS = shutil.which("iverilog")


@pytest.mark.skipif(COMPILER is None, reason="the Debian package gcc is not installed")
@pytest.mark.parametrize("language", ["c99", "c++11"])
def test_the_c_header_compiles_and_the_compiler_reads_the_same_values(
    language: str, tmp_path: Path
) -> None:
    assert COMPILER is not None
    values = c_values(c_header(get_built_in_table()))
    check = (
        'static_assert({}, "{}");'
        if language == "c++11"
        else "typedef char check_{1}[({0}) ? 1 : -1];"
    )
    lines = [
        '#include "dla_isa.h"',
        '#include "dla_isa.h"',
        "#if !DLA_ISA_V3_HAS_OP_GROUP_CONV",
        "#error",
        "#endif",
    ]
    lines += [check.format(f"{name} == {value}ull", name) for name, value in values.items()]
    source = tmp_path / ("check.c" if language == "c99" else "check.cpp")
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = [
        "-x",
        "c" if language == "c99" else "c++",
        f"-std={language}",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
    ]
    command = [COMPILER, *options, "-fsyntax-only", "-I", str(ROOT / "docs/isa"), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    source.write_text(
        '#include "dla_isa.h"\ntypedef char check[(DLA_OP_CONV == 0x21) ? 1 : -1];\n',
        encoding="utf-8",
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.skipif(ICARUS is None, reason="the Debian package iverilog is not installed")
def test_the_verilog_header_compiles_and_the_simulator_reads_the_same_values(
    tmp_path: Path,
) -> None:
    assert ICARUS is not None
    values = verilog_values(verilog_header(get_built_in_table()))
    lines = ['`include "dla_isa.vh"', '`include "dla_isa.vh"', "module check;", "initial begin"]
    lines += [
        f'if (`{name} !== 64\'d{value}) $display("{name}");' for name, value in values.items()
    ]
    lines += [
        '$display("%h", `DLA_WORD_OP_CONV_RELU >> `DLA_OP_CONV_RELU_SHIFT);',
        "end",
        "endmodule",
    ]
    (tmp_path / "check.v").write_text("\n".join(lines) + "\n", encoding="utf-8")
    made = tmp_path / "check.vvp"
    command = [
        ICARUS,
        "-g2001",
        "-Wall",
        "-I",
        str(ROOT / "docs/isa"),
        "-o",
        str(made),
        str(tmp_path / "check.v"),
    ]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (compiled.returncode, compiled.stderr) == (0, "")
    shown = subprocess.run([str(made)], capture_output=True, text=True, check=True)
    assert shown.stdout == f"{0x200C << 48 >> 50:016x}\n"


def test_names_that_would_be_the_same_constant_are_refused() -> None:
    """Field ``x_add`` of OP_E and field ``add`` of OP_E_X would both be DLA_OP_E_X_ADD_SHIFT."""
    first = replace(ALL["OP_E_ABS"], mnemonic="OP_E", opcode=0x90, fields=(Field("x_add", 40, 1),))
    second = replace(first, mnemonic="OP_E_X", opcode=0x91, fields=(Field("add", 40, 1),))
    table = get_built_in_table().extend("somebody", Extension((first, second)))
    with pytest.raises(InputError) as caught:
        c_header(table)
    assert str(caught.value) == (
        "two declarations make the constant DLA_OP_E_X_ADD_SHIFT; rename a field or an instruction"
    )


def test_text_of_a_declaration_cannot_end_a_comment() -> None:
    nasty = replace(
        ALL["OP_E_ABS"], mnemonic="OP_X", opcode=0x90, description="*/ #error\n`error \\"
    )
    table: Table = get_built_in_table().extend("somebody", Extension((nasty,)))
    assert "#define DLA_OP_X 0x90u /* * / #error `error */" in c_header(table)
    assert "// * / #error `error\n`define DLA_OP_X 8'h90" in verilog_header(table)
