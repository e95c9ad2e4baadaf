"""A weight-stationary systolic array with one buffer and one memory, in closed form.

Use it with ``--machine examples/systolic_array.py``. Cycles of a product: A. Samajdar et al.,
"SCALE-Sim: Systolic CNN Accelerator Simulator", arXiv:1811.02883, equation 3.
"""

from math import prod

from experiments.machines.description import (
    CyclePart,
    LayerWork,
    MachineDescription,
    MachineMemory,
    MachineOperation,
    MachineParameters,
    MachineUnit,
    OperationLimit,
)
from isa.arch import declare_key

SCALE_SIM = "SCALE-Sim, arXiv:1811.02883, equation 3"


class Parameters(MachineParameters):
    """Sizes of the array, its buffer and its memory."""

    clock_hz: int = declare_key(200_000_000, "Hz", "clock", "clock of all units", 1, 10**10)
    rows: int = declare_key(16, "elements", "array rows", "products summed per column", 1, 4096)
    columns: int = declare_key(16, "elements", "array columns", "outputs in parallel", 1, 4096)
    buffer_bytes: int = declare_key(65536, "bytes", "buffer", "activations of a layer", 1, 1 << 32)
    memory_bytes: int = declare_key(8, "bytes/cycle", "memory rate", "rate of the memory", 1, 4096)


def check_buffer(work: LayerWork, machine: Parameters) -> str | None:
    """Return the reason if input and output do not fit the buffer together."""
    needed = sum(map(prod, (*work.inputs, work.output)))
    if needed <= machine.buffer_bytes:
        return None
    return f"activations of {needed:,} bytes exceed the buffer of {machine.buffer_bytes:,}"


def check_groups(work: LayerWork, machine: Parameters) -> str | None:
    """Return the reason if the convolution is grouped."""
    return None if work.groups == 1 else f"{work.groups} groups; the array sums over all channels"


def count_product(work: LayerWork, machine: Parameters) -> list[CyclePart]:
    """Return the cycles of a convolution or matrix product, and of loading its weights."""
    outputs = work.output[-1] if work.op_types[0] == "MatMul" else work.output[0]
    positions = prod(work.output) // outputs
    depth = work.macs // prod(work.output)
    folds = -(-depth // machine.rows) * -(-outputs // machine.columns)
    cycles = (2 * machine.rows + machine.columns + positions - 2) * folds
    return [
        CyclePart("compute", "array", cycles),
        CyclePart("weights", "memory", -(-work.weight_bytes // machine.memory_bytes)),
    ]


def count_elements(work: LayerWork, machine: Parameters) -> list[CyclePart]:
    """Return the cycles of an element-wise operation or pool: one element per column and cycle."""
    elements = sum(map(prod, work.inputs))
    return [CyclePart("compute", "array", -(-elements // machine.columns))]


BUFFER = OperationLimit("buffer", "input and output of a layer fit the buffer", check_buffer)
GROUPS = OperationLimit("one_group", "a convolution has one group", check_groups)

MACHINE = MachineDescription(
    name="systolic-array",
    summary="weight-stationary systolic array of 16 x 16, as in SCALE-Sim",
    kind="closed form",
    parameters=Parameters,
    units=(
        MachineUnit("array", "rows x columns multiply-accumulates"),
        MachineUnit("memory", "loads weights while the array computes"),
    ),
    memories=(
        MachineMemory("buffer", "buffer_bytes"),
        MachineMemory("memory", rate="memory_bytes", unit="memory"),
    ),
    operations=(
        MachineOperation(
            "product", (("Conv",), ("MatMul",)), (BUFFER, GROUPS), count_product, source=SCALE_SIM
        ),
        MachineOperation("add", (("Add",),), (BUFFER,), count_elements, source="assumption"),
        MachineOperation(
            "pool",
            (("MaxPool",), ("AveragePool",), ("GlobalAveragePool",)),
            (BUFFER,),
            count_elements,
            source="assumption",
        ),
        MachineOperation("reshape", (("Flatten",), ("Reshape",)), (), lambda work, machine: []),
    ),
    transfer_memory="memory",
    overlaps=(("array", "memory"),),
    peak_macs=lambda machine: machine.rows * machine.columns,
    layouts=("The buffer stores channels first, without padding.",),
    quantisation=("int8 activations and weights, int32 sums, as the integer model.",),
    sources=(SCALE_SIM,),
)
