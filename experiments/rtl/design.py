"""A user's RTL and the options of its comparison with the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.running.declared import option


@dataclass(frozen=True)
class Design:
    """A user's RTL and how to compare it; docs/own-rtl.md describes the options."""

    sources: Sequence[str] = field(
        metadata=option("", "Verilog files of your RTL.", list[str], metavar="FILE.v")
    )
    top: str = field(metadata=option("--top", "Compare this module.", metavar="MODULE"))
    simulator: str = field(
        default="icarus",
        metadata=option(
            "--simulator", "Choose the simulator that executes the RTL.", ("icarus", "verilator")
        ),
    )
    build_arg: Sequence[str] = field(
        default=(),
        metadata=option(
            "--build-arg",
            "Give this option to the simulator's compiler, e.g. -Irtl. Repeatable.",
            list[str],
            metavar="ARG",
        ),
    )
    bits_only: bool = field(
        default=False,
        metadata=option(
            "--bits-only", "Compare bytes but not cycles, for RTL with another timing.", bool
        ),
    )
    scratchpad: str | None = field(
        default=None,
        metadata=option(
            "--scratchpad",
            "Compare the scratchpad, too: the array of bytes or words with this path below the "
            "top, e.g. unit.memory.",
            metavar="PATH",
        ),
    )
    max_cycles: int | None = field(
        default=None,
        metadata=option(
            "--max-cycles",
            "Stop after this number of cycles. Default: 2 times the simulator's (20 times with "
            "--bits-only) and 4,096 more.",
            int,
            metavar="N",
            least=1,
        ),
    )
