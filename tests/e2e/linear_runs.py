"""Data of a command stream under any order of completion that its queues and tokens allow.

Commands are carried out one at a time in random and in extreme topological orders, on scratchpads
with different contents at reset. Whatever a race or a read of unwritten bytes can change, some
order or some reset changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dla_sim.kernels.dispatch import Kernels
from isa.instruction import Machine
from isa.program import Program
from isa.sanitizer.findings import CommandStream

Outputs = tuple[bytes, ...]
Choose = Callable[[set[int]], int]


def orders(
    predecessors: Sequence[Sequence[int]], units: Sequence[int], seed: int, count: int
) -> Iterator[list[int]]:
    """Yield ``count`` orders in which every command follows those that it waits for.

    The seed selects and sorts them. Six of them always advance one unit as far as possible, in all
    orders of the units; the others are random.
    """
    rng = random.Random(seed)
    extreme: list[Choose] = [
        partial(_preferred, units, preference) for preference in permutations(range(3))
    ]
    drawn: list[Choose] = [lambda ready: rng.choice(sorted(ready))] * max(2, count - len(extreme))
    for choose in rng.sample([*extreme, *drawn], count):
        yield _order(predecessors, choose)


def _preferred(units: Sequence[int], preference: Sequence[int], ready: set[int]) -> int:
    return min(ready, key=lambda number: (preference[units[number]], number))


def _order(predecessors: Sequence[Sequence[int]], choose: Choose) -> list[int]:
    waiting = [len(givers) for givers in predecessors]
    takers: list[list[int]] = [[] for _ in predecessors]
    for number, givers in enumerate(predecessors):
        for giver in givers:
            takers[giver].append(number)
    ready = {number for number, count in enumerate(waiting) if not count}
    order: list[int] = []
    while ready:
        number = choose(ready)
        ready.remove(number)
        order.append(number)
        for taker in takers[number]:
            waiting[taker] -= 1
            if not waiting[taker]:
                ready.add(taker)
    return order


class Runner:
    """Carries out streams of one program on fixed inputs."""

    def __init__(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> None:
        self._program = program
        self._kernels = Kernels(program.arch)
        self._image = np.zeros(program.dram_bytes, dtype=np.uint8)
        for segment in program.segments:
            self._image[segment.address : segment.address + segment.data.size] = segment.data
        words = program.words.view(np.uint8)
        self._image[program.command_address : program.command_address + words.size] = words
        for tensor in program.inputs:
            data = np.ascontiguousarray(inputs[tensor.name]).view(np.uint8).reshape(-1)
            self._image[tensor.address : tensor.address + tensor.nbytes] = data

    def outputs(self, stream: CommandStream, order: Sequence[int], reset: int) -> Outputs:
        """The bytes of the outputs; ``reset`` is in every byte of the scratchpad at first.

        A command that the machine stops at (an overflow, an operand off its numpy view) ends the
        run: the outputs are then the one text that says so.
        """
        arch = self._program.arch
        machine = Machine(arch, np.full(arch.sram_bytes, reset, dtype=np.uint8), self._image.copy())
        with np.errstate(all="ignore"):  # a scale that is none overflows
            for number in order:
                try:
                    self._kernels.run(stream.commands[number], machine)
                except (OverflowError, ValueError, IndexError) as error:
                    return (type(error).__name__.encode(),)
        places = (
            (tensor.address, tensor.address + tensor.nbytes) for tensor in self._program.outputs
        )
        return tuple(machine.dram[low:high].tobytes() for low, high in places)
