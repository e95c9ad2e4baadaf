"""Parts of a report about checks: outputs, the RTL model, suspicions and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Literal

from pydantic import Field, model_validator

from byoc.host.sessions import DefinedUnits
from experiments.report.parts import Count, Fraction, Part, Text


class FirstDifference(Part):
    """First element at which a run and the oracle differ, with coordinates and both values.

    Region outputs are compared in order of execution, elements row-major.
    """

    tensor: Text
    coordinates: tuple[Count, ...]
    dla: int | float | Text
    oracle: int | float | Text

    def message(self) -> str:
        """Return one line with the wrong element's tensor, coordinates and both values."""
        where = ", ".join(map(str, self.coordinates))
        return (
            f"tensor '{self.tensor}' at [{where}]: the DLA has {self.dla}, the oracle has "
            f"{self.oracle}"
        )


class OutputsCheck(Part):
    """Comparison of a simulated run's outputs with outputs of the whole model on its runtime.

    ``exact`` means that the CPU only quantises and dequantises, so that outputs must be equal.
    Otherwise ``differences`` come from the CPU's own computation.
    """

    exact: bool
    tensors: Count
    elements: Count
    differences: Count
    max_abs_diff: int | float


class Check(Part):
    """Result of the exact comparison of every region output with the oracle.

    Elements are compared one by one, without tolerance. ``outputs`` compares the model's outputs
    with the whole model on the oracle; if they must be equal, their differences count as
    mismatches. ``definitions`` are the units whose oracle is not an operator of ONNX Runtime.
    Reports of earlier versions lack ``regions``, ``outputs`` and ``definitions``.
    """

    oracle: Text
    regions: Count | None = None
    tensors: Count
    elements: Count
    mismatches: Count
    max_abs_diff: int | float
    first: FirstDifference | None = None
    outputs: OutputsCheck | None = None
    definitions: tuple[DefinedUnits, ...] | None = None

    @property
    def vouched(self) -> bool:
        """True if an oracle checked the accelerator's results, or if none exist.

        No results exist if nothing ran on the accelerator.
        """
        return self.regions == 0 or self.tensors > 0


class HardwareCheck(Part):
    """Comparison of programs on hardware with the simulator.

    Compared are the start and end of every command (``commands``), every byte that commands wrote
    (``written_bytes``), the total ``cycles``, the cycles of every unit by cause, and both memories
    at the end. ``differences`` counts all differences; ``first`` describes the one to look at
    first.
    """

    programs: Count
    commands: Count
    cycles: Count
    written_bytes: Count
    differences: Count
    first: Text | None = None


_SUSPICIONS = {
    "uncalibrated": "quantised on {samples:.0f} inputs of random numbers; give samples with "
    "--calibration FILE.npz",
    "noise": "output '{tensor}' of the int8 model hardly resembles float: {decibels:.1f} dB signal "
    "to noise",
    "outside": (
        "{share:.1%} of input '{tensor}' ({least:.3g} to {most:.3g}) is outside the calibrated "
        "range "
        "{low:.3g} to {high:.3g}; calibrate with more representative inputs"
    ),
    "constant": "all {elements:.0f} elements of output '{tensor}' are {value:g}",
    "infinite": "all {elements:.0f} elements of output '{tensor}' are the same infinite number",
    "saturated": "{share:.1%} of output '{tensor}' saturates; calibrate with more representative "
    "inputs",
    "file": (
        "on random inputs, {beyond:.0f} of {elements:.0f} elements differ from the file by more "
        "than one step: "
        "output '{tensor}' by up to {steps:.3g} steps"
    ),
    "wraps": (
        "sums of '{tensor}' may pass int32 (such operators in all: {nodes:.0f}); ONNX Runtime's "
        "integer ones wrap "
        "around there, where the file saturates"
    ),
    "rounding": "{nodes:.0f} of {all:.0f} nodes run on the CPU only because of rounding; use --set "
    "numerics=fixed",
}


class Suspicion(Part):
    """Warning about something suspicious in a run that is correct to the bit.

    The names in ``figures`` depend on ``kind``.

    ``tensor`` is empty if the warning is about the whole network.
    """

    kind: Literal[
        "uncalibrated",
        "noise",
        "outside",
        "constant",
        "infinite",
        "saturated",
        "rounding",
        "file",
        "wraps",
    ]
    tensor: Text
    figures: Mapping[str, float]

    @model_validator(mode="after")
    def _check_told(self) -> Suspicion:
        missing = {name for _, name, _, _ in Formatter().parse(_SUSPICIONS[self.kind]) if name}
        missing -= {"tensor", *self.figures}
        if missing:
            raise ValueError(f"a suspicion of {self.kind} lacks the figure {min(missing)}")
        return self

    def message(self) -> str:
        return _SUSPICIONS[self.kind].format_map({**self.figures, "tensor": self.tensor})


class Accuracy(Part):
    """Shares of images that the float, int8 and DLA networks classify correctly.

    ``differences`` counts the images for which int8 and DLA outputs differ. ``dla`` is None for a
    described machine without values of its own.
    """

    float_: Fraction | None = Field(alias="float")
    int8: Fraction
    dla: Fraction | None
    images: Count
    differences: Count = 0


def find_difference(check: Check, hardware: HardwareCheck | None, accuracy: Accuracy | None) -> str:
    """Return the first difference between a run and its references; empty if there is none."""
    # the hardware explains the differences that it causes in the results
    if hardware is not None and hardware.first is not None:
        return f"the hardware is not the simulator: {hardware.first}"
    if check.first is not None:
        return check.first.message()
    if accuracy is not None and accuracy.differences and check.vouched:
        return f"{accuracy.differences} of {accuracy.images} images have other outputs"
    return ""
