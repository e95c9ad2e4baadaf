"""Presets: named machines (Arch and Timing) in TOML files, memory modes, and settings on top.

Every key has a table, allowed values, a default, a unit and a meaning, which its declaration gives.
A memory mode is a set of Timing constants for the place of constants and activations
(docs/machine.md, section 10). A setting is a text ``key=value``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from json import dumps
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from dla_sim.timing import Timing
from isa.arch import Arch, PeArray, flat
from isa.errors import InputError, suggest_name
from isa.plugins import variant
from isa.reading import check_file, read_bytes, toml_of

Table = Literal["arch", "timing"]


@dataclass(frozen=True)
class Setting:
    """Configuration key of a machine; ``arch`` keys affect programs, ``timing`` keys cycles.

    ``values`` describes the allowed values. ``unit`` is empty for a key whose value is text.
    ``words`` is the name in plain words.
    """

    key: str
    table: Table
    values: str
    default: int | str | None
    unit: str
    meaning: str
    words: str


def list_settings() -> tuple[Setting, ...]:
    """Return every key of a setting or preset file, in the order of the declarations."""
    return (*_list_declared(Arch, "arch"), *_list_declared(Timing, "timing"))


def _list_declared(model: type[BaseModel], table: Table, prefix: str = "") -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        extra = field.json_schema_extra
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _list_declared(kind, table, f"{prefix}{name}.")
            continue
        rules = {
            end: getattr(rule, end)
            for rule in field.metadata
            for end in ("ge", "le")
            if hasattr(rule, end)
        }
        unit = str(extra["unit"]) if isinstance(extra, dict) else ""
        values = _values(kind, rules)
        meaning = field.description or ""
        yield Setting(
            f"{prefix}{name}", table, values, field.default, unit, meaning, field.title or ""
        )


def _values(kind: Any, rules: Mapping[str, Any]) -> str:
    """Describe the allowed values of a key of type ``kind`` in words."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if kind is str:
        return "text"
    if not rules:
        return "rate, 0.001 or more, or none"
    limits = f"integer, {rules['ge']} to {rules['le']}"
    return f"{limits}, or none" if NoneType in get_args(kind) else limits


SRAM_LATENCY = 32
"""Latency in cycles of an SRAM next to the accelerator in Arm's Ethos-U55 system
(``Sram_read_latency``).
"""


@dataclass(frozen=True)
class MemoryMode:
    """Memory mode of a machine: the Timing keys that it sets, and the main memory's type."""

    name: str
    description: str
    main: Literal["DRAM", "SRAM"]
    timing: Mapping[str, int | None]


_SRAM = {
    "dram_latency": SRAM_LATENCY,
    "dram_rate": None,
    "dram_row_bytes": 0,
    "dram_refresh_interval": 0,
}
_FLASH = {
    "flash_bytes": 1,
    "flash_burst_bytes": 128,
    "flash_latency": 64,
    "flash_outstanding_bursts": 2,
    "flash_rate": None,
}
MEMORY_MODES = (
    MemoryMode("dram", "everything in the DRAM of the preset", "DRAM", {"flash_bytes": 0}),
    MemoryMode(
        "flash",
        "constants and command words in a flash of 1 byte a cycle, all else in SRAM next to the "
        "accelerator",
        "SRAM",
        {**_SRAM, **_FLASH},
    ),
    MemoryMode(
        "sram",
        "everything in SRAM next to the accelerator",
        "SRAM",
        {**_SRAM, "flash_bytes": 0},
    ),
)
"""All memory modes, with the figures of Arm's reference system ``Ethos_U55_High_End_Embedded``."""


SRAM_MODES = tuple(mode.name for mode in MEMORY_MODES if mode.main == "SRAM")
"""Memory modes whose main memory is an SRAM next to the accelerator."""


def memory_mode(name: str) -> MemoryMode:
    """Return the memory mode with a given name; raise InputError if it does not exist."""
    names = [mode.name for mode in MEMORY_MODES]
    if name not in names:
        raise InputError(
            f"unknown memory mode '{name}'; {suggest_name(name, names)}choose one of "
            f"{', '.join(names)}"
        )
    return MEMORY_MODES[names.index(name)]


