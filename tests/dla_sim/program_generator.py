"""Random legal programs for random machines: :func:`random_case` makes the case of a seed.

Every choice is made to meet its rivals: units that wait for one another, a fetch that is starved or
far ahead, bursts bound by their beats or by the gap, constants in a memory of their own or not,
scratchpads that serve everything or hardly anything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from isa.arch import PACKED, Arch, BankedMemory, PeArray
from isa.instruction import Command, Unit
from isa.ops import ALL
from isa.ops.pooling import GLOBAL_AVERAGE
from isa.plugins import variant
from tests.dla_sim.cases import DRAM_BYTES, FLAGS, NO_FLASH, NO_ROWS, Case, Step

MemoryKind = Literal["plain", "rates", "rows"]
ISA = "v4"
RESET = variant(ISA).register_file.reset
COMPUTE: Mapping[str, tuple[str, ...]] = {
    isa: tuple(sorted(name for name in variant(isa).mnemonics if ALL[name].unit is Unit.EX))
    for isa in (ISA, PACKED)
}
"""The compute instructions of each variant."""

SMALL: Mapping[str, tuple[int, ...]] = {
    "EX_INPUT_CHANNELS": (1, 2, 3, 5),
    "EX_INPUT_HEIGHT": (1, 2, 4),
    "EX_INPUT_WIDTH": (1, 2, 4),
    "EX_INPUT_PLANE": (0, 0, 16, 24),
    "EX_OUTPUT_CHANNELS": (1, 2, 3, 6),
    "EX_OUTPUT_HEIGHT": (1, 1, 2, 3),
    "EX_OUTPUT_WIDTH": (1, 2, 3),
    "EX_OUTPUT_PLANE": (0, 0, 36, 40),
    "EX_KERNEL_HEIGHT": (1, 1, 2),
    "EX_KERNEL_WIDTH": (1, 1, 2, 3),
    "EX_ROWS": (1, 1, 2, 5),
    **{f"EX_COUNT_{dimension}": (0, 1, 1, 2, 3, 5, 9) for dimension in (1, 2, 3, 4)},
    **{f"EX_INPUT_STRIDE_{dimension}": (0, 1, 1, 2, 7, 20) for dimension in (1, 2, 3, 4)},
    **{f"EX_OUTPUT_STRIDE_{dimension}": (0, 1, 1, 2, 9, 45) for dimension in (1, 2, 3, 4)},
    "EX_LENGTH": (0, 1, 2, 7, 20, 64, 128),
}
"""Values of the registers that decide cycles and byte ranges.

The others keep their reset values.
"""
LARGE: Mapping[str, tuple[int, ...]] = {
    **SMALL,
    "EX_INPUT_CHANNELS": (1, 2, 3, 4, 5, 8, 9, 16, 17, 24),
    "EX_INPUT_HEIGHT": (1, 2, 4, 7),
    "EX_INPUT_WIDTH": (1, 2, 4, 7, 12),
    "EX_INPUT_PLANE": (0, 0, 1, 2),
    "EX_OUTPUT_CHANNELS": (1, 2, 3, 6, 8, 9, 16, 20),
    "EX_OUTPUT_HEIGHT": (1, 1, 2, 3, 6),
    "EX_OUTPUT_WIDTH": (1, 2, 3, 5, 9),
    "EX_OUTPUT_PLANE": (0, 0, 1, 2),
    "EX_STRIDE_HEIGHT": (1, 1, 2),
    "EX_STRIDE_WIDTH": (1, 1, 2, 3),
    "EX_DILATION_HEIGHT": (1, 1, 2),
    "EX_DILATION_WIDTH": (1, 1, 2),
    "EX_ROWS": (0, 1, 1, 2, 5, 13),
    "EX_LENGTH": (0, 1, 2, 7, 20, 64),
    "EX_GROUPS": (1, 2, 3, 4, 8),
    **{f"EX_COUNT_{dimension}": (1, 1, 2, 3, 4, 8) for dimension in (1, 2, 3, 4)},
    **{f"EX_INPUT_STRIDE_{dimension}": (0, 1, 1, 2, 4, 8, 32, 56) for dimension in (1, 2, 3, 4)},
    **{f"EX_OUTPUT_STRIDE_{dimension}": (0, 1, 1, 3, 4, 8, 32, 64) for dimension in (1, 2, 3, 4)},
}
"""The same for machines of words: atoms and stripes that are full and that are not.

