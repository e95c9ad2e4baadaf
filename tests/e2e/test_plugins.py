"""Plug-in packages of two files: their operators quantise, run natively and equal ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dla
import isa.ops.convolution as shipped
from byoc.frontend.onnx.rewriting.reasons import support_rows
from byoc.importing import import_model
from byoc.operators.registry import get_built_in_families, load_installed_families, markdown
from byoc.package.package import load_package, save_package
from experiments.cli.main import main
from experiments.systems.split import SplitReport
from isa.arch import Arch
from isa.errors import InputError
from tests.e2e.harness import Comparison, compare
from tests.plugins import installation

FEED = {"x": np.random.default_rng(1).standard_normal((1, 8, 9, 9)).astype(np.float32)}


@pytest.fixture
def averaging(tmp_path: Path) -> Iterator[None]:
    """The package ``dla-e-mean``: an instruction in one file, its pattern in another."""
    modules = {name: installation.source_of(name) for name in ("dla_e_mean", "dla_e_mean_operator")}
    entry_points = {
        "dla.isa": {"e-mean": "dla_e_mean:EXTENSION"},
        "dla.operators": {"averaging": "dla_e_mean_operator:Averaging"},
    }
    installation.write_distribution(tmp_path, "dla-e-mean", modules, entry_points)
    with installation.installed(tmp_path):
        yield


@pytest.fixture
def their_convolution(tmp_path: Path) -> Iterator[None]:
    """Install a package with a grouped convolution of its own.

    It is the file that the project ships, under other names.
    """
    assert shipped.__file__ is not None
    text = Path(shipped.__file__).read_text(encoding="utf-8")
    for ours, theirs in (
        ("GROUP_CONV", "THEIR_CONV"),
        ("EX_GROUPS", "EX_THEIRS"),
        ("0x24", "0x84"),
        ("0x42", "0x84"),
    ):
        text = text.replace(ours, theirs)
    text += (
        "from isa.plugins import Extension\nfrom isa.variants import VARIANTS, extend\n"
        "EXTENSION = Extension(variants=(extend(VARIANTS['v2'], 'theirs', 'grouped', "
        "OP_THEIR_CONV),))\n"
    )
    modules = {"theirs": text, "theirs_operator": installation.source_of("dla_their_conv_operator")}
    entry_points = {
        "dla.isa": {"theirs": "theirs:EXTENSION"},
        "dla.operators": {"theirs": "theirs_operator:TheirConvolution"},
    }
    installation.write_distribution(tmp_path, "theirs", modules, entry_points)
    with installation.installed(tmp_path):
        yield


def network(group: int = 1, *, average: bool = False) -> onnx.ModelProto:
    """Return a network of two convolutions, the second with ``group`` groups, and a shortcut.

    The shortcut adds or averages the first result and the second.
    """
    draw = np.random.default_rng(0).standard_normal
    weights = {"w1": draw((8, 8, 3, 3)) / 8, "w2": draw((8, 8 // group, 3, 3)) / 8}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second", pads=[1] * 4, group=group),
        helper.make_node("Mean" if average else "Add", ["b", "c"], ["y"], "mean"),
    ]
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 9, 9)) for name in "xy"]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def simulated(
    model: onnx.ModelProto, isa: str, schedule: str = "default", sram: int = 1 << 16
) -> Comparison:
    package = import_model(model, "net", calibration=[FEED])
    return compare(package, FEED, Arch(isa=isa, sram_bytes=sram), schedule)


def mnemonics(found: Comparison) -> set[str]:
    return {
        command.instruction.mnemonic
        for p in found.network.programs.values()
        for command in p.commands
    }


@pytest.mark.usefixtures("averaging")
@pytest.mark.parametrize("schedule", ["seed", "default"])
@pytest.mark.parametrize("isa", ["v1+OP_E_MEAN", "v2-mean"])
@pytest.mark.parametrize("sram", [1 << 11, 1 << 16])
def test_a_mean_runs_natively_and_exactly(isa: str, schedule: str, sram: int) -> None:
    found = simulated(network(average=True), isa, schedule, sram)
    places = {place.op_type: place.on for place in found.partition.placement}
    assert places["Mean"] == "dla"
    assert "OP_E_MEAN" in mnemonics(found)
    assert found.mismatches == 0


def every_pair(dtype: str, *shape: int) -> onnx.ModelProto:
    """A quantised mean of two inputs, of 256 by 256 elements unless of another shape."""
    constants = []
    for name, scale, zero in (("a", 0.02, 3), ("b", 0.03, 97), ("y", 0.04, 11)):
        constants.append(numpy_helper.from_array(np.float32(scale), f"{name}s"))
        constants.append(numpy_helper.from_array(np.array(zero, dtype), f"{name}z"))
    nodes = [
        helper.make_node("DequantizeLinear", [n, f"{n}s", f"{n}z"], [f"{n}f"], f"{n}d")
        for n in "ab"
    ]
    nodes.append(helper.make_node("Mean", ["af", "bf"], ["yf"], "mean"))
    nodes.append(helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"], "q"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = [helper.make_tensor_value_info(name, kind, shape or (256, 256)) for name in "aby"]
    graph = helper.make_graph(nodes, "pairs", values[:2], values[2:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.usefixtures("averaging")
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_every_pair_of_values_is_exact(dtype: str) -> None:
    every = np.arange(256).astype(dtype)
    feed = {"a": np.repeat(every[:, None], 256, axis=1), "b": np.repeat(every[None], 256, axis=0)}
    found = compare(import_model(every_pair(dtype), "pairs"), feed, Arch(isa="v2-mean"))
    assert (found.mismatches, found.elements) == (0, 1 << 16)
    assert mnemonics(found) >= {"OP_E_MEAN"}


@pytest.mark.usefixtures("averaging")
def test_on_a_machine_without_the_instruction_the_cpu_averages_and_the_reason_says_so() -> None:
    found = simulated(network(average=True), "v2")
    reasons = {place.op_type: place.reason for place in found.partition.placement}
    assert reasons["Mean"] == "OP_E_MEAN is not in ISA v2; choose an ISA that has it (dla isa)"
    assert found.mismatches == 0


@pytest.mark.usefixtures("averaging")
def test_constraints_of_the_pattern_speak_to_the_user() -> None:
    package = import_model(network(average=True), "net", calibration=[FEED])
    from byoc.compiler import partition_package

    found = partition_package(package, Arch(isa="v2-mean", numerics="fixed"))
    reasons = {place.op_type: place.reason for place in found.placement}
    assert (
        reasons["Mean"]
        == "the machine's numerics are fixed; OP_E_MEAN computes in float32: choose numerics "
        "onnxruntime"
    )


@pytest.mark.usefixtures("averaging")
def test_a_mean_of_three_is_none_of_two() -> None:
    model = network(average=True)
    model.graph.node[-1].input.append("a")
    found = simulated(model, "v2-mean")
    reasons = {place.op_type: place.reason for place in found.partition.placement}
    assert reasons["Mean"] is not None
    assert reasons["Mean"].endswith("; the mean is of two tensors of one shape")
    assert found.mismatches == 0


def test_without_the_package_a_mean_stays_in_float() -> None:
    found = simulated(network(average=True), "v2")
    assert "Mean is not supported on the accelerator" in {
        place.reason for place in found.partition.placement
    }
    assert found.mismatches == 0


def test_a_package_file_made_with_the_plugin_runs_without_it(
    averaging: None, tmp_path: Path
) -> None:
    save_package(
        import_model(network(average=True), "net", calibration=[FEED]), tmp_path / "net.dla"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byoc.partitioning.partition.load_installed_families", get_built_in_families)
        found = compare(load_package(tmp_path / "net.dla"), FEED, Arch())
    assert {place.reason for place in found.partition.placement if place.op_type == "Mean"} == {
        "Mean is not supported on the accelerator"
    }
    assert found.mismatches == 0


DIVIDED = """
    traits = Traits(flat=True)

    @classmethod
    def divide(cls, graph, node, along):
        if along == "rows":
            return "its author divides channels only"
        return Sharding(1, graph.values[node.outputs[0]].shape[1], (1, 1))
