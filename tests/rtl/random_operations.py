"""Programs of random operations of the Verilog unit, drawn to the corners of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.golden.case import GoldenCase
from isa.arch import Arch
from isa.numerics import add_fixed_constants, float32_bits, quantise_multiplier
from tests.golden_cases.builder import Builder

ROUNDS = 3
"""Operations of each instruction in a program."""
WORDS = 1024
CHANNELS = 40
LONGEST = 250
EDGES = (0, 1, -1, 2, -2, 3, 5, 127, -128, 2**24, 2**24 + 1, 2**24 - 1, -(2**24) - 1,
         2**25 + 2, 2**25 + 6, 3 * 2**23 - 1, 2**31 - 1, -(2**31), 2**31 - 64,
         2**30 + 64, 2**30 + 192)  # fmt: skip
"""Accumulators at the ends of int32, where float32 begins to round, and on ties of that rounding.

Times 2**-24, 3 * 2**23 - 1 becomes a tie of the second rounding if the first one was right."""
Rng = np.random.Generator
Values = dict[str, int]


@dataclass(frozen=True)
class Drawn:
    """One operation: registers without addresses, fields of the word, and bytes of the result.

    ``operands`` is the size of its operands.
    """

    registers: Values
    nbytes: int
    fields: Mapping[str, int]
    operands: str = "wide"


def random_case(arch: Arch, seed: int) -> GoldenCase:
    """:data:`ROUNDS` of every instruction on shared operands, each with registers of its own."""
    rng = np.random.default_rng(seed)
    builder = Builder(arch, "random")
    contents = {"wide": _wide(rng), "half": _wide(rng) >> 2, "small": _wide(rng) >> 16}
    places = {name: builder.scratch(data.nbytes) for name, data in contents.items()}
    for name, data in contents.items():
        builder.read(builder.input(name, data), places[name], data.nbytes)
    records = _records(rng, arch)
    table = builder.scratch(records.nbytes)
    builder.read(builder.image(records), table, records.nbytes, "push.EX")
    drawn = [(mnemonic, draw(rng, arch)) for mnemonic, draw in DRAWS.items() for _ in range(ROUNDS)]
    targets = [builder.scratch(item.nbytes) for _, item in drawn]
    for number, (mnemonic, item) in enumerate(drawn):
        first, second = (
            places[item.operands] + 4 * int(at) for at in rng.integers(0, WORDS - LONGEST, 2)
        )
        addresses = {"INPUT": first, "OPERAND": second, "CHANNEL": table, "OUTPUT": targets[number]}
        registers = item.registers | {
            f"EX_{name}_ADDRESS": value for name, value in addresses.items()
        }
        flags = "pop.LD" if number == 0 else "push.ST" if number + 1 == len(drawn) else ""
        builder.operation(mnemonic, registers, flags, **item.fields)
    size = targets[-1] + drawn[-1][1].nbytes - targets[0]
    builder.write(builder.output("results", "int8", (size,)), targets[0], size, "pop.EX")
    return builder.case(f"L10/random-{seed}", "random operations of the Verilog unit")


def _wide(rng: Rng) -> NDArray[np.int32]:
    """int32 of every magnitude; their bytes are the int8 operands of other instructions."""
    values = rng.integers(-(2**31), 2**31, WORDS) >> rng.integers(0, 31, WORDS)
    values[rng.permutation(WORDS)[: 8 * len(EDGES)]] = EDGES * 8
    return values.astype(np.int32)


def _records(rng: Rng, arch: Arch) -> NDArray[np.uint32]:
    """Return channel records of every size of scale.

    A record is a bias, then float32 bits, multiplier and shift, or a float64 factor.
    """
    bias = rng.integers(0, 2**32, CHANNELS, dtype=np.uint32)
    if arch.numerics == "fixed":
        multiplier = np.where(
            rng.integers(4, size=CHANNELS), rng.integers(2**30, 2**31, CHANNELS), 2**30
        )
        shift = np.where(
            rng.integers(4, size=CHANNELS),
            -rng.integers(0, 32, CHANNELS),
            rng.integers(0, 31, CHANNELS),
        )
        found = np.stack([bias, multiplier.astype(np.uint32), shift.astype(np.uint32)], axis=1)
        factors = np.ldexp(
            np.where(rng.integers(2, size=CHANNELS), rng.uniform(1, 2, CHANNELS), 1.0),
            -rng.integers(-9, 70, CHANNELS),
        )
        once = rng.integers(2, size=CHANNELS) == 1
        found[once, 1:] = factors.view(np.uint32).reshape(-1, 2)[once]
        return found
    exponents = np.where(
        rng.integers(2, size=CHANNELS), rng.integers(-33, 1, CHANNELS), rng.integers(-149, 128)
    )
    mantissa = np.where(rng.integers(3, size=CHANNELS), rng.uniform(1, 2, CHANNELS), 1.0)
    exponents[:4] = -24
    mantissa[:4] = 1.0
    sign = np.where(rng.integers(6, size=CHANNELS), 1.0, -1.0)
    return np.stack(
        [bias, (sign * np.ldexp(mantissa, exponents)).astype(np.float32).view(np.uint32)], axis=1
    )


def _zero(rng: Rng) -> int:
    return int(rng.integers(-128, 128) if rng.integers(4) else rng.integers(-(2**15), 2**15))


def _outcome(rng: Rng) -> Values:
    low, high = sorted(rng.integers(-128, 128, 2).tolist()) if rng.integers(2) else (-128, 127)
    return {"EX_OUTPUT_ZERO_POINT": _zero(rng), "EX_CLAMP_LOW": low, "EX_CLAMP_HIGH": high}


def _length(rng: Rng) -> int:
    return int(rng.integers(1, LONGEST))


def _requantise(rng: Rng, arch: Arch) -> Drawn:
    channels = int(rng.integers(1, CHANNELS + 1))
    rows = int(rng.integers(1, 1 + LONGEST // channels))
    length = int(rng.integers(1, 1 + LONGEST // (channels * rows)))
    shape = {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
    return Drawn(shape | _outcome(rng), rows * channels * length, {})


def _scale(rng: Rng, lowest: int, highest: int) -> float:
    """A scale between two powers of two.

    One in three is a power of two itself and so makes ties.
    """
    return float(
        np.float32(
            np.ldexp(rng.uniform(1, 2) if rng.integers(3) else 1.0, rng.integers(lowest, highest))
        )
    )


def _unary(rng: Rng, arch: Arch) -> Drawn:
    length = _length(rng)
    registers = {"EX_LENGTH": length, "EX_INPUT_ZERO_POINT": _zero(rng)} | _outcome(rng)
    if arch.numerics == "fixed":
        for name, sign in (("A", 1), ("B", 1 if rng.integers(3) else -1)):
            multiplier, shift = quantise_multiplier(sign * _scale(rng, -9, 25))
            registers[f"EX_SCALE_{name}"] = multiplier & 0xFFFFFFFF
            registers[f"EX_SHIFT_{name}"] = shift
        return Drawn(registers, length, {})
    result = _scale(rng, -6, 2) if rng.integers(2) else _scale(rng, -149, 126)
    source = max(result * _scale(rng, -4, 4), 2.0**-149)
    slope = _scale(rng, -10, 3) * (-1 if rng.integers(4) == 0 else 1)
    scales = {"A": source, "B": slope if rng.integers(4) else 2.0**-140, "Y": result}
    return Drawn(
        registers | {f"EX_SCALE_{name}": float32_bits(value) for name, value in scales.items()},
        length,
        {},
    )


def _add(rng: Rng, arch: Arch) -> Drawn:
    length = _length(rng)
    registers = {"EX_LENGTH": length} | _outcome(rng)
    if arch.numerics == "fixed":
        a = _scale(rng, -6, 4)
        b = _scale(rng, -6, 4)
        found = add_fixed_constants(
            a, b, _scale(rng, -30, 5) if rng.integers(3) == 0 else _scale(rng, -5, 5)
        )
        registers |= {
            f"EX_SCALE_{name}": getattr(found, f"multiplier_{name.lower()}") for name in "ABY"
        }
        registers |= {f"EX_SHIFT_{name}": getattr(found, f"shift_{name.lower()}") for name in "ABY"}
        zeros = {
            f"EX_{name}_ZERO_POINT": int(rng.integers(-5000, 5000)) for name in ("INPUT", "OPERAND")
        }
        return Drawn(registers | zeros, length, {})
    reach = (-4, 4) if rng.integers(2) else (-149, 40)
    scales = {
        "A": _scale(rng, *reach),
        "B": _scale(rng, *reach),
        "Y": -_scale(rng, *reach) * int(rng.integers(-9, 9)),
    }
    registers |= {f"EX_SCALE_{name}": float32_bits(value) for name, value in scales.items()}
    return Drawn(registers | {"EX_OFFSET": (0, 128, 255)[rng.integers(3)]}, length, {})


def _compare(rng: Rng, arch: Arch) -> Drawn:
    length = _length(rng)
    return Drawn({"EX_LENGTH": length}, length, {})


def _wide_add(rng: Rng, arch: Arch) -> Drawn:
    length = _length(rng)
    return Drawn({"EX_LENGTH": length}, 4 * length, {}, "half")


def _shift(rng: Rng, arch: Arch) -> Drawn:
    length = _length(rng)
    right = int(rng.integers(4) > 0)
    fields = {"direction": right, "rounding": int(rng.integers(3))}
    amount = int(rng.integers(0, 32 if right else 17))
    return Drawn(
        {"EX_LENGTH": length, "EX_SHIFT_A": amount},
        4 * length,
        fields,
        "wide" if right else "small",
    )


DRAWS: Mapping[str, Callable[[Rng, Arch], Drawn]] = {
    "OP_REQUANT": _requantise, "OP_ACT_RELU": _unary, "OP_ACT_LRELU": _unary, "OP_E_ABS": _unary,
    "OP_C_MIN": _compare, "OP_C_MAX": _compare, "OP_E_ADD": _add, "OP_E32_ADD": _wide_add,
    "OP_E32_SHIFT": _shift,
}  # fmt: skip
"""How an operation of each instruction is drawn."""
