"""Machines with banked memory for tests that draw machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.arch import PACKED, Arch

BANKS = (2, 4, 8, 16)
LARGEST = 1 << 20


def with_banked_memory(arch: Arch, random: np.random.Generator) -> Arch:
    """Return a machine with banked memory and with the array and lanes of ``arch``.

    It also has the memory size, alignment and numerics of ``arch``. A memory smaller than one word
    gets the size of a word. Half of the machines have atoms, words, accumulators and dividers by
    default, the others drawn ones.
    """
    values: dict[str, Any] = arch.model_dump(
        include={"pe", "sram_bytes", "alignment", "numerics", "post_lanes"}
    )
    values |= {"isa": PACKED, "sram_banks": 1}
    if random.random() < 0.5:
        atom = int(random.choice([8, 16, 32]))
        columns = 1 << (arch.pe.ow - 1).bit_length()
        values |= {
            "atom": atom,
            "word_bytes": max(32, atom * columns) * int(random.choice([1, 2])),
            "accumulators": int(random.choice([4, 32, 64])),
            "dividers": int(random.choice([1, 4])),
        }
    words = Arch(**{**values, "sram_bytes": LARGEST}).words
    assert words is not None
    nbytes = max(arch.sram_bytes, words.word)
    able = [banks for banks in BANKS if nbytes % (banks * words.word) == 0]
    return Arch(**{**values, "sram_bytes": nbytes, "sram_banks": int(random.choice(able or [1]))})


def either_memory(arch: Arch, random: np.random.Generator) -> Arch:
    """Return ``arch`` in half of the cases, otherwise the same machine with banked memory."""
    return with_banked_memory(arch, random) if random.random() < 0.5 else arch
