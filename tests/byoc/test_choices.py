"""Schedules as data: the compiler uses the given choices and makes the others.

Bits never depend on choices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import byoc
from byoc.compiled import CompiledNetwork, Region
from byoc.emission.region import compile_region
from byoc.graph import Value
from byoc.operators.layer import make_layer
from byoc.operators.nest import find_allowed_channels
from byoc.operators.operator import Operator
from byoc.options import (
    NOTHING,
    Choices,
    CompileOptions,
    LayerChoice,
    from_json,
    load_pins,
    to_json,
)
from byoc.package.package import Package
from experiments.models import MODELS
from isa.arch import Arch, PeArray
from isa.errors import InputError
from tests.byoc import region_cases as cases
from tests.byoc.ordering import unordered_conflicts
from tests.isa.legality import check_legality

ARCH = Arch(isa="v4", pe=PeArray(ic=4, oc=4), sram_bytes=4096, sram_banks=1)
LARGE = ARCH.model_copy(update={"sram_bytes": 1 << 16})


def _region(seed: int) -> tuple[Region, dict[str, Value]]:
    """A residual block, a depthwise convolution and a pool of random sizes."""
    random = np.random.default_rng(seed)
    depth, height, width = (int(random.integers(1, most)) for most in (7, 13, 10))
    x = cases.operand("x", depth, height, width)
    first = cases.convolution(random, x, "first", int(random.integers(2, 13)), pads=(1, 1, 1, 1))
    second = cases.convolution(random, first.output, "second", first.output.shape[0], kernel=(1, 1))
    added = cases.add(first.output, second.output, "added")
    deep = cases.convolution(
        random, added.output, "deep", added.output.shape[0], pads=(1, 1, 1, 1), depthwise=True
    )
    pooled = cases.pool(
        deep.output, "pooled", "max", kernel=(2, 2), strides=(2, 2), pads=(1, 1, 0, 0)
    )
    return cases.region((first, second, added, deep, pooled), ("x",), ("pooled",))


def _drawn(random: np.random.Generator, operation: Operator, arch: Arch) -> LayerChoice:
    """Any legal choice about a layer; each of its keys may be left open."""
    geometry = make_layer(operation, arch).geometry
    nest = geometry.nest
    channels = find_allowed_channels(nest, int(random.integers(1, nest.channels + 1)))
    rows = int(random.integers(1, nest.rows + 1)) if nest.splits_rows else nest.rows
    depth = int(random.integers(0, nest.input_channels)) if geometry.splits_depth else 0
    chosen: dict[str, Any] = {
        "channels": channels,
        "rows": rows,
        "depth": depth,
        "order": str(random.choice(["rows", "channels"])),
        "slots": tuple(int(number) for number in random.integers(1, 4, 3)),
    }
    return LayerChoice(
        operation.name, **{key: value for key, value in chosen.items() if random.random() < 0.7}
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_choices_keep_the_bits(seed: int) -> None:
    made, values = _region(seed)
    random = np.random.default_rng(seed)
    inputs = cases.random_inputs(made, values, seed)
    wanted = cases.expected(made, values, inputs)
    for arch in (ARCH, LARGE):
        drawn = [
            _drawn(random, operation, arch)
            for operation in made.operations
            if random.random() < 0.8
        ]
        residents = tuple(
            name for name in ("first", "second", "added", "deep") if random.random() < 0.5
        )
        choices = Choices(tuple(drawn), residents if random.random() < 0.3 else None)
        try:
            program, report = compile_region(made, values, arch, choices=choices)
        except InputError:
            if arch is ARCH:  # the other one is large enough for all draws
                continue
            raise
        check_legality(program.commands)
        assert unordered_conflicts(program.commands, arch) == []
        np.testing.assert_array_equal(
            cases.execute(program, inputs, seed)["pooled"], wanted["pooled"]
        )
        _assert_agrees(report.choices, choices)
        again, _ = compile_region(made, values, arch, choices=report.choices)
        np.testing.assert_array_equal(again.words, program.words)


def _assert_agrees(found: Choices, wanted: Choices) -> None:
    """Everything that was chosen is as it was chosen."""
    if wanted.residents is not None:
        assert found.residents == wanted.residents
    layers = {one.layer: one for one in found.layers}
    for one in wanted.layers:
        own = layers[one.layer]
        open_keys = {key: getattr(own, key) for key, value in vars(one).items() if value is None}
        assert replace(one, **open_keys) == own or one.order not in (None, own.order)


@cache
def _package() -> Package:
    model = MODELS["digits-cnn"]
    return byoc.import_model(model.build(0), "digits-cnn", calibration=model.calibration(0))


def _compiled(choices: Choices, arch: Arch = LARGE) -> CompiledNetwork:
    return byoc.compile(_package(), arch, CompileOptions(chosen=choices))


def test_what_was_chosen_is_reported_and_makes_the_same_program() -> None:
    first = _compiled(NOTHING)
    chosen = first.reports[0].choices
    assert [one.layer for one in chosen.layers] == [
        "conv",
        "depthwise",
        "pointwise",
        "pool",
        "classifier",
    ]
    assert all(value is not None for one in chosen.layers for value in vars(one).values())
    again = _compiled(from_json(to_json(chosen), "a file"))
    np.testing.assert_array_equal(again.programs[0].words, first.programs[0].words)
    assert again.reports[0].choices == chosen


def test_other_choices_make_another_program_and_another_key() -> None:
    pinned = Choices((LayerChoice("conv", rows=2, slots=(1, 1, 1)),))
    found = _compiled(pinned)
    assert found.reports[0].tiles["conv"] == 4
    assert found.reports[0].choices.layers[0] == LayerChoice("conv", 16, 2, 0, "rows", (1, 1, 1))
    assert found.options.choices["chosen"] == pinned.digest
    assert "chosen" not in CompileOptions().choices


def test_choices_for_layers_of_one_name() -> None:
    one = LayerChoice("a", rows=1)
    two = LayerChoice("a", rows=2)
    assert Choices((one,)).list_for(["a", "b", "a"]) == [one, None, one]
    assert Choices((one, two)).list_for(["a", "a", "a"]) == [one, two, two]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (LayerChoice("conv", channels=17), "layer 'conv': channels is 17; it is 1 to 16"),
        (LayerChoice("conv", rows=9), "layer 'conv': rows is 9; it is 1 to 8"),
        (
            LayerChoice("pool", depth=4),
            "layer 'pool': depth is 4; its input channels cannot be cut",
        ),
        (
            LayerChoice("pointwise", depth=16),
            "layer 'pointwise': depth is 16; it is 1 to 15, or 0 for all",
        ),
        (
            LayerChoice("cnov", rows=1),
            "'cnov' is no layer of the accelerator; did you mean 'conv'?",
        ),
        (
            LayerChoice("stem", rows=1),
            "'stem' is no layer of the accelerator; 'dla explain MODEL' lists them",
        ),
    ],
)
def test_choices_that_no_tiling_agrees_with(choice: LayerChoice, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _compiled(Choices((choice,), words=("--pins", "p.toml")))
    assert str(caught.value).startswith(f"--pins p.toml: {message}")


def test_tensors_that_cannot_stay() -> None:
    with pytest.raises(
        InputError, match=r"^the choices: 'image' is no tensor that can stay in the scratchpad; "
    ):
        _compiled(Choices(residents=("image",)))


def test_a_choice_that_does_not_fit_says_by_how_much() -> None:
    small = LARGE.model_copy(update={"sram_bytes": 2048})
    whole = LayerChoice("pointwise", channels=32, rows=8, slots=(2, 2, 2))
    with pytest.raises(
        InputError,
        match=r"layer 'pointwise': the tiling chosen \(1 x 1 tiles\) does not fit in 2048 ",
    ):
        _compiled(Choices((whole,)), small)
    fits = _compiled(Choices((LayerChoice("pointwise", slots=(1, 1, 1)),)), small)
    assert fits.reports[0].choices.layers[2].slots == (1, 1, 1)


def test_choices_for_another_network_or_machine() -> None:
    found = _compiled(NOTHING).reports[0].choices
    for key, what in (("package", "network"), ("machine", "machine")):
        with pytest.raises(InputError, match=f"^the choices: made for another {what} "):
            _compiled(replace(found, **{key: "0" * 16}))
    _compiled(replace(found, package=_package().digest, machine=LARGE.digest()))


def test_the_published_schedule_takes_no_choices() -> None:
    with pytest.raises(InputError, match=r"^--pins p.toml: nothing of schedule seed can be chosen"):
        CompileOptions(
            schedule="seed", chosen=Choices((LayerChoice("conv"),), words=("--pins", "p.toml"))
        )


def test_a_file_of_pins(tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(
        'residents = ["t"]\n[layers.conv]\nchannels = 4\nslots = [2, 1, 2]\n[layers."a/b"]\norder '
        '= "rows"\n'
    )
    found = load_pins(path)
    assert found.layers == (
        LayerChoice("conv", channels=4, slots=(2, 1, 2)),
        LayerChoice("a/b", order="rows"),
    )
    assert found.residents == ("t",)
    assert CompileOptions(chosen=found).words == ["--pins", str(path)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[layer.conv]\nrows = 1\n",
            "unknown key 'layer'; the keys are layers, residents and groups",
        ),
        ("layers = 3\n", "layers is 3; write a table [layers.NAME] for each layer"),
        ("[layers]\nconv = 3\n", "layer 'conv' is 3; write a table [layers.conv]"),
        (
            "[layers.conv]\nrow = 1\n",
            "layer 'conv': unknown key 'row'; the keys are channels, rows, depth, order, slots",
        ),
        ("[layers.conv]\nrows = 0\n", "layer 'conv': rows is 0; write a number from 1 to"),
        ("[layers.conv]\nrows = true\n", "layer 'conv': rows is True; write a number from 1 to"),
        ("[layers.conv]\ndepth = -1\n", "layer 'conv': depth is -1; write a number from 0 to"),
        (
            '[layers.conv]\norder = "columns"\n',
            "layer 'conv': order is 'columns'; write rows or channels",
        ),
        (
            "[layers.conv]\nslots = [2, 2]\n",
            "layer 'conv': slots is [2, 2]; write three numbers from 1 up",
        ),
        ("residents = 3\n", "residents is 3; write a list of names of tensors"),
        ("[layers.conv\n", "not a TOML file"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pins.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_pins(path)
    assert str(caught.value).startswith(f"--pins {path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_compiler_groups_is_made_again_from_its_choices() -> None:
    """A group keeps the same tensors when its choices are compiled again.

    Later consumers of its results make no difference.
    """
    grouped = 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        source = cases.operand("x", 16, int(random.integers(30, 60)), 48)
        operations = list[Operator]()
        for number in range(3):
            deep = cases.convolution(
                random, source, f"deep{number}", 16, pads=(1, 1, 1, 1), depthwise=True
            )
            wide = cases.convolution(random, deep.output, f"wide{number}", 16, kernel=(1, 1))
            operations += [deep, wide]
            source = wide.output
        operations.append(cases.add(operations[1].output, source, "added"))
        made, values = cases.region(tuple(operations), ("x",), ("deep2", "added"))
        sram = int(random.choice([16, 24, 32])) * 1024
        arch = Arch(isa="v4", pe=PeArray(ic=16, oc=16), sram_bytes=sram)
        program, report = compile_region(made, values, arch, data=False)
        again, _ = compile_region(made, values, arch, data=False, choices=report.choices)
        np.testing.assert_array_equal(again.words, program.words)
        grouped += bool(report.choices.groups)
    assert grouped >= 6
