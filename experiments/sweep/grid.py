"""The grid of a specification: its points in a fixed order, one machine after the other, without ever holding all.

A :class:`Batch` is one machine as the compiler sees it with a network and options; its points differ in Timing alone.
The key of a point is a content hash of everything that its row depends on.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from byoc.options import PROGRAM_OPTIONS, CompileOptions
from dla_sim.presets import widen_words
from experiments.sweep.constraints import Constraint
from experiments.sweep.spec import Spec
from experiments.sweep.store import canonical
from isa.arch import WORD_KEYS, Arch
from isa.errors import InputError

Axes = Mapping[str, tuple[Any, ...]]
SHOWN_VALUES = 8


@dataclass(frozen=True, eq=False)
class Timings:
    """The Timings of one preset in order, each a mapping with every field; made anew whenever they are asked for.

    ``wanted``, where it is given, decides which of them there are.
    """

    preset: str
    base: Mapping[str, Any]
    axes: Axes
    names: Mapping[str, Any]
    constraints: Sequence[Constraint]
    wanted: Callable[[Mapping[str, Any]], bool] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The timings that satisfy the constraints and are wanted."""
        for combination in itertools.product(*self.axes.values()):
            chosen = dict(zip(self.axes, combination, strict=True))
            if all(constraint.holds({**self.names, **chosen}) for constraint in self.constraints):
                timing = {**self.base, **chosen}
                if self.wanted is None or self.wanted(timing):
                    yield timing

    def __len__(self) -> int:
        if self.constraints or self.wanted is not None:
            return sum(1 for _ in self)
        return math.prod(len(values) for values in self.axes.values())


