"""Uses of the declaration of the compiler's options: nothing else names them."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import byoc
import dla
import experiments
from byoc.options import OPTIONS, PROGRAM_OPTIONS, Option
from experiments.cli.main import get_command, main
from experiments.compare.sources import snapshot_of
from experiments.running.declared import command_of, list_declared, words_of
from experiments.running.given import Given, MachineChoice
from experiments.sweep.constraints import NAMES
from experiments.sweep.grid import Grid
from experiments.sweep.results import AXES
from experiments.sweep.spec import parse_spec
from experiments.sweep.store import COLUMNS
from isa.errors import InputError
from isa.progress import silent

GIVEN = {name: option for name, option in list_declared(Given).items() if name != "model"}
READERS = "run", "compile", "partition", "emit", "explain", "tune", "split"
"""Commands that read a model."""


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_is_declared_once(name: str) -> None:
    """An option of every command that reads a model is a keyword of every function.

    It is a key of sweeps if results depend on it.
    """
    for command in READERS:
        about = inspect.signature(get_command(command)).parameters[name].annotation.__metadata__[0]
        assert (about.default, about.help) == (GIVEN[name].word, GIVEN[name].help)
    for function in (dla.run, dla.split, dla.tune, dla.import_model):
        assert name in inspect.signature(function).parameters
    with pytest.raises(InputError) as refused:
        parse_spec('networks = "digits-cnn"\nnothing = 1\n')
    keys = str(refused.value).partition("choose one of ")[2].split(", ")
    assert (name in keys) == GIVEN[name].repeats


def test_the_words_of_what_is_given_are_the_command_that_repeats_it() -> None:
    model = {"shapes": {"x": (1, 3)}, "fixed": {"rate": 0.5}}
    given = Given(
        "a.onnx", calibration=Path("c.npz"), cpu=("op:Add",), seed=2, cache=False, **model
    )
    words = "split a.onnx --calibration c.npz --shape x=1,3 --fix rate=0.5 --cpu op:Add --seed 2"
    assert command_of("split", given) == f"dla {words}"
    assert command_of("split", Given("a.onnx", shapes={}, calibration=np.zeros((2, 1)))) == (
        "dla.split a.onnx --calibration '<arrays>'"
    )


def test_settings_are_written_as_they_are_read() -> None:
    texts = ["pe.oc=64", "post_lanes=none"]
    words = ["--set", "pe.oc=64", "--set", "post_lanes=none", "--isa", "v2"]
    for settings in ({"pe.oc": 64, "post_lanes": None}, texts, iter(texts)):
        assert words_of(MachineChoice(settings=settings, isa="v2")) == words


def test_places_are_named_by_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "digits-cnn", "--trace", "same", "--json", "same"]) == 2
    line = capsys.readouterr().err
    assert {word for word in line.split() if word.startswith("--")} == {"--trace", "--json"}


KNOWN = {
    "emulate_depthwise": {
        "byoc/options.py",  # declares it
        "byoc/compiler.py",  # types it as a keyword; a test compares it with the declaration
        "byoc/operators/convolution.py",  # act on it
        "experiments/golden/catalogue.py",  # records v1 with it
        "experiments/repro/claims.py",  # tells a published scenario by it
    },
}  # fmt: skip
"""The files that name an option."""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("command", ["run", "partition", "emit", "simulate"])
def test_commands_have_every_option(command: str, option: Option) -> None:
    parameter = inspect.signature(get_command(command)).parameters[option.name]
    assert parameter.default == option.default
    (about,) = parameter.annotation.__metadata__
    assert (about.default, about.help) == (f"--{option.word}", option.help)


@pytest.mark.parametrize("option", PROGRAM_OPTIONS, ids=lambda option: option.name)
def test_sweeps_vary_every_option_that_programs_depend_on(option: Option) -> None:
    values = ", ".join(
        {True: "true", False: "false"}.get(value, f'"{value}"') for value in option.values
    )
    spec = parse_spec(f'networks = "digits-cnn"\n{option.axis} = [{values}]\n')
    assert Grid(spec).axes[option.name] == option.values
    assert [getattr(batch.options, option.name) for batch in Grid(spec).batches()] == list(
        option.values
    )
    assert option.name in COLUMNS
    assert option.name in AXES
    assert option.name in NAMES


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_machines_in_words_have_every_option(option: Option) -> None:
    with pytest.raises(InputError, match=rf"^'{option.word}=odd': {option.word} is 'odd'; it is "):
        snapshot_of(f"{option.word}=odd", "digits-cnn", silent)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_an_option_is_named_where_it_is_declared_and_where_it_matters(name: str) -> None:
    roots = [Path(package.__path__[0]) for package in (byoc, experiments)]
    files = (path for root in roots for path in root.rglob("*.*") if path.suffix in (".py", ".js"))
    found = {
        path.relative_to(roots[0].parent).as_posix()
        for path in files
        if name in path.read_text("utf-8")
    }
    assert found == KNOWN[name]