"""
"""What says how a family that inherits from none of the project's is divided."""


def test_a_family_of_a_package_that_is_none_of_ours_is_divided_as_it_says(tmp_path: Path) -> None:
    source = installation.source_of("dla_e_mean_operator").replace(
        "(ElementwiseOperator):", "(Operator):"
    )
    imports = (
        "from byoc.operators.operator import Operator\n"
        "from byoc.operators.records import Traits\n"
        "from byoc.operators.sharding import Sharding\n"
    )
    source = source.replace(
        "from byoc.operators.records import", f"{imports}from byoc.operators.records import"
    )
    for name, end in (("undivided", ""), ("divided", DIVIDED)):
        folder = tmp_path / name
        folder.mkdir()
        modules = {"dla_e_mean": installation.source_of("dla_e_mean"), "dla_mean": source + end}
        entry_points = {
            "dla.isa": {"e": "dla_e_mean:EXTENSION"},
            "dla.operators": {"a": "dla_mean:Averaging"},
        }
        installation.write_distribution(folder, "dla-mean", modules, entry_points)
        with installation.installed(folder):
            found = {way: split_mean(way) for way in ("channels", "rows")}
        divided = {
            way: part
            for way, report in found.items()
            for part in report.parts
            if "mean" in part.nodes
        }
        assert [report.mismatches for report in found.values()] == [0, 0]
        assert divided["channels"].whole == (
            None if end else "Mean: its channels are not independent"
        )
        assert len(divided["channels"].cycles) == (2 if end else 1)
        reason = "its author divides channels only" if end else "its rows depend on all rows"
        assert divided["rows"].whole == f"Mean: {reason}"


