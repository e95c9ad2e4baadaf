"""The generated references: API signatures show types and results, the CLI has all options."""

from __future__ import annotations

import inspect
import re
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

import dla
from experiments.cli.main import COMMANDS
from tests.docs.session import ROOT


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    """Return the configuration of the site, which generates the references."""
    spec = spec_from_file_location("conf", ROOT / "docs/conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUNCTIONS = [name for name in dla.__all__ if inspect.isroutine(getattr(dla, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_name_their_result(name: str) -> None:
    """Sphinx reads ``__annotations__``: a TypeVar there hides the result."""
    found = getattr(dla, name)
    expected = inspect.signature(found).return_annotation
    assert found.__annotations__["return"] == expected
    assert expected not in ("Found", inspect.Signature.empty)


@pytest.mark.parametrize("name", ["run", "tune", "split", "RunReport", "Timing"])
def test_signatures_have_short_parameters(conf: ModuleType, name: str) -> None:
    found = getattr(dla, name)
    what = "class" if inspect.isclass(found) else "function"
    text, _ = conf._plain_signature(
        None, what, name, found, None, str(inspect.signature(found)), ""
    )
    parameters = re.split(r", (?=\w+: )", text)
    assert len(parameters) > 10
    assert max(map(len, parameters)) <= 90
    assert conf.python_maximum_signature_line_length < len(text)  # one parameter per line


def test_the_command_line_reference_has_every_command_and_option(conf: ModuleType) -> None:
    page = "\n".join(conf._commands())
    assert [name for name in COMMANDS if f"## `dla {name}" not in page] == []
    assert (
        "| `--preset` | `NAME\\|FILE.toml` | `balanced-64` | Start from this hardware (dla "
        "presets). |" in page
    )
    assert "| `--engine` | `simulator\\|rtl` | `simulator` |" in page
