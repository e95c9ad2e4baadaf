"""One network on several accelerators gives the bits of one and conserves all accounts.

Pipelines and halos are worked out by hand.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import dla
from byoc.splitting.methods import best_cuts
from byoc.splitting.pieces import WAYS
from dla_sim.systems.spec import System, parse_system
from experiments.cli.main import main
from experiments.report.terminal import report_console
from experiments.running.network import Network, load_network
from experiments.systems.request import SplitRequest
from experiments.systems.split import SplitReport, split_json, split_network
from tests.byoc.small_models import ModelBuilder
from tests.rotation import rotate

PRIVATE = '[memory]\nports = "private"\ngrants = {count}\n'


def system_of(count: int, settings: str = "", memory: str = PRIVATE) -> System:
    accelerator = f'[[accelerator]]\nname = "npu"\ncount = {count}\nsettings = {{ {settings} }}\n'
    return parse_system(memory.format(count=count) + accelerator, idle=True)


def split_of(network: Network, system: System, way: str, images: int | None = None) -> SplitReport:
    return split_network(network, system, SplitRequest(network.package, system, way, images=images))


def random_convolution(
    builder: ModelBuilder,
    generator: np.random.Generator,
    x: str,
    shape: tuple[int, ...],
    **attributes: Any,
) -> str:
    """Add a convolution of ``x`` with random weights of ``shape`` and a bias."""
    numbers = generator.integers(-127, 128, shape, np.int8)
    scales = generator.uniform(0.001, 0.004, shape[0]).astype(np.float32)
    bias = builder.weights(
        generator.integers(-500, 500, shape[0], np.int32), np.float32(0.05) * scales
    )
    real = builder.dequantize(x, 0.05, 3)
    return builder.node("Conv", real, builder.weights(numbers, scales), bias, **attributes)


def random_model(random: Random) -> ModelProto:
    """Return a random model of convolutions, pools and sums over branches.

    Convolutions have several strides, kernels and groups. Features may end the model.
    """
    builder, generator = ModelBuilder(), np.random.default_rng(random.randrange(1 << 30))
    channels = random.choice((3, 16))
    height = random.randrange(5, 14)
    width = random.choice((8, 16))
    here = builder.quantize(builder.input("x", (1, channels, height, width)), 0.05, 3)
    before: dict[tuple[int, int, int], str] = {}

    def real(name: str) -> str:
        return builder.dequantize(name, 0.05, 3)

    for _ in range(random.randrange(2, 6)):
        kind = random.choice(("conv", "conv", "depthwise", "pool", "relu", "sum"))
        shape = channels, height, width
        if kind == "sum" and shape in before:
            made = builder.node("Add", real(here), real(before[shape]))
        elif kind in ("relu", "sum"):
            made = builder.node("LeakyRelu", real(here), alpha=0.25)
        else:
            kernel = random.choice((1, 3) if min(height, width) > 2 else (1,))
            stride = random.choice((1, 1, 2))
            pads = [random.randrange(kernel) for _ in range(4)]
            height, width = (
                (size + pads[axis] + pads[axis + 2] - kernel) // stride + 1
                for axis, size in enumerate((height, width))
            )
            window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
            if kind == "pool":
                made = builder.node(random.choice(("MaxPool", "AveragePool")), real(here), **window)
            else:
                groups = channels if kind == "depthwise" else 1
                out = channels if kind == "depthwise" else random.choice((8, 16, 32))
                shape_of_weights = (out, channels // groups, kernel, kernel)
                made = random_convolution(
                    builder, generator, here, shape_of_weights, group=groups, **window
                )
                channels = out
        before.setdefault(shape, here)
        here = builder.quantize(made, 0.05, 3)
    builder.node(
        "DequantizeLinear",
        here,
        builder.constant(0.05, "float32"),
        builder.constant(3, "int8"),
        result="y",
    )
    builder.output("y")
    return builder.model()


def checked(report: SplitReport) -> SplitReport:
    """Check that no bit differs and that the account contains all cycles."""
    assert (report.check.mismatches, report.check.oracle.mismatches) == (0, 0)
    assert report.check.elements > 0
    assert report.check.oracle.elements > 0
    found = report.account
    parts = found.once + found.again + found.memory + found.waiting + found.unshared
    assert parts == found.accelerators * found.cycles
    return report


@pytest.mark.parametrize("way", rotate(WAYS, 2))
def test_random_networks_have_the_bits_of_one_accelerator(way: str) -> None:
    shared = 0
    for seed in range(6):
        random = Random(seed)
        network = load_network(random_model(random))
        settings = f'sram_bytes = "{random.choice((8, 32))}KiB"'
        memory = random.choice((PRIVATE, ""))
        system = system_of(random.randrange(2, 5), settings, memory)
        report = checked(split_of(network, system, way, images=3))
        shared += sum(len(part.accelerators) > 1 for part in report.parts)
    assert shared or way in ("batch", "pipeline")


def test_padding_of_atoms_is_not_compared() -> None:
    """Padding of atoms is not compared.

    The maximum has 3 channels in atoms of 8. The whole program and the bands write different
    padding.
    """
    builder = ModelBuilder()
    weights = builder.constant(np.random.default_rng(0).normal(size=(3, 2, 2, 2)), "float32")
    made = [builder.node("Conv", builder.input(name, (1, 2, 5, 5)), weights) for name in "ab"]
    builder.node("Identity", builder.node("Max", *made, result="largest"), result="y")
    builder.output("y")
    builder.output("largest")
    report = checked(split_of(load_network(builder.model()), system_of(2, 'isa = "v5"'), "rows"))
    assert report.check.elements == report.check.oracle.elements == 96


def test_images_on_ports_of_their_own_take_what_one_takes() -> None:
    report = checked(split_of(load_network("digits-cnn"), system_of(4), "batch", images=8))
    assert report.account.cycles == 2 * report.alone  # two each, one behind the other
    assert (report.speed_up, report.latency) == (4.0, report.alone)
    assert (report.account.again, report.account.memory, report.account.waiting) == (0, 0, 0)


def test_a_pipeline_of_two_by_hand() -> None:
    report = checked(split_of(load_network("digits-cnn"), system_of(2), "pipeline", images=5))
    (a,), (b,) = (part.cycles for part in report.parts)
    # With private ports no stage waits: the first one is done with image n at (n + 1) a.
    # The slower stage is never idle between its first and last image: a, then five times b, or five
    # times a, then b
    assert report.account.cycles == (a + 5 * b if b >= a else 5 * a + b)
    assert report.latency == a + b
    assert report.account.again == 5 * (a + b - report.alone)
    assert report.account.waiting == 2 * report.account.cycles - 5 * (a + b)
    assert (report.account.memory, report.account.unshared) == (0, 0)


def test_cuts_are_the_best_there_are() -> None:
    random = Random(7)
    for _ in range(200):
        speeds = [random.randrange(1, 4) for _ in range(random.randrange(1, 5))]
        parts = [random.randrange(1, 30) for _ in range(random.randrange(len(speeds), 9))]

        def cost(
            number: int, start: int, stop: int, parts: list[int] = parts, speeds: list[int] = speeds
        ) -> int:
            return sum(parts[start:stop]) * speeds[number]

        inner = combinations_with_replacement(range(len(parts) + 1), len(speeds) - 1)
        every = [[0, *cuts, len(parts)] for cuts in inner]
        found = best_cuts(len(speeds), len(parts), cost)
        dearest = [
            max(cost(number, *ends) for number, ends in enumerate(pairwise(cuts)))
            for cuts in (found, *every)
        ]
        assert dearest[0] == min(dearest)


def test_a_tensor_may_be_read_whole_and_as_a_share() -> None:
    """A tensor may be read whole by a convolution and in shares by an addition.

    The addition adds the tensor to the convolution's result, of which each accelerator has a share.
    """
    builder = ModelBuilder()
    here = builder.quantize(builder.input("x", (1, 16, 4, 16)), 0.05, 3)
    weights = builder.weights(
        np.random.default_rng(0).integers(-127, 128, (16, 16, 1, 1), np.int8), 0.01
    )
    made = builder.quantize(
        builder.node("Conv", builder.dequantize(here, 0.05, 3), weights), 0.05, 3
    )
    total = builder.node(
        "Add", builder.dequantize(made, 0.05, 3), builder.dequantize(here, 0.05, 3)
    )
    here = builder.quantize(total, 0.05, 3)
    builder.node(
        "DequantizeLinear",
        here,
        builder.constant(0.05, "float32"),
        builder.constant(3, "int8"),
        result="y",
    )
    builder.output("y")
    report = checked(split_of(load_network(builder.model()), system_of(2), "channels"))
    assert [(len(part.nodes), len(part.cycles)) for part in report.parts] == [(2, 2)]


def test_halos_are_read_or_computed_twice() -> None:
    """Two bands read or compute halo rows twice.

    Two convolutions of 3 rows are applied to 16 rows: each band computes 9 rows of the first one
    and 8 of the last.
    """
    builder = ModelBuilder()
    here = builder.quantize(builder.input("x", (1, 8, 16, 8)), 0.05, 3)
    for _ in range(2):
        numbers = np.ones((8, 8, 3, 3), np.int8)
        made = builder.node(
            "Conv", builder.dequantize(here, 0.05, 3), builder.weights(numbers, 0.01), pads=[1] * 4
        )
        here = builder.quantize(made, 0.05, 3)
    builder.node(
        "DequantizeLinear",
        here,
        builder.constant(0.05, "float32"),
        builder.constant(3, "int8"),
        result="y",
    )
    builder.output("y")
    report = checked(split_of(load_network(builder.model()), system_of(2), "rows"))
    row = 8 * 8 * 8 * 9  # multiply-accumulates of a row of one of them
    assert report.macs == (32 * row, 2 * (9 + 8) * row)
    assert [part.whole for part in report.parts] == [None, "joining the bands of the output"]


def test_a_report_is_the_same_again_and_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.toml").write_text('[[accelerator]]\nname = "npu"\ncount = 2\n')
    words = ["split", "digits-cnn", "pair.toml", "--by", "channels"]
    assert main([*words, "--json", "first.json"]) == 0
    shown = capsys.readouterr().out
    assert "why not 2 times" in shown
    assert "MatMul: 10 channels" in shown
    assert main([*words, "--json", "second.json"]) == 0
    written = Path("first.json").read_text()
    assert written == Path("second.json").read_text()
    assert split_json(checked(SplitReport.model_validate_json(written))) == written


def test_the_front_door_is_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or its keys, a model's name or the model, its own sample or the same numbers."""
    monkeypatch.chdir(tmp_path)
    Path("pair.toml").write_text('[[accelerator]]\nname = "npu"\ncount = 2\n')
    assert (
        main(
            [
                "split",
                "digits-cnn",
                "pair.toml",
                "--by",
                "batch",
                "--images",
                "3",
                "--json",
                "a.json",
            ]
        )
        == 0
    )
    found = dla.split("digits-cnn", "pair.toml", "batch", images=3)
    found.save("b.json")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    pair = {"name": "pair", "accelerator": [{"name": "npu", "count": 2}]}
    image = dla.MODELS["digits-cnn"].sample_input()["image"]
    again = dla.split(dla.import_model("digits-cnn"), pair, "batch", images=3, inputs=image)
    assert (
        again.command
        == "dla.split '<package digits-cnn>' '<system>' --by batch --input '<arrays>' --images 3"
    )
    assert again.model_dump(exclude={"command", "model"}) == found.model_dump(
        exclude={"command", "model"}
    )
    assert found.mismatches == 0
    with pytest.raises(
        dla.InputError, match="2 inputs are given; a split is checked on those of one inference"
    ):
        dla.split("digits-cnn", pair, "rows", inputs=[{"image": image}, {"image": image}])


