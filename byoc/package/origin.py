"""What a package and every run of it say of its origin: what scales were chosen on, how the model was held to the file.

Both are read from files that anybody may have written: pydantic checks them, and refuses keys that are not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_KNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Calibration:
    """What scales were chosen on: so many ``samples``, drawn at ``random`` or given, and then of some ``origin``.

    ``agreement``: of outputs that tell classes, the share of the (first) samples of which int8 and float say the same.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN

    samples: Count
    random: bool
    origin: Annotated[str, Field(max_length=1 << 16)] = ""
    agreement: Mapping[str, Annotated[float, Field(ge=0.0, le=1.0)]] = field(default_factory=dict)


@dataclass(frozen=True)
class FileCheck:
    """How far outputs are from those of the user's file, nothing optimised, on drawn inputs (:mod:`byoc.file_check`).

    Of ``elements`` on so many ``samples``, ``beyond`` are more than a step of their output's scale away; the one
    furthest away is at ``coordinates`` of output ``tensor``, by ``steps``: ``file`` and ``ours`` are both values.
    ``optimiser``: that of ONNX Runtime whose result ours is, where its own integer operators give the same.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN

    samples: Count
    elements: Count
    beyond: Count
    tensor: Annotated[str, Field(max_length=1 << 13)] = ""
    coordinates: tuple[Count, ...] = ()
    file: Annotated[str, Field(max_length=1 << 8)] = ""
    ours: Annotated[str, Field(max_length=1 << 8)] = ""
    steps: Annotated[float, Field(ge=0.0)] = 0.0
    optimiser: Annotated[str, Field(max_length=1 << 8)] = ""

    def message(self) -> str:
        """One line on what was compared, and what is more than a step away."""
        drawn = f"of the file, nothing optimised ({self.elements:,} elements on {self.samples} drawn inputs)"
        if not self.beyond:
            return f"within a step {drawn}"
        cause = f", by ONNX Runtime's {self.optimiser}" if self.optimiser else ""
        where = f"the furthest '{self.tensor}' at {list(self.coordinates)}: {self.ours}, the file has {self.file}"
        return f"{self.beyond:,} elements more than a step off that {drawn}{cause}; {where}"


@dataclass(frozen=True)
class Fidelity:
    """How the model that was imported was held to the model as given, on one inference (:mod:`byoc.fidelity`).

    ``tensors`` and ``elements`` were compared; ``difference`` is the largest found, as a share of its tensor's range.
    ``integer``: the same of the outputs with integer operators, for models that came quantised; 0: to the bit.
    ``noise`` has the signal-to-noise ratio of every float output over the calibration samples, in decibels, where
    quantising was ours, and ``calibration`` what that was done on. ``left_out``:
    passes that would have moved rounding too far. ``widened``: it was given in half precision, and float32 is computed.
    ``laws``: how often each law of rewriting was applied (docs/compiler.md).
    ``made_static``: operators that quantised activations when they ran, and now have scales from calibration.
    ``file``: its outputs beside those of the file with nothing optimised; None where that does not run.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _KNOWN

    tensors: Count
    elements: Count
    difference: float
    integer: float | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    laws: Mapping[Annotated[str, Field(max_length=1 << 8)], Count] = field(default_factory=dict)
    widened: bool = False
    made_static: Count = 0
    calibration: Calibration | None = None
    file: FileCheck | None = None
