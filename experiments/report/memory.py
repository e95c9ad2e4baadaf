"""Parts of a run report about memory: the scratchpad over time, and state between steps."""

from typing import Annotated, Literal

from pydantic import Field

from experiments.report.parts import LARGEST_COUNT, Count, Fraction, Part, Text

MOST_NAMED = 2
"""Maximum number of states that the line about steps names."""
MEMORY_BLOCKS = 500
"""Maximum number of blocks on the memory map."""


class MemoryBlock(Part):
    """Scratchpad bytes ``[address, address + bytes)`` that hold one tensor or tile for some time.

    A block is resident in the cycles ``[begin, end)``: from the start of its first write to the end
    of its last read. ``role`` says what the layer with the index ``layer`` in ``layers`` uses or
    computes. ``tile`` is the number of the first tile. Rows of a tensor can have other bytes
    between them.
    """

    layer: Annotated[int, Field(ge=-1, le=LARGEST_COUNT)]
    role: Literal["weights", "input", "result"]
    tile: Count
    address: Count
    bytes: Count
    begin: Count
    end: Count

    @property
    def byte_cycles(self) -> int:
        """Bytes times cycles."""
        return self.bytes * (self.end - self.begin)


class MemoryMap(Part):
    """Tensors and tiles in the scratchpad over the run, regions one after another.

    At most :data:`MEMORY_BLOCKS` blocks are listed, those with the most bytes times cycles.
    ``omitted`` counts the others. ``share`` is the share of all blocks' bytes times cycles that the
    listed ones have.
    """

    blocks: tuple[MemoryBlock, ...] = Field(max_length=MEMORY_BLOCKS)
    omitted: Count
    share: Fraction

    def check(self, cycles: int, top: int, layers: int) -> None:
        """Raise ValueError for a block outside of the run, the scratchpad or the layers."""
        for block in self.blocks:
            inside = block.begin < block.end <= cycles and 0 < block.bytes <= top - block.address
            if not inside or block.layer >= layers:
                raise ValueError(
                    f"{block!r} is not within the run's {cycles:,} cycles, {top:,} bytes and "
                    f"{layers:,} layers"
                )


class StateEntry(Part):
    """State of a network, which is ``input`` of a step and ``output`` of the step before.

    ``resident`` state stays in system memory from step to step. Other state is moved by the CPU,
    because the CPU computes or reads it, or because input and output have different layouts.
    """

    name: Text
    input: Text
    output: Text
    dtype: Text
    shape: tuple[Count, ...]
    nbytes: Count
    resident: bool


class StepsEntry(Part):
    """Steps of a network with state: ``count`` inferences, each with the state of the one before.

    Without ``--steps`` a run has one step.

    ``first_cycles`` and ``steady_cycles`` are the estimated cycles of the first and of each later
    step, with CPU and transfers; only the first step transfers the initial values of resident
    state. ``state_bytes`` are read and written in each step. ``real_time_factor`` is the time of a
    steady step divided by ``step_ms``, the time in which its input arrives.
    """

    count: int = Field(ge=1)
    first_cycles: Count
    steady_cycles: Count
    state: tuple[StateEntry, ...]
    state_bytes: Count
    place: Literal["system memory"] = "system memory"
    step_ms: Annotated[float, Field(gt=0)] | None = None
    real_time_factor: Annotated[float, Field(ge=0)] | None = None

    def message(self) -> str:
        """Return one line with the steps' cycles, the size of the state and the speed."""
        text = f"{self.count:,}: first ~{self.first_cycles:,} cycles"
        if self.count > 1:
            text += f", later ones ~{self.steady_cycles:,}"
        if self.real_time_factor is not None:
            text += f"; real-time factor {self.real_time_factor:.3g} at {self.step_ms:g} ms a step"
        text += f"; {self.state_bytes:,} bytes of state in {self.place}"
        moved = sum(one.nbytes for one in self.state if not one.resident)
        if moved:
            text += f", {moved:,} moved by the CPU"
        named = [f"{one.input} from {one.output}" for one in self.state[:MOST_NAMED]]
        more = len(self.state) - len(named)
        return f"{text}: {', '.join(named)}" + (f" and {more} more" if more else "")
