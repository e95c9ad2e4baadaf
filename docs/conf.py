"""The documentation site (extra ``docs``): ``python -m sphinx -W docs build/site``.

The guides are the Markdown files of this folder. The build writes further pages to ``generated/``:
the reference of the command line from its options, the reference of the Python API from docstrings,
and a gallery of reports. Nothing is fetched.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.config import Config

import dla  # noqa: F401 - first, so that all packages come from one folder
from experiments.cli.main import application

project = "dla"
author = copyright = "the project's authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "dla: a cycle-level accelerator simulator"
html_extra_path = ["generated/extra"]
html_copy_source = False
smartquotes = False  # two hyphens are an option
myst_heading_anchors = 6  # as on GitHub
nb_execution_mode = "off"  # the notebooks come with their outputs; tests execute them
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80  # longer signatures have one parameter per line
autodoc_type_aliases = {
    name: name for name in ("Feeds", "Fixed", "Inputs", "Model", "Samples", "Settings", "Shapes")
}

HERE = Path(__file__).parent
GENERATED = HERE / "generated"
PACKAGES = ("dla", "isa", "byoc", "dla_sim", "experiments")

SWEEP = """\
networks = ["digits-cnn", "lstm-small"]
constraints = ["N >= 16"]

[arch]
pe.ic = [2, 4, 8]
pe.oc = [4, 8, 16]
sram_bytes = { from = "4 KiB", to = "64 KiB", times = 4 }

[timing]
bus_bytes = [4, 8]
"""


class Shown(NamedTuple):
    """A report of the gallery.

    ``name`` is its folder and its page, and ``picture`` is the image that links to it.
    """

    name: str
    heading: str
    words: str
    commands: tuple[str, ...]
    picture: str


GALLERY = (
    Shown(
        "run",
        "A run",
        "A network on the recommended machine: where each layer ran, and where every cycle went.",
        ("run digits-cnn --json run.json", "report run.json -o run"),
        "layer-cycles.png",
    ),
    Shown(
        "small-against-run",
        "A comparison",
        "The same network with a scratchpad of 2 KiB, compared with the run above.",
        (
            "run digits-cnn --set sram_bytes=2KiB --json small.json",
            "report small.json run.json -o small-against-run",
        ),
        "layer-cycles.png",
    ),
    Shown(
        "sweep",
        "A sweep",
        "Two networks on every machine of this specification, "
        f"`sweep.toml`:\n\n```toml\n{SWEEP}```",
        ("sweep sweep.toml -o sweep.sqlite", "report sweep.sqlite -o sweep"),
        "pareto-digits-cnn.png",
    ),
)


def setup(app: Sphinx) -> None:
    """Register the generators of pages, and the form of signatures and docstrings."""
    app.connect("config-inited", _generate)
    app.connect("autodoc-process-signature", _plain_signature)
    app.connect("autodoc-process-docstring", _add_fields)


def _generate(app: Sphinx, config: Config) -> None:
    shutil.rmtree(GENERATED, ignore_errors=True)
    (GENERATED / "extra").mkdir(parents=True)
    (GENERATED / "cli.md").write_text("\n".join(_commands()), encoding="utf-8")
    (GENERATED / "api.rst").write_text("\n".join(_reference()), encoding="utf-8")
    (GENERATED / "gallery.md").write_text(
        "\n".join(_gallery(GENERATED / "extra" / "gallery")), encoding="utf-8"
    )


def _reference() -> Iterator[str]:
    """Yield a section for each package: its docstring and its public names, each described once."""
    places: dict[int, str] = {}
    yield from ("Python reference", "================", "")
    for name in PACKAGES:
        package = import_module(name)
        yield from (name, "-" * len(name), "", f".. automodule:: {name}", "")
        for public in sorted(package.__all__, key=lambda public: _rank(getattr(package, public))):
            found = getattr(package, public)
            place = f"{name}.{public}"
            first = places.setdefault(id(found), place)
            yield from (
                _entry(place, found)
                if first == place
                else (f":py:obj:`{public} <{first}>`: above.", "")
            )


def _rank(found: Any) -> int:
    """Return the order of a name: functions first, then classes, then values."""
    return 0 if inspect.isroutine(found) else 1 if inspect.isclass(found) else 2


def _entry(place: str, found: Any) -> Iterator[str]:
    if inspect.isclass(found):
        yield f".. autoclass:: {place}"
        yield "   :members:"
        yield (
            "   :exclude-members: model_config"
            if issubclass(found, BaseModel)
            else "   :undoc-members:"
        )
    else:
        yield (
            f".. autofunction:: {place}"
            if callable(found)
            else f".. autodata:: {place}\n   :no-value:"
        )
    yield ""


def _plain_signature(
    app: Sphinx, what: str, name: str, found: Any, options: Any, signature: str, result: str
) -> Any:
    """Shorten a signature: names of types without limits and metadata, and short defaults."""
    if inspect.isclass(found) and issubclass(found, BaseModel):
        return f"(*, {', '.join(_field_texts(found))})", None
    if inspect.isfunction(found) and "__signature__" in vars(found):
        signature = _signature_text(inspect.signature(found))
    return re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature or "") or None, result


def _signature_text(signature: inspect.Signature) -> str:
    """Return the parameters of a signature whose annotations are texts."""
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        text = f"{stars}{parameter.name}{kind}"
        parts.append(
            text
            if parameter.default is parameter.empty
            else f"{text} = {_short(parameter.default)}"
        )
    return f"({', '.join(parts)})"


def _field_texts(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        text = f"{field.alias or name}: {_type_text(field.annotation)}"
        yield text if field.is_required() else f"{text} = {_short(field.default)}"


def _short(default: Any) -> str:
    """Return a default as source text: a function's name, and ``Arch(...)`` for a long object."""
    if inspect.isfunction(default):
        return default.__name__
    text = repr(default)
    return text if len(text) <= 40 else f"{type(default).__name__}(...)"


