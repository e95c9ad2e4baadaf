"""Programs and packages on the command line: emit, disasm, asm, and simulate.

Simulations read tensors or memory images.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from byoc.host.runtime import from_device, region_inputs
from experiments.running.inference import Inference, infer
from experiments.running.network import load_network, network_feeds
from isa import program_file
from tests.experiments.command_line import dla, save_tiny

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]


def test_program_round_trips_through_text(capsys: Capture) -> None:
    assert dla(capsys, "emit", save_tiny(Path()), "-o", "tiny.prog").status == 0
    assert dla(capsys, "disasm", "tiny.prog", "-o", "tiny.s").status == 0
    assert dla(capsys, "asm", "tiny.s", "-o", "again.prog").status == 0
    assert Path("again.prog").read_bytes() == Path("tiny.prog").read_bytes()
    shown = dla(capsys, "disasm", "tiny.prog")
    assert shown.out == Path("tiny.s").read_text()
    assert "OP_CONV" in shown.out


def test_program_computes_what_the_network_does_from_tensors_and_from_images(
    capsys: Capture,
) -> None:
    model = save_tiny(Path())
    assert dla(capsys, "emit", model, "-o", "tiny.prog").status == 0
    program = program_file.load(Path("tiny.prog"))
    done = _infer(model)
    values = done.result.values
    (source,) = program.inputs
    (result,) = program.outputs
    stored = region_inputs(program, values)[source.name]
    np.save("input.npy", stored)
    Path("input.bin").write_bytes(stored.tobytes())
    ran = dla(
        capsys,
        "simulate",
        "tiny.prog",
        "--tensor",
        f"{source.name}=input.npy",
        "-o",
        "a.npz",
        "--json",
        "a.json",
    )
    assert ran.status == 0
    assert " cycles, 6,912 MACs" in ran.out
    image = f"{source.address:#x}=input.bin"
    assert (
        dla(
            capsys, "simulate", "tiny.prog", "--image", image, "-o", "b.npz", "--json", "b.json"
        ).status
        == 0
    )
    with np.load("a.npz") as first, np.load("b.npz") as second:
        assert first.files == second.files == [result.name]
        value = done.compiled.graph.values[result.name]
        made = from_device(first[result.name], value, program.arch)
        np.testing.assert_array_equal(made, values[result.name])
        np.testing.assert_array_equal(second[result.name], first[result.name])
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert json.loads(Path("a.json").read_text())["totals"]["macs"] == 6912


def _infer(model: Path) -> Inference:
    """Run one inference on the recommended machine."""
    from dla_sim.presets import load_hardware

    network = load_network(str(model))
    return infer(network, load_hardware(), network_feeds(network))


def test_a_memory_mode_is_one_machine_for_every_command(capsys: Capture) -> None:
    """The program of a network, its package and the network itself take as long.

    Compared runs say what differs.
    """
    model = save_tiny(Path())
    mode = ("--memory-mode", "flash")
    assert dla(capsys, "emit", model, *mode, "-o", "tiny.prog").status == 0
    assert dla(capsys, "compile", model, "-o", "tiny.dla").status == 0
    (source,) = program_file.load(Path("tiny.prog")).inputs
    Path("input.bin").write_bytes(bytes(source.nbytes))
    commands = (
        ("run", model),
        ("simulate", "tiny.prog", "--image", f"{source.address:#x}=input.bin"),
        ("simulate", "tiny.dla"),
    )
    found = []
    for number, words in enumerate(commands):
        assert dla(capsys, *words, *mode, "--json", f"{number}.json").status == 0
        found.append(json.loads(Path(f"{number}.json").read_text()))
    assert len({json.dumps(one["units"]) for one in found}) == 1
    assert found[0]["units"]["LD"]["flash"]
    assert (found[0]["command"].split()[-2:], found[0]["memory_mode"]) == (list(mode), "flash")
    assert found[0]["totals"]["flash_read_bytes"] < found[0]["totals"]["dram_read_bytes"]
    plain = dla(capsys, "simulate", "tiny.dla", "--json", "plain.json")
    assert plain.status == 0
    assert "flash" not in json.loads(Path("plain.json").read_text())["units"]["LD"]
    compared = dla(capsys, "golden", "diff", "default", "memory-mode=flash", "--model", model)
    assert "flash_bytes" in compared.out


def test_program_wants_its_inputs(capsys: Capture) -> None:
    assert dla(capsys, "emit", save_tiny(Path()), "-o", "tiny.prog").status == 0
    found = dla(capsys, "simulate", "tiny.prog")
    assert found.status == 2
    assert "is missing: give --tensor '" in found.err
    assert dla(capsys, "simulate", "tiny.prog", "--tensor", "other=x.npy").err.startswith(
        "error: --tensor other=x.npy: the program has no input 'other'; its inputs are image_"
    )


def test_a_program_of_op_end_alone_has_cycles_but_no_layer(capsys: Capture) -> None:
    assert dla(capsys, "emit", save_tiny(Path()), "-o", "tiny.prog").status == 0
    arch = program_file.load(Path("tiny.prog")).arch.to_json()
    Path("end.s").write_text(f'.program "end"\n.arch {arch}\n.memory 4096 commands 0\nOP_END\n')
    assert dla(capsys, "asm", "end.s", "-o", "end.prog").status == 0
    ran = dla(capsys, "simulate", "end.prog", "--json", "end.json")
    assert (ran.status, ran.err) == (0, "")
    # one chunk of one word: requested at 0, first data at 100, one burst of burst_gap = 7 slots,
    # OP_END in cycle 107
    assert "end.prog: 108 cycles, 0 MACs, utilisation 0.0%" in ran.out
    figures = json.loads(Path("end.json").read_text())
    assert (figures["layers"], figures["kinds"]["ISSUE"]) == ([], 108)


def test_package_serves_every_machine(capsys: Capture) -> None:
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    first = Path("digits.dla").read_bytes()
    assert dla(capsys, "compile", "digits-cnn", "-o", "digits.dla").status == 0
    assert Path("digits.dla").read_bytes() == first
    for machine in (
        ["--preset", "seed-i64", "--isa", "v1", "--schedule", "seed"],
        ["--set", "sram_bytes=16384"],
    ):
        assert dla(capsys, "simulate", "digits.dla", *machine, "-o", "out.npz").status == 0
        with np.load("out.npz") as outputs:
            assert outputs["logits"].shape == (1, 10)
        assert dla(capsys, "run", "digits.dla", *machine, "--json", "run.json").status == 0
        assert json.loads(Path("run.json").read_text())["check"]["mismatches"] == 0


def test_several_regions_go_to_a_folder_or_are_chosen(capsys: Capture) -> None:
    options = ["digits-cnn", "--isa", "v1"]
    assert dla(capsys, "emit", *options, "-o", "programs").status == 0
    assert sorted(path.name for path in Path("programs").iterdir()) == [
        "region0.prog",
        "region1.prog",
    ]
    assert dla(capsys, "emit", *options, "--region", "1", "-o", "one.prog").status == 0
    assert Path("one.prog").read_bytes() == Path("programs/region1.prog").read_bytes()
    assert dla(capsys, "emit", *options, "-o", "one.prog").err == (
        "error: one.prog: the network has 2 regions, a program each; give a folder, or choose with "
        "--region\n"
    )
    assert (
        dla(capsys, "emit", *options, "--region", "2").err == "error: --region 2: the network has "
        "the regions 0 to 1\n"
    )


def test_partition_names_every_node_and_why_it_is_on_the_cpu(capsys: Capture) -> None:
    shown = dla(capsys, "partition", "digits-cnn", "--isa", "v1", "--json", "where.json")
    assert shown.status == 0
    assert "region 1: " in shown.out
    placement = json.loads(Path("where.json").read_text())["placement"]
    depthwise = next(entry for entry in placement if entry["node"] == "depthwise")
    assert (depthwise["on"], depthwise["region"]) == ("cpu", None)
    assert "v1" in depthwise["reason"]
    assert dla(capsys, "partition", "digits-cnn", "--isa", "v1", "--strict").status == 2
    assert (
        dla(
            capsys, "partition", "digits-cnn", "--isa", "v1", "--emulate-depthwise", "--strict"
        ).status
        == 0
    )


def test_a_command_that_cannot_be_executed_is_named(capsys: Capture) -> None:
    text = """