Planes are words behind dense.
"""


def random_case(seed: int, isa: str = ISA, memories: MemoryKind = "rows") -> Case:
    """The case of ``seed``, always the same, for a machine of ``isa``.

    Of ``plain`` memories every beat takes a slot, as in hardware; others may have ``rates``, and
    the main memory rows and a refresh.
    """
    rng = random.Random(seed)
    arch = (_arch_of_words if isa == PACKED else _arch)(rng)
    timing = random_timing(rng)
    if arch.words is not None:
        timing["bus_bytes"] = min(timing["bus_bytes"], arch.words.word // 2)
    scale = rng.choice((4, 16, 64, 150))
    push = rng.choice((0.1, 0.4, 0.8))
    pop = rng.choice((0.3, 0.9, 1.0))
    weights = [rng.choice((0.3, 1, 1, 3)) for _ in range(4)]
    again = rng.choice((0, 0.5, 0.9))
    padding = rng.choice((0, 0, 3, 8))
    steps: list[Step] = []
    for _ in range(rng.randint(0, 24)):
        kind = rng.choices(("read", "write", "compute", "sync"), weights)[0]
        earlier = [step for step in steps if _kind(step) == kind]
        step = (
            rng.choice(earlier)
            if earlier and rng.random() < again
            else _step(rng, kind, scale, arch)
        )
        flags = frozenset(
            flag for flag in FLAGS if rng.random() < (push if flag.startswith("push") else pop)
        )
        step = replace(step, layer=rng.choice(("", "a", "b")), kind=rng.choice(("", "", "DEPTH")))
        steps.append(replace(step, flags=flags, padding=rng.randint(0, padding)))
    case = Case(arch, timing, tuple(steps), DRAM_BYTES // 2 + 8 * rng.randint(0, 40))
    case = _with_flash(case, random.Random(f"flash {seed}")) if seed % 3 == 1 else case
    if memories != "plain" and seed % 2:
        case = _with_rates(case, random.Random(f"rates {seed}"))
    if memories == "rows" and seed % 4 in (0, 1):
        case = _with_rows(case, random.Random(f"rows {seed}"))
    return case


def _with_rates(case: Case, rng: random.Random) -> Case:
    """Give the memories of a case rates of their own, many of them below a byte a cycle."""
    rates = {
        key: rng.choice((None, "1", "0.44", "11/25", "1/3", "1/7", "7/3", "2.75", "0.99"))
        for key in ("dram_rate", "flash_rate")
    }
    widths = {"dram_rate": case.timing["bus_bytes"], "flash_rate": case.timing["flash_bytes"]}
    kept = {key: rate for key, rate in rates.items() if rate and Fraction(rate) <= widths[key]}
    return replace(case, timing={**case.timing, **kept})


def _with_rows(case: Case, rng: random.Random) -> Case:
    """Give the main memory of a case rows, a refresh or both."""
    interval = rng.choice((0, 2, 50, 333, 1000, rng.randint(2, 500)))
    rows = {
        "dram_row_bytes": max(case.timing["burst_bytes"], rng.choice((1, 64, 256, 1024))),
        "dram_row_banks": rng.choice((1, 2, 3, 8)),
        "dram_row_miss": rng.choice((0, 1, 5, 30)),
    }
    refresh = {
        "dram_refresh_interval": interval,
        "dram_refresh_cycles": rng.choice((1, max(1, interval // 7), max(1, interval // 2))),
    }
    given = (rows if not interval or rng.random() < 0.8 else {}) | refresh
    return replace(case, timing={**case.timing, **given})


def _with_flash(case: Case, rng: random.Random) -> Case:
    """Put the constants of a case into a second memory.

    They are about half of the bytes that its transfers touch, except some tensors.
    """
    flash = random_flash(rng, case.timing["bus_bytes"])
    addresses = [
        step.registers[name]
        for step in case.steps
        for name in step.registers
        if name.endswith("DRAM_ADDRESS")
    ]
    size = rng.choice((1, 64, 700))
    places = [
        max(0, address - rng.choice((0, 0, size - 1, size))) for address in dict.fromkeys(addresses)
    ]
    # some end where a transfer begins
    segments = tuple((place, size) for place in places if rng.random() < 0.6)
    tensors = tuple(
        (address, rng.choice((1, size))) for address, _ in segments if rng.random() < 0.2
    )
    return replace(case, timing={**case.timing, **flash}, segments=segments, tensors=tensors)


def random_flash(rng: random.Random, bus_bytes: int) -> dict[str, int]:
    """The constants of a second memory behind such a bus."""
    width = rng.choice([width for width in (1, 2, 4, 4, 8, 16, 32) if width <= bus_bytes])
    return {
        "flash_bytes": width,
        "flash_burst_bytes": width * rng.choice((1, 2, 4, 16)),
        "flash_latency": rng.choice((0, 1, 3, 20, rng.randint(0, 40))),
        "flash_outstanding_bursts": rng.choice((1, 2, 3, 8)),
    }


def _kind(step: Step) -> str:
    return {"OP_SYNC": "sync", "OP_DMA_READ": "read", "OP_DMA_WRITE": "write"}.get(
        step.mnemonic, "compute"
    )


def _step(rng: random.Random, kind: str, scale: int, arch: Arch) -> Step:
    if kind == "sync":
        return Step("OP_SYNC", rng.choice(("LD", "EX", "ST")))
    return _compute(rng, arch) if kind == "compute" else _dma(rng, kind, scale, arch)


def _arch(rng: random.Random) -> Arch:
    numbers = (1, 1, 2, 4, 8)
    banks = rng.choice((1, 2, 3, 4, 16))
    return Arch(
        isa=ISA,
        pe=PeArray(ic=rng.choice(numbers), oc=rng.choice(numbers), ow=rng.choice((1, 1, 2, 3))),
        sram_bytes=banks * rng.choice((512, 1024, 4096)), sram_banks=banks, alignment=1,
        numerics=rng.choice(("onnxruntime", "fixed")), post_lanes=rng.choice((None, 1, 4)),
    )  # fmt: skip


def _arch_of_words(rng: random.Random) -> Arch:
    """Draw a machine with banked memory for any array.

    Atoms may be larger than needed, just sufficient or too small for the array; words and
    accumulators are larger or just sufficient.
    """
    numbers = (1, 2, 3, 4, 6, 8, 8, 16)
    banks = rng.choice((1, 2, 4, 16))
    array = PeArray(ic=rng.choice(numbers), oc=rng.choice(numbers), ow=rng.choice((1, 1, 2, 3, 4)))
    least = max(8, 1 << (array.ic - 1).bit_length())
    atom = rng.choice((None, 8, least, 2 * least))
    across = (atom or least) << (array.ow - 1).bit_length()
    word = rng.choice((None, across, 2 * across, 4 * across))
    return Arch(
        isa=PACKED, pe=array, sram_bytes=banks * rng.choice((4096, 16384)), sram_banks=banks,
        alignment=1,
        numerics=rng.choice(("onnxruntime", "fixed")), post_lanes=rng.choice((None, None, 1, 4)),
        atom=atom, word_bytes=word, accumulators=rng.choice((None, 1, 2, 3, 8)),
        dividers=rng.choice((None, 1, 3)),
        divide_cycles=rng.choice((None, 1, 5)),
    )  # fmt: skip


def random_timing(rng: random.Random) -> dict[str, Any]:
    """The constants of a machine without a flash."""
    bus = rng.choice((1, 2, 4, 8, 8, 16, 32))
    fast = rng.random() < 0.5
    return {
        "bus_bytes": bus,
        "burst_bytes": bus * rng.choice((1, 2, 4, 8)),
        "dram_latency": rng.choice((0, 1, 2, 5, 10, rng.randint(0, 50), 50)),
        "outstanding_bursts": rng.choice((1, 2, 3, 4, 8, 16)),
        "dram_rate": None,
        **NO_ROWS,
        **NO_FLASH,
        "queue_depth": rng.randint(1, 4),
        "fetch_bytes": 512 if fast else 8 * rng.choice((1, 2, 3, 4, 8, 16)),
        "fetch_buffers": 4 if fast else rng.choice((1, 1, 2, 3)),
        "dma_setup": rng.choice((0, 1, 2, 4, 7)),
        "dma_drain": rng.choice((0, 1, 2, 4, 8)),
        "ex_fill": rng.choice((0, 1, 2, 4, 8)),
        "ex_drain": rng.choice((0, 1, 2, 4, 8)),
        "sync_cycles": rng.choice((1, 1, 1, 2, 5)),
        "sram_read_bytes": rng.choice((0, 0, 0, 1, 4, 16, 64)),
        "sram_write_bytes": rng.choice((0, 0, 0, 1, 4, 16, 64)),
        "bank_ports": rng.randint(1, 4),
    }


def _dma(rng: random.Random, kind: str, scale: int, arch: Arch) -> Step:
    """Draw a transfer of rows of about ``scale`` bytes in all.

    Rows are dense or strided, aligned or not, and now and then there are none.
    """
    unit, mnemonic = ("LD", "OP_DMA_READ") if kind == "read" else ("ST", "OP_DMA_WRITE")
    counts = [rng.choice((1, 1, 1, 2, 3, 5)) for _ in range(3)]
    if rng.random() < 0.03:
        counts[rng.randrange(3)] = 0
    rows = max(1, counts[0] * counts[1] * counts[2])
    dram = sram = 0 if rng.random() < 0.06 else rng.randint(1, 1 + 2 * scale // rows)
    registers = {"BYTES": sram}
    for dimension, count in enumerate(counts, start=1):
        dram += rng.choice((0, 0, 1, 8, 16, 33))
        if arch.words is not None:
            sram += rng.choice((0, 0, 1, arch.words.atom, arch.words.word))
        registers |= {
            f"COUNT_{dimension}": count,
            f"DRAM_STRIDE_{dimension}": dram,
            f"SRAM_STRIDE_{dimension}": sram,
        }
        dram = dram * count
        sram = sram * count
    if sram > arch.sram_bytes:
        return _dma(rng, kind, scale, arch)
    registers["SRAM_ADDRESS"] = rng.randint(0, arch.sram_bytes - sram)
    address = rng.randint(0, DRAM_BYTES // 4)
    registers["DRAM_ADDRESS"] = rng.choice((address, address // 64 * 64))
    return Step(mnemonic, unit, {f"{unit}_{name}": value for name, value in registers.items()})


def _compute(rng: random.Random, arch: Arch) -> Step:
    """Any compute instruction on a small shape, its operands anywhere in the scratchpad."""
    extent = arch.sram_bytes + 1
    # some scratchpads are too small for some instructions of any shape
    while extent > arch.sram_bytes:
        mnemonic = rng.choice(COMPUTE[arch.isa])
        instruction = ALL[mnemonic]
        fields = {item.name: rng.randint(0, item.highest) for item in instruction.fields}
        if fields.get("look_up") and "requantise" in fields:
            fields["requantise"] = 1
        values = SMALL if arch.words is None else LARGE
        registers = {
            name: rng.choice(values[name]) for name in instruction.registers if name in values
        }
        if arch.words is not None:
            _fit_words(mnemonic, registers, fields, arch.words)
        inputs, outputs = (registers.get(f"EX_{side}_CHANNELS", 1) for side in ("INPUT", "OUTPUT"))
        if mnemonic in ("OP_POOL", "OP_RESIZE"):
            registers["EX_OUTPUT_CHANNELS"] = inputs
            if fields.get("mode") == GLOBAL_AVERAGE:
                registers["EX_OUTPUT_HEIGHT"] = registers["EX_OUTPUT_WIDTH"] = 1
                registers |= {
                    f"EX_KERNEL_{axis}": registers[f"EX_INPUT_{axis}"]
                    for axis in ("HEIGHT", "WIDTH")
                }
        elif mnemonic == "OP_DEPTH_CONV":
            registers["EX_OUTPUT_CHANNELS"] = inputs * max(1, outputs // inputs)
        extent = _extent(mnemonic, registers, fields, arch)
    for name in instruction.registers:
        if name.endswith("ADDRESS"):
            address = rng.randint(0, arch.sram_bytes - extent)
            # so that streams end where a bank does
            registers[name] = rng.choice((address, address // 64 * 64))
            if arch.words is not None:
                registers[name] = address // arch.words.word * arch.words.word
    return Step(mnemonic, "EX", registers, fields)


def _fit_words(
    mnemonic: str, registers: dict[str, int], fields: dict[str, int], words: BankedMemory
) -> None:
    """Make of any registers and fields such as a machine of words has."""
    if mnemonic == "OP_DEPTH_CONV":
        fields |= {"mapping": 0} if "mapping" in fields else {}
        registers["EX_OUTPUT_CHANNELS"] = registers["EX_INPUT_CHANNELS"]
    if "EX_GROUPS" in registers:
        for name in ("EX_INPUT_CHANNELS", "EX_OUTPUT_CHANNELS"):
            registers[name] = (1 + registers[name] // 3) * registers["EX_GROUPS"]
    # half of them of a picture
    if fields.get("mapping") == 3 and registers["EX_OUTPUT_HEIGHT"] % 2:
        registers["EX_INPUT_CHANNELS"] = 1 + registers["EX_INPUT_CHANNELS"] % 4
        registers |= {"EX_GROUPS": 1} if "EX_GROUPS" in registers else {}
    if mnemonic == "OP_LUT" and registers["EX_OUTPUT_CHANNELS"] != 1:
        registers["EX_ROWS"] = 1
    if (
        mnemonic in ("OP_REDUCE", "OP_SOFTMAX")
        and min(registers["EX_ROWS"], registers["EX_LENGTH"]) > 1
    ):
        registers["EX_LENGTH" if registers["EX_LENGTH"] % 2 else "EX_ROWS"] = 1
    for side, element in (("INPUT", 1), ("OUTPUT", 1 if fields.get("requantise", 1) else 4)):
        gap = registers.get(f"EX_{side}_PLANE", 0)
        if gap:
            if "EX_LENGTH" in registers:  # rows as wholes
                dense = registers["EX_ROWS"] * registers["EX_LENGTH"] * words.atom
            else:
                dense = (
                    registers[f"EX_{side}_HEIGHT"]
                    * registers[f"EX_{side}_WIDTH"]
                    * words.atom
                    * element
                )
            registers[f"EX_{side}_PLANE"] = (-(-dense // words.word) + gap) * words.word


def _extent(
    mnemonic: str, registers: Mapping[str, int], fields: Mapping[str, int], arch: Arch
) -> int:
    """The largest end of an operand when all addresses are 0."""
    instruction = ALL[mnemonic]
    snapshot = {
        name: variant(arch.isa).register_file.reset[name] for name in instruction.registers
    } | dict(registers)
    command = Command(0, instruction, Unit.EX, False, False, False, False, fields, snapshot)
    operands = instruction.operands(command, arch)
    return max(access.end for access in (*operands.reads, *operands.writes))
