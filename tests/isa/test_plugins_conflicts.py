"""Plug-in packages with conflicts: one clear line names the package, its claim and the owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.cli.main import main
from isa import plugins
from isa.documentation import markdown
from isa.errors import InputError
from isa.instruction import Instruction
from isa.ops.windows import RESULT
from isa.plugins import get_built_in_table, variant
from isa.registers import Register
from isa.variants import VARIANTS
from tests.plugins.installation import installed, write_distribution

REMEDY = "choose another or uninstall one of the two"
OWNER = "package dla-other 1.0 (entry point other)"
HEAD = """\
from isa.instruction import Instruction, Unit
from isa.plugins import Extension
from isa.registers import Register
from isa.variants import VARIANTS, Variant, extend

def new(mnemonic="OP_NEW", opcode=0x81, unit=Unit.EX, kind="ELTWISE", **more):
    return Instruction(mnemonic, opcode, unit, kind, "Does nothing.", **more)

def register(name="EX_NEW", index=0x80, width=8, reset=0, form="unsigned"):
    return Register(name, index, width, reset, form, "of no use")

"""
REFUSED = [
    (
        "Extension((new(opcode=0x43),))",
        f"{OWNER}: opcode 0x43 of OP_NEW is taken by OP_E_ADD of the project; {REMEDY}",
    ),
    (
        "Extension((new('OP_CONV_RELU'),))",
        f"{OWNER}: mnemonic OP_CONV_RELU is taken by the project; {REMEDY}",
    ),
    (
        "Extension(variants=(extend(VARIANTS['v1'], 'v2', 'mine', new()),))",
        f"{OWNER}: ISA variant v2 is taken by the project; {REMEDY}",
    ),
    (
        "Extension(variants=(extend(VARIANTS['v2'], 'mine', 'mine', new(opcode=0x20)),))",
        f"{OWNER} cannot be loaded: ISA mine: opcode 0x20 of OP_NEW is taken by OP_CONV; choose "
        "another; "
        "fix or uninstall it",
    ),
    (
        "Extension((new(registers=('EX_SPEED',)),))",
        f"{OWNER} cannot be loaded: OP_NEW reads the unknown register EX_SPEED; declare it in "
        "adds_registers; "
        "fix or uninstall it",
    ),
    (
        "Extension((new(registers=('EX_NEW',), adds_registers=(register(index=0x20),)),))",
        f"{OWNER}: register index 0x20 of EX_NEW is taken by EX_INPUT_ADDRESS of the project; "
        f"{REMEDY}",
    ),
    (
        "Extension((new(registers=('EX_LENGTH',), adds_registers=(register('EX_LENGTH'),)),))",
        f"{OWNER}: register EX_LENGTH is taken by the project; {REMEDY}",
    ),
    (
        "Extension((new(opcode=0x42), new('OP_NEWER', 0x42)))",
        f"{OWNER}: opcode 0x42 of OP_NEW is taken by OP_C_MAX of the project; {REMEDY}",
    ),
    (
        "Extension((new(), new('OP_NEWER')))",
        f"{OWNER}: opcode 0x81 of OP_NEWER is taken by OP_NEW of {OWNER}; {REMEDY}",
    ),
    ("Extension((new(unit=None),))", f"{OWNER}: OP_NEW names no unit; give it unit LD, EX or ST"),
    (
        "Extension(variants=(extend(VARIANTS['v2'], 'v2+OP_NEW', 'mine', new()),))",
        f"{OWNER}: ISA variant v2+OP_NEW has a '+', which composes variants; rename it",
    ),
    (
        "Extension((new(kind='MAGIC'),))",
        f"{OWNER} cannot be loaded: OP_NEW: kind 'MAGIC' does not exist; choose one of CONV, "
        "DEPTH, REQUANT, MATMUL, "
        "POOL, ELTWISE, ACT, DMA, ISSUE; fix or uninstall it",
    ),
    ("new()", f"{OWNER} gives an object of type Instruction; it must be isa.plugins.Extension"),
    ("1 / 0", f"{OWNER} cannot be loaded: ZeroDivisionError: division by zero; fix or uninstall "
              "it"),
]  # fmt: skip


def write(folder: Path, name: str, expression: str) -> None:
    """Package ``dla-NAME`` whose extension is ``expression``."""
    module = f"dla_{name}"
    entry_points = {"dla.isa": {name: f"{module}:EXTENSION"}}
    write_distribution(
        folder, f"dla-{name}", {module: f"{HEAD}EXTENSION = {expression}\n"}, entry_points
    )


@pytest.mark.parametrize(("expression", "message"), REFUSED)
def test_a_package_that_does_not_fit_in_is_refused(
    expression: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "other", expression)
    with installed(tmp_path):
        assert main(["isa"]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
        assert main(["isa", "--built-in"]) == 0
        assert variant("v2") is VARIANTS["v2"]
    assert "OP_NEW" not in markdown(get_built_in_table())


def test_two_packages_that_take_the_same_opcode_are_both_named(tmp_path: Path) -> None:
    """The package that is later in the alphabet is rejected, in any order on the disk."""
    write(tmp_path, "other", "Extension((new('OP_B'),))")
    write(tmp_path, "another", "Extension((new('OP_A'),))")
    expected = (
        f"{OWNER}: opcode 0x81 of OP_B is taken by OP_A of package dla-another 1.0 (entry point "
        f"another); {REMEDY}"
    )
    with installed(tmp_path), pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        plugins.load_installed_table()


def test_a_function_may_give_the_extension_and_packages_may_build_on_one_another(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        "base",
        "lambda: Extension(variants=(VARIANT,))\nVARIANT = "
        "extend(VARIANTS['v1'], 'base', 'b', new())",
    )
    top = (
        "Extension(variants=(extend(__import__('dla_base').VARIANT, 'top', 't', new('OP_TOP', "
        "0x82)),))"
    )
    write(tmp_path, "top", top)
    with installed(tmp_path):
        assert variant("top").mnemonics == VARIANTS["v1"].mnemonics | {"OP_NEW", "OP_TOP"}
        assert (
            plugins.load_installed_table().owner("OP_NEW")
            == "package dla-base 1.0 (entry point base)"
        )
        assert variant("base+OP_TOP+OP_CONV").mnemonics == variant("top").mnemonics
        assert variant("base+OP_TOP") is variant("base+OP_TOP")
        with pytest.raises(
            InputError,
            match=r"ISA variant 'v1\+OP_X': unknown instruction OP_X; choose one of OP_SYNC",
        ):
            variant("v1+OP_X")


def test_a_native_grouped_convolution_with_a_register_of_its_own_fits_in_from_outside(
    tmp_path: Path,
) -> None:
    """A plug-in can be the file that the project ships as ``isa/ops/convolution.py``.

    It has other names and numbers.
    """
    import isa.ops.convolution as shipped

    assert shipped.__file__ is not None
    text = Path(shipped.__file__).read_text(encoding="utf-8")
    for ours, theirs in (
        ("GROUP_CONV", "THEIR_CONV"),
        ("EX_GROUPS", "EX_THEIRS"),
        ("0x24", "0x84"),
        ("0x42", "0x84"),
    ):
        text = text.replace(ours, theirs)
    text += (
        "from isa.plugins import Extension\nfrom isa.variants import VARIANTS, extend\n"
        "EXTENSION = Extension(variants=(extend(VARIANTS['v2'], 'theirs', 'grouped', "
        "OP_THEIR_CONV),))\n"
    )
    write_distribution(
        tmp_path, "theirs", {"theirs": text}, {"dla.isa": {"theirs": "theirs:EXTENSION"}}
    )
    with installed(tmp_path):
        isa = variant("theirs")
        assert isa.register_file.by_index[0x84].name == "EX_THEIRS"
        assert "EX_THEIRS" not in VARIANTS["v3"].register_file.by_name
        assert "| 0x84 | `EX_THEIRS` | 16 | unsigned | 1 |" in markdown(
            plugins.load_installed_table()
        )


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: Register("SPEED", 0x80, 8, 0, "unsigned", ""),
            "register name 'SPEED' must be LD_, EX_ or ST_ and",
        ),
        (
            lambda: Register("EX_A", 0x100, 8, 0, "unsigned", ""),
            "EX_A: index 256 must fit 8 bits, width 8 must be 1 to",
        ),
        (
            lambda: Register("EX_A", 0x80, 8, 128, "signed", ""),
            "EX_A: the reset value 128 does not fit its 8 bits",
        ),
        (
            lambda: Instruction("ADD", 0x80, None, "ACT", ""),
            "mnemonic 'ADD' must be OP_ and capitals, digits or",
        ),
        (
            lambda: Instruction("OP_A", 0x01, None, "ACT", ""),
            "OP_A: opcode 0x01 must be 0x02 to 0xff; 0x01 is SET",
        ),
        (
            lambda: Instruction("OP_A", 0x100, None, "ACT", ""),
            "OP_A: opcode 0x100 must be 0x02 to 0xff; 0x01 is SET",
        ),
        (
            lambda: Instruction("OP_A", 0x80, None, "ACT", "", inputs="int8, int8"),  # type: ignore[arg-type]
            "OP_A: inputs and outputs are tuples of element types, as (INT8, INT8)",
        ),
        (
            lambda: Instruction("OP_A", 0x80, None, "ACT", "", outputs=(RESULT,)),
            "OP_A: the type of an operand depends on requantise, which is no field",
        ),
    ],
)
def test_declarations_are_checked(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        declare()