DEFAULT_PRESET = "balanced-64"
"""Name of the recommended machine."""

MAXIMUM_BYTES = 1 << 20
_REMEDY = "'dla settings' lists the keys of a machine"

_PE_KEYS = tuple(f"pe.{name}" for name in PeArray.model_fields)
_ARCH_KEYS = tuple(name for name in Arch.model_fields if name != "pe")
_TIMING_KEYS = tuple(Timing.model_fields)
_CHOSEN = tuple(name for name in _ARCH_KEYS if Arch.model_fields[name].default is None)
"""Keys for which ``none`` selects the machine's default."""
_RATES = tuple(name for name in _TIMING_KEYS if Timing.model_fields[name].default is None)
"""Keys of Timing that are rates: numbers, fractions or ``none``."""
_WORDS = ("isa", "numerics")
SETTING_KEYS: tuple[str, ...] = (*_ARCH_KEYS, *_PE_KEYS, *_TIMING_KEYS)
"""Every key that a setting can name."""
_UNITS = {"": 1, "k": 1000, "M": 10**6, "G": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY = re.compile(r"\s*(\d{1,30})\s*([A-Za-z]*)\s*")

Settings = Iterable[str] | Mapping[str, int | float | str | None]
"""Texts ``key=value``, or values by key; sizes may have a unit, as in "64KiB"."""


class Preset(BaseModel):
    """A named machine: ``arch`` affects programs, ``timing`` affects cycles only.

    ``memory_mode`` is the last mode that set constants of ``timing``, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    memory_mode: str | None = None
    arch: Arch = Arch()
    timing: Timing = Timing()

    @model_validator(mode="after")
    def _consistent(self) -> Preset:
        self.timing.word_cycles(self.arch.memory.word)
        return self

    @property
    def main_memory(self) -> Literal["DRAM", "SRAM"]:
        """Type of the main memory, which affects only energy."""
        return "DRAM" if self.memory_mode is None else memory_mode(self.memory_mode).main


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets in the package, sorted."""
    files = resources.files(__name__).iterdir()
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    )


def load_hardware(
    preset: str | None = None,
    settings: Settings = (),
    isa: str | None = None,
    memory_mode: str | None = None,
) -> Preset:
    """Return the machine ``preset`` after applying a memory mode, settings and an ISA.

    Args:
        preset: name or file of the preset; None means the recommended machine.
        settings: texts ``key=value``, or values by key.
        isa: name of the instruction set variant.
        memory_mode: name of the memory mode.

    Raises:
        InputError: a preset, mode, ISA or key is unknown, a value does not fit, or a file is not
            readable.
    """
    hardware = apply_memory_mode(load_preset(preset or DEFAULT_PRESET), memory_mode)
    chosen = () if isa is None else (f"isa={variant(isa).name}",)
    return apply_settings(hardware, (*setting_texts(settings), *chosen))


def load_preset(name_or_path: str = DEFAULT_PRESET) -> Preset:
    """Return the machine preset with a given name or from a given TOML file.

    A text that ends in ``.toml`` or contains a slash is a file. It may have ``name``,
    ``description``, ``memory_mode`` and the tables ``arch`` and ``timing``; the latter overrides
    the mode.

    Raises:
        InputError: the name is unknown, the file is missing or malformed, a key is unknown, or a
            value is not allowed.
    """
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(name_or_path)
        check_file(path, named=f"preset {name_or_path}")
        content = read_bytes(path, MAXIMUM_BYTES, "a preset", _REMEDY)
        return _parse(content, path.stem, f"preset {name_or_path}")
    if name_or_path not in preset_names():
        names = preset_names()
        close = suggest_name(name_or_path, names)
        raise InputError(
            f"unknown preset '{name_or_path}'; {close}choose one of "
            f"{', '.join(names)}, or a .toml file"
        )
    content = resources.files(__name__).joinpath(f"{name_or_path}.toml").read_bytes()
    return _parse(content, name_or_path, f"preset {name_or_path}")