def split_mean(way: str) -> SplitReport:
    """A mean on two accelerators that have the instruction."""
    accelerator = {"name": "npu", "count": 2, "settings": {"isa": "v2-mean"}}
    return dla.split(every_pair("int8", 1, 8, 8, 8), {"accelerator": [accelerator]}, way)


@pytest.mark.usefixtures("their_convolution")
@pytest.mark.parametrize("schedule", ["seed", "default"])
@pytest.mark.parametrize("sram", [1 << 11, 1 << 16])
def test_a_grouped_convolution_of_another_package_runs_natively_and_exactly(
    schedule: str, sram: int
) -> None:
    found = simulated(network(group=4), "theirs", schedule, sram)
    assert {place.on for place in found.partition.placement if place.op_type == "Conv"} == {"dla"}
    assert "OP_THEIR_CONV" in mnemonics(found)
    assert "OP_THEIR_CONV" not in mnemonics(simulated(network(group=4), "v3", schedule, sram))
    assert found.mismatches == 0


@pytest.mark.usefixtures("averaging")
def test_the_support_table_shows_the_family_and_its_owner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "Added by package dla-e-mean 1.0 (entry point averaging)." in markdown(
        support_rows(load_installed_families())
    )
    assert "Needs `OP_E_MEAN`." in markdown(support_rows(load_installed_families()))
    assert main(["support"]) == 0
    assert "package dla-e-mean 1.0 (entry point averaging)" in capsys.readouterr().out
    assert main(["support", "--format", "markdown", "--built-in"]) == 0
    assert capsys.readouterr().out == markdown(support_rows())


OWNER = "package dla-other 1.0 (entry point other)"
REFUSED = [
    (
        "class Plus(Add): pass",
        f"{OWNER}: operator family add is taken by the project; choose another name or uninstall "
        "one of the two",
    ),
    (
        "class Plus(Add): family = 'plus'",
        f"{OWNER}: operator family plus takes operator Add from add of the project; "
        "name the instructions that it needs",
    ),
    (
        "Plus = [Add]",
        f"{OWNER} gives an object of type list; it must be a subclass of "
        "byoc.operators.operator.Operator",
    ),
    (
        "class Plus: pass",
        f"{OWNER} gives the class Plus; it must be a subclass of byoc.operators.operator.Operator "
        "that names its family",
    ),
    (
        "class Plus(Add):\n    family = 'plus'\n    instructions = ('OP_E_ADD',)\n    def "
        "atributes(): return {}",
        f"{OWNER}: Plus.atributes is never called; name it attributes, or otherwise",
    ),
    (
        "from byoc.operators.forms import Form\n"
        "class Plus(Add):\n    family = 'plus'\n    instructions = ('OP_E_ADD',)\n    forms = "
        "(Form('Prelu'),)",
        f"{OWNER}: no ONNX operator is called Prelu; write PRelu",
    ),
    (
        "from byoc.operators.forms import Form\n"
        "class Plus(Add):\n    family = 'plus'\n    instructions = ('OP_E_ADD',)\n    forms = "
        "(Form('Sofmax'),)",
        f"{OWNER}: no ONNX operator is called Sofmax; write Softmax",
    ),
    (
        "class Plus(Add):\n    family = 'plus'\n    instructions = ('OP_E_ADD',)\n    speeds = 3",
        f"{OWNER}: Plus.speeds is never used: it is no hook of the compiler; did you mean slices? "
        "remove it, or name it _speeds",
    ),
    (
        "Plus = 1 / 0",
        f"{OWNER} cannot be loaded: ZeroDivisionError: division by zero; fix or uninstall it",
    ),
]


