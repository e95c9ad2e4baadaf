"""``dla new``: write a package with an operator or an instruction, with tests.

The files are those of docs/adding-an-instruction.md, sections 8 and 9, under other names.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from experiments.literal import say
from isa.errors import InputError
from isa.files import write_atomically

app = typer.Typer(help="Write a package with an operator or an instruction.", no_args_is_help=True)
TEMPLATES = Path(__file__).parents[1] / "templates"
FIRST_OPCODE = 0x91
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the package, for example my-slope.")
]


@app.command()
def operator(name: Name) -> None:
    """Write a package with an operator on existing instructions, and its tests."""
    from byoc.operators.registry import load_installed_families

    check_name(name, load_installed_families().owners)
    write_package("operator", name, words_for("my-slope", name))


@app.command()
def instruction(name: Name) -> None:
    """Write a package with an instruction, an operator that uses it, and its tests."""
    from byoc.operators.registry import load_installed_families
    from isa.plugins import load_installed_table

    table = load_installed_table()
    words = words_for("my-sub", name)
    taken = {one.mnemonic: table.owner(one.mnemonic) for one in table.instructions}
    taken |= dict.fromkeys((one.name for one in table.variants), "an ISA variant")
    check_name(name, {**taken, **load_installed_families().owners}, words["OP_MY_SUB"])
    used = {one.opcode for one in table.instructions}
    opcode = next(code for code in range(FIRST_OPCODE, 0x100) if code not in used)
    write_package("instruction", name, {**words, f"{FIRST_OPCODE:#04x}": f"{opcode:#04x}"})


def words_for(template: str, name: str) -> dict[str, str]:
    """Return the replacements of a template's name in all its spellings."""

    def spell(text: str) -> list[str]:
        parts = re.split("[-_]", text)
        snake = "_".join(parts)
        return [f"OP_{snake.upper()}", "".join(map(str.capitalize, parts)), snake, "-".join(parts)]

    return dict(zip(spell(template), spell(name), strict=True))


def check_name(name: str, taken: Mapping[str, str], mnemonic: str = "") -> None:
    """Raise InputError for a name that cannot be a package, a module and a family of operators.

    ``taken`` has the owner of each name in use.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r}: write lower-case words with hyphens, for example my-slope")
    module = name.replace("-", "_")
    owner = taken.get(name.replace("_", "-")) or taken.get(mnemonic)
    if owner is None and (iskeyword(module) or find_spec(module) is not None):
        owner = "Python or an installed package"
    if owner is not None:
        raise InputError(f"{name}: the name is taken by {owner}; choose another, such as my-{name}")


def write_package(kind: str, name: str, words: Mapping[str, str]) -> None:
    """Write the files of a template to a new folder, with some words replaced."""
    folder = Path(name.replace("_", "-"))
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} exists; dla new overwrites nothing: choose another name")
    pattern = re.compile("|".join(map(re.escape, words)))
    made = {}
    for template in sorted((TEMPLATES / kind).iterdir()):
        text = pattern.sub(lambda found: words[found[0]], template.read_text(encoding="utf-8"))
        made[pattern.sub(lambda found: words[found[0]], template.stem)] = text
    folder.mkdir()
    for file, text in made.items():
        write_atomically(folder / file, text)
    say(f"{folder}: {', '.join(made)}")
    say(f"next: python3 -m pip install pytest -e {folder}, then python3 -m pytest {folder}")
    sections = {"operator": "section 8", "instruction": "sections 4 to 9"}
    say(f"guide: docs/adding-an-instruction.md, {sections[kind]}")
