"""Random register writes and mutated command streams against the device.

``python -m tests.dla_sim.fuzz_device [COUNT] [FIRST_SEED]`` runs COUNT of each and prints how they
ended. A run must end with its outputs or a fault code, never with an exception, and must not change
a byte outside the activation and state windows.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable

from dla_sim.device import Device
from dla_sim.mapped import MappedDevice, make_bus
from isa.device import DEVICE_REGISTERS, FaultReason, hash_arch
from isa.encoding import SET_OPCODE
from isa.program import Program
from tests.dla_sim.mapped_systems import BASE, GUARD, compile_digits, offset, small_program
from tests.isa.random_streams import random_stream

WRITABLE = [one.offset for one in DEVICE_REGISTERS.values() if "w" in one.access]
WINDOWS = ("ACTIVATION", "STATE")
SHARD = 125
"""Cases that share one device and one program."""


class Fuzz:
    """One device with a small memory, for the cases of one shard of seeds.

    Words are at the start of memory. All other system memory of the program, its constants too, is
    one activation window after them.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.activations = BASE + -(-16 * len(program.words) // 64) * 64
        self.activation_bytes = -(-program.dram_bytes // 64) * 64
        self.memory = bytearray(self.activations + self.activation_bytes - BASE)
        self.device = MappedDevice(Device(program.arch), make_bus(self.memory, BASE))
        self.ends: Counter[str] = Counter()

    def read(self, name: str) -> int:
        return self.device.read32(offset(name))

    def settings(self) -> dict[str, int]:
        """Registers of the unchanged program."""
        return {
            **{f"PROGRAM_HASH{n}": word for n, word in enumerate(hash_arch(self.program.arch))},
            "COMMAND_BASE": BASE,
            "COMMAND_WORDS": len(self.program.words),
            "COMMAND_START": self.activation_bytes,
            "ACTIVATION_BASE": self.activations,
            "ACTIVATION_BYTES": self.activation_bytes,
            "ACTIVATION_START": 0,
            "STATE_BASE": 0,
            "STATE_BYTES": 0,
        }

    def run(self) -> None:
        """Start a run and check how it ends and which bytes it changed."""
        before = bytes(self.memory)
        windows = [(self.read(f"{name}_BASE"), self.read(f"{name}_BYTES")) for name in WINDOWS]
        self.device.write32(offset("CONTROL"), 1)
        status, reason = self.read("STATUS"), FaultReason(self.read("FAULT_REASON"))
        assert status == (2 if reason is FaultReason.NONE else 4)
        assert self.read("INTERRUPT") == 1
        after = bytearray(self.memory)
        if reason is FaultReason.NONE:
            for base, size in windows:
                after[base - BASE : base - BASE + size] = before[base - BASE : base - BASE + size]
        assert after == before
        self.ends[reason.name] += 1


def write_registers(fuzz: Fuzz, rng: random.Random) -> None:
    """Write registers at random, most of them to values near the right ones, and run."""
    settings = fuzz.settings()
    size = len(fuzz.memory)
    fuzz.memory[:] = bytes([GUARD]) * size
    words = fuzz.program.words.astype("<u8").tobytes()
    fuzz.memory[: len(words)] = words
    for name, value in settings.items():
        fuzz.device.write32(offset(name), value)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        near = rng.choice([*settings.values(), BASE, BASE + size, 0, 64, 1 << 31, 1 << 32])
        step = rng.choice((0, 0, 1, 8, 64, -1, -8, -64, rng.getrandbits(32)))
        value = (near + step) % (1 << 32)
        target = rng.choice(WRITABLE)
        if target == offset("CONTROL"):
            value &= ~1
        fuzz.device.write32(target, value)
    for _ in range(rng.choice((0, 0, 3))):
        fuzz.device.write32(rng.randrange(-8, 0x1100), rng.getrandbits(32) & ~1)
    fuzz.device.write32(offset("INTERRUPT"), 1)
    fuzz.run()
    fuzz.device.write32(offset("CONTROL"), 2)


def mutate_words(fuzz: Fuzz, rng: random.Random) -> None:
    """Change bits, values and the order of a program's command words, and run it."""
    words = fuzz.program.words.tolist()
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        number = rng.randrange(len(words))
        how = rng.randrange(6)
        if how == 0:
            words[number] ^= 1 << rng.randrange(64)
        elif how == 1:
            words[number] = rng.getrandbits(64)
        elif how == 2 and words[number] >> 56 == SET_OPCODE:
            words[number] = words[number] >> 32 << 32 | _value(rng)
        elif how == 3:
            words.insert(number, rng.choice(words))
        elif how == 4 and len(words) > 1:
            del words[number]
        else:
            other = rng.randrange(len(words))
            words[number], words[other] = words[other], words[number]
    content = b"".join(word.to_bytes(8, "little") for word in words)
    fuzz.memory[:] = bytes(rng.choices((0, 1, 127, 128, 255), k=len(fuzz.memory)))
    fuzz.memory[: len(content)] = content
    for name, value in fuzz.settings().items():
        fuzz.device.write32(offset(name), value)
    fuzz.device.write32(offset("COMMAND_WORDS"), len(words))
    fuzz.device.write32(offset("INTERRUPT"), 1)
    fuzz.run()


def _value(rng: random.Random) -> int:
    return rng.choice(
        (rng.randrange(8), rng.randrange(4096), 1 << rng.randrange(32), rng.getrandbits(32))
    )


def run_shards(
    case: Callable[[Fuzz, random.Random], None], count: int, first: int = 0
) -> Counter[str]:
    """Run ``count`` cases from seed ``first`` on; return the number of runs by reason."""
    ends: Counter[str] = Counter()
    networks = [small_program(), compile_digits("v4"), compile_digits("v5")]
    for begin in range(first, first + count, SHARD):
        turn = begin // SHARD % 8
        fuzz = Fuzz(networks[turn] if turn < len(networks) else random_stream(begin))
        for seed in range(begin, min(begin + SHARD, first + count)):
            try:
                case(fuzz, random.Random(seed))
            except BaseException as error:
                error.add_note(f"{case.__name__}, seed {seed}")
                raise
        ends += fuzz.ends
    return ends


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for case in (write_registers, mutate_words):
        ends = run_shards(case, count, first)
        print(f"{case.__name__}: {sum(ends.values())} runs, {dict(sorted(ends.items()))}")


if __name__ == "__main__":
    main()