@pytest.mark.parametrize(("statement", "message"), REFUSED)
def test_an_operator_that_does_not_fit_in_is_refused(
    statement: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"from byoc.operators.arithmetic import Add\n{statement}\n"
    entry_points = {"dla.operators": {"other": "dla_other:Plus"}}
    installation.write_distribution(tmp_path, "dla-other", {"dla_other": text}, entry_points)
    with installation.installed(tmp_path):
        assert main(["partition", "digits-cnn"]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"


def test_an_error_that_a_package_causes_is_said_to_be_its(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "from byoc.operators.activation import Activation\nfrom byoc.operators.forms import Form\n"
    )
    text += (
        "class Plus(Activation):\n    family = 'plus'\n    forms = (Form('Tan'),)\n    inner_types "
        "= ()\n"
    )
    text += "    functions = {'Tan': 'tangent'}\n"
    entry_points = {"dla.operators": {"other": "dla_other:Plus"}}
    installation.write_distribution(tmp_path, "dla-other", {"dla_other": text}, entry_points)
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 6))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 6, 6))
    graph = helper.make_graph(
        [helper.make_node("Tan", ["x"], ["y"], "tan")], "tan", [shape], [result]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "t.onnx",
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with installation.installed(tmp_path):
        assert main(["run", str(tmp_path / "t.onnx"), "--json", str(tmp_path / "t.json")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(
        f"error: {OWNER}: Plus.mnemonic ends with KeyError: 'tangent'; its traceback is in "
    )
    assert line.endswith(": correct the package, or uninstall it")


WRONG = [
    ("def settings(self, arch): return Settings({'EX_SPEED': 1}, {})", "EX_SPEED"),
    ("def settings(self, arch): return Settings({}, {'speed': 1})", "field speed"),
    (
        "tile_registers = classmethod(lambda cls, geometry, tile: {'EX_ROWS': "
        "tile.output.rows.size})",
        "EX_ROWS",
    ),
]


def adding(tmp_path: Path, *lines: str) -> Path:
    """A package of another addition on ``OP_E_ADD``, with these lines in its class."""
    text = (
        "from byoc.operators.arithmetic import Add\nfrom byoc.operators.operator import Settings\n"
    )
    text += "class Plus(Add):\n    family = 'plus'\n    instructions = ('OP_E_ADD',)\n"
    text += "".join(f"    {line}\n" for line in lines)
    entry_points = {"dla.operators": {"other": "dla_other:Plus"}}
    installation.write_distribution(tmp_path, "dla-other", {"dla_other": text}, entry_points)
    return tmp_path


@pytest.mark.parametrize(("line", "missing"), WRONG)
def test_settings_that_the_instruction_lacks_are_refused(
    line: str, missing: str, tmp_path: Path
) -> None:
    message = f"layer 'mean': OP_E_ADD does not have {missing}; correct the operator Plus"
    with (
        installation.installed(adding(tmp_path, line)),
        pytest.raises(InputError, match=f"^{message}$"),
    ):
        simulated(network(), "v1")


def test_a_cycle_formula_that_reads_a_number_of_the_layer_is_an_error_not_a_wrong_estimate(
    tmp_path: Path,
) -> None:
    line = "numbers = Add.numbers | {'EX_LENGTH'}"
    length = "tile_registers = classmethod(lambda cls, geometry, tile: {})"
    message = (
        "the cycle formula of OP_E_ADD reads EX_LENGTH, which is among the numbers of operator "
        "Plus; take it off there"
    )
    with (
        installation.installed(adding(tmp_path, line, length)),
        pytest.raises(InputError, match=f"^{message}$"),
    ):
        simulated(network(), "v1")
