"""Estimated bus slots of movements: strided copies and fills, gathers and copies."""

from collections.abc import Iterable

from byoc.estimate.bus import DEFAULT_BUS
from byoc.operators.operator import Operator
from byoc.operators.pieces import GAP, LONGEST_PADDED


def movement_slots(operations: Iterable[Operator]) -> int:
    """Return how many bus slots movements take to load and store each byte once.

    The bus is that of the default machine. Aliases take none.
    """
    return sum(_operation_slots(one) for one in operations if not one.slices)


def _operation_slots(operation: Operator) -> int:
    """Return how many bus slots a movement takes: for its runs, or for whole operands.

    A strided movement loads and stores runs; other movements load and store whole operands.
    """
    dims = operation.loops.dims
    if not dims:
        operands = *operation.inputs, operation.output
        return sum(DEFAULT_BUS.dense_slots(one.nbytes) for one in operands)
    stored = _run_slots([(dim.size, dim.target) for dim in dims], 0)
    return stored + _run_slots([(dim.size, abs(dim.source)) for dim in dims], GAP)


def _run_slots(loops: Iterable[tuple[int, int]], gap: int) -> int:
    """Return how many bus slots the contiguous runs of one side of a strided copy take.

    ``loops`` are its (steps, stride in bytes). A load includes the gaps of strides of at most
    ``gap`` bytes, and the padding of runs as :func:`byoc.operators.pieces.find_padded_runs` does;
    with a ``gap`` of 0 the side is a store, whose runs have no gaps.
    """
    run, rows = 1, 1
    for size, stride in sorted(loops, key=lambda loop: loop[1]):
        if size == 1 or not stride:
            continue
        if rows == 1 and stride <= run:
            run += (size - 1) * stride
        elif rows == 1 and gap and stride <= max(gap, min(2 * run, LONGEST_PADDED)):
            run = size * stride
        else:
            rows *= size
    return DEFAULT_BUS.rows_slots(rows, run, GAP)