def _parse(content: bytes, name: str, source: str) -> Preset:
    written = toml_of(content, source, _REMEDY)
    tables = {
        name: _parse_units(name, table, source)
        for name, table in written.items()
        if name in ("arch", "timing")
    }
    preset = _validate_values({"name": name, **written, **tables}, source)
    if preset.memory_mode is None:
        return preset
    timing = {**_mode(preset.memory_mode, source).timing, **tables.get("timing", {})}
    return _validate_values({"name": name, **written, **tables, "timing": timing}, source)


def _mode(name: str, source: str) -> MemoryMode:
    try:
        return memory_mode(name)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _parse_units(key: str, written: Any, source: str) -> Any:
    """Return a file's value of ``key``, with sizes in units converted to numbers."""
    if isinstance(written, dict):
        return {name: _parse_units(name, value, source) for name, value in written.items()}
    if not isinstance(written, str) or key in _WORDS:
        return written
    try:
        return quantity(key, written)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def preset_toml(preset: Preset) -> str:
    """Return the TOML file of a preset with every key, its unit and its meaning.

    :func:`load_preset` reads the same machine from it.
    """
    values = {"arch": flat(dict(preset.arch)), "timing": flat(dict(preset.timing))}
    fits = preset.arch.list_settled_values()
    lines = [f"description = {dumps(preset.description, ensure_ascii=False)}"]
    lines += (
        [f"memory_mode = {dumps(preset.memory_mode)}"] if preset.memory_mode is not None else []
    )
    for table, given in values.items():
        lines += ["", f"[{table}]"]
        for setting in list_settings():
            if setting.table == table:
                value = given[setting.key]
                unit = f"{setting.unit}: " if setting.unit else ""
                line = (
                    f"{setting.key} = {dumps(value)}"
                    if value is not None
                    else f"# {setting.key} = none"
                )
                here = (
                    f"; here {fits[setting.key]}"
                    if value is None and fits.get(setting.key) is not None
                    else ""
                )
                lines.append(f"{line}  # {unit}{setting.meaning}{here}")
    return "\n".join(lines) + "\n"


def apply_memory_mode(preset: Preset, name: str | None) -> Preset:
    """Return ``preset`` in a memory mode (:data:`MEMORY_MODES`), or unchanged for None.

    Values that an earlier mode has set return to their defaults. Raises InputError if the mode is
    unknown or does not fit the machine.
    """
    if name is None:
        return preset
    values = preset.model_dump() | {"memory_mode": name}
    before = {} if preset.memory_mode is None else memory_mode(preset.memory_mode).timing
    own = {key: value for key, value in values["timing"].items() if before.get(key) != value}
    return _validate_values(
        values | {"timing": own | dict(memory_mode(name).timing)}, f"memory mode {name}"
    )


def apply_settings(preset: Preset, settings: Settings) -> Preset:
    """Return ``preset`` with settings such as ``sram_bytes=512KiB`` or ``pe.oc=64``.

    The last one wins.

    All settings apply together, so the order does not matter for values that must fit one another.
    Raises InputError naming key and value, and the valid names if the key is unknown.
    """
    values = preset.model_dump()
    given = setting_texts(settings)
    for setting in given:
        key, separator, text = setting.partition("=")
        if not separator:
            raise InputError(f"setting '{setting}' is not of the form key=value")
        _place(values, key.strip(), text.strip())
    widen_words(values)
    return _validate_values(values, f"setting {', '.join(given)}") if given else preset


def widen_words(values: Mapping[str, Any]) -> None:
    """Widen memory words to two bus beats if no size is chosen and the default is narrower.

    ``values`` has the tables ``arch``, which is changed, and ``timing``.
    """
    try:
        memory = Arch.model_validate(values["arch"]).memory
        timing = Timing.model_validate(values["timing"])
    except ValidationError:
        return  # the machine is rejected later
    if 0 < memory.word < 2 * timing.bus_bytes and values["arch"].get("word_bytes") is None:
        values["arch"]["word_bytes"] = 2 * timing.bus_bytes


