"""Command-stream sanitizer: checks that a program is correct under every timing.

Manual: ``docs/verification.md``.
"""

from collections.abc import Sequence

from isa.program import Program, Segment
from isa.sanitizer.addresses import (
    check_alignment,
    check_contained,
    check_image,
    check_own_operands,
    check_protected,
)
from isa.sanitizer.dataflow import check_registers, check_unused, check_unwritten
from isa.sanitizer.findings import CommandStream, SanitizerFinding, stream_of
from isa.sanitizer.layouts import check_layouts
from isa.sanitizer.order import (
    check_deadlock,
    check_races,
    check_tokens,
    compute_order,
    pair_tokens,
)


def sanitize(program: Program, given: Sequence[Segment] = ()) -> tuple[SanitizerFinding, ...]:
    """Return all findings on ``program``, ordered by position in the stream.

    None for a correct program.

    The result depends on the program alone, not on latency, bandwidth or queue depth. ``given`` are
    bytes placed in system memory before the run, in addition to the program's own. Raises
    InputError for illegal words.
    """
    return inspect(stream_of(program, given))


def inspect(stream: CommandStream) -> tuple[SanitizerFinding, ...]:
    """Return the findings on a command stream; its commands may differ from the program's words."""
    pairing = pair_tokens(stream.commands)
    order = compute_order(stream.commands, pairing.givers)
    findings = check_tokens(stream, pairing)
    findings += check_deadlock(stream, pairing, len(order.linear) < len(stream.commands))
    findings += check_image(stream)
    outside, operands = check_contained(stream)
    findings += outside
    findings += check_alignment(stream)
    findings += check_protected(stream, operands)
    findings += check_own_operands(stream)
    findings += check_registers(stream)
    findings += check_races(stream, operands, order)
    findings += check_unwritten(stream, operands, order)
    findings += check_unused(stream, operands, order)
    findings += [] if outside else check_layouts(stream, order)
    return tuple(sorted(findings, key=_position))


def _position(finding: SanitizerFinding) -> tuple[int, str]:
    return max((site.word for site in finding.sites), default=-1), finding.kind