def _type_text(kind: Any) -> str:
    """Return the name of a type without the limits and patterns that pydantic checks."""
    origin = get_origin(kind)
    inside = get_args(kind)
    if origin is Annotated:
        return _type_text(inside[0])
    if origin in (Union, UnionType):
        return " | ".join(map(_type_text, inside))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inside))}]"
    if kind is type(None) or kind is Ellipsis:
        return "None" if kind is type(None) else "..."
    name = getattr(origin or kind, "__name__", str(kind))
    return f"{name}[{', '.join(map(_type_text, inside))}]" if inside else name


def _add_fields(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Append the fields of a pydantic model, with their descriptions, to its docstring."""
    if what != "class" or not issubclass(found, BaseModel):
        return
    for field, facts in found.model_fields.items():
        default = "" if facts.is_required() else f" (default ``{_short(facts.default)}``)"
        lines.append(f":param {field}: {facts.description or ''}{default}")


def _commands() -> Iterator[str]:
    """Yield a section for each command: help, usage, and tables of arguments and options."""
    yield "# Command line\n\nEvery option of every command, as `dla COMMAND -h` shows it.\n"
    yield (
        "[What all commands have in "
        "common](../reports.md#the-terminal-what-every-command-has-in-common) describes"
    )
    yield "output, exit status and completion.\n"
    for words, command in _tree("dla", typer.main.get_command(application())):
        yield f"## `{words}`\n\n{inspect.cleandoc(command.help or '')}\n"
        kinds = {
            name: one.annotation
            for name, one in inspect.signature(command.callback).parameters.items()
        }
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        usage = "".join(f" {one.metavar or one.name.upper()}" for one in arguments)
        yield f"    {words}{usage} [OPTIONS]\n"
        yield "| option | value | default | meaning |\n|---|---|---|---|"
        yield from (_option_row(one, kinds) for one in command.params if getattr(one, "help", None))
        yield ""


def _tree(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below:
        yield words, command
    for name, one in below.items():
        yield from _tree(f"{words} {name}", one)


def _option_row(option: Any, kinds: Mapping[str, Any]) -> str:
    argument = option.param_type_name == "argument"
    names = [] if argument else [*option.opts, *option.secondary_opts]
    value = (
        ""
        if getattr(option, "is_flag", False)
        else f"`{option.metavar or _value_text(kinds.get(option.name))}`"
    )
    default = getattr(option.default, "value", option.default)
    shown = (
        ""
        if default is None or default is False or callable(default) or argument
        else f"`{default}`"
    )
    cells = (" ".join(f"`{name}`" for name in names) or "argument", value, shown, option.help)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _value_text(kind: Any) -> str:
    """Return the choices of an option, or the placeholder of a number or a text."""
    inside = [kind, *get_args(kind), *(two for one in get_args(kind) for two in get_args(one))]
    choices = next((one for one in inside if inspect.isclass(one) and issubclass(one, Enum)), None)
    return (
        "N" if int in inside else "|".join(str(one.value) for one in choices) if choices else "TEXT"
    )


def _gallery(folder: Path) -> Iterator[str]:
    """Yield a section for each report: its commands, and an image that links to its page."""
    folder.mkdir()
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    yield (
        "# Gallery of reports\n\nThe build of this site makes these reports. Every report is one "
        "file."
    )
    for shown in GALLERY:
        for command in shown.commands:
            _dla(command, folder)
        typed = "".join(f"$ dla {command}\n" for command in shown.commands)
        yield f"\n## {shown.heading}\n\n{shown.words}\n\n```console\n{typed}```\n"
        page, picture = (
            f"../gallery/{shown.name}/{file}" for file in (f"{shown.name}.html", shown.picture)
        )
        image = f'<img src="{picture}" alt="{shown.heading}, as a picture">'
        yield f'<p><a href="{page}">Open the page<br>{image}</a></p>'


def _dla(command: str, folder: Path) -> None:
    """Run ``dla`` in a process of its own, so that parallel builds do not share a folder."""
    words = [sys.executable, "-m", "experiments.cli.main", *command.split()]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "DLA_NO_CACHE": "1"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"dla {command}: {done.stderr or done.stdout}")
