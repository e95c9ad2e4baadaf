"""Labels: the kind, layer, work and traffic of each command, from instruction and provenance. Independent of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isa.errors import InputError
from isa.instruction import KINDS, Command, Operands
from isa.program import Provenance

DMA, ISSUE = KINDS.index("DMA"), KINDS.index("ISSUE")


@dataclass(frozen=True, eq=False)
class Labels:
    """int64 arrays, one entry a command, and what belongs to each layer, in order of first appearance.

    ``kind`` indexes :data:`KINDS`, ``layer`` indexes ``layers``; ``read`` and ``write`` are bytes of system memory
    moved by LD and ST (all bytes of all rows; command fetch is not in them).
    """

    kind: NDArray[np.int64]
    layer: NDArray[np.int64]
    macs: NDArray[np.int64]
    read: NDArray[np.int64]
    write: NDArray[np.int64]
    layers: tuple[str, ...]
    onnx_nodes: tuple[tuple[str, ...], ...]
    tiles: tuple[int, ...]


def label(commands: Sequence[Command], operands: Sequence[Operands], sources: Sequence[Provenance | None]) -> Labels:
    """The labels of ``commands`` (without ``OP_END``). Words that no provenance covers belong to the layer ``""``.

    The kind is the provenance's where there is one (so an emulated depthwise convolution counts as DEPTH), except that
    DMA and SYNC keep their own. Raises InputError for a kind that does not exist.
    """
    layers: dict[str, dict[str, None]] = {}
    tiles: dict[str, set[int]] = {}
    rows, position = [], dict[str, int]()
    for command, item, source in zip(commands, operands, sources, strict=True):
        name = source.layer if source is not None else ""
        if name not in position:
            position[name], layers[name], tiles[name] = len(position), {}, set()
        if source is not None:
            layers[name].update(dict.fromkeys(source.onnx_nodes))
            if _computes(command):
                tiles[name].add(source.tile)
        read = sum([access.total for access in item.reads if access.space == "dram"])
        write = sum([access.total for access in item.writes if access.space == "dram"])
        rows.append((_kind(command, source), position[name], command.instruction.macs(command), read, write))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Labels(
        kind=columns[0],
        layer=columns[1],
        macs=columns[2],
        read=columns[3],
        write=columns[4],
        layers=tuple(layers),
        onnx_nodes=tuple(tuple(names) for names in layers.values()),
        tiles=tuple(len(found) for found in tiles.values()),
    )


def _computes(command: Command) -> bool:
    return command.instruction.kind not in ("DMA", "ISSUE")


def _kind(command: Command, source: Provenance | None) -> int:
    own = command.instruction.kind
    kind = source.kind if source is not None and source.kind and _computes(command) else own
    if kind not in KINDS:
        raise InputError(
            f"word {command.index}: provenance kind '{kind}' does not exist; choose one of {', '.join(KINDS)}",
            words=(command.index,),
        )
    return KINDS.index(kind)
