"""A package outside the project adds ``OP_E_MEAN`` in one file.

All effects of a declaration follow from it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dla_sim import Device
from experiments.cli.main import main
from isa import numerics, plugins
from isa.arch import Arch
from isa.assembler import assemble, disassemble
from isa.documentation import markdown
from isa.encoding import decode
from isa.headers import c_header, verilog_header
from isa.instruction import Machine
from isa.plugins import get_built_in_table, variant
from isa.program_file import from_bytes, to_bytes
from isa.variants import VARIANTS
from tests.isa.bench import command_of
from tests.plugins.installation import installed, source_of, write_distribution

BITS = numerics.float32_bits
LENGTH = 96


@pytest.fixture
def e_mean(tmp_path: Path) -> Iterator[None]:
    """The package ``dla-e-mean``, installed."""
    modules = {"dla_e_mean": source_of("dla_e_mean")}
    write_distribution(
        tmp_path, "dla-e-mean", modules, {"dla.isa": {"e-mean": "dla_e_mean:EXTENSION"}}
    )
    with installed(tmp_path):
        yield


def assembly(isa: str) -> str:
    return f"""\
.program "a minus b"
.arch {{"isa":"{isa}"}}
.memory 4096 commands 1024
.tensor ["a","input","int8",[{LENGTH}],0]
.tensor ["b","input","int8",[{LENGTH}],128]
.tensor ["y","output","int8",[{LENGTH}],256]
    SET LD_BYTES, {128 + LENGTH}
