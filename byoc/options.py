"""Options of a compilation, choices of a schedule, and the machine as operators see it.

Each option is declared once, as a field of :class:`CompileOptions` with a few values. Command-line
options, axes and keys of sweeps, the machine settings in ``dla golden diff`` and the commands
recorded in reports derive from :data:`OPTIONS`.

Schedules are data (:class:`Choices`): pins that a user writes in TOML, or the JSON of a search. The
compiler chooses everything that they leave open. Choices that leave nothing open are the whole
schedule, and the compiler uses it unchanged. Results never depend on the schedule.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from isa.errors import InputError, suggest_name

if TYPE_CHECKING:
    from isa.arch import Arch, Memory

Order = Literal["rows", "channels"]
ORDERS: tuple[Order, ...] = get_args(Order)
Quantisation = Literal["minmax", "percentile", "mse", "auto", "power-of-two"]
"""How the importer chooses the scales of a float model; ``auto`` may keep tensors in float."""


@dataclass(frozen=True)
class LayerChoice:
    """Choices for the tiling of one layer; the compiler chooses fields that are None.

    A tile computes ``channels`` by ``rows`` of the output from ``depth`` input channels (0: all at
    once). The outer loop runs over ``order``. ``slots`` are the buffers of inputs, constants and
    outputs: 1 single, 2 double-buffered.
    """

    layer: str
    channels: int | None = None
    rows: int | None = None
    depth: int | None = None
    order: Order | None = None
    slots: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class GroupChoice:
    """Layers, by name in execution order, that are computed together in bands of rows.

    A band has ``rows`` rows of the last layer's result. ``rows`` 0 means two layers, the second
    element-wise and computed on every tile of the first. The first layer's tiling is then a
    :class:`LayerChoice`, and the other fields are omitted. ``kept`` names the tensors whose rows
    stay in the scratchpad from band to band (None: all). ``channels`` has the output channels of a
    tile for each layer (None: all). ``held`` says for each layer whether its constants are loaded
    once instead of in every band (None: once for all). ``slots`` is the number of buffers for
    results and for operands whose rows are not kept (None: 2).
    """

    layers: tuple[str, ...]
    rows: int
    kept: tuple[str, ...] | None = None
    channels: tuple[int, ...] | None = None
    held: tuple[bool, ...] | None = None
    slots: int | None = None

    @property
    def turns(self) -> str:
        """Text that says how the layers of a group alternate."""
        return f"in bands of {self.rows} rows" if self.rows else "tile by tile"


PlacedGroups = tuple[tuple[int, GroupChoice], ...]
"""Groups in order, each with the index of its first layer."""


def place_groups(
    names: Sequence[str],
    groups: Sequence[GroupChoice],
    able: Callable[[int, int], bool] = lambda first, last: True,
) -> PlacedGroups:
    """Return the groups in layer order, each with the index of its first layer in ``names``.

    A group is found where its layer names appear consecutively. If they appear several times, as
    the copies of a batch do, it is found at the first place where ``able(first, last)`` says that
    layers ``first`` to ``last`` can be a group, or at the first place if there is none. The result
    omits groups whose names do not appear.
    """

    def find_places(one: GroupChoice) -> list[int]:
        count = len(one.layers)
        named = [at for at in range(len(names)) if tuple(names[at : at + count]) == one.layers]
        return [at for at in named if able(at, at + count - 1)] or named

    places = {one: find_places(one) for one in groups}
    wanted = list(groups)
    found = list[tuple[int, GroupChoice]]()
    at = 0
    while at < len(names):
        group = next((one for one in wanted if at in places[one]), None)
        if group is None:
            at += 1
            continue
        wanted.remove(group)
        found.append((at, group))
        at += len(group.layers)
    return tuple(found)


@dataclass(frozen=True)
class Choices:
    """Choices for the schedule of a network.

    The object is false if nothing is chosen. Several choices for layers of the same name apply in
    order, the last one to all remaining layers of that name. ``residents`` are exactly the tensors
    that stay in the scratchpad (None: the compiler chooses). ``groups`` are exactly the layers that
    are computed together. With None the compiler chooses groups among layers without other choices,
    and only if ``residents`` is None too. ``package`` and ``machine`` are the digests that the
    choices were made for, empty for any. ``words`` are the command-line words that select them.
    """

    layers: tuple[LayerChoice, ...] = ()
    residents: tuple[str, ...] | None = None
    groups: tuple[GroupChoice, ...] | None = None
    package: str = ""
    machine: str = ""
    words: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.layers) or self.residents is not None or self.groups is not None

    @property
    def source(self) -> str:
        """Name of these choices in messages."""
        return " ".join(self.words) or "the choices"

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the choices.

        Equal choices have equal digests.
        """
        text = json.dumps(to_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def list_for(self, names: Sequence[str]) -> list[LayerChoice | None]:
        """Return the choice for each layer of ``names``, None where there is none."""
        by_name: dict[str, list[LayerChoice]] = {}
        for choice in self.layers:
            by_name.setdefault(choice.layer, []).append(choice)
        seen: Counter[str] = Counter()
        found: list[LayerChoice | None] = []
        for name in names:
            own = by_name.get(name)
            found.append(own[min(seen[name], len(own) - 1)] if own else None)
            seen[name] += 1
        return found

    def orders_of(self, orders: Sequence[Sequence[str]]) -> list[int]:
        """Return the indices of those layer ``orders`` to which the schedule choices can apply.

        Choices that leave nothing open apply to the order that contains exactly their layers, each
        equally often, if there is one.
        """
        keys = (value for choice in self.layers for value in vars(choice).values())
        if self.residents is None or self.groups is None or None in keys:
            return list(range(len(orders)))
        wanted = [Counter(names) for names in orders]
        chosen = [
            Counter(choice.layer for choice in self.layers if choice.layer in one) for one in wanted
        ]
        pairs = list(enumerate(zip(wanted, chosen, strict=True)))
        whole = [number for number, (layers, named) in pairs if layers == named]
        return whole or [
            number for number, (layers, named) in pairs if named.keys() < layers.keys()
        ]

    def check_made_for(self, package: str, machine: str) -> None:
        """Raise InputError if the choices were made for another package or machine."""
        for what, wanted, found in (
            ("network", self.package, package),
            ("machine", self.machine, machine),
        ):
            if wanted and wanted != found:
                raise InputError(
                    f"{self.source}: made for another {what} (digest {wanted[:16]}, this one has "
                    f"{found[:16]}); give the same model, seed, preset and settings, or tune this "
                    "one with --from"
                )

    def check_made(self, made: Sequence[Choices]) -> None:
        """Raise InputError if a choice names a layer, tensor or group that no schedule has.

        ``made`` are the whole schedules of all regions. Such a choice names an unknown layer or
        tensor, or a group of layers that are not consecutive.
        """
        named = [choice.layer for choice in self.layers]
        named += [name for group in self.groups or () for name in group.layers]
        layers = [choice.layer for one in made for choice in one.layers]
        _check_known(self.source, "layer of the accelerator", named, layers)
        tensors = [name for one in made for name in one.residents or ()]
        _check_known(
            self.source, "tensor that can stay in the scratchpad", self.residents or (), tensors
        )
        found = {group.layers for one in made for group in one.groups or ()}
        for group in self.groups or ():
            if group.layers not in found:
                raise InputError(
                    f"{self.source}: group '{group.layers[0]}' to '{group.layers[-1]}': these "
                    "layers do not follow one another, or are in a group before; 'dla explain "
                    "MODEL' lists all in order"
                )


NOTHING = Choices()


def _check_known(source: str, what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean '{close[0]}'?" if close else "'dla explain MODEL' lists them"
            raise InputError(f"{source}: '{name}' is no {what}; {meant}")


def to_json(choices: Choices) -> dict[str, Any]:
    """Return the choices as plain values, which :func:`byoc.options.from_json` reads."""
    found: dict[str, Any] = {"layers": [_to_plain(one) for one in choices.layers]}
    if choices.residents is not None:
        found["residents"] = list(choices.residents)
    if choices.groups is not None:
        found["groups"] = [_to_plain(one) for one in choices.groups]
    return found


def _to_plain(choice: LayerChoice | GroupChoice) -> dict[str, Any]:
    return {name: value for name, value in asdict(choice).items() if value is not None}


KEYS = tuple(item.name for item in fields(LayerChoice) if item.name != "layer")
"""Keys of a layer's choices."""
GROUP_KEYS = tuple(item.name for item in fields(GroupChoice))
"""Keys of a group's choices."""
OPERANDS = ("input", "constants", "output")
"""Operands whose buffers ``slots`` counts, in order."""
MAXIMUM_BYTES = 1 << 20
MOST = 1 << 20
"""Largest number accepted in a file."""
_REMEDY = "docs/tuning.md shows such a file"


def from_json(value: Any, source: str) -> Choices:
    """Read the values that :func:`byoc.options.to_json` returns.

    ``source`` is their name in messages. Raises InputError for anything else.
    """
    if not isinstance(value, dict) or not isinstance(value.get("layers"), list):
        raise InputError(f"{source}: no schedule; {_REMEDY}")
    layers = []
    for entry in value["layers"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("layer"), str):
            raise InputError(f"{source}: a layer without a name; {_REMEDY}")
        layers.append(
            _layer(
                entry["layer"], {key: item for key, item in entry.items() if key != "layer"}, source
            )
        )
    return Choices(tuple(layers), _residents(value, source), _groups(value, source))


def load_pins(path: Path) -> Choices:
    """Read choices from a TOML file.

    The file has a table ``[layers.NAME]`` for each layer, a table ``[[groups]]`` for each group,
    and a list ``residents``. All are optional. Raises InputError that names layer, key and value.
    """
    from isa.reading import read_bytes, toml_of

    source = f"--pins {path}"
    content = toml_of(read_bytes(path, MAXIMUM_BYTES, "a file of pins", _REMEDY), source, _REMEDY)
    for name in content.keys() - {"layers", "residents", "groups"}:
        raise InputError(
            f"{source}: unknown key '{name}'; the keys are layers, residents and groups ({_REMEDY})"
        )
    tables = content.get("layers", {})
    if not isinstance(tables, dict):
        raise InputError(
            f"{source}: layers is {tables!r}; write a table [layers.NAME] for each layer"
        )
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(
                f"{source}: layer '{name}' is {table!r}; write a table "
                f"[layers.{name}] with {_keys()}"
            )
    layers = tuple(_layer(name, table, source) for name, table in tables.items())
    return Choices(
        layers, _residents(content, source), _groups(content, source), words=("--pins", str(path))
    )


def _residents(content: Mapping[str, Any], source: str) -> tuple[str, ...] | None:
    names = content.get("residents")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{source}: residents is {names!r}; write a list of names of tensors")
    return tuple(names)


def _groups(content: Mapping[str, Any], source: str) -> tuple[GroupChoice, ...] | None:
    tables = content.get("groups")
    if tables is None:
        return None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{source}: groups is {tables!r}; write a table [[groups]] for each group")
    return tuple(_group(table, source) for table in tables)


_GROUP_LISTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "layers": ("names of layers", lambda value: isinstance(value, str)),
    "kept": ("names of tensors", lambda value: isinstance(value, str)),
    "channels": ("numbers from 1 up, one a layer", lambda value: _is_count(value)),
    "held": ("true or false, one a layer", lambda value: isinstance(value, bool)),
}


def _group(values: Mapping[str, Any], source: str) -> GroupChoice:
    for key, value in values.items():
        if key not in GROUP_KEYS:
            raise InputError(
                f"{source}: a group: unknown key '{key}'; the keys are {', '.join(GROUP_KEYS)}"
            )
        if key in ("rows", "slots"):
            least = 0 if key == "rows" else 1
            if not _is_count(value, least):
                raise InputError(
                    f"{source}: a group: {key} is {value!r}; write a number from {least} to {MOST}"
                )
            continue
        what, right = _GROUP_LISTS[key]
        if not isinstance(value, list | tuple) or not all(map(right, value)):
            raise InputError(f"{source}: a group: {key} is {value!r}; write a list of {what}")
    if not values.get("layers") or "rows" not in values:
        raise InputError(f"{source}: a group without layers or rows; {_REMEDY}")
    rest = {
        key: tuple(value)
        for key, value in values.items()
        if key in _GROUP_LISTS and key != "layers"
    }
    return GroupChoice(tuple(values["layers"]), values["rows"], **rest, slots=values.get("slots"))


def _layer(name: str, values: Mapping[str, Any], source: str) -> LayerChoice:
    for key, value in values.items():
        if key not in KEYS:
            raise InputError(
                f"{source}: layer '{name}': unknown key '{key}'; the keys are {_keys()}"
            )
        wrong = _wrong(key, value)
        if wrong:
            raise InputError(f"{source}: layer '{name}': {key} is {value!r}; {wrong}")
    slots = values.get("slots")
    return LayerChoice(name, **{**values, **({} if slots is None else {"slots": tuple(slots)})})


def _wrong(key: str, value: Any) -> str:
    """Return a message with the accepted values of a key; empty if ``value`` is accepted."""
    if key == "order":
        return (
            "" if value in ORDERS else f"write {' or '.join(ORDERS)}: what the outer loop runs over"
        )
    if key == "slots":
        right = (
            isinstance(value, list | tuple)
            and len(value) == len(OPERANDS)
            and all(map(_is_count, value))
        )
        return "" if right else f"write three numbers from 1 up, buffers of {', '.join(OPERANDS)}"
    least = 0 if key == "depth" else 1
    return "" if _is_count(value, least) else f"write a number from {least} to {MOST}"


def _is_count(value: Any, least: int = 1) -> bool:
    return type(value) is int and least <= value <= MOST


def _keys() -> str:
    return ", ".join(KEYS)


Schedule = Literal["seed", "default"]
Grouped = Literal["auto", "cpu", "per-group", "native"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


@dataclass(frozen=True)
class CompileOptions:
    """Options of a compilation, independent of the machine.

    Raises InputError for an unknown value.
    """

    schedule: Schedule = field(
        default="default",
        metadata={
            "help": "Choose the schedules: as published (seed), or with all optimisations "
            "(default).",
            "axis": "schedules",
        },
    )
    emulate_depthwise: bool = field(
        default=False,
        metadata={"help": "Run depthwise convolutions on OP_CONV, one filter at a time."},
    )
    grouped: Grouped = field(
        default="auto",
        metadata={
            "help": "Run grouped convolutions on the CPU, as OP_CONV per group, as OP_GROUP_CONV, "
            "or the fastest way."
        },
    )
    integer_io: bool = field(
        default=False,
        metadata={
            "help": "Leave quantised inputs and outputs as integers; omit the nodes that "
            "convert them."
        },
    )
    strict: bool = field(
        default=False, metadata={"help": "Fail if a node falls back to the CPU.", "programs": False}
    )

    chosen: Choices = NOTHING

    def __post_init__(self) -> None:
        for option in OPTIONS:
            option.check(getattr(self, option.name))
        if self.chosen and self.schedule == "seed":
            raise InputError(
                f"{self.chosen.source}: nothing of schedule seed can be chosen; leave "
                "--schedule out"
            )

    def replace_fields(self, choices: Mapping[str, Any]) -> CompileOptions:
        """Return these options with fields replaced by ``choices``, a caller's keyword arguments.

        Raises TypeError for a name that is no field, and InputError for a value that an option does
        not have.
        """
        known = [item.name for item in fields(self)]
        for name in choices:
            if name not in known:
                options = ", ".join(known)
                raise TypeError(
                    f"unexpected keyword argument '{name}'; {suggest_name(name, known)}options are "
                    f"{options}"
                )
        return replace(self, **choices)

    @property
    def choices(self) -> Mapping[str, Any]:
        """Options and schedule choices that programs depend on, by name.

        They distinguish compilations.
        """
        options = {option.name: getattr(self, option.name) for option in PROGRAM_OPTIONS}
        return {**options, "chosen": self.chosen.digest} if self.chosen else options

    @property
    def words(self) -> list[str]:
        """Words of the ``dla`` command that select these options.

        Options at their defaults are omitted.
        """
        return [word for option in OPTIONS for word in option.words(getattr(self, option.name))] + [
            *self.chosen.words
        ]


@dataclass(frozen=True)
class Option:
    """One option of a compilation.

    ``type`` is the type of exactly the allowed ``values``; a switch has False and True. ``axis`` is
    its key in the specification of a sweep. ``programs`` is True if programs depend on it.
    """

    name: str
    type: Any
    default: Any
    help: str
    axis: str
    programs: bool

    @property
    def switch(self) -> bool:
        """True if the option is boolean."""
        return self.type is bool

    @property
    def values(self) -> tuple[Any, ...]:
        return (False, True) if self.switch else get_args(self.type)

    @property
    def word(self) -> str:
        """Name of the option on command lines."""
        return self.name.replace("_", "-")

    @property
    def texts(self) -> dict[str, Any]:
        """Values of the option, by the text that users write for them."""
        return (
            {"yes": True, "no": False} if self.switch else {value: value for value in self.values}
        )

    def words(self, value: Any) -> list[str]:
        """Return command-line words that set the option to ``value``; none for the default."""
        if value == self.default:
            return []
        return [f"--{self.word}"] if self.switch else [f"--{self.word}", value]

    def check(self, value: Any) -> None:
        """Raise InputError if the option does not accept ``value``."""
        try:
            known = value in self.values
        except (TypeError, ValueError):  # comparing an array with a value does not give a bool
            known = False
        if not known:
            shown = " ".join(reprlib.repr(value).split())
            raise InputError(
                f"{self.name} is {shown}; choose one of {', '.join(map(str, self.values))}"
            )

    def parse(self, text: str) -> Any:
        """Return the option value that ``text`` names; a switch accepts ``yes`` and ``no``.

        Raises InputError for other texts.
        """
        if text not in self.texts:
            raise InputError(f"{self.word} is '{text}'; it is {' or '.join(self.texts)}")
        return self.texts[text]


def _list_declared() -> tuple[Option, ...]:
    types = get_type_hints(CompileOptions)
    return tuple(
        Option(
            item.name,
            types[item.name],
            item.default,
            **({"axis": item.name, "programs": True} | {**item.metadata}),
        )
        for item in fields(CompileOptions)
        if item.metadata
    )


OPTIONS: tuple[Option, ...] = _list_declared()
PROGRAM_OPTIONS: tuple[Option, ...] = tuple(option for option in OPTIONS if option.programs)
"""Options that programs depend on; the others only decide whether programs are made."""
DEFAULTS = CompileOptions()


@dataclass(frozen=True)
class Target:
    """Properties of a machine that decide which operators it can run.

    ``instructions`` are mnemonics. Limits are exclusive.
    """

    instructions: frozenset[str]
    isa: str
    memory: Memory
    emulate_depthwise: bool = False
    grouped: Grouped = "auto"
    numerics: Literal["onnxruntime", "fixed"] = "onnxruntime"
    channel_limit: int = 1 << 20
    spatial_limit: int = 1 << 16
    window_limit: int = 1 << 8
    group_limit: int = 1 << 16
    multiplier_limit: int = 1 << 20


def target_of(arch: Arch, options: CompileOptions = DEFAULTS) -> Target:
    """Return the target of ``arch``; raise InputError for an unknown ISA variant."""
    from isa.plugins import variant

    isa = variant(arch.isa)
    choices = (options.emulate_depthwise, options.grouped, arch.numerics)
    window = isa.register_file.by_name["EX_KERNEL_WIDTH"].maximum + 1
    most = arch.memory.multiplier_limit
    return Target(
        isa.mnemonics, arch.isa, arch.memory, *choices, window_limit=window, multiplier_limit=most
    )
