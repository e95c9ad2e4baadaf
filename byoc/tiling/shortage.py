"""The message for an operation whose smallest working set does not fit, buffer by buffer."""

from __future__ import annotations

from byoc.layers.layer import Layer
from byoc.tiling.tiling import Tiling, streamed, working_set
from isa.arch import Arch


def shortage_message(layer: Layer, tiling: Tiling, arch: Arch) -> str | None:
    """None where ``tiling`` fits with everything streamed, else every buffer, their sum and the bytes missing."""
    needed = working_set(layer, tiling, streamed(layer), arch.alignment)
    if needed <= arch.sram_bytes:
        return None
    buffers = list(buffer_sizes(layer, tiling).items())
    padding = needed - sum(nbytes for _, nbytes in buffers)
    if padding:
        buffers.append(("alignment", padding))
    listed = " + ".join(f"{name} {nbytes}" for name, nbytes in buffers)
    missing = needed - arch.sram_bytes
    return f"does not fit in {arch.sram_bytes} bytes of SRAM: {listed} = {needed} bytes, {missing} missing"


def buffer_sizes(layer: Layer, tiling: Tiling) -> dict[str, int]:
    """Bytes of each tile buffer by a name that says what it holds."""
    nest, channels = layer.nest, tiling.channels
    unit = "column" if nest.matrix else "channel"
    many = "s" if channels > 1 else ""
    band = "" if tiling.rows == nest.rows else " rows"
    sizes = {}
    whole = "group" if nest.group_inputs > 1 else unit
    source = f"input {whole}{band}" if nest.grouped else f"input{band}"
    nbytes = layer.input_tile_bytes(channels, tiling.rows)
    for number in range(len(layer.operation.inputs)):
        sizes[source if number == 0 else f"second {source}"] = nbytes
    if not layer.in_place:
        kind = " (int32)" if layer.output_bytes == 4 else ""
        name = f"output {unit}{many}{kind}" if not band else f"output row{kind}"
        sizes[name] = layer.output_tile_bytes(channels, tiling.rows)
    if layer.weight_bytes:
        sizes["weights"] = channels * layer.weight_bytes
    if layer.record_bytes:
        sizes["channel record" + many] = channels * layer.record_bytes
    return sizes
