"""What a person wants to see of a run: options of ``dla simulate``. Light, as ``dla --help`` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.running.declared import option, same
from experiments.running.given import RunRequest


@dataclass(frozen=True)
class Wishes:
    """What to look at, and where to stop; None where nothing is wanted."""

    trace: Path | None = field(default=None, metadata=same(RunRequest, "timeline"))
    log: Path | None = field(
        default=None,
        metadata=option("--log", "Write a line for every command that completes.", Path, metavar="FILE", ending=""),
    )
    against: Path | None = field(
        default=None,
        metadata=option("--against", "Compare with another log, RTL's or an older one's.", Path, metavar="LOG"),
    )
    break_at: str | None = field(
        default=None,
        metadata=option(
            "--break",
            "Stop where a command starts (:after: completes) and show the machine.",
            metavar="[REGION/]WORD|LAYER[:after]",
        ),
    )
    until: int | None = field(
        default=None,
        metadata=option("--until", "Stop at a cycle and show the machine.", int, metavar="CYCLE", least=0),
    )
    dump_sram: Sequence[str] = field(
        default=(),
        metadata=option(
            "--dump-sram",
            "Show scratchpad bytes at the stop or end. Repeatable.",
            list[str],
            metavar="FIRST..END[:FILE]",
        ),
    )

    @property
    def stop(self) -> bool:
        """Whether the run is to stop before its end."""
        return (self.break_at, self.until) != (None, None)