@dataclass(frozen=True, eq=False)
class Batch:
    """Points that share one compilation. ``arch`` holds every field of ``isa.Arch``; ``parts`` are their Timings.

    There is a part for each preset whose machine this is. The combination of values need not be a machine: that shows
    when it is made.
    """

    network: str
    options: CompileOptions
    arch: Mapping[str, Any]
    parts: tuple[Timings, ...]

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(preset, Timing) of every point."""
        return ((part.preset, timing) for part in self.parts for timing in part)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def where(self, wanted: Callable[[Mapping[str, Any]], bool]) -> Batch:
        """The same machine with the wanted Timings alone."""
        return replace(self, parts=tuple(replace(part, wanted=wanted) for part in self.parts))


class Grid:
    """The points of a specification that satisfy its constraints.

    Raises InputError when there are none, naming the constraints that contradict the axes or one another.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.axes: Axes = {
            "network": spec.networks,
            "preset": tuple(spec.presets),
            **spec.options,
            **spec.arch,
            **spec.timing,
        }
        """Every axis with its values, in the order of the grid: the last varies fastest."""
        self.points = self._count(spec.constraints)
        if not self.points:
            raise InputError(f"{spec.source}: {self._contradiction()}")

    def batches(self) -> Iterator[Batch]:
        """All points, machine after machine; those that differ in the size of the scratchpad alone are neighbours."""
        return self._batches(self.axes, self._spec.constraints)

    def pick(self, choice: Mapping[str, Any]) -> Batch | None:
        """The one point with the values of ``choice`` on its axes and the first value elsewhere; None if excluded."""
        fixed = {key: (choice.get(key, values[0]),) for key, values in self.axes.items()}
        found = next(self._batches(fixed, self._spec.constraints), None)
        return found if found is not None and len(found) else None

    def _count(self, constraints: Sequence[Constraint]) -> int:
        return sum(len(batch) for batch in self._batches(self.axes, constraints))

    def _batches(self, axes: Axes, constraints: Sequence[Constraint]) -> Iterator[Batch]:
        timing = frozenset(self._spec.timing)
        slow = {key: values for key, values in axes.items() if key not in timing and key != "preset"}
        fast = {key: values for key, values in axes.items() if key in timing}
        outer = [constraint for constraint in constraints if not constraint.names & timing]
        inner = [constraint for constraint in constraints if constraint.names & timing]
        for combination in itertools.product(*slow.values()):
            chosen = dict(zip(slow, combination, strict=True))
            machines: dict[str, tuple[dict[str, Any], list[Timings]]] = {}
            for preset in axes["preset"]:
                arch, base = self._machine(preset, chosen)
                names = _names({**chosen, "preset": preset}, arch, dict(self._spec.presets[preset].timing))
                if all(constraint.holds(names) for constraint in outer):
                    parts = machines.setdefault(canonical(arch), (arch, []))[1]
                    parts.append(Timings(preset, base, fast, names, inner))
            options = CompileOptions(**{option.name: chosen[option.name] for option in PROGRAM_OPTIONS})
            for arch, parts in machines.values():
                yield Batch(chosen["network"], options, arch, tuple(parts))

    def _machine(self, preset: str, chosen: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields of an Arch with the chosen values of its axes in place, and those of the preset's Timing.

        A machine that gets words by axis ``isa`` gets such as the widest bus of the grid needs.
        """
        base = self._spec.presets[preset]
        arch = base.arch.model_dump()
        for key, value in chosen.items():
            if key == "pe":
                arch["pe"] = dict(value)
            elif key.startswith("pe."):
                arch["pe"] = {**arch["pe"], key.removeprefix("pe."): value}
            elif key in Arch.model_fields:
                arch[key] = value
        timing = base.timing.model_dump()
        if "isa" in chosen:
            buses = self.axes.get("bus_bytes", (timing["bus_bytes"],))
            widen_words({"arch": arch, "timing": {**timing, "bus_bytes": max(buses)}}, base.arch.memory)
        return arch, timing

    def _contradiction(self) -> str:
        """The message for an empty grid: the fewest constraints, in their order, that exclude every point."""
        guilty = list(self._spec.constraints)
        for constraint in self._spec.constraints:
            others = [other for other in guilty if other is not constraint]
            if not self._count(others):
                guilty = others
        names = sorted({name for constraint in guilty for name in constraint.names})
        texts = " and ".join(f"'{constraint.text}'" for constraint in guilty)
        verb = "contradict each other" if len(guilty) > 1 else "excludes every point"
        values = "; ".join(f"{name} is {self._occurring(name)}" for name in names)
        return f"constraints: {texts} {verb}, so the grid is empty; in the grid {values}"

    def _occurring(self, name: str) -> str:
        """The values that a name takes in the unconstrained grid, the first few of them."""
        found: dict[Any, None] = {}
        for part in (part for batch in self._batches(self.axes, ()) for part in batch.parts):
            for value in self.axes[name] if name in part.axes else (part.names[name],):
                found.setdefault(value)
            if len(found) > SHOWN_VALUES:
                break
        shown = [str(value) for value in itertools.islice(found, SHOWN_VALUES)]
        return ", ".join(shown) + (", ..." if len(found) > SHOWN_VALUES else "")


def _names(chosen: Mapping[str, Any], arch: Mapping[str, Any], timing: Mapping[str, Any]) -> dict[str, Any]:
    """What constraints can name: options, the fields of the machine, and the number of processing elements."""
    pe = arch["pe"]
    count = pe["ic"] * pe["oc"] * pe["ow"]
    names = {
        **dict.fromkeys(WORD_KEYS),
        **chosen,
        **arch,
        **{f"pe.{key}": value for key, value in pe.items()},
        **timing,
    }
    return {**names, "pe.count": count, "N": count}


DIGITS = 32


class Keys:
    """Keys of the points of one batch: ``of(timing)`` for each of its timings, as canonical JSON."""

    def __init__(self, batch: Batch, package: str, version: str) -> None:
        options = canonical(batch.options.choices)
        self.arch = canonical(batch.arch)
        self._begun = hashlib.sha256("\n".join((package, self.arch, options, version, "")).encode())

    def of(self, timing: str) -> str:
        """First 32 hexadecimal digits of the SHA-256 of package digest, Arch, options, version and Timing."""
        whole = self._begun.copy()
        whole.update(timing.encode())
        return whole.hexdigest()[:DIGITS]
