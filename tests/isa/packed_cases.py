"""Random commands on machines of words, with operands laid out by the sentences of docs/machine.md, section 12.

Nothing here asks ``isa.packing`` where a byte lies: this is the other side of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa import numerics
from isa.arch import Arch, PeArray
from isa.instruction import Command
from isa.ops.pooling import AVERAGE, GLOBAL_AVERAGE, MAX
from isa.ops.requant import ChannelScales, pack_records
from isa.variants import VARIANTS
from tests.golden_cases.operations import scale_registers
from tests.golden_cases.tensor_operations import Addition
from tests.isa.bench import command_of

Bytes = NDArray[np.uint8]
ARRAYS = ((8, 8, 1), (4, 16, 1), (16, 16, 1), (7, 13, 1), (1, 256, 1), (3, 5, 2), (16, 4, 4), (1, 1, 1))
ATOMS = (None, 8, 16, 32)
WORDS = (None, 32, 64, 256)
SRAM = 1 << 20
PIXELS = (1, 2, 4, 4)
"""Bytes of an atom of a picture of 1 to 4 channels."""


def machines(numerics: str) -> list[Arch]:
    """Every array with every atom and word that fit one another; wide words only where a block is some of them."""
    found = []
    for ic, oc, ow in ARRAYS:
        for atom in ATOMS:
            for word in WORDS:
                a = atom or max(8, 1 << (ic - 1).bit_length())
                small = (word or 32) <= 4 * ic * oc + 28
                if small and ic <= a and a * (1 << (ow - 1).bit_length()) <= (word or 1 << 30):
                    keys = {"isa": "v5", "atom": atom, "word_bytes": word, "numerics": numerics, "sram_bytes": SRAM}
                    found.append(Arch.model_validate({**keys, "pe": PeArray(ic=ic, oc=oc, ow=ow)}))
    return found


class Atoms(NamedTuple):
    """A tensor (channels, positions) in atoms; ``plane``: the register of the surface's bytes, if there is one.

    ``pixels``: channels of a picture, whose atoms do not depend on the machine; 0 for other tensors.
    """

    plane: str = ""
    pixels: int = 0

    def atom(self, machine: int) -> int:
        """Bytes of an atom, on a machine of atoms of so many."""
        return PIXELS[self.pixels - 1] if self.pixels else machine


class Weights(NamedTuple):
    """Weights (groups, outputs, inputs, rows, columns) in the order of their use with a ``mapping``."""

    mapping: int = 0


class Depthwise(NamedTuple):
    """Depthwise weights (channels, taps)."""


class Dense(NamedTuple):
    """Bytes as they are."""


How = Atoms | Weights | Depthwise | Dense
PLANES = Atoms("EX_OUTPUT_PLANE")


class Operand(NamedTuple):
    """``data`` as its layout is told, and ``plain`` in the order of a machine without words."""

    data: NDArray[Any]
    how: How = Dense()
    plain: NDArray[Any] | None = None

    @property
    def plainly(self) -> NDArray[Any]:
        """What a machine without words reads."""
        return self.data if self.plain is None else self.plain


@dataclass
class Drawn:
    """A command: registers and fields without addresses and planes, operands by register.

    ``result``: channels, positions and element type; ``how`` it lies, with ``rows`` plainly position by position.
    """

    mnemonic: str
    registers: dict[str, int]
    operands: dict[str, Operand]
    result: tuple[int, int, type[np.generic]]
    how: How = PLANES
    fields: dict[str, int] = field(default_factory=dict)
    rows: bool = False


def in_atoms(data: NDArray[Any], atom: int, surface: int) -> tuple[Bytes, NDArray[np.bool_]]:
    """(bytes, which of them hold an element).

    Channel ch of position p is at ⌊ch/A⌋ · surface + (p·A + ch mod A) · size.
    """
    channels, positions = data.shape
    size = data.dtype.itemsize
    total = (-(-channels // atom) - 1) * surface + positions * atom * size if data.size else 0
    found, held = np.zeros(total, np.uint8), np.zeros(total, np.bool_)
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(channels, positions, size)
    for channel in range(channels):
        for position in range(positions):
            at = channel // atom * surface + (position * atom + channel % atom) * size
            found[at : at + size], held[at : at + size] = raw[channel, position], True
    return found, held


def behind_last(shape: tuple[int, int], size: int, atom: int, surface: int) -> NDArray[np.int64]:
    """Where the zeros of a result lie: at the channels of the last atom that are not there."""
    channels, positions = shape
    if not channels or not positions:
        return np.zeros(0, np.int64)
    places = [
        channel // atom * surface + (position * atom + channel % atom) * size + byte
        for channel in range(channels, -(-channels // atom) * atom)
        for position in range(positions)
        for byte in range(size)
    ]
    return np.array(places, np.int64)


def in_blocks(weights: NDArray[np.int8], arch: Arch, mapping: int) -> Bytes:
    """Groups, as many as the array takes at once; output channels by b; input channels by a; rows, columns.

    Blocks [groups][outputs][inputs] of the same output channels follow one another; the first begins with a word.
    With ``mapping`` 1 and 2 rows come before blocks of (column, input), with 3 there are blocks of (row, column,
    input). With 2 and 3 groups stand beside one another whatever their inputs.
    """
    words, (ic, oc) = arch.words, (arch.pe.ic, arch.pe.oc)
    assert words is not None
    groups, outputs, inputs, rows, columns = weights.shape
    deep = inputs * columns if mapping == 1 else inputs
    together = 1 if words.atom % inputs else max(1, min(groups, ic // deep, oc // outputs))
    if mapping > 1:
        together = max(1, min(groups, oc // outputs))
    out = bytearray()
    for g in range(0, groups, together):
        for o in range(0, outputs, oc):
            some = weights[g : g + together, o : o + oc]
            blocks = []
            if mapping:
                lines = [
                    [some[:, :, i, row, column] for column in range(columns) for i in range(inputs)]
                    for row in range(rows)
                ]
                for line in lines if mapping < 3 else [[tap for row in lines for tap in row]]:
                    blocks += [line[first : first + ic] for first in range(0, len(line), ic)]
            else:
                for first in range(0, inputs, ic):
                    for row in range(rows):
                        for column in range(columns):
                            blocks.append([some[:, :, i, row, column] for i in range(first, min(first + ic, inputs))])
            for block in blocks:
                out += np.stack(block, axis=-1).tobytes()
            out += bytes(-len(out) % words.word)
    return np.frombuffer(bytes(out), np.uint8)


def atom_by_atom(weights: NDArray[np.int8], arch: Arch) -> Bytes:
    """Depthwise weights (channels, taps): atom by atom, in it tap by tap, without gaps."""
    assert arch.words is not None
    out = bytearray()
    for first in range(0, len(weights), arch.words.atom):
        out += weights[first : first + arch.words.atom].T.tobytes()
    return np.frombuffer(bytes(out), np.uint8)


def bytes_of(operand: Operand, arch: Arch) -> Bytes:
    """Those of an operand that is no tensor in atoms."""
    if isinstance(operand.how, Weights):
        return in_blocks(operand.data, arch, operand.how.mapping)
    if isinstance(operand.how, Depthwise):
        return atom_by_atom(operand.data, arch)
    return np.frombuffer(operand.data.tobytes(), np.uint8)


class Placed(NamedTuple):
    """A command with its operands in a scratchpad, and the scratchpad as it is to be once it is done.

    ``read`` and ``written`` are the bytes that it has to look at, and those that it may change.
    """

    command: Command
    before: Bytes
    after: Bytes
    read: tuple[NDArray[np.int64], ...]
    written: NDArray[np.int64]


ORDER = ("EX_INPUT_ADDRESS", "EX_OPERAND_ADDRESS", "EX_CHANNEL_ADDRESS", "EX_PARTIAL_ADDRESS", "EX_TABLE_ADDRESS")


def placed(drawn: Drawn, result: NDArray[Any], arch: Arch, rng: np.random.Generator) -> Placed:
    """The command on a machine of words, everything else in the scratchpad random; ``result`` (channels, positions)."""
    words = arch.words
    assert words is not None
    before = rng.integers(0, 256, SRAM, dtype=np.uint8)
    registers, at, read = dict(drawn.registers), words.word * int(rng.integers(0, 4)), []

    def surface(how: Atoms, positions: int, size: int) -> int:
        dense = positions * how.atom(words.atom) * size
        if not how.plane or rng.integers(2):
            return dense
        registers[how.plane] = dense + 8 * int(rng.integers(0, 20))
        return registers[how.plane]

    for name in (name for name in ORDER if name in drawn.operands):
        operand = drawn.operands[name]
        if isinstance(operand.how, Atoms):
            step = surface(operand.how, operand.data.shape[1], operand.data.dtype.itemsize)
            raw, held = in_atoms(operand.data, operand.how.atom(words.atom), step)
        else:
            raw = bytes_of(operand, arch)
            held = np.ones(raw.size, np.bool_)
        places = at + np.flatnonzero(held)
        before[places] = raw[held]
        registers[name] = at
        read.append(places)
        at = -(-(at + raw.size) // words.word) * words.word + words.word * int(rng.integers(0, 3))
    size = result.dtype.itemsize
    in_place = "EX_PARTIAL_ADDRESS" in registers and size == 4 and rng.integers(2)
    registers["EX_OUTPUT_ADDRESS"] = at = registers["EX_PARTIAL_ADDRESS"] if in_place else at
    after = before.copy()
    if isinstance(drawn.how, Atoms):
        step = result.shape[1] * words.atom * size if in_place else surface(drawn.how, result.shape[1], size)
        raw, held = in_atoms(result, words.atom, step)
        zeros = behind_last((result.shape[0], result.shape[1]), size, words.atom, step)
        after[at + np.flatnonzero(held)] = raw[held]
        after[at + zeros] = 0
        written = np.sort(np.concatenate([at + np.flatnonzero(held), at + zeros]))
    else:
        written = at + np.arange(result.nbytes)
        after[written] = np.frombuffer(result.tobytes(), np.uint8)
    assert int(written.max(initial=0)) < SRAM
    command = command_of(*VARIANTS["v5"].by_mnemonic[drawn.mnemonic], registers, drawn.fields)
    return Placed(command, before, after, tuple(read), written)


# Draws: one a family -------------------------------------------------------------------------------------------------


def _int8(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def _one(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def _records(rng: np.random.Generator, channels: int, terms: int, arch: Arch) -> Operand:
    scale = (rng.uniform(0.5, 1.5, channels) / (48.0 * np.sqrt(terms))).astype(np.float32)
    bias = rng.integers(-3000, 3001, channels, dtype=np.int32)
    return Operand(np.frombuffer(pack_records(bias, ChannelScales.of(scale), arch), np.uint8))


def _limits(rng: np.random.Generator) -> dict[str, int]:
    low, high = sorted(rng.integers(-128, 128, 2).tolist()) if rng.integers(4) == 0 else (-128, 127)
    return {"EX_CLAMP_LOW": low, "EX_CLAMP_HIGH": high, "EX_OUTPUT_ZERO_POINT": _one(rng, low, high)}


def _tables(rng: np.random.Generator, drawn: Drawn, channels: int) -> Drawn:
    """Half the time with a look-up as the last step: one table, or one a channel."""
    if rng.integers(2):
        drawn.fields["look_up"] = _one(rng, 1, 2)
        drawn.operands["EX_TABLE_ADDRESS"] = Operand(_int8(rng, channels if drawn.fields["look_up"] > 1 else 1, 256))
    return drawn


def _window(rng: np.random.Generator, channels: int, outputs: int, widest: int = 2) -> dict[str, int]:
    """Registers of a window: small planes, kernels, strides, dilations up to ``widest`` and padding."""
    registers = {"EX_INPUT_CHANNELS": channels, "EX_OUTPUT_CHANNELS": outputs}
    for side, pad in (("HEIGHT", "EX_PAD_TOP"), ("WIDTH", "EX_PAD_LEFT")):
        kernel, stride, dilation = _one(rng, 1, 3), _one(rng, 1, 2), _one(rng, 1, widest)
        reach = (kernel - 1) * dilation + 1
        before, behind = _one(rng, 0, reach - 1), _one(rng, 0, reach - 1)
        size = max(_one(rng, 1, 9), reach - before - behind, 1)
        sizes = {"KERNEL": kernel, "STRIDE": stride, "DILATION": dilation, "INPUT": size}
        registers |= {f"EX_{name}_{side}": value for name, value in sizes.items()}
        registers |= {f"EX_OUTPUT_{side}": (size + before + behind - reach) // stride + 1, pad: before}
    return registers


def _plane(registers: Mapping[str, int], name: str) -> int:
    return registers[f"EX_{name}_HEIGHT"] * registers[f"EX_{name}_WIDTH"]


def _partial(rng: np.random.Generator, drawn: Drawn, plainly: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    if rng.integers(2):
        sums = rng.integers(-40000, 40000, drawn.result[:2], dtype=np.int32)
        drawn.fields["accumulate"] = 1
        drawn.operands["EX_PARTIAL_ADDRESS"] = Operand(sums, Atoms(), plainly(sums))


def _convolution(rng: np.random.Generator, arch: Arch, grouped: bool) -> Drawn:
    words = arch.words
    assert words is not None
    groups = _one(rng, 1, 6) if grouped else 1
    inputs, outputs = (_one(rng, 1, 12), _one(rng, 1, 9)) if grouped else (_one(rng, 1, 40), _one(rng, 1, 40))
    if groups == 1 and rng.integers(3) == 0:
        inputs = _one(rng, 1, 4)
    registers = _window(rng, groups * inputs, groups * outputs)
    registers |= {"EX_GROUPS": groups} if grouped else {}
    registers |= {"EX_INPUT_ZERO_POINT": _one(rng, -20, 20), **_limits(rng)}
    mapping = _one(rng, 0, 3)
    kernel = registers["EX_KERNEL_HEIGHT"], registers["EX_KERNEL_WIDTH"]
    weights = _int8(rng, groups, outputs, inputs, *kernel)
    data, requantise = _int8(rng, groups * inputs, _plane(registers, "INPUT")), _one(rng, 0, 1)
    pixels = inputs * (mapping == 3 and groups == 1 and inputs <= 4)
    drawn = Drawn(
        "OP_GROUP_CONV" if grouped else "OP_CONV", registers,
        {
            "EX_INPUT_ADDRESS": Operand(data, Atoms("EX_INPUT_PLANE", pixels)),
            "EX_OPERAND_ADDRESS": Operand(weights, Weights(mapping)),
            "EX_CHANNEL_ADDRESS": _records(rng, groups * outputs, weights[0, 0].size, arch),
        },
        (groups * outputs, _plane(registers, "OUTPUT"), np.int8 if requantise else np.int32),
        fields={"requantise": requantise, "relu": _one(rng, 0, 1), "mapping": mapping},
    )  # fmt: skip
    if not grouped:
        _partial(rng, drawn, lambda sums: sums)
    return _tables(rng, drawn, groups * outputs) if requantise else drawn


def _depthwise(rng: np.random.Generator, arch: Arch) -> Drawn:
    channels = _one(rng, 1, 40)
    registers = _window(rng, channels, channels) | {"EX_INPUT_ZERO_POINT": _one(rng, -20, 20), **_limits(rng)}
    taps, requantise = _plane(registers, "KERNEL"), _one(rng, 0, 1)
    operands = {
        "EX_INPUT_ADDRESS": Operand(_int8(rng, channels, _plane(registers, "INPUT")), Atoms("EX_INPUT_PLANE")),
        "EX_OPERAND_ADDRESS": Operand(_int8(rng, channels, taps), Depthwise()),
        "EX_CHANNEL_ADDRESS": _records(rng, channels, taps, arch),
    }
    result = channels, _plane(registers, "OUTPUT"), np.int8 if requantise else np.int32
    fields = {"requantise": requantise, "relu": _one(rng, 0, 1)}
    drawn = Drawn("OP_DEPTH_CONV", registers, operands, result, fields=fields)
    return _tables(rng, drawn, channels) if requantise else drawn


def _matrices(rng: np.random.Generator, arch: Arch) -> Drawn:
    rows, inputs, outputs = _one(rng, 1, 20), _one(rng, 1, 60), _one(rng, 1, 60)
    left, right, requantise = _int8(rng, rows, inputs), _int8(rng, inputs, outputs), _one(rng, 0, 1)
    registers = {"EX_ROWS": rows, "EX_INPUT_CHANNELS": inputs, "EX_OUTPUT_CHANNELS": outputs, **_limits(rng)}
    drawn = Drawn(
        "OP_MAT_MUL", registers,
        {
            "EX_INPUT_ADDRESS": Operand(left.T, Atoms(), left),
            "EX_OPERAND_ADDRESS": Operand(right.T.reshape(1, outputs, inputs, 1, 1), Weights(), right),
            "EX_CHANNEL_ADDRESS": _records(rng, outputs, inputs, arch),
        },
        (outputs, rows, np.int8 if requantise else np.int32), Atoms(),
        {"requantise": requantise, "relu": _one(rng, 0, 1)}, rows=True,
    )  # fmt: skip
    _partial(rng, drawn, lambda sums: sums.T)
    return _tables(rng, drawn, outputs) if requantise else drawn


def _pooling(rng: np.random.Generator, arch: Arch) -> Drawn:
    channels, mode = _one(rng, 1, 40), int(rng.choice([MAX, AVERAGE, GLOBAL_AVERAGE]))
    registers, scales = _window(rng, channels, channels, 1 if mode == AVERAGE else 2), (0.05, 0.04)
    if mode == GLOBAL_AVERAGE:
        for side in ("HEIGHT", "WIDTH"):
            registers |= {f"EX_KERNEL_{side}": registers[f"EX_INPUT_{side}"], f"EX_OUTPUT_{side}": 1}
            registers |= {f"EX_STRIDE_{side}": 1, f"EX_DILATION_{side}": 1}
        registers |= {"EX_PAD_TOP": 0, "EX_PAD_LEFT": 0}
    if arch.numerics == "fixed":
        registers |= scale_registers(arch, A=scales[0] / scales[1])
    elif mode == GLOBAL_AVERAGE:
        registers |= scale_registers(arch, A=scales[0] / (scales[1] * _plane(registers, "KERNEL")))
    else:
        registers |= scale_registers(arch, A=scales[0], Y=scales[1])
    registers |= {"EX_INPUT_ZERO_POINT": _one(rng, -20, 20), **_limits(rng)}
    registers["EX_OFFSET"] = 128 if arch.numerics == "onnxruntime" and rng.integers(2) else 0
    data = Operand(_int8(rng, channels, _plane(registers, "INPUT")), Atoms("EX_INPUT_PLANE"))
    fields = {"mode": mode, "count_include_pad": _one(rng, 0, 1)}
    result = channels, _plane(registers, "OUTPUT"), np.int8
    drawn = Drawn("OP_POOL", registers, {"EX_INPUT_ADDRESS": data}, result, fields=fields)
    return _tables(rng, drawn, channels)


def _scales(rng: np.random.Generator, arch: Arch) -> dict[str, int]:
    return Addition(scales=(0.05, 0.03, 0.07), zeros=(_one(rng, -9, 9), _one(rng, -9, 9), _one(rng, -9, 9))).constants(
        arch
    )


def _alike(mnemonic: str, operands: int) -> Callable[[np.random.Generator, Arch], Drawn]:
    """Dense bytes, whatever they are."""

    def draw(rng: np.random.Generator, arch: Arch) -> Drawn:
        length, names = _one(rng, 1, 700), ORDER[:operands]
        registers = {"EX_LENGTH": length, "EX_CLAMP_LOW": -100, "EX_CLAMP_HIGH": 90}
        registers |= {} if mnemonic.startswith("OP_C_M") else _scales(rng, arch)
        if operands == 1:
            scales = {"A": 0.7, "B": 0.2} if arch.numerics == "fixed" else {"A": 0.05, "B": 0.2, "Y": 0.07}
            registers |= scale_registers(arch, **scales)
        reads = {name: Operand(_int8(rng, length)) for name in names}
        drawn = Drawn(mnemonic, registers, reads, (1, length, np.int8), Dense())
        fields = {one.name for one in VARIANTS["v5"].by_mnemonic[mnemonic][0].fields}
        return _tables(rng, drawn, 1) if "look_up" in fields else drawn

    return draw


def _pair(mnemonic: str) -> Callable[[np.random.Generator, Arch], Drawn]:
    """Two tensors of which either may repeat."""

    def draw(rng: np.random.Generator, arch: Arch) -> Drawn:
        channels, length = _one(rng, 1, 40), _one(rng, 1, 50)
        registers = {"EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length, **_limits(rng), **_scales(rng, arch)}
        if mnemonic == "OP_E_MUL" or (mnemonic in ("OP_E_SUB", "OP_E_DIV") and arch.numerics == "onnxruntime"):
            registers |= scale_registers(arch, A=0.021, B=0.03, Y=0.07)
        if mnemonic == "OP_E_DIV" and arch.numerics == "fixed":
            registers |= scale_registers(arch, A=0.05 / 0.03 / 0.07 / (1 << 20))
        fields, reads = {"repeat_a": _one(rng, 0, 3), "repeat_b": _one(rng, 0, 3)}, {}
        for name, repeat in zip(ORDER, fields.values(), strict=False):
            shape = 1 if repeat & 2 else channels, 1 if repeat & 1 else length
            reads[name] = Operand(_int8(rng, *shape), Atoms())
        known = {one.name for one in VARIANTS["v5"].by_mnemonic[mnemonic][0].fields}
        fields |= {name: _one(rng, 0, 1) for name in ("maximum",) if name in known}
        if mnemonic == "OP_E_SUB" and rng.integers(2):
            fields["squared"] = 1
            if arch.numerics == "fixed":
                fixed = numerics.squared_difference_constants(0.05, 0.03, 0.07)
                registers |= {f"EX_SCALE_{one}": getattr(fixed, f"multiplier_{one.lower()}") for one in "ABY"}
                registers |= {f"EX_SHIFT_{one}": getattr(fixed, f"shift_{one.lower()}") for one in "ABY"}
        drawn = Drawn(mnemonic, registers, reads, (channels, length, np.int8), Atoms(), fields)
        return _tables(rng, drawn, channels) if "look_up" in known else drawn

    return draw


def _look_up(rng: np.random.Generator, arch: Arch) -> Drawn:
    channels = _one(rng, 1, 1 if rng.integers(3) == 0 else 40)
    rows, length = _one(rng, 1, 4) if channels == 1 else 1, _one(rng, 1, 60)
    registers = {"EX_ROWS": rows, "EX_OUTPUT_CHANNELS": channels, "EX_LENGTH": length}
    how = Dense() if channels == 1 else Atoms()
    reads = {
        "EX_INPUT_ADDRESS": Operand(_int8(rng, channels, rows * length), how),
        "EX_OPERAND_ADDRESS": Operand(_int8(rng, channels, 256)),
    }
    return Drawn("OP_LUT", registers, reads, (channels, rows * length, np.int8), how)


def _of_two(rng: np.random.Generator, arch: Arch) -> Drawn:
    """A product of two tensors, each as the matrix that it is: its columns are channels, its rows positions."""
    rows, inputs, outputs = _one(rng, 1, 20), _one(rng, 1, 60), _one(rng, 1, 60)
    transposed, requantise = _one(rng, 0, 1), _one(rng, 0, 1)
    left = _int8(rng, rows, inputs)
    right = _int8(rng, *((outputs, inputs) if transposed else (inputs, outputs)))
    registers = {"EX_ROWS": rows, "EX_INPUT_CHANNELS": inputs, "EX_OUTPUT_CHANNELS": outputs, **_limits(rng)}
    registers |= {f"EX_{name}_ZERO_POINT": _one(rng, -20, 20) for name in ("INPUT", "OPERAND")}
    registers |= scale_registers(arch, A=0.01 / np.sqrt(inputs))
    drawn = Drawn(
        "OP_DYN_MAT_MUL", registers,
        {
            "EX_INPUT_ADDRESS": Operand(left.T, Atoms(), left),
            "EX_OPERAND_ADDRESS": Operand(right.T, Atoms(), right),
        },
        (outputs, rows, np.int8 if requantise else np.int32), Atoms(),
        {"requantise": requantise, "transposed": transposed}, rows=True,
    )  # fmt: skip
    return _tables(rng, drawn, outputs) if requantise else drawn


def _zeros(rng: np.random.Generator) -> dict[str, int]:
    return {f"EX_{side}_ZERO_POINT": _one(rng, -9, 9) for side in ("INPUT", "OUTPUT")}


def _elements_of_rows(rng: np.random.Generator) -> tuple[dict[str, int], Operand]:
    """A tensor (channels, positions) and its registers: plainly its rows lie dense, or its channels are planes."""
    channels, positions, dense = _one(rng, 1, 40), _one(rng, 1, 30), bool(rng.integers(2))
    data = _int8(rng, channels, positions)
    shape = {"EX_ROWS": positions if dense else 1, "EX_LENGTH": 1 if dense else positions}
    operand = Operand(data, Atoms("EX_INPUT_PLANE"), data.T if dense else data)
    return {**shape, "EX_INPUT_CHANNELS": channels}, operand


def _reduction(rng: np.random.Generator, arch: Arch) -> Drawn:
    shape, operand = _elements_of_rows(rng)
    fixed, positions = arch.numerics == "fixed", operand.data.shape[1]
    scales = scale_registers(arch, A=0.3) if fixed else scale_registers(arch, A=0.3, Y=0.7)
    reads, result = {"EX_INPUT_ADDRESS": operand}, (1, positions, np.int8)
    registers = {**shape, **_limits(rng), **scales, "EX_INPUT_ZERO_POINT": _one(rng, -20, 20)}
    return Drawn("OP_REDUCE", registers, reads, result, Dense(), {"mode": _one(rng, 0, 2)})


def _softmax(rng: np.random.Generator, arch: Arch) -> Drawn:
    shape, operand = _elements_of_rows(rng)
    fixed, table = arch.numerics == "fixed", np.exp(np.arange(-255, 1) / 20)
    registers = shape | ({"EX_SCALE_Y": 1 << 20} if fixed else scale_registers(arch, Y=256.0))
    numbers = (table * (2**31 - 1)).astype("<u4") if fixed else table.astype("<f4")
    reads = {"EX_INPUT_ADDRESS": operand, "EX_OPERAND_ADDRESS": Operand(numbers)}
    result = (*operand.data.shape, np.int8)
    registers["EX_OUTPUT_ZERO_POINT"] = -128
    return Drawn("OP_SOFTMAX", registers, reads, result, PLANES, rows=shape["EX_LENGTH"] == 1)


def _normalisation(rng: np.random.Generator, arch: Arch) -> Drawn:
    """A row is a position, whatever EX_LENGTH says: that many elements of it have a gain and a bias in common."""
    rows, channels, length = _one(rng, 1, 20), _one(rng, 1, 12), int(rng.choice([1, 1, 2, 5, 9]))
    fixed, fields = arch.numerics == "fixed", {"centred": _one(rng, 0, 1), "by_row": _one(rng, 0, 1)}
    data = _int8(rng, rows, channels * length)
    pairs = rng.uniform(-2, 2, 2 * channels * (rows if fields["by_row"] else 1)) * np.sqrt(channels * length)
    numbers = (pairs * (1 << 15)).astype("<i4") if fixed else (30 * pairs).astype("<f4")
    registers = {"EX_ROWS": rows, "EX_INPUT_CHANNELS": channels, "EX_LENGTH": length, **_zeros(rng)}
    registers |= {"EX_SCALE_A": 5} if fixed else scale_registers(arch, A=0.5)
    reads = {"EX_INPUT_ADDRESS": Operand(data.T, Atoms(), data), "EX_OPERAND_ADDRESS": Operand(numbers)}
    result = channels * length, rows, np.int8
    return Drawn("OP_NORM", registers, reads, result, Atoms(), fields, rows=True)


DRAWS: Mapping[str, Callable[[np.random.Generator, Arch], Drawn]] = {
    "OP_CONV": lambda rng, arch: _convolution(rng, arch, grouped=False),
    "OP_GROUP_CONV": lambda rng, arch: _convolution(rng, arch, grouped=True),
    "OP_DEPTH_CONV": _depthwise,
    "OP_MAT_MUL": _matrices,
    "OP_POOL": _pooling,
    **{name: _alike(name, 1) for name in ("OP_ACT_RELU", "OP_ACT_LRELU", "OP_E_ABS")},
    **{name: _alike(name, 2) for name in ("OP_E_ADD", "OP_C_MIN", "OP_C_MAX")},
    **{name: _pair(name) for name in ("OP_E_MUL", "OP_E_SUB", "OP_E_DIV", "OP_B_ADD", "OP_B_MIN")},
    "OP_LUT": _look_up,
    "OP_DYN_MAT_MUL": _of_two,
    "OP_REDUCE": _reduction,
    "OP_SOFTMAX": _softmax,
    "OP_NORM": _normalisation,
}
"""How a random command of each instruction is drawn whose operands are packed."""


# Bytes where they lie ------------------------------------------------------------------------------------------------


def _strided(rng: np.random.Generator) -> tuple[dict[str, int], dict[str, int]]:
    """A copy of four dimensions: no two results at one byte, and none on a source."""
    registers, extent = {"EX_INPUT_ZERO_POINT": _one(rng, -128, 127)}, 1
    for number in rng.permutation(4) + 1:
        count = _one(rng, 1, 6)
        registers[f"EX_COUNT_{number}"] = count
        registers[f"EX_OUTPUT_STRIDE_{number}"] = extent + int(rng.choice([0, 0, 1, 8, 40]))
        registers[f"EX_INPUT_STRIDE_{number}"] = int(rng.choice([0, 1, 2, 8, 32, 100]))
        extent += (count - 1) * registers[f"EX_OUTPUT_STRIDE_{number}"]
    return registers, {"fill": _one(rng, 0, 1)}


def bytes_where_they_lie(rng: np.random.Generator) -> tuple[Command, Bytes]:
    """A random OP_PERMUTE, whose operands are bytes, and a scratchpad of random ones for it."""
    sram = rng.integers(0, 256, 1 << 17, dtype=np.uint8)
    at = {"EX_INPUT_ADDRESS": _one(rng, 0, 999), "EX_OUTPUT_ADDRESS": _one(rng, 30000, 30999)}
    registers, fields = _strided(rng)
    return command_of(*VARIANTS["v5"].by_mnemonic["OP_PERMUTE"], registers | at, fields), sram