.program "scale"
.arch {}
.memory 4096 commands 1024
.image 0x0
.data AAAAAA==
    SET LD_BYTES, 4
    OP_DMA_READ push.EX
    SET EX_LENGTH, 4
    SET EX_SCALE_A, 0
    OP_ACT_RELU pop.LD
    OP_END
"""
    Path("scale.s").write_text(text)
    assert dla(capsys, "asm", "scale.s", "-o", "scale.prog").status == 0
    found = dla(capsys, "simulate", "scale.prog")
    assert found.status == 2
    assert found.err.startswith(
        "error: word 4, OP_ACT_RELU pop.LD: input scale 0.0 is not a positive finite float32; "
    )


@pytest.mark.parametrize(
    "words",
    [
        ["digits-cnn"],
        ["digits-cnn", "--cpu", "pool"],
        pytest.param(["resnet-8", "--cpu", "op:Add", "--set", "pe.oc=8"], marks=pytest.mark.slow),
    ],
)
def test_an_emitted_program_is_replayed_on_saved_inputs(words: list[str], capsys: Capture) -> None:
    """Every region alone gives, to the bit, what it gave in the run, and takes as many cycles."""
    from dla_sim.presets import load_hardware

    emitted = dla(
        capsys, "emit", *words, "--save-inputs", "-o", "out.prog" if len(words) == 1 else "out"
    )
    assert (emitted.status, emitted.err) == (0, "")
    hardware = load_hardware(settings=[word for word in words if "=" in word])
    network = load_network(words[0], cpu=[words[2]] if len(words) > 1 else [])
    done = infer(network, hardware, network_feeds(network))
    programs = sorted(Path().rglob("*.prog"))
    assert len(programs) == len(done.compiled.programs)
    for place in programs:
        index = int(place.stem.removeprefix("region")) if len(words) > 1 else 0
        inputs = place.with_suffix(".inputs.npz")
        assert f"dla simulate {place} --input {inputs}" in emitted.out
        ran = dla(
            capsys, "simulate", place, "--input", inputs, "-o", "made.npz", "--json", "figures.json"
        )
        assert ran.status == 0
        cycles = done.result.traces[index].cycles
        assert json.loads(Path("figures.json").read_text())["totals"]["cycles"] == cycles
        with np.load("made.npz") as made:
            assert made.files == [tensor.name for tensor in done.compiled.programs[index].outputs]
            for name in made.files:
                value = done.compiled.graph.values[name]
                np.testing.assert_array_equal(
                    from_device(made[name], value, hardware.arch), done.result.values[name]
                )


def test_saved_inputs_come_from_the_users_file_and_are_checked(capsys: Capture) -> None:
    model = save_tiny(Path())
    np.save("image.npy", np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8))
    for name, words in (("drawn", []), ("given", ["--input", "image.npy"])):
        assert dla(capsys, "emit", model, "--save-inputs", *words, "-o", f"{name}.prog").status == 0
    assert Path("drawn.prog").read_bytes() == Path("given.prog").read_bytes()
    with np.load("drawn.inputs.npz") as drawn, np.load("given.inputs.npz") as given:
        (name,) = given.files
        assert not np.array_equal(drawn[name], given[name])
        wrong = {"name": {"other": given[name]}, "shape": {name: given[name][..., :2]}}
        wrong["type"] = {name: given[name].astype(np.int16)}
    messages = {
        "name": f"the program has no input 'other'; its inputs are {name}",
        "shape": f"'{name}' is int8 [1, 64, 2]; the program wants int8 [1, 64, 4]",
        "type": f"'{name}' is int16 [1, 64, 4]; the program wants int8 [1, 64, 4]",
    }
    for kind, arrays in wrong.items():
        np.savez(f"{kind}.npz", **arrays)
        found = dla(capsys, "simulate", "given.prog", "--input", f"{kind}.npz")
        assert (found.status, found.err) == (2, f"error: --input {kind}.npz: {messages[kind]}\n")
    assert dla(capsys, "simulate", "given.prog", "--input", "none.npz").status == 2
    alone = dla(capsys, "emit", model, "--input", "image.npy")
    assert (
        alone.err
        == "error: --input image.npy: programs do not depend on it; it is for --save-inputs\n"
    )
