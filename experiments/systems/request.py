"""Arguments of system runs and network splits. ``dla --help`` imports this module, so it imports little."""

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
    """Request that has a network, a system, and the split: ``batch``, ``channels``, ``rows`` or ``pipeline``.

    The old name of ``by`` is ``way``.
    """

    system: Specification = field(
        metadata=specification("The accelerators (docs/systems.md); tasks do not count.", "SYSTEM.toml", "<system>")
    )
    by: str = field(
        metadata=option(
            "--by", "What each accelerator has a share of.", metavar="batch|channels|rows|pipeline", former="way"
        )
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitRequest(Inferring, Given, Splitting):
    """Arguments of ``dla split`` and ``dla.split``."""

    images: int | None = field(
        default=None,
        metadata=option(
            "--images",
            "Inferences that batch and pipeline time. [default: 8]",
            int,
            metavar="N",
        ),
    )
    options: CompileOptions = DEFAULTS
    progress: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitKeywords(SplitRequest, CompileOptions, Splitting):
    """Keywords of ``dla.split``: the fields of the request, and a keyword for each compiler option."""


@dataclass(frozen=True, eq=False)
class Described:
    """Request that has a system with its workload."""

    spec: Specification = field(
        metadata=specification("Accelerators, cores, memory, tasks (docs/systems.md).", "SYSTEM.toml", "<system>")
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemOptions(Described):
    """Options that replace keys of the system's table ``run``, and options of the run itself."""

    policy: str | None = field(
        default=None,
        metadata=option(
            "--policy",
            "In place of the file's: fcfs, priority, round-robin, edf, least-laxity, jit, migration, co-optimised.",
            metavar="NAME",
        ),
    )
    preempt: str | None = field(
        default=None,
        metadata=option("--preempt", "In place of the file's: at layers, at tiles, or not.", ("none", "layer", "tile")),
    )
    quantum: int | str | None = field(
        default=None, metadata=option("--quantum", "Of round-robin: cycles, or 200us.", metavar="TIME")
    )
    until: int | str | None = field(
        default=None, metadata=option("--until", "When the run ends: cycles, or 1s.", metavar="TIME")
    )
    search_rate: bool = field(
        default=False,
        metadata=option(
            "--highest-rate",
            "Also search the highest rate of all tasks together at which no deadline is missed.",
            bool,
        ),
    )
    cache: bool = field(default=True, metadata=same(Given, "cache"))
    progress: Progress = silent

    @property
    def chosen(self) -> dict[str, int | str]:
        """Given replacements of keys of the table ``run``, by key."""
        given = {"policy": self.policy, "preempt": self.preempt, "quantum": self.quantum, "until": self.until}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemRequest(SystemOptions):
    """Arguments of ``dla system`` and ``dla.system``. ``watch`` is called with every interval of a unit."""

    check: bool = field(
        default=False,
        metadata=option("--check", "Run programs that gave way on data, too, and compare with running whole.", bool),
    )
    watch: Callable[[Interval], None] | None = None


@dataclass(frozen=True, eq=False)
class SystemAxes(Described):
    """Request that has a system and the axes of a sweep: values of its keys."""

    axes: Mapping[str, Any] = field(
        metadata=option("--sweep", "Values of keys of the file, in all combinations.", None, texts=_axis_texts)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Kept:
    """Results file of a sweep's points, and the number of worker processes."""

    output: str | Path | None = field(
        default=None,
        metadata=option(
            "--output -o",
            "With --sweep: results file of the points. May exist, and is gone on with.",
            Path,
            metavar="FILE",
            ending=".sqlite",
            repeats=False,
        ),
    )
    workers: int | None = field(
        default=None,
        metadata=option(
            "--workers", "With --sweep: local processes. Default: this one.", int, metavar="N", repeats=False
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemSweepRequest(Kept, SystemOptions, SystemAxes):
    """Arguments of ``dla system --sweep`` and ``dla.sweep_system``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemCommand(Kept, SystemRequest):
    """All arguments of the command ``dla system``."""
