"""The one place where compiler and device meet at run time: whoever can execute a Program on tensors is an Executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from isa.program import Program

TraceT_co = TypeVar("TraceT_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Execution(Generic[TraceT_co]):
    """Results of one run: output tensors by name, and the executor's own account of the run."""

    outputs: Mapping[str, NDArray[Any]]
    trace: TraceT_co


class Executor(Protocol[TraceT_co]):
    """Runs a program on input tensors (by name, exact dtype and shape) from a drained machine."""

    def run(self, program: Program, inputs: Mapping[str, NDArray[Any]]) -> Execution[TraceT_co]:
        """Raises InputError when the program is for another Arch or an input is missing or of another shape or type."""
        ...
