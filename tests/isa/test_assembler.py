"""Assembly text and binary files: exact round trips, readable goldens, and errors with the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.arch import Arch
from isa.assembler import assemble, disassemble
from isa.encoding import encode_operation, encode_set
from isa.errors import InputError
from isa.instruction import Unit
from isa.ops import ALL
from isa.plugins import variant
from isa.program import Program, Provenance, Segment, Tensor
from isa.program_file import from_bytes, load, save, to_bytes
from isa.variants import VARIANTS

GOLDEN = """\
.program "add one row"
.arch {"alignment":8,"isa":"v2","numerics":"onnxruntime","pe":{"ic":8,"oc":8,"ow":1},\
"post_lanes":null,"row_alignment":1,"sram_banks":16,"sram_bytes":524288}
.memory 4096 commands 1024
.tensor ["a","input","int8",[64],0]
.tensor ["b","output","int8",[64],64]
.image 0x100
.data AAECAw==
.source [4,"layer 1","DMA","load",0,["node"]]
    SET LD_BYTES, 64
    SET LD_SRAM_ADDRESS, 0x00000040
    SET EX_CLAMP_LOW, -5
OP_DMA_READ push.EX
    SET EX_SCALE_A, 0x3f800000
OP_CONV_RELU pop.LD push.ST
OP_CONV requantise=1 push.LD
OP_SYNC unit=ST pop.EX
OP_POOL mode=2 pop.ST
OP_END
"""


def test_assembly_golden_round_trips() -> None:
    program = assemble(GOLDEN)
    assert disassemble(program) == GOLDEN
    assert to_bytes(assemble(disassemble(program))) == to_bytes(program)
    assert disassemble(from_bytes(to_bytes(program), "x")) == GOLDEN
    assert program.sources[0] == Provenance(0, 4, "layer 1", "DMA", "load", 0, ("node",))
    assert program.sources[1] is None


@st.composite
def programs(draw: st.DrawFn) -> Program:
    words = []
    isa = variant(draw(st.sampled_from(sorted(VARIANTS))))
    operations = [item for item in isa.by_opcode.values() if item.mnemonic != "OP_END"]
    for _ in range(draw(st.integers(0, 20))):
        if draw(st.booleans()):
            register = draw(st.sampled_from(isa.register_file.registers))
            value = draw(st.integers(register.minimum, register.maximum))
            words.append(encode_set(register.name, value, isa.register_file))
            continue
        instruction = draw(st.sampled_from(operations))
        values = {
            f.name: draw(st.integers(f.minimum, f.highest))
            for f in instruction.layout
            if f.constant is None
        }
        unit = instruction.unit or Unit(min(values.setdefault("unit", 1), 2))
        if instruction.unit is None:
            values["unit"] = unit.value
        for name in {"LD": ("pop_previous", "push_previous"), "ST": ("pop_next", "push_next")}.get(
            unit.name, ()
        ):
            values[name] = 0
        words.append(encode_operation(instruction, values))
    words.append(encode_operation(ALL["OP_END"], {}))
    data = np.frombuffer(draw(st.binary(max_size=300)), dtype=np.uint8)
    name = draw(st.text(max_size=8))
    tensors = (Tensor(name, "input", "int8", (2, 3), 0), Tensor("out", "output", "int32", (2,), 8))
    source = (Provenance(0, len(words), name, "CONV", "op", draw(st.integers(0, 9)), (name,)),)
    return Program(
        name,
        Arch(isa=isa.name),
        np.array(words, np.uint64),
        tensors,
        (Segment(64, data),),
        source,
        4096,
        512,
    )


@settings(max_examples=60, deadline=None)
@given(programs())
def test_any_program_round_trips_as_text_and_binary(program: Program) -> None:
    text = disassemble(program)
    binary = to_bytes(program)
    assert to_bytes(assemble(text)) == binary
    assert disassemble(from_bytes(binary, "x")) == text
    assert len(program.commands) >= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("OP_NOTHING", "assembly line 1: OP_NOTHING is not an instruction of ISA v2"),
        ("SET EX_SPEED, 3", "assembly line 1: SET: unknown register 'EX_SPEED'"),
        ("SET EX_LENGTH, many", "assembly line 1: cannot read 'SET EX_LENGTH, many'"),
        (
            "\nSET EX_KERNEL_WIDTH, 256",
            "assembly line 2: SET: EX_KERNEL_WIDTH = 256 does not fit its unsigned register of 8 "
            "bits (0 to 255)",
        ),
        ("OP_DMA_READ pop.ST", "assembly line 1: 'pop.ST' is not a token flag of unit LD"),
        (".colour 3", "assembly line 1: unknown directive '.colour'"),
        (
            '.arch {"isa":"v1"}\nOP_DEPTH_CONV',
            "assembly line 2: OP_DEPTH_CONV is not an instruction of ISA v1",
        ),
        (
            '.memory 64 commands 0\n.tensor ["a","input","int8",[65],0]\nOP_END',
            "assembly: tensor 'a' at 0x0 with 65 bytes lies outside the 64 bytes of memory",
        ),
    ],
)
def test_bad_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        assemble(text)
    assert str(caught.value) == message


def test_files_are_whole_or_refused(tmp_path: Path) -> None:
    program = assemble(GOLDEN)
    path = tmp_path / "p.dlaprog"
    save(program, path)
    assert to_bytes(load(path)) == to_bytes(program)
    content = path.read_bytes()
    for cut in (0, 5, 20, len(content) - 1):
        with pytest.raises(InputError, match=r"not a DLA program|truncated or corrupted"):
            from_bytes(content[:cut], "p")
    for position in range(8, len(content), 37):
        broken = bytearray(content)
        broken[position] ^= 0x10
        with pytest.raises(
            InputError,
            match=r"p: the program is truncated or corrupted \(its CRC-32 does not match\)",
        ):
            from_bytes(bytes(broken), "p")
    with pytest.raises(InputError, match="nowhere: no such file"):
        load(Path("nowhere"))
