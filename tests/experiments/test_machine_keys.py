"""Engine, tick model, hardware and sweeps use every key of ``Arch`` and ``Timing``.

Exceptions are listed here by name. A component uses a key if another value changes the cycles, or
the machine that the hardware is built for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import dla_sim.rtl
from dla_sim.engine.simulation import simulate
from dla_sim.presets import Setting, list_settings
from dla_sim.rtl.parameters import limits_of, strap_values
from dla_sim.timing import Timing
from experiments.sweep.constraints import NAMES
from experiments.sweep.results import AXES, title, words
from experiments.sweep.spec import parse_spec
from isa.arch import PACKED, WORD_KEYS, Arch
from isa.errors import InputError
from tests.dla_sim.cases import NO_ROWS, Case, build_program
from tests.dla_sim.comparison import observe
from tests.dla_sim.program_generator import ISA, random_case
from tests.dla_sim.tick import run_ticks
from tests.rotation import rotate

SIMULATORS = ("engine", "tick model")
RATES = ("dram_rate", "flash_rate")
EXCUSED = {
    **dict.fromkeys(  # hardware takes one slot a beat and refuses others
        (*RATES, *NO_ROWS), ("hardware",)
    ),
    "clock_hz": (*SIMULATORS, "hardware"),  # only where a time is printed
    # where the compiler puts buffers; the machine takes any address
    "alignment": (*SIMULATORS, "hardware"),
    "row_alignment": (*SIMULATORS, "hardware"),  # has one value
    "isa": ("hardware",),  # is built for the newest, in which programs of all others mean the same
    **dict.fromkeys(WORD_KEYS, ("hardware",)),  # of v5, which has no hardware yet
}
"""Who need not know a key, and why not."""
SEEDS = range(60)
KEYS = {setting.key: setting for setting in list_settings()}


def other_values(setting: Setting, value: Any) -> list[Any]:
    """Values that a key might have instead."""
    texts = {
        "isa": ("v1", "v3"),
        "numerics": ("onnxruntime", "fixed"),
        **dict.fromkeys(RATES, (0.75, "1/3")),
    }
    if setting.key in texts:
        return [other for other in texts[setting.key] if other != value]
    given = value or 0
    return [other for other in (2 * given, given // 2, given + 1, 1, 2, 64) if other != value]


def machine(case: Case) -> tuple[Arch, Timing]:
    return case.arch, Timing.model_validate(case.timing)


def with_value(case: Case, setting: Setting, value: Any) -> Case | None:
    """The case on a machine with that value; None where there is no such machine."""
    arch = case.arch.model_dump()
    timing = dict(case.timing)
    table, _, side = setting.key.partition(".")
    if side:
        arch[table] |= {side: value}
    else:
        (arch if setting.table == "arch" else timing)[table] = value
    try:
        changed = Arch.model_validate(arch), Timing.model_validate(timing)
        if changed[0].words is not None:
            changed[1].word_cycles(changed[0].words.word)
    except (InputError, ValidationError):
        return None
    return Case(changed[0], timing, case.steps, case.command_address, case.segments, case.tensors)


def changed_cases(setting: Setting) -> Iterator[tuple[Case, Case]]:
    """Random programs on random machines, and on those with another value of a key.

    A few where nothing is expected.
    """
    isas = (PACKED,) if setting.key in WORD_KEYS else (ISA, PACKED)
    excused = {*SIMULATORS} <= {*EXCUSED.get(setting.key, ())}
    for seed, isa in product(SEEDS[:6] if excused else SEEDS, isas):
        case = random_case(seed, isa)
        value = (case.arch.list_settled_values() | dict(Timing.model_validate(case.timing)))[
            setting.key
        ]
        for other in other_values(setting, value):
            changed = with_value(case, setting, other)
            if changed is not None:
                yield case, changed


def engine_cycles(case: Case) -> int | None:
    """None of a program that the machine refuses."""
    try:
        return observe(simulate, build_program(case), machine(case)[1]).total
    except (InputError, KeyError):
        return None


def tick_cycles(case: Case) -> int | None:
    try:
        return run_ticks(build_program(case), machine(case)[1]).total
    except (InputError, KeyError):
        return None


def simulators_that_know(setting: Setting) -> set[str]:
    """Return the simulators whose cycles another value of the key changes.

    The first program in which the cycles of both change decides; a machine may refuse others.
    """
    found: set[str] = set()
    for case, changed in changed_cases(setting):
        known = {"engine"} if engine_cycles(case) != engine_cycles(changed) else set()
        known |= {"tick model"} if known and tick_cycles(case) != tick_cycles(changed) else set()
        if known == {*SIMULATORS}:
            return known
        found |= known
    return found


@cache
def read_by_components() -> set[str]:
    """Return the names of attributes that the hardware's components read.

    The module that describes the machine is left out.
    """
    found = set()
    for path in Path(dla_sim.rtl.__path__[0]).rglob("*.py"):
        if path.name != "parameters.py":
            tree = ast.parse(path.read_text("utf-8"))
            found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found


def build(case: Case) -> Mapping[str, Any] | None:
    """Sizes and configuration of the hardware; None of a machine that is refused."""
    try:
        arch, timing = machine(case)
        limits = limits_of(arch, timing)
        return {**vars(limits), "fixed": limits.fixed, **strap_values(arch, timing)}
    except InputError:
        return None


def hardware_knows(setting: Setting) -> bool:
    """Return True if another value of the key changes something that a component reads."""
    read = read_by_components()
    for case, changed in changed_cases(setting):
        before = build(case)
        after = build(changed)
        if (
            before is not None
            and after is not None
            and any(before[name] != after[name] for name in read & {*before})
        ):
            return True
    return False


def least(setting: Setting) -> int:
    """The smallest value that a key with a range may have."""
    return int(setting.values.removeprefix("integer, ").split()[0])


def sweeps_know(setting: Setting) -> bool:
    """Return True if sweeps have the key as a described axis, in constraints, and as a column."""
    if setting.key != "isa":
        section = {"arch": "arch", "timing": "timing"}[setting.table]
        value = (
            f'"{setting.default}"'
            if isinstance(setting.default, str)
            else setting.default or (0.5 if setting.key in RATES else least(setting))
        )
        parse_spec(f'networks = "digits-cnn"\n{section}.{setting.key} = [{value}]\n')
    plain = bool(setting.words) and words(setting.key) == setting.words
    return (
        plain
        and setting.key in AXES
        and setting.key in NAMES
        and title(setting.key).startswith(setting.words)
    )


def strangers(setting: Setting) -> set[str]:
    """Return the components that do not know a key and are not excused."""
    known = {*EXCUSED.get(setting.key, ())}
    if not {*SIMULATORS} <= known:
        known |= simulators_that_know(setting)
    if "hardware" not in known and hardware_knows(setting):
        known.add("hardware")
    if sweeps_know(setting):
        known.add("sweeps")
    return {*SIMULATORS, "hardware", "sweeps"} - known


@pytest.mark.parametrize("setting", list_settings(), ids=lambda setting: setting.key)
def test_a_key_is_known_to_all_or_excused_by_name(setting: Setting) -> None:
    missing = strangers(setting)
    assert not missing, f"{setting.key} is declared, and unknown to: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("key", rotate([*EXCUSED], 4))
def test_who_is_excused_knows_nothing_of_it(key: str) -> None:
    """An excuse that is no longer needed goes."""
    known = simulators_that_know(KEYS[key]) | ({"hardware"} if hardware_knows(KEYS[key]) else set())
    assert not known & {*EXCUSED[key]}
