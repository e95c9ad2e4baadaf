"""The compiler's side of a package with ``OP_THEIR_CONV``, a native grouped convolution. The second of its files."""

from __future__ import annotations

from byoc.operations import Operation
from byoc.patterns import convolution
from byoc.patterns.base import Pattern
from byoc.patterns.convolution import ConvRecord, convolutions, group_convolution
from byoc.target import Target


def operations(record: ConvRecord, target: Target) -> tuple[Operation, ...]:
    """One operation an image, all groups of a tile in one command."""
    return convolutions(record, via=group_convolution("OP_THEIR_CONV", "EX_THEIRS", record))


def several_groups(record: ConvRecord, target: Target) -> str | None:
    """OP_THEIR_CONV is for convolutions of several groups"""
    return None if record.grouped else f"it has {record.group} groups of {record.weights.shape[1]} input channels"


PATTERN: Pattern[ConvRecord] = Pattern(
    name="their-convolution",
    op_types=("Conv",),
    requirements=convolution.PATTERN.requirements,
    parse=convolution.parse,
    constraints=(several_groups, convolution.accumulators_fit, convolution.fits_fields),
    operations=operations,
    instructions=("OP_THEIR_CONV",),
)
