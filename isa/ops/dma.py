"""DMA instructions ``OP_DMA_READ`` and ``OP_DMA_WRITE``.

``OP_DMA_READ`` copies system memory to the scratchpad, ``OP_DMA_WRITE`` copies back. Both copy rows
in three strided dimensions.
"""

from isa.access import SPACE_NAMES, Access, Space, byte_addresses, strided
from isa.instruction import BYTES, Command, Instruction, Machine, Operands, Unit, formula

_NAMES = (
    "DRAM_ADDRESS", "SRAM_ADDRESS", "BYTES",
    "COUNT_1", "DRAM_STRIDE_1", "SRAM_STRIDE_1",
    "COUNT_2", "DRAM_STRIDE_2", "SRAM_STRIDE_2",
    "COUNT_3", "DRAM_STRIDE_3", "SRAM_STRIDE_3",
)  # fmt: skip


Side = tuple[str, str, tuple[tuple[str, str], ...]]


def side_registers(unit: Unit, space: Space) -> Side:
    """Return the registers of the scratchpad or system memory side of a DMA transfer.

    They are the address, the bytes per row, and (count, stride) of the dimensions 3, 2 and 1.
    """
    name = unit.name
    prefix = space.upper()
    dims = tuple((f"{name}_COUNT_{d}", f"{name}_{prefix}_STRIDE_{d}") for d in (3, 2, 1))
    return f"{name}_{prefix}_ADDRESS", f"{name}_BYTES", dims


_SIDES = {
    (unit, space): side_registers(unit, space)
    for unit in (Unit.LD, Unit.ST)
    for space in SPACE_NAMES
}


def side(command: Command, space: Space) -> Access:
    """Return the rows of bytes that a DMA command accesses in one memory.

    The memory is ``sram`` or ``dram``.

    Dimension 3 is the outermost.
    """
    at = command.registers
    address, nbytes, dims = _SIDES[command.unit, space]
    return strided(
        space, at[address], at[nbytes], *[(at[count], at[stride]) for count, stride in dims]
    )


@formula(
    """
    sram[SA + k3·SS3 + k2·SS2 + k1·SS1 + i] = dram[DA + k3·DS3 + k2·DS2 + k1·DS1 + i] for i < BYTES,
    k < COUNT.

    SA and DA are the first bytes in scratchpad and system memory. SSn and DSn are the strides of
    dimension n, and kn counts the rows of dimension n.
    """
)
def _read(command: Command, machine: Machine) -> None:
    machine.sram[byte_addresses(side(command, "sram"))] = machine.dram[
        byte_addresses(side(command, "dram"))
    ]


@formula(
    """
    dram[DA + k3·DS3 + k2·DS2 + k1·DS1 + i] = sram[SA + k3·SS3 + k2·SS2 + k1·SS1 + i] for i < BYTES,
    k < COUNT.

    SA and DA are the first bytes in scratchpad and system memory. SSn and DSn are the strides of
    dimension n, and kn counts the rows of dimension n.
    """
)
def _write(command: Command, machine: Machine) -> None:
    machine.dram[byte_addresses(side(command, "dram"))] = machine.sram[
        byte_addresses(side(command, "sram"))
    ]


OP_DMA_READ = Instruction(
    mnemonic="OP_DMA_READ", opcode=0x10, unit=Unit.LD, kind="DMA",
    description="Copies rows of bytes from system memory to the scratchpad; dimension 1 is the "
                "fastest.",
    registers=tuple(f"LD_{name}" for name in _NAMES),
    operands=lambda command, arch: Operands((side(command, "dram"),), (side(command, "sram"),)),
    semantics=_read, inputs=(BYTES,), outputs=(BYTES,),
)  # fmt: skip
OP_DMA_WRITE = Instruction(
    mnemonic="OP_DMA_WRITE", opcode=0x11, unit=Unit.ST, kind="DMA",
    description="Copies rows of bytes from the scratchpad to system memory; dimension 1 is the "
                "fastest.",
    registers=tuple(f"ST_{name}" for name in _NAMES),
    operands=lambda command, arch: Operands((side(command, "sram"),), (side(command, "dram"),)),
    semantics=_write, inputs=(BYTES,), outputs=(BYTES,),
)  # fmt: skip
INSTRUCTIONS = (OP_DMA_READ, OP_DMA_WRITE)
