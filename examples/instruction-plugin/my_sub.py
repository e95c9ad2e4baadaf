"""An instruction in a package of its own, OP_MY_SUB: the difference of two tensors in one command.

``python3 -m pip install -e examples/instruction-plugin`` installs it; then ``dla isa`` lists the
variant ``my-sub``, and ``dla run MODEL --isa my-sub`` uses it. docs/adding-an-instruction.md,
section 9, adds its hardware.
"""

import numpy as np

from isa import numerics
from isa.access import strided
from isa.instruction import INT8, Instruction, Operands, Unit, ceil_div, formula, view
from isa.plugins import Extension
from isa.registers import float_value
from isa.variants import VARIANTS, extend

PLACES = ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_OUTPUT_ADDRESS")
ZEROS = ("EX_INPUT_ZERO_POINT", "EX_OPERAND_ZERO_POINT", "EX_OUTPUT_ZERO_POINT")
SCALES = ("EX_SCALE_A", "EX_SCALE_B", "EX_SCALE_Y")
LIMITS = ("EX_CLAMP_LOW", "EX_CLAMP_HIGH")


# The bytes that a command reads and writes. Address checks, tokens, port conflicts and the
# sanitizer follow from it.
def operands(command, arch):
    """Return the operands: EX_LENGTH bytes each."""
    a, b, y = (strided("sram", command[place], command["EX_LENGTH"]) for place in PLACES)
    return Operands((a, b), (y,))


# The specification of the values. The device executes this function if no faster kernel exists.
@formula(
    "y = clip(rint(((a - ZERO_A) · SCALE_A - (b - ZERO_B) · SCALE_B) / SCALE_Y) + ZERO_Y), "
    "all in float32."
)
def semantics(command, machine):
    a, b, y = (
        view(machine.sram, command[place], (command["EX_LENGTH"],), np.int8) for place in PLACES
    )
    zeros, limits = ([command[name] for name in names] for names in (ZEROS, LIMITS))
    y[...] = numerics.subtract(
        a, b, [float_value(command[name]) for name in SCALES], zeros, *limits
    )


# The specification of the time: steps of the unit without waits. The engines add waits for ports,
# bus and tokens.
@formula("⌈length / post_lanes⌉.")
def cycles(command, arch):
    return ceil_div(command["EX_LENGTH"], arch.lanes)


# The declaration. Encoder, assembler, documentation and headers follow from it. Packages use
# opcodes from 0x80 up.
OP_MY_SUB = Instruction(
    mnemonic="OP_MY_SUB", opcode=0x91, unit=Unit.EX, kind="ELTWISE",
    description="Subtracts the second tensor from the first, each with its scale.",
    registers=(*PLACES, "EX_LENGTH", *ZEROS, *SCALES, *LIMITS),
    operands=operands, semantics=semantics, cycles=cycles, inputs=(INT8, INT8), outputs=(INT8,),
)  # fmt: skip
EXTENSION = Extension(variants=(extend(VARIANTS["v2"], "my-sub", "v2 and OP_MY_SUB", OP_MY_SUB),))
