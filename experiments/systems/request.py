"""What a split of a network over a system is asked for. Light, as ``dla --help`` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.options import DEFAULTS, CompileOptions
from experiments.running.declared import option
from experiments.running.given import Given, Inferring, Subject
from isa.progress import Progress, silent

if TYPE_CHECKING:
    from dla_sim.systems.spec import Specification


def source_of(system: Specification) -> str:
    """The file of a system, or that it is in none."""
    return str(system) if isinstance(system, str | Path) else getattr(system, "source", "<system>")


@dataclass(frozen=True, eq=False)
class Splitting(Subject):
    """A network, a system, and how the network is shared: ``batch``, ``channels``, ``rows`` or ``pipeline``."""

    system: Specification = field(
        metadata=option(
            "",
            "The accelerators (docs/systems.md); tasks do not count.",
            Path,
            metavar="SYSTEM.toml",
            texts=lambda system: [source_of(system)],
        )
    )
    way: str = field(
        metadata=option("--by", "What each accelerator has a share of.", metavar="batch|channels|rows|pipeline")
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitRequest(Inferring, Given, Splitting):
    """What ``dla split`` and ``dla.split`` are asked for."""

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
    """The keywords of ``dla.split``: a request's, and the choices of its options one by one."""
