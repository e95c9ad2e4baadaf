"""Test bench for kernels: run a command on two copies of a machine, by semantics and by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from dla_sim.kernels import products
from dla_sim.kernels.compiled import load_compiled
from dla_sim.kernels.dispatch import Kernels, Step
from dla_sim.kernels.steps import prepare_steps
from isa import numerics
from isa.arch import Arch
from isa.instruction import Command, Machine
from tests.isa.bench import make_command

ARCHS = {"onnxruntime": Arch(), "fixed": Arch(numerics="fixed")}
KERNELS = {name: Kernels(arch) for name, arch in ARCHS.items()}
"""One instance for all tests: what is left in the scratch memory by one command must not matter
to the next.
"""


@cache
def integer_ways() -> Mapping[str, products.IntegerProducts]:
    """Return ONNX Runtime's integer products by kind, and the one that is chosen here.

    The right operand is int8 or uint8. Products of int8 saturate on processors without VNNI, which
    therefore choose those of uint8.
    """
    ways = {
        kind: products.IntegerProducts(products.session(kind), kind == "uint8")
        for kind in ("int8", "uint8")
    }
    chosen = products.integer_products()
    assert chosen is not None
    return ways | {"chosen": chosen}


PRODUCT_WAYS = ("float32", "chosen", "uint8")
"""Ways to multiply that are exact on every processor."""


@contextmanager
def product_way(name: str) -> Iterator[pytest.MonkeyPatch]:
    """All products, however small, in one of ``PRODUCT_WAYS``."""
    way = integer_ways().get(name)  # looked up before the choice is replaced, on which it depends
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dla_sim.kernels.products._SMALL", -1)
        patch.setattr("dla_sim.kernels.products.integer_products", lambda: way)
        yield patch


SCALES = st.one_of(
    st.sampled_from([0.0, 1e-30, 1e-7, 0.25, 0.5, 1.0, 3.0, 1e10, -0.5]),
    st.floats(2.0**-20, 2.0, width=32),
)
BIASES = st.one_of(
    st.integers(-(1 << 12), 1 << 12), st.integers(-(1 << 26), 1 << 26), st.just((1 << 24) + 1)
)


def random_bytes(size: int, seed: int) -> NDArray[np.uint8]:
    """Memory of random bytes in which the int8 extremes are frequent."""
    generator = np.random.default_rng(seed)
    memory = generator.integers(0, 256, size, dtype=np.uint8)
    memory[generator.random(size) < 0.1] = 0x80
    return memory


def write_records(
    memory: NDArray[np.uint8], address: int, biases: list[int], scales: list[float], arch: Arch
) -> None:
    """Channel records.

    Under fixed numerics of the magnitudes of ``scales``, one in three with a float64 factor.
    """
    if arch.numerics == "fixed":
        pairs = np.array(
            [numerics.quantise_multiplier(min(abs(scale), 1.0)) for scale in scales], "<i4"
        ).reshape(-1, 2)
        factors = np.maximum(np.abs(np.array(scales)), 1e-30).view("<i4").reshape(-1, 2)
        once = np.arange(len(scales)) % 3 == len(scales) % 3
        columns = [np.array(biases, "<i4"), *np.where(once[:, np.newaxis], factors, pairs).T]
    else:
        columns = [np.array(biases, "<i4"), np.array(scales, "<f4").view("<i4")]
    raw = np.frombuffer(np.stack(columns, axis=1).tobytes(), np.uint8)
    memory[address : address + raw.size] = raw


def outcome(run: Any, command: Command, machine: Machine) -> str:
    """Return type and message of the exception of ``run``, or nothing."""
    try:
        with np.errstate(all="ignore"):
            run(command, machine)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def make_load(count: int) -> Command:
    """A transfer of ``count`` bytes from system memory to the same addresses in the scratchpad."""
    registers = {f"LD_COUNT_{number}": 1 for number in (1, 2, 3)} | {"LD_BYTES": count}
    return make_command("OP_DMA_READ", registers)


def prepare_table(command: Command, sram: NDArray[np.uint8], arch: Arch) -> tuple[Step, ...]:
    """Steps that load a scratchpad and run a command on it: only its first operand can differ."""
    first = command.instruction.operands(command, arch).reads[0]
    kernels = Kernels(arch, load_compiled())
    commands = make_load(sram.size), command
    return prepare_steps(commands, kernels, sram.size, sram, [(first.address, first.end)])


def run_in_table(command: Command, sram: NDArray[np.uint8], arch: Arch) -> NDArray[np.uint8]:
    """Return the scratchpad after a command that a table of steps executes."""
    machine = Machine(arch, np.zeros(sram.size, np.uint8), sram.copy())
    with np.errstate(all="ignore"):
        for step in prepare_table(command, sram, arch):
            step(machine)
    return machine.sram


def compare(
    mnemonic: str,
    registers: Mapping[str, int],
    fields: Mapping[str, int],
    sram: NDArray[np.uint8],
    arch: Arch,
    dram: NDArray[np.uint8] | None = None,
    compiled: bool = False,
) -> bool:
    """Asserts that kernel and semantics leave the same memories.

    With ``compiled`` a table of steps does too. Whether the kernel did it without the semantics.
    """
    command = make_command(mnemonic, registers, fields)
    main = np.zeros(0, np.uint8) if dram is None else dram
    expected = Machine(arch, sram.copy(), main.copy())
    found = Machine(arch, sram.copy(), main.copy())
    error = outcome(command.instruction.semantics, command, expected)
    kernels = KERNELS[arch.numerics]
    if compiled and not error and dram is None:
        np.testing.assert_array_equal(run_in_table(command, sram, arch), expected.sram)
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
