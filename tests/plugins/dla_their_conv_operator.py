"""The compiler's side of a package with ``OP_THEIR_CONV``, a native grouped convolution.

The second of its files.
"""

from __future__ import annotations

from byoc.operators import convolution
from byoc.operators.convolution import Convolution, ConvRecord
from byoc.operators.rules import Finding, finding, rule
from byoc.options import Target


@rule("OP_THEIR_CONV is for convolutions of several groups")
def several_groups(record: ConvRecord, target: Target) -> Finding | None:
    """There are groups of several channels."""
    return None if record.grouped else finding("it has {groups} groups", groups=record.group)


class TheirConvolution(Convolution):
    """All groups of a tile in one command."""

    family = "their-convolution"
    instructions = ("OP_THEIR_CONV",)
    constraints = (several_groups, convolution.accumulators_fit, convolution.fits_fields)
    group_instruction = ("OP_THEIR_CONV", "EX_THEIRS")
