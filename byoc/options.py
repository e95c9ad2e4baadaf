"""What can be chosen about a compilation. Each choice is declared once, as a field of :class:`CompileOptions`.

All but the choices of a schedule, which are a record of their own, are options with a few values each.
Options of the command line, axes and keys of sweeps, the settings of a machine in ``dla golden diff`` and the commands
that reports record derive from :data:`OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from byoc.choices import NOTHING, Choices
from isa.errors import InputError, meant

Schedule = Literal["seed", "default"]
Grouped = Literal["auto", "cpu", "per-group", "native"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


@dataclass(frozen=True)
class CompileOptions:
    """How to compile, whatever the machine. Raises InputError for a value that a choice does not have."""

    schedule: Schedule = field(
        default="default", metadata={"help": "seed: the published system; default: all we can.", "axis": "schedules"}
    )
    emulate_depthwise: bool = field(
        default=False, metadata={"help": "Run depthwise convolutions on OP_CONV, one filter at a time."}
    )
    grouped: Grouped = field(
        default="auto",
        metadata={
            "help": "Grouped convolutions: on the CPU, one OP_CONV a group, OP_GROUP_CONV, or auto: the fastest."
        },
    )
    integer_io: bool = field(
        default=False,
        metadata={"help": "Hand over and take integers where the network quantises its inputs and outputs alone."},
    )
    strict: bool = field(
        default=False, metadata={"help": "Any node that falls back to the CPU is an error.", "programs": False}
    )

    chosen: Choices = NOTHING

    def __post_init__(self) -> None:
        for option in OPTIONS:
            option.check(getattr(self, option.name))
        if self.chosen and self.schedule == "seed":
            raise InputError(f"{self.chosen.source}: nothing of schedule seed can be chosen; leave --schedule out")

    def replaced(self, choices: Mapping[str, Any]) -> CompileOptions:
        """These with ``choices``, the further keyword arguments of a function, instead of fields of the same names.

        Raises TypeError for a name that no field has, and InputError for a value that a choice does not have.
        """
        known = [item.name for item in fields(self)]
        for name in choices:
            if name not in known:
                options = ", ".join(known)
                raise TypeError(f"unexpected keyword argument '{name}'; {meant(name, known)}options are {options}")
        return replace(self, **choices)

    @property
    def choices(self) -> Mapping[str, Any]:
        """What the programs depend on, by name: enough to tell compilations apart."""
        options = {option.name: getattr(self, option.name) for option in PROGRAM_OPTIONS}
        return {**options, "chosen": self.chosen.digest} if self.chosen else options

    @property
    def words(self) -> list[str]:
        """The options of the ``dla`` command that make these; choices at their defaults are left out."""
        return [word for option in OPTIONS for word in option.words(getattr(self, option.name))] + [*self.chosen.words]


@dataclass(frozen=True)
class Option:
    """One choice: its ``values``, and ``type``, which has just them. A switch has the values False and True.

    ``axis`` is its key in the specification of a sweep; ``programs`` says whether programs depend on it.
    """

    name: str
    type: Any
    default: Any
    help: str
    axis: str
    programs: bool

    @property
    def switch(self) -> bool:
        """Whether it is on or off, and no more."""
        return self.type is bool

    @property
    def values(self) -> tuple[Any, ...]:
        """All values."""
        return (False, True) if self.switch else get_args(self.type)

    @property
    def word(self) -> str:
        """Its name on command lines."""
        return self.name.replace("_", "-")

    @property
    def texts(self) -> dict[str, Any]:
        """The values by what people write for them."""
        return {"yes": True, "no": False} if self.switch else {value: value for value in self.values}

    def words(self, value: Any) -> list[str]:
        """The words of a command line that choose ``value``: none for the default."""
        if value == self.default:
            return []
        return [f"--{self.word}"] if self.switch else [f"--{self.word}", value]

    def check(self, value: Any) -> None:
        """Raises InputError for what is none of the values."""
        if value not in self.values:
            raise InputError(f"{self.name} is {value!r}; choose one of {', '.join(map(str, self.values))}")

    def parse(self, text: str) -> Any:
        """The value that ``text`` is, ``yes`` or ``no`` for switches; raises InputError for others."""
        if text not in self.texts:
            raise InputError(f"{self.word} is '{text}'; it is {' or '.join(self.texts)}")
        return self.texts[text]


def _declared() -> tuple[Option, ...]:
    types = get_type_hints(CompileOptions)
    return tuple(
        Option(item.name, types[item.name], item.default, **({"axis": item.name, "programs": True} | {**item.metadata}))
        for item in fields(CompileOptions)
        if item.metadata
    )


OPTIONS: tuple[Option, ...] = _declared()
PROGRAM_OPTIONS: tuple[Option, ...] = tuple(option for option in OPTIONS if option.programs)
"""The options that programs depend on; the others decide only whether there are any."""
DEFAULTS = CompileOptions()
