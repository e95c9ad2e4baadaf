"""Seeded faults: source texts and their replacements, read from the TOML files of this folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from isa.errors import InputError
from isa.reading import read_bytes, toml_of

MAXIMUM_BYTES = 1 << 20
AREAS = (
    "encoding", "decoding", "assembly", "semantics", "operands", "padding", "stride", "rounding",
    "saturation",
    "kernels", "tokens", "memory", "cycle formula", "engine", "transfers", "accounts",
)  # fmt: skip

FILES = ("encoding", "semantics", "numerics", "cycles", "kernels", "engine")
"""Faults in what a program means and how long it takes."""
CHOICES = ("estimate", "tiling", "scheduling", "quantisation")
"""Faults in what the compiler chooses."""
WORDS = ("words", "layouts")
"""Faults in layouts and cycles of banked memory, all of which quick tests see."""


@dataclass(frozen=True)
class Fault:
    """A replacement of the only ``old`` in ``file`` (from the folder of the packages) by ``new``.

    ``equivalent`` is the argument that the fault changes nothing observable; such faults must not
    be detected. ``tests`` are files of quick tests that detect it, and ``case`` is the recorded
    case whose cycles detect it. Faults of :data:`CHOICES`, of :data:`WORDS` and of
    :data:`tests.faults.quality.MUTANTS` have one of the two.
    """

    name: str
    area: str
    file: str
    old: str
    new: str
    equivalent: str = ""
    case: str = ""
    tests: tuple[str, ...] = ()

    def apply(self, folder: Path) -> None:
        """Seed the fault into the copy in ``folder``.

        Raises InputError when it does not fit the sources.
        """
        file = folder / self.file
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        old = re.escape(self.old) if self.old in text else _reformatted(self.old)
        count = len(re.findall(old, text))
        if count != 1 or self.new == self.old:
            raise InputError(
                f"fault {self.name}: its text stands {count} times in {self.file}; it must stand "
                "once - adapt the fault"
            )
        file.write_text(re.sub(old, lambda _: self.new, text), encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            # Python tells versions apart by size and second, which need not differ
            compiled.unlink()


def _reformatted(old: str) -> str:
    """Return a pattern of the code ``old`` with any line breaks and indentation.

    Commas before closing brackets are optional.
    """
    pattern = ""
    for word in re.findall(r"\s+|\w+|[^\w\s]", re.sub(r",\s*(?=[])}])", "", old.strip())):
        if word.isspace():
            pattern += r"\s+"
        else:
            pattern += (
                (r"(?:,?\s*)" if word in ")]}" else "")
                + re.escape(word)
                + (r"\s*" if word in "([{" else "")
            )
    return pattern


def seeded_faults(names: Sequence[str] = FILES) -> tuple[Fault, ...]:
    """The faults of the files called ``names``."""
    files = (Path(__file__).with_name(f"{name}.toml") for name in names)
    return tuple(fault for file in files for fault in read_faults(file))


def read_faults(file: Path) -> list[Fault]:
    """Read the faults of one file; raises InputError for an invalid one."""
    remedy = "tests/faults has examples"
    document = toml_of(
        read_bytes(file, MAXIMUM_BYTES, "a file of faults", remedy), str(file), remedy
    )
    try:
        return TypeAdapter(list[Fault]).validate_python(document.get("fault"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{file}: not a file of faults ({place}: {first['msg']}); {remedy}"
        ) from error


def choose_faults(names: Sequence[str], known: Sequence[Fault]) -> tuple[Fault, ...]:
    """Those called ``names`` of the faults ``known``, all without any.

    Raises InputError for a name that none has.
    """
    faults = {fault.name: fault for fault in known}
    for name in names:
        if name not in faults:
            raise InputError(f"no fault is called '{name}'; choose from {', '.join(faults)}")
    return tuple(faults[name] for name in names) if names else tuple(known)
