"""Machine descriptions: what they must declare, and where the project finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.machines.description import (
    CyclePart,
    MachineDescription,
    MachineMemory,
    MachineOperation,
    MachineParameters,
    MachineUnit,
)
from experiments.machines.discovery import find_machine, list_machines
from isa.arch import declare_key
from isa.errors import InputError
from tests.plugins import installation

EXAMPLE = Path(__file__).parents[2] / "examples" / "systolic_array.py"


@pytest.fixture(scope="module")
def machine() -> MachineDescription:
    return find_machine(str(EXAMPLE))


def test_the_example_is_at_most_300_lines(machine: MachineDescription) -> None:
    assert machine.name == "systolic-array"
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 300


class _Required(MachineParameters):
    clock_hz: int


class _Plain(MachineParameters):
    clock_hz: int = 1


class _OutOfRange(MachineParameters):
    clock_hz: int = declare_key(0, "Hz", "clock", "clock of all units", 1)


class _Text(MachineParameters):
    clock_hz: int = declare_key(1, "Hz", "clock", "clock of all units", 1)
    mode: str = declare_key("fast", "", "mode", "mode of all units")


class _WrongType(MachineParameters):
    clock_hz: int = declare_key("fast", "Hz", "clock", "clock of all units", 1)


def _count(work: object, parameters: object) -> list[CyclePart]:
    return []


def _operation(**changes: Any) -> tuple[MachineOperation, ...]:
    return (replace(MachineOperation("product", (("Conv",),), cycles=_count), **changes),)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "My Machine"}, "machine 'My Machine': the name is not lower-case words"),
    "no default": ({"parameters": _Required}, "parameter clock_hz has no default"),
    "no unit of a parameter": ({"parameters": _Plain}, "parameter clock_hz has no unit and mean"),
    "default out of range": (
        {"parameters": _OutOfRange, "memories": ()},
        "default clock_hz=0 should be greater than or equal to 1; correct the default",
    ),
    "default of another type": (
        {"parameters": _WrongType, "memories": ()},
        "default clock_hz=fast should be a valid integer",
    ),
    "text as parameter": (
        {"parameters": _Text, "memories": ()},
        "parameter mode is 'fast'; a parameter is a number",
    ),
    "no class of parameters": ({"parameters": 5}, "parameters is 5; give a class derived from"),
    "memory twice": ({"memories": (MachineMemory("m"),) * 2}, "memory 'm' is declared twice; re"),
    "unit in two overlaps": (
        {"overlaps": (("array", "memory"), ("memory",))},
        "unit in overlaps 'memory' is declared twice",
    ),
    "no rate of transfers": (
        {"transfer_memory": "buffer"},
        "transfer_memory 'buffer' is no memory with a rate; declare one",
    ),
    "negative rate": (
        {"memories": (MachineMemory("memory", rate=-1),)},
        "memory memory has -1; give a number above 0",
    ),
    "no clock": ({"clock": "clock"}, "no parameter 'clock' for the clock; did you mean clock_hz?"),
    "no units": ({"units": ()}, "no units; declare at least one MachineUnit"),
    "unit twice": ({"units": (MachineUnit("a", ""), MachineUnit("a", ""))}, "unit 'a' is declared"),
    "operation twice": ({"operations": _operation() * 2}, "operation 'product' is declared twice"),
    "unit of an overlap": ({"overlaps": (("arry",),)}, "did you mean array? units are array, "),
    "unit of a memory": (
        {"memories": (MachineMemory("flash", unit="bus"),)},
        "memory flash names the unit 'bus', which is not declared",
    ),
    "parameter of a memory": (
        {"memories": (MachineMemory("flash", "flash_bytes"),)},
        "memory flash names the parameter 'flash_bytes', which does not exist",
    ),
    "unknown operator": (
        {"operations": _operation(patterns=(("MaxPool", "Convolution"),))},
        "operation product: unknown operator type 'Convolution'; did you mean ",
    ),
    "empty pattern": ({"operations": _operation(patterns=((),))}, "product has an empty pattern"),
    "no cycles": ({"operations": _operation(cycles=None)}, "of kind 'closed form' gives cycles"),
    "tasks in closed form": ({"operations": _operation(tasks=_count)}, "'closed form' gives cyc"),
    "simulate in closed form": ({"simulate": _count}, "simulate is given and kind is 'closed f"),
    "unknown kind": ({"kind": "closed"}, "unknown kind 'closed'; choose one of closed form, ev"),
    "no operation": ({"operations": (None,)}, "operations contains None; give a tuple of Machine"),
    "function as limit": (
        {"operations": _operation(limits=(_count,))},
        "give a tuple of OperationLimit objects",
    ),
    "overlap without a comma": (
        {"overlaps": ("array", "memory")},
        "overlaps contains 'array'; give a tuple of tuple objects (a tuple of one ends with",
    ),
    "preset without a preset": ({"kind": "preset"}, "kind is 'preset' and preset is empty"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_description_gives_one_line(fault: str, machine: MachineDescription) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(InputError) as caught:
        replace(machine, **changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def _edit(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


FILES: dict[str, tuple[Callable[[str], str], str]] = {
    "no import": (_edit("from math", "from maths"), "ModuleNotFoundError: No module named 'maths'"),
    "no machine": (_edit("MACHINE =", "OTHER ="), "no MACHINE; assign one MachineDescription"),
    "two machines": (_edit("MACHINE =", "MACHINE = 1,"), "a MACHINE of type tuple; assign one"),
    "exit": (_edit("from math", "raise SystemExit(3)\nfrom math"), "SystemExit: 3; correct the"),
    "name taken": (_edit("systolic-array", "balanced-64"), "'balanced-64' has the name of a mach"),
    "bad record": (_edit('"closed form"', '"event-driven"'), "'event-driven' and simulate is emp"),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_bad_file_gives_one_line(fault: str, tmp_path: Path) -> None:
    edit, message = FILES[fault]
    path = tmp_path / "mine.py"
    path.write_text(edit(EXAMPLE.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        find_machine(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_machines_and_missing_files() -> None:
    with pytest.raises(InputError, match=r"^unknown machine 'balanced-65'; did you mean balanced-"):
        find_machine("balanced-65")
    with pytest.raises(InputError, match=r"^machine missing.py"):
        find_machine("missing.py")


def test_an_installed_package_adds_a_machine(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    entry_points = {"dla.machines": {"theirs": "theirs:MACHINE"}}
    installation.write_distribution(tmp_path, "theirs", {"theirs": text}, entry_points)
    with installation.installed(tmp_path):
        assert find_machine("systolic-array") is list_machines()["systolic-array"]


def test_an_installed_machine_must_not_take_a_name(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("systolic-array", "balanced-64")
    entry_points = {"dla.machines": {"theirs": "theirs:MACHINE"}}
    installation.write_distribution(tmp_path, "theirs", {"theirs": text}, entry_points)
    with (
        installation.installed(tmp_path),
        pytest.raises(InputError, match=r"^package theirs 1.0 .*of the project; rename it or"),
    ):
        list_machines()