OP_DMA_READ push.EX
    SET EX_OPERAND_ADDRESS, 128
    SET EX_OUTPUT_ADDRESS, 256
    SET EX_LENGTH, {LENGTH}
    SET EX_SCALE_A, {BITS(0.02):#010x}
    SET EX_SCALE_B, {BITS(0.03):#010x}
    SET EX_SCALE_Y, {BITS(0.04):#010x}
    SET EX_INPUT_ZERO_POINT, 3
    SET EX_OPERAND_ZERO_POINT, -7
    SET EX_OUTPUT_ZERO_POINT, 11
OP_E_MEAN pop.LD push.ST
    SET ST_DRAM_ADDRESS, 256
    SET ST_SRAM_ADDRESS, 256
    SET ST_BYTES, {LENGTH}
OP_DMA_WRITE pop.EX
OP_END
"""


def expected(a: NDArray[np.int8], b: NDArray[np.int8]) -> NDArray[np.int8]:
    """ONNX Runtime's Mean between DequantizeLinear and QuantizeLinear."""
    constants = []
    nodes = []
    for name, scale, zero in (("a", 0.02, 3), ("b", 0.03, -7), ("y", 0.04, 11)):
        constants.append(numpy_helper.from_array(np.float32(scale), f"{name}s"))
        constants.append(numpy_helper.from_array(np.array(zero, np.int8), f"{name}z"))
    for name in "ab":
        nodes.append(
            helper.make_node("DequantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}f"])
        )
    nodes.append(helper.make_node("Mean", ["af", "bf"], ["yf"]))
    nodes.append(helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.INT8, [a.size]) for name in "aby"]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    result: NDArray[np.int8] = session.run(None, {"a": a, "b": b})[0]
    return result


@pytest.mark.usefixtures("e_mean")
@pytest.mark.parametrize("isa", ["v2-mean", "v1+OP_E_MEAN"])
def test_the_device_executes_it_and_text_and_binary_round_trip(isa: str) -> None:
    program = assemble(assembly(isa))
    assert "OP_E_MEAN pop.LD push.ST" in disassemble(program)
    assert to_bytes(assemble(disassemble(program))) == to_bytes(program)
    assert to_bytes(from_bytes(to_bytes(program), "x")) == to_bytes(program)
    command = program.commands[1]
    assert (command.instruction.mnemonic, command["EX_OPERAND_ZERO_POINT"]) == ("OP_E_MEAN", -7)
    rng = np.random.default_rng(3)
    a, b = rng.integers(-128, 128, (2, LENGTH), dtype=np.int8)
    run = Device(Arch(isa=isa)).run(program, {"a": a, "b": b})
    np.testing.assert_array_equal(run.outputs["y"], expected(a, b))
    assert command.instruction.cycles(command, program.arch) == 2  # ⌈96 / 64⌉


@pytest.mark.usefixtures("e_mean")
def test_semantics_equal_onnx_runtime_on_every_pair_of_values() -> None:
    every = np.arange(-128, 128, dtype=np.int8)
    a = np.repeat(every, 256)
    b = np.tile(every, 256)
    instruction, implied = variant("v2-mean").by_mnemonic["OP_E_MEAN"]
    registers = {"EX_OPERAND_ADDRESS": 1 << 16, "EX_OUTPUT_ADDRESS": 1 << 17, "EX_LENGTH": 1 << 16}
    registers |= {
        f"EX_SCALE_{name}": BITS(value)
        for name, value in zip("ABY", (0.02, 0.03, 0.04), strict=True)
    }
    registers |= {"EX_INPUT_ZERO_POINT": 3, "EX_OPERAND_ZERO_POINT": -7, "EX_OUTPUT_ZERO_POINT": 11}
    memory = np.concatenate([a, b, np.zeros(1 << 16, np.int8)]).view(np.uint8)
    instruction.semantics(
        command_of(instruction, implied, registers), Machine(Arch(), memory, memory[:0])
    )
    np.testing.assert_array_equal(memory[1 << 17 :].view(np.int8), expected(a, b))


@pytest.mark.usefixtures("e_mean")
def test_documentation_and_headers_include_it_and_the_built_in_ones_do_not() -> None:
    table = plugins.load_installed_table()
    assert [item.name for item in table.variants] == ["v1", "v2", "v2-mean", "v3", "v4", "v5"]
    assert "| added by | package dla-e-mean 1.0 (entry point e-mean) |" in markdown(table)
    assert "Result: y = clip(rint(((a - INPUT_ZERO_POINT)" in markdown(table)
    assert "#define DLA_OP_E_MEAN 0x80u" in c_header(table)
    assert "#define DLA_ISA_V2_MEAN_HAS_OP_E_MEAN 1" in c_header(table)
    assert "`define DLA_OP_E_MEAN 8'h80" in verilog_header(table)
    for text in (
        markdown(get_built_in_table()),
        c_header(get_built_in_table()),
        verilog_header(get_built_in_table()),
    ):
        assert "E_MEAN" not in text


@pytest.mark.usefixtures("e_mean")
def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["isa"]) == 0
    shown = capsys.readouterr().out
    assert "package dla-e-mean 1.0 (entry point e-mean)" in shown
    assert "v2-mean: v2 and OP_E_MEAN" in shown
    assert main(["isa", "--built-in"]) == 0
    assert "OP_E_MEAN" not in capsys.readouterr().out


def test_without_the_package_its_variant_is_unknown(
    e_mean: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert variant("v2-mean").mnemonics == VARIANTS["v2"].mnemonics | {"OP_E_MEAN"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", sys.path[1:])
        plugins.load_installed_table.cache_clear()
        assert main(["run", "digits-cnn", "--isa", "v2-mean"]) == 2
    expected_line = (
        "error: unknown ISA variant 'v2-mean'; choose one of v1, v2, v3, v4, v5 or install the "
        "package that adds it\n"
    )
    assert capsys.readouterr().err == expected_line


def test_nothing_is_looked_at_before_a_variant_of_a_package_is_wanted() -> None:
    code = """
import isa.assembler, isa.program_file
from isa.plugins import load_installed_table, variant
assert [variant(name).name for name in ("v1", "v2", "v3")] == ["v1", "v2", "v3"]
assert load_installed_table.cache_info().misses == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.usefixtures("e_mean")
def test_what_is_in_no_variant_is_refused() -> None:
    words = assemble(assembly("v2-mean")).words
    with pytest.raises(ValueError, match=r"opcode 0x80 is not in ISA v2"):
        decode(words, variant("v2"))
