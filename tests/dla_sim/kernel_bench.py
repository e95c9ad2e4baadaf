"""A bench for kernels: the same command on two copies of one machine, once by its semantics, once by its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dla_sim.kernels.dispatch import Kernels
from isa import numerics
from isa.arch import Arch
from isa.instruction import Command, Machine
from tests.isa.bench import make_command

ARCHS = {"onnxruntime": Arch(), "fixed": Arch(numerics="fixed")}
KERNELS = {name: Kernels(arch) for name, arch in ARCHS.items()}
"""One instance for all tests: what is left in the scratch memory by one command must not matter to the next."""

SCALES = st.one_of(
    st.sampled_from([0.0, 1e-30, 1e-7, 0.25, 0.5, 1.0, 3.0, 1e10, -0.5]),
    st.floats(2.0**-20, 2.0, width=32),
)
BIASES = st.one_of(st.integers(-(1 << 12), 1 << 12), st.integers(-(1 << 26), 1 << 26), st.just((1 << 24) + 1))


def random_bytes(size: int, seed: int) -> NDArray[np.uint8]:
    """Memory of random bytes in which the int8 extremes are frequent."""
    generator = np.random.default_rng(seed)
    memory = generator.integers(0, 256, size, dtype=np.uint8)
    memory[generator.random(size) < 0.1] = 0x80
    return memory


def write_records(memory: NDArray[np.uint8], address: int, biases: list[int], scales: list[float], arch: Arch) -> None:
    """Channel records; under fixed numerics the multipliers and shifts of the magnitudes of ``scales``."""
    if arch.numerics == "fixed":
        pairs = [numerics.quantise_multiplier(min(abs(scale), 1.0)) for scale in scales]
        columns = [np.array(biases, "<i4"), *np.array(pairs, "<i4").reshape(-1, 2).T]
    else:
        columns = [np.array(biases, "<i4"), np.array(scales, "<f4").view("<i4")]
    raw = np.frombuffer(np.stack(columns, axis=1).tobytes(), np.uint8)
    memory[address : address + raw.size] = raw


def outcome(run: Any, command: Command, machine: Machine) -> str:
    """Type and message of what ``run`` raises, or nothing."""
    try:
        with np.errstate(all="ignore"):
            run(command, machine)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def compare(
    mnemonic: str,
    registers: Mapping[str, int],
    fields: Mapping[str, int],
    sram: NDArray[np.uint8],
    arch: Arch,
    dram: NDArray[np.uint8] | None = None,
) -> bool:
    """Asserts that kernel and semantics leave the same memories; whether the kernel did it without the semantics."""
    command = make_command(mnemonic, registers, fields)
    main = np.zeros(0, np.uint8) if dram is None else dram
    expected = Machine(arch, sram.copy(), main.copy())
    found = Machine(arch, sram.copy(), main.copy())
    error = outcome(command.instruction.semantics, command, expected)
    kernels = KERNELS[arch.numerics]
    assert outcome(kernels.run, command, found) == error
    np.testing.assert_array_equal(found.sram, expected.sram)
    np.testing.assert_array_equal(found.dram, expected.dram)
    attempt = None if error else kernels.attempt(command)
    if attempt is None:
        return False
    again = Machine(arch, sram.copy(), main.copy())
    with np.errstate(all="ignore"):
        took = attempt(again, kernels.scratch)
    np.testing.assert_array_equal(again.sram, expected.sram if took else sram)
    return took
