"""Bundles on the host: outputs and cycles of the C code equal those of ``dla run``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from experiments.cli.main import main
from tests.byoc.bare_metal.images import MACHINES, build_bundle, build_image, run_command
from tests.byoc.bare_metal.served import Served
from tests.byoc.bare_metal.whole_networks import run_network
from tests.rotation import choose_cases


def export(folder: Path, *words: str) -> Path:
    """Export a network into ``folder``."""
    assert main(["export", "--bare-metal", *words, "-o", str(folder), "--quiet"]) == 0
    return folder


def test_two_networks_in_one_bundle_give_the_simulators_bits(tmp_path: Path) -> None:
    export(tmp_path, "digits-cnn")
    export(tmp_path, "keyword-spotting")
    found = Served().run_library(build_bundle(tmp_path))
    assert found.status == 0, found.text
    assert found.text.count("equal") == 2


def test_a_bundle_for_another_machine_faults(tmp_path: Path) -> None:
    export(tmp_path, "digits-cnn")
    found = Served({"settings": {"pe.oc": 4}}).run_library(build_bundle(tmp_path))
    assert found.status == 1
    assert "the program is for another machine; compile it again" in found.text


def test_a_wrong_size_faults(tmp_path: Path) -> None:
    export(tmp_path, "digits-cnn")
    found = Served(corrupt={0x048: 64}).run_library(build_bundle(tmp_path))
    assert found.status == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", choose_cases(["autoencoder", "resnet-8", "visual-wake-words"], 3))
def test_whole_networks_on_all_processors(name: str) -> None:
    assert run_network(name, ["host", *MACHINES])


@pytest.mark.slow
@pytest.mark.parametrize("name", choose_cases(["digits-cnn", "autoencoder"], 2))
def test_small_networks_on_the_hardware(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLA_NO_CACHE")  # other tests build the same hardware
    array = {"pe.ic": 2, "pe.oc": 2, "post_lanes": 4}
    assert run_network(name, ["host"], "rtl", **array)


def test_refusal_names_the_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "--bare-metal", "digits-cnn", "--cpu", "pool", "-o", str(tmp_path)]
    assert main(words) == 2
    assert "node 'pool' (MaxPool) runs on the CPU and cannot be exported: C has no function" in (
        capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_arena_too_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "--bare-metal", "digits-cnn", "--arena", "100", "-o", str(tmp_path)]
    assert main(words) == 2
    assert "the arena needs 320 bytes, more than the 100 of --arena" in capsys.readouterr().err


@pytest.mark.parametrize("compiler", ["gcc -std=c99", "g++ -std=c++11"])
def test_firmware_includes_all_headers(compiler: str, tmp_path: Path) -> None:
    export(tmp_path / "made", "digits-cnn")
    headers = sorted(path.name for path in (tmp_path / "made").glob("*.h"))
    assert {"dla_driver.h", "dla_network.h", "network_digits_cnn.h"} < set(headers)
    source = tmp_path / ("firmware.cpp" if "g++" in compiler else "firmware.c")
    lines = [f'#include "{name}"' for name in headers]
    call = "dla_quantize(dla_arena, DLA_INT8, 0, 0, 0, 0, 1, 1, DLA_DIVIDE)"
    lines += ["#include <string.h>", f"int main(void) {{ {call}; return 0; }}"]
    source.write_text("\n".join([*lines, ""]))
    run_command(["make", "-s", "-C", tmp_path / "made", "CC=gcc"])
    library = tmp_path / "made" / "libdla_networks.a"
    options = ["-Wall", "-Wextra", "-Werror", "-I", tmp_path / "made", source, library]
    run_command([*compiler.split(), *options, "-o", tmp_path / "firmware"])
    run_command([tmp_path / "firmware"])


@pytest.mark.skipif(shutil.which("cmake") is None, reason="the Debian package cmake is missing")
def test_cmake_builds_and_runs_the_check(tmp_path: Path) -> None:
    export(tmp_path / "made", "digits-cnn")
    device = f"-DDEVICE={sys.executable};-m;experiments.rtl.device"
    run_command(["cmake", "-S", tmp_path / "made", "-B", tmp_path / "build", device])
    text = run_command(["cmake", "--build", tmp_path / "build", "--target", "check"])
    assert "digits-cnn, sample 0: equal, cycles 1930\n" in text


def test_networks_with_the_same_c_name_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(tmp_path, "digits-cnn", "--no-samples", "--name", "a-b")
    words = ["export", "--bare-metal", "digits-cnn", "-o", str(tmp_path), "--name", "A_b"]
    assert main(words) == 2
    assert "networks 'a-b' and 'A_b'" in capsys.readouterr().err
    export(tmp_path, "digits-cnn", "--no-samples", "--name", "a-b")
    assert len(list(tmp_path.glob("network_*.c"))) == 1
    assert Served().run_library(build_bundle(tmp_path)).status == 0


def test_a_bundle_has_one_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(tmp_path, "digits-cnn", "--no-samples")
    words = ["export", "--bare-metal", "digits-cnn", "-o", str(tmp_path), "--set", "pe.oc=4"]
    assert main([*words, "--name", "other"]) == 2
    assert f"{tmp_path} has 'digits-cnn' for the machine of" in capsys.readouterr().err
    assert not (tmp_path / "network_other.c").exists()


def test_a_file_of_the_user_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "network_app.c").write_bytes(b"/* caf\xe9 */\nint network_app;\n")
    export(tmp_path, "digits-cnn", "--no-samples")
    assert "network_app" not in (tmp_path / "networks.c").read_text()
    assert Served().run_library(build_bundle(tmp_path)).status == 0


def test_check_starts_the_machine_of_the_bundle(tmp_path: Path) -> None:
    export(tmp_path, "digits-cnn", "--set", "pe.oc=4", "--set", "dram_latency=9")
    device = f"DEVICE={sys.executable} -m experiments.rtl.device"
    text = run_command(["make", "-s", "-C", tmp_path, "check", "CC=gcc", device])
    assert "digits-cnn, sample 0: equal" in text


def test_other_options_compile_all_objects_again(tmp_path: Path) -> None:
    export(tmp_path, "digits-cnn", "--no-samples")
    made = [
        run_command(["make", "-C", tmp_path, "CC=gcc", f"CFLAGS={options}"]).count(" -c ")
        for options in ("-O0", "-O0", "-O1")
    ]
    assert made == [4, 0, 4]


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    export(tmp_path, "digits-cnn", "--no-samples")
    words = ["make", "-s", "-C", str(tmp_path), "CC=no-such-cc -m4"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no compiler 'no-such-cc'; install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_input_without_samples_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "--bare-metal", "digits-cnn", "--no-samples", "-o", str(tmp_path)]
    assert main([*words, "--input", "x.npy"]) == 2
    assert "--no-samples records no input" in capsys.readouterr().err


def test_nine_dimensions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    weights = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "nine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] * 8 + [8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(np.array([1, 8]), "shape"), numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "nine.onnx")
    words = ["export", "--bare-metal", str(tmp_path / "nine.onnx"), "-o", str(tmp_path / "made")]
    assert main(words) == 2
    assert "tensor 'x' has 9 dimensions" in capsys.readouterr().err


@pytest.mark.parametrize("machine", MACHINES)
def test_a_microcontroller_gives_the_simulators_bits(tmp_path: Path, machine: str) -> None:
    export(tmp_path, "digits-cnn")
    found = Served().run_image(machine, build_image(machine, tmp_path, "-DDLA_PRINT=0x40001000u"))
    assert found.text == "digits-cnn, sample 0: equal, cycles 1930\n"
    assert found.status == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_a_microcontroller_sleeps_until_the_interrupt(tmp_path: Path, machine: str) -> None:
    export(tmp_path, "digits-cnn")
    flags = ("-DDLA_PRINT=0x40001000u", "-DDLA_INTERRUPT=11")
    found = Served().run_image(machine, build_image(machine, tmp_path, *flags), interrupts=True)
    assert found.text == "digits-cnn, sample 0: equal, cycles 1930\n"
    assert (found.status, found.waits) == (0, 1)
