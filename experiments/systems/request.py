"""Arguments of system runs and network splits.

``dla --help`` imports this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.options import DEFAULTS, CompileOptions
from experiments.running.declared import option, same, specification
from experiments.running.given import Given, Inferring, NetworkChoice
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from dla_sim.systems.simulate import Interval
    from dla_sim.systems.spec import Specification


def _axis_texts(axes: Mapping[str, Any]) -> list[str]:
    return [f"{key}={','.join(map(str, values))}" for key, values in axes.items()]


@dataclass(frozen=True, eq=False)
class Splitting(NetworkChoice):
    """Request that has a network, a system, and the way to split the network.

    The way is ``batch``, ``channels``, ``rows`` or ``pipeline``.
    """

    system: Specification = field(
        metadata=specification(
            "File of the accelerators (docs/systems.md); its tasks are ignored.",
            "SYSTEM.toml",
            "<system>",
        )
    )
    by: str = field(
        metadata=option(
            "--by",
            "Divide the network by batch, channels, rows or pipeline stages.",
            metavar="batch|channels|rows|pipeline",
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitRequest(Inferring, Given, Splitting):
    """Arguments of ``dla split`` and ``dla.split``."""

    images: int | None = field(
        default=None,
        metadata=option(
            "--images",
            "Time this number of inferences (batch and pipeline). [default: 8]",
            int,
            metavar="N",
        ),
    )
    options: CompileOptions = DEFAULTS
    progress: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitKeywords(SplitRequest, CompileOptions, Splitting):
    """Keywords of ``dla.split``: the request's fields and the compiler options."""


@dataclass(frozen=True, eq=False)
class Described:
    """Request that has a system with its workload."""

    spec: Specification = field(
        metadata=specification(
            "File of accelerators, cores, memory and tasks (docs/systems.md).",
            "SYSTEM.toml",
            "<system>",
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemOptions(Described):
    """Options that replace keys of the system's table ``run``, and options of the run itself."""

    policy: str | None = field(
        default=None,
        metadata=option(
            "--policy",
            "Replace the file's policy: fcfs, priority, round-robin, edf, least-laxity, jit, "
            "migration, co-optimised.",
            metavar="NAME",
        ),
    )
    preempt: str | None = field(
        default=None,
        metadata=option(
            "--preempt",
            "Replace the file's preemption: at layers, at tiles, or none.",
            ("none", "layer", "tile"),
        ),
    )
    quantum: int | str | None = field(
        default=None,
        metadata=option(
            "--quantum", "Set the time slice of round-robin: cycles, or e.g. 200us.", metavar="TIME"
        ),
    )
    until: int | str | None = field(
        default=None,
        metadata=option("--until", "End the run at this time: cycles, or e.g. 1s.", metavar="TIME"),
    )
    search_rate: bool = field(
        default=False,
        metadata=option(
            "--highest-rate",
            "Also search the highest common rate of all tasks at which no deadline is missed.",
            bool,
        ),
    )
    cache: bool = field(default=True, metadata=same(Given, "cache"))
    progress: Progress = silent

    @property
    def chosen(self) -> dict[str, int | str]:
        """Replacement values for keys of a system's table ``run``, by key."""
        given = {
            "policy": self.policy,
            "preempt": self.preempt,
            "quantum": self.quantum,
            "until": self.until,
        }
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemRequest(SystemOptions):
    """Arguments of ``dla system`` and ``dla.system``.

    ``watch`` is called with every interval of a unit.
    """

    check: bool = field(
        default=False,
        metadata=option(
            "--check",
            "Also run preempted programs on data, and compare the values with uninterrupted runs.",
            bool,
        ),
    )
    watch: Callable[[Interval], None] | None = None


@dataclass(frozen=True, eq=False)
class SystemAxes(Described):
    """Request that has a system and the axes of a sweep: values of its keys."""

    axes: Mapping[str, Any] = field(
        metadata=option(
            "--sweep", "Values of keys of the file, in all combinations.", None, texts=_axis_texts
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Kept:
    """Results file of a sweep's points, and the number of worker processes."""

    output: str | Path | None = field(
        default=None,
        metadata=option(
            "--output -o",
            "With --sweep: store the results in this file; continue it if it exists.",
            Path,
            metavar="FILE",
            ending=".sqlite",
            repeats=False,
        ),
    )
    workers: int | None = field(
        default=None,
        metadata=option(
            "--workers",
            "With --sweep: use N local processes. Default: this process.",
            int,
            metavar="N",
            repeats=False,
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemSweepRequest(Kept, SystemOptions, SystemAxes):
    """Arguments of ``dla system --sweep`` and ``dla.sweep_system``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemCommand(Kept, SystemRequest):
    """All arguments of the command ``dla system``."""
