"""What an operation whose smallest working set does not fit lacks, buffer by buffer."""

from __future__ import annotations

from dataclasses import dataclass

from byoc.operators.operator import Geometry
from byoc.tiling.tiling import Tiling, streamed, working_set
from isa.arch import Arch


@dataclass(frozen=True)
class Shortage:
    """A working set that does not fit in ``capacity`` bytes: what it is made of, (name, bytes) each."""

    buffers: tuple[tuple[str, int], ...]
    capacity: int

    @property
    def needed(self) -> int:
        """Bytes of the working set."""
        return sum(nbytes for _, nbytes in self.buffers)

    @property
    def missing(self) -> int:
        """Bytes by which it does not fit."""
        return self.needed - self.capacity

    def __str__(self) -> str:
        """Every buffer, their sum and the bytes missing."""
        listed = " + ".join(f"{name} {nbytes}" for name, nbytes in self.buffers)
        return f"does not fit in {self.capacity} bytes of SRAM: {listed} = {self.needed} bytes, {self.missing} missing"


def find_shortage(geometry: Geometry, tiling: Tiling, arch: Arch) -> Shortage | None:
    """None where ``tiling`` fits with everything streamed."""
    needed = working_set(geometry, tiling, streamed(geometry), arch.alignment)
    if needed <= arch.sram_bytes:
        return None
    buffers = list(buffer_sizes(geometry, tiling).items())
    padding = needed - sum(nbytes for _, nbytes in buffers)
    if padding:
        buffers.append(("alignment", padding))
    return Shortage(tuple(buffers), arch.sram_bytes)


def buffer_sizes(geometry: Geometry, tiling: Tiling) -> dict[str, int]:
    """Bytes of each tile buffer by a name that says what it holds."""
    nest, channels = geometry.nest, tiling.channels
    unit = "column" if nest.matrix else "channel"
    many = "s" if channels > 1 else ""
    band = "" if tiling.rows == nest.rows else " rows"
    sizes = {}
    whole = "group" if nest.group_inputs > 1 else unit
    source = f"input {whole}{band}" if nest.grouped else f"input{band}"
    nbytes = geometry.input_tile_bytes(channels, tiling.rows)
    for number in range(geometry.inputs):
        sizes[source if number == 0 else f"second {source}"] = nbytes
    if not geometry.in_place:
        kind = " (int32)" if geometry.output_bytes == 4 else ""
        name = f"output {unit}{many}{kind}" if not band else f"output row{kind}"
        sizes[name] = geometry.output_tile_bytes(channels, tiling.rows)
    if geometry.weight_bytes:
        sizes["weights"] = channels * geometry.weight_bytes
    if geometry.record_bytes:
        sizes["channel record" + many] = channels * geometry.record_bytes
    return sizes
