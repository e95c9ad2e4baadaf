"""What derives from the declaration of the compiler's options: nothing else names them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import byoc
import experiments
from byoc.options import OPTIONS, PROGRAM_OPTIONS, Option
from experiments.cli.main import COMMANDS
from experiments.compare.sources import snapshot_of
from experiments.sweep.constraints import NAMES
from experiments.sweep.grid import Grid
from experiments.sweep.results import AXES
from experiments.sweep.spec import parse_spec
from experiments.sweep.store import COLUMNS
from isa.errors import InputError
from isa.progress import silent

KNOWN = {
    "emulate_depthwise": {
        "byoc/options.py",  # declares it
        "byoc/target.py", "byoc/operators/convolution.py",  # act on it
        "experiments/golden/catalogue/networks.py",  # records v1 with it
        "experiments/repro/claims.py",  # tells a published scenario by it
    },
}  # fmt: skip
"""The files that name an option."""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("command", ["run", "partition", "emit", "simulate"])
def test_commands_have_every_option(command: str, option: Option) -> None:
    parameter = inspect.signature(COMMANDS[command]).parameters[option.name]
    assert parameter.default == option.default
    (about,) = parameter.annotation.__metadata__
    assert (about.default, about.help) == (f"--{option.word}", option.help)


@pytest.mark.parametrize("option", PROGRAM_OPTIONS, ids=lambda option: option.name)
def test_sweeps_vary_every_option_that_programs_depend_on(option: Option) -> None:
    values = ", ".join({True: "true", False: "false"}.get(value, f'"{value}"') for value in option.values)
    spec = parse_spec(f'networks = "digits-cnn"\n{option.axis} = [{values}]\n')
    assert Grid(spec).axes[option.name] == option.values
    assert [getattr(batch.options, option.name) for batch in Grid(spec).batches()] == list(option.values)
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
    found = {path.relative_to(roots[0].parent).as_posix() for path in files if name in path.read_text("utf-8")}
    assert found == KNOWN[name]