def setting_texts(settings: Settings) -> tuple[str, ...]:
    """Return settings as texts ``key=value`` like on the command line.

    The value None becomes ``none``.

    Raises InputError for a single text instead of several, and for an item that is not a text.
    """
    if isinstance(settings, str):
        raise InputError(f"settings are '{settings}'; give a list of such texts, or values by key")
    if isinstance(settings, Mapping):
        return tuple(
            f"{key}={'none' if value is None else value}" for key, value in settings.items()
        )
    given = tuple(settings)
    for setting in given:
        if not isinstance(setting, str):
            raise InputError(
                f"settings has {setting!r}; give texts such as 'pe.ic=8', or values by key"
            )
    return given


def spell_setting(key: str, value: Any) -> str:
    """Return a setting's value as text; a scratchpad size in whole KiB is written in KiB."""
    if key == "sram_bytes" and value % 1024 == 0:
        return f"{value // 1024}KiB"
    return "none" if value is None else str(value)


def quantity(key: str, text: str) -> int | str:
    """Convert a quantity to a number: ``"512 KiB"`` to 524288, ``"800 MHz"`` to 800,000,000.

    A frequency needs a key that ends in ``_hz``. A text that is not a quantity is returned
    unchanged. Raises InputError for an unknown unit.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return text
    unit = match[2].removesuffix("Hz") if key.endswith("_hz") else match[2]
    if unit not in _UNITS:
        units = ", ".join(unit for unit in _UNITS if unit)
        raise InputError(f"{key} is {text!r}: '{match[2]}' is no unit; choose one of {units}")
    return int(match[1]) * _UNITS[unit]


def _place(values: dict[str, Any], key: str, text: str) -> None:
    if key in _PE_KEYS:
        values["arch"]["pe"][key.removeprefix("pe.")] = _number(key, text)
    elif key in _RATES:
        values["timing"][key] = None if text == "none" else text
    elif key in _TIMING_KEYS:
        values["timing"][key] = _number(key, text)
    elif key in _WORDS:
        values["arch"][key] = text
    elif key in _CHOSEN and text == "none":
        values["arch"][key] = None
    elif key in _ARCH_KEYS:
        values["arch"][key] = _number(key, text)
    else:
        raise InputError(
            f"unknown setting '{key}'; {suggest_name(key, SETTING_KEYS)}choose one of "
            f"{', '.join(SETTING_KEYS)}"
        )


def _number(key: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        found = quantity(key, text)
        if isinstance(found, str):
            raise InputError(
                f"setting {key}={text}: '{text}' is not an integer; write one: 8, or 64KiB"
            ) from error
        return found


def _validate_values(values: dict[str, Any], source: str) -> Preset:
    try:
        preset = Preset.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{source}: {_first_problem(error)}") from error
    variant(preset.arch.isa)
    return preset


def _first_problem(error: ValidationError) -> str:
    """Return pydantic's first validation error as one line: key, value, expected value."""
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path[1:] if path[:1] in (["arch"], ["timing"]) and len(path) > 1 else path)
    if problem["type"] == "extra_forbidden":
        known = _valid_keys(path)
        return (
            f"unknown key '{'.'.join(path)}'; {suggest_name(path[-1], known)}choose one of "
            f"{', '.join(known)}"
        )
    if problem["type"] == "value_error" and len(path) < 2:  # of several keys
        return str(problem["ctx"]["error"])
    reason = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"{key} is {problem['input']!r}: {reason}"


def _valid_keys(path: list[str]) -> tuple[str, ...]:
    if path[:2] == ["arch", "pe"]:
        return tuple(PeArray.model_fields)
    fields = {"arch": Arch.model_fields, "timing": Timing.model_fields}.get(
        path[0], Preset.model_fields
    )
    return tuple(fields)
