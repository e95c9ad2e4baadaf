"""What a region asks of a machine whatever the schedule: bytes that must move, and cycles that must be computed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from byoc.estimate.compute import Compute
from byoc.fusing import fuse
from byoc.graph import Value
from byoc.lowering import Lowered, value_bytes
from byoc.operators.layer import make_layer
from byoc.operators.operator import Operator
from isa.arch import Arch


@dataclass(frozen=True)
class Demand:
    """What no schedule, tiling or mapping of a region goes below.

    ``compute_cycles`` without fill and drain, in so many ``commands`` of EX. ``nbytes``: what is read of the inputs,
    the outputs, and the constants without gaps and look-up tables, each byte once; nothing of what lies between.
    ``constants`` of them are such.
    """

    compute_cycles: int
    commands: int
    nbytes: int
    constants: int

    @property
    def apart(self) -> tuple[int, int]:
        """Bytes of inputs and outputs, and of constants: they may lie in two memories."""
        return self.nbytes - self.constants, self.constants


def demand(operations: Iterable[Operator], stored: Iterable[str], moved: int, arch: Arch) -> Demand:
    """The demand of ``operations`` that store the values ``stored`` and move ``moved`` bytes of inputs and outputs."""
    original = tuple(operations)
    # What can be fused is, however small the scratchpad: a schedule that fuses less computes more.
    fused = fuse(original, tuple(stored), arch, lambda one: True)
    work = [Compute(make_layer(one, arch).geometry, arch).least() for one in fused if not one.slices()]
    constants = _constants(original, fused, arch)
    return Demand(
        compute_cycles=sum(item.cycles for item in work),
        commands=sum(item.commands for item in work),
        nbytes=moved + constants,
        constants=constants,
    )


def _constants(original: Iterable[Operator], fused: Iterable[Operator], arch: Arch) -> int:
    """Bytes of weights, channel records and constant operands.

    Tables that fusion has put together may be none at all in a schedule that fuses less.
    """
    kept = {id(operation) for operation in original}
    found: dict[Hashable, int] = {}
    for number, operation in enumerate(fused):
        if operation.slices() or (id(operation) not in kept and operation.tables is None):
            continue
        constants = operation.constants()
        if constants is not None:
            records = 0 if constants.bias is None else constants.bias.size * arch.channel_record_bytes
            weights = 0 if constants.weights is None else constants.weights.size
            found[number if constants.shared is None else (constants.shared,)] = records + weights
        for operand in operation.inputs:
            if operand.value in operation.constant_operands and operation.rows_read() is None:
                found[operand.value] = max(operand.nbytes, found.get(operand.value, 0))
    return sum(found.values())


def moved_bytes(lowered: Lowered, outputs: Iterable[Value]) -> int:
    """Bytes of inputs that some operation reads and of ``outputs``, each once."""
    # An output may be a slice of the buffer in which it lives, and live with others.
    moved = {
        buffer.name: np.zeros(buffer.nbytes, np.bool_) for buffer in lowered.buffers if buffer.role != "intermediate"
    }
    for value in outputs:
        place = lowered.places[value.name]
        moved[place.buffer][place.offset : place.offset + value_bytes(value)] = True
    read = {buffer.name: moved[buffer.name] for buffer in lowered.buffers if buffer.role == "input"}
    for operation in lowered.operations:
        rows = operation.rows_read()
        for operand in operation.inputs:
            place = lowered.place(operand)
            if place.buffer in read:
                slice_ = read[place.buffer][place.offset : place.offset + operand.nbytes]
                if rows is None:
                    slice_[:] = True
                else:
                    slice_.reshape(-1, rows.size, operand.nbytes // (operand.shape[0] * rows.size))[:, rows] = True
    return sum(int(np.count_nonzero(mask)) for mask in moved.values())