@pytest.mark.parametrize("way", WAYS)
def test_regions_are_split_for_themselves_and_reported_one_by_one(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.toml").write_text('[[accelerator]]\nname = "npu"\ncount = 2\n')
    words = [
        "split",
        "digits-cnn",
        "pair.toml",
        "--by",
        way,
        "--cpu",
        "depthwise",
        "--json",
        "split.json",
    ]
    assert main(words) == 0
    report = checked(SplitReport.model_validate_json(Path("split.json").read_text()))
    assert [region.name for region in report.regions] == ["region0", "region1"]
    assert list(dict.fromkeys(part.region for part in report.parts)) == ["region0", "region1"]
    accounts = [asdict(region.account) for region in report.regions]
    total = asdict(report.account)
    assert {key: sum(one[key] for one in accounts) for key in total} == total | {"accelerators": 4}
    shown = capsys.readouterr().out
    for region in report.regions:
        assert (
            f"{region.name}: {region.account.once:,} cycles on one, {region.account.cycles:,} on 2"
            in shown
        )


def test_steps_that_lose_against_one_program_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A split in rows that is slower than one program is reported.

    Bands of a 1x1 convolution on many channels read all weights twice, which takes most of the
    time on ideal memory.
    """
    builder = ModelBuilder()
    here = builder.quantize(builder.input("x", (1, 256, 2, 2)), 0.05, 3)
    weights = builder.weights(np.ones((256, 256, 1, 1), np.int8), 0.01)
    made = builder.quantize(
        builder.node("Conv", builder.dequantize(here, 0.05, 3), weights), 0.05, 3
    )
    builder.node(
        "DequantizeLinear",
        made,
        builder.constant(0.05, "float32"),
        builder.constant(3, "int8"),
        result="y",
    )
    builder.output("y")
    network = load_network(builder.model())
    for way, loses in (("rows", True), ("channels", False)):
        report = checked(split_of(network, system_of(2, 'isa = "v4"'), way))
        shared, *_ = report.parts
        assert shared.once == report.account.once == report.alone
        assert (len(shared.cycles), shared.loses) == (2, loses)
        assert loses is (max(shared.cycles) >= report.alone)
        report.show(report_console())
        assert ("sharing these nodes loses time" in capsys.readouterr().out) is loses


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "rows"], "Missing argument 'SYSTEM.toml'"),
        (["pair.toml"], "Missing option '--by'"),
        (["pair.toml", "--by", "colums"], "--by colums: "),
        (["pair.toml", "--by", "rows", "--set", "sram_bytes=4KiB"], "No such option: --set"),
        (["pair.toml", "--by", "batch", "--images", "0"], "--images 0: "),
        (
            ["one.toml", "--by", "batch"],
            "one.toml: a network is split over two accelerators or more",
        ),
        (["absent.toml", "--by", "batch"], "absent.toml"),
        (["mixed.toml", "--by", "batch"], "accelerator 'b' has numerics fixed"),
        (["pair.toml", "--by", "batch", "--cpu", "*"], "nothing of it runs on an accelerator"),
    ],
)
def test_what_cannot_be_split_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text('[[accelerator]]\nname = "npu"\n')
    Path("pair.toml").write_text('[[accelerator]]\nname = "npu"\ncount = 2\n')
    mixed = (
        '[[accelerator]]\nname = "a"\n[[accelerator]]\nname = "b"\nsettings = { numerics = "fixed" '
        "}\n"
    )
    Path("mixed.toml").write_text(mixed)
    assert main(["split", "digits-cnn", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
