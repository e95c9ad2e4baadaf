"""Operands of golden cases, drawn from the case's name: the same name gives the same values."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits
from isa.ops.channels import pack_records


def generator(name: str) -> np.random.Generator:
    """Random numbers that belong to a case."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def int8(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    """All values of int8, equally likely."""
    return rng.integers(-128, 128, shape, dtype=np.int8)


def records(rng: np.random.Generator, channels: int, terms: int, arch: Arch, bias: int = 3000) -> NDArray[np.uint8]:
    """Channel records whose scales bring sums of ``terms`` products to about the range of int8, and a little beyond."""
    scale = rng.uniform(0.5, 1.5, channels) / (48.0 * np.sqrt(terms))
    biases = rng.integers(-bias, bias + 1, channels, dtype=np.int32)
    return packed(biases, scale.astype(np.float32), arch)


def packed(bias: NDArray[Any], scale: NDArray[Any], arch: Arch) -> NDArray[np.uint8]:
    """The bytes of channel records with exactly these scales."""
    return np.frombuffer(pack_records(bias.astype(np.int32), scale.astype(np.float32), arch), np.uint8)


def scale_registers(arch: Arch, **scales: float) -> dict[str, int]:
    """``EX_SCALE_A`` and so on from real numbers: float32 bits, or multiplier and shift under numerics = fixed."""
    values: dict[str, int] = {}
    for name, scale in scales.items():
        if arch.numerics == "fixed":
            values[f"EX_SCALE_{name}"], values[f"EX_SHIFT_{name}"] = numerics.quantise_multiplier(scale)
        else:
            values[f"EX_SCALE_{name}"] = float32_bits(scale)
    return values
