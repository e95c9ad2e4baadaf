"""The documentation site (extra ``docs``): ``python -m sphinx -W docs build/site``.

The guides are the Markdown files beside this one. What they do not say is made when building, in ``generated/``: the
reference of everything public, from docstrings, and the gallery, from runs of the command itself. Nothing is fetched.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.config import Config

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
autodoc_type_aliases = {name: name for name in ("Feeds", "Fixed", "Inputs", "Model", "Samples", "Settings", "Shapes")}

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
    """A report of the gallery: ``name`` is its folder and its page, ``picture`` the one that leads to it."""

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
        "The same network with a scratchpad of 2 KiB, beside it.",
        (
            "run digits-cnn --set sram_bytes=2KiB --json small.json",
            "report --compare small.json run.json -o small-against-run",
        ),
        "layer-cycles.png",
    ),
    Shown(
        "sweep",
        "A sweep",
        f"Two networks on every machine of this specification, `sweep.toml`:\n\n```toml\n{SWEEP}```",
        ("sweep sweep.toml -o sweep.sqlite", "report sweep.sqlite -o sweep"),
        "pareto-digits-cnn.png",
    ),
)


def setup(app: Sphinx) -> None:
    """What Sphinx calls: pages are made before it looks for them."""
    app.connect("config-inited", _generate)
    app.connect("autodoc-process-signature", _name_aliases)
    app.connect("autodoc-process-docstring", _say_fields)


def _generate(app: Sphinx, config: Config) -> None:
    shutil.rmtree(GENERATED, ignore_errors=True)
    (GENERATED / "extra").mkdir(parents=True)
    (GENERATED / "api.rst").write_text("\n".join(_reference()), encoding="utf-8")
    (GENERATED / "gallery.md").write_text("\n".join(_gallery(GENERATED / "extra" / "gallery")), encoding="utf-8")


def _reference() -> Iterator[str]:
    """A section a package: its docstring, and every name of its ``__all__``; what has had its place is referred to."""
    places: dict[int, str] = {}
    yield from ("Python reference", "================", "")
    for name in PACKAGES:
        package = import_module(name)
        yield from (name, "-" * len(name), "", f".. automodule:: {name}", "")
        for public in sorted(package.__all__, key=lambda public: _rank(getattr(package, public))):
            found, place = getattr(package, public), f"{name}.{public}"
            first = places.setdefault(id(found), place)
            yield from _entry(place, found) if first == place else (f":py:obj:`{public} <{first}>`: above.", "")


def _rank(found: Any) -> int:
    """Functions come first, then classes, then values."""
    return 0 if inspect.isroutine(found) else 1 if inspect.isclass(found) else 2


def _entry(place: str, found: Any) -> Iterator[str]:
    if inspect.isclass(found):
        yield f".. autoclass:: {place}"
        yield "   :members:"
        yield "   :exclude-members: model_config" if issubclass(found, BaseModel) else "   :undoc-members:"
    else:
        yield f".. autofunction:: {place}" if callable(found) else f".. autodata:: {place}\n   :no-value:"
    yield ""


def _name_aliases(app: Sphinx, what: str, name: str, found: Any, options: Any, signature: str, result: str) -> Any:
    """Names of types stay names in a union, too, where Sphinx writes how it came by them."""
    return re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature or "") or None, result


def _say_fields(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """The fields of a pydantic model are declared with their descriptions: they follow its docstring."""
    if what != "class" or not issubclass(found, BaseModel):
        return
    for field, facts in found.model_fields.items():
        default = "" if facts.is_required() else f" (default ``{facts.default!r}``)"
        lines.append(f":param {field}: {facts.description or ''}{default}")


def _gallery(folder: Path) -> Iterator[str]:
    """A section a report: the commands that made it, a picture that leads to its page."""
    folder.mkdir()
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    yield "# Gallery of reports\n\nMade anew with these pages. Every report is one file that opens from disk."
    for shown in GALLERY:
        for command in shown.commands:
            _dla(command, folder)
        typed = "".join(f"$ dla {command}\n" for command in shown.commands)
        yield f"\n## {shown.heading}\n\n{shown.words}\n\n```console\n{typed}```\n"
        page, picture = (f"../gallery/{shown.name}/{file}" for file in (f"{shown.name}.html", shown.picture))
        image = f'<img src="{picture}" alt="{shown.heading}, as a picture">'
        yield f'<p><a href="{page}">Open the page<br>{image}</a></p>'


def _dla(command: str, folder: Path) -> None:
    """Runs ``dla`` as a process of its own: of several at once neither sees the other's folder."""
    words = [sys.executable, "-m", "experiments.cli.main", *command.split()]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "DLA_NO_CACHE": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"dla {command}: {done.stderr or done.stdout}")
