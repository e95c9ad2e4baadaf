"""The command-stream sanitizer: is a program right under every timing? ``docs/sanitizer.md`` is its manual."""

from __future__ import annotations

from collections.abc import Sequence

from isa.program import Program, Segment
from isa.sanitizer.addresses import check_alignment, check_image, check_own_operands, check_protected, contained
from isa.sanitizer.dataflow import check_registers, check_unused, check_unwritten
from isa.sanitizer.findings import Finding, Stream, stream_of
from isa.sanitizer.layouts import check_layouts
from isa.sanitizer.order import check_deadlock, check_races, check_tokens, happens_before, pair_tokens


def sanitize(program: Program, given: Sequence[Segment] = ()) -> tuple[Finding, ...]:
    """All findings on ``program``, by position in the stream; none for a program without fault.

    Depends on the program alone: no latency, no bandwidth and no queue depth has a part in it. ``given`` are bytes
    that are put into system memory before the run beside the program's own. Raises InputError for words that are not
    legal.
    """
    return inspect(stream_of(program, given))


def inspect(stream: Stream) -> tuple[Finding, ...]:
    """The findings on a stream that need not come from the words of its program."""
    pairing = pair_tokens(stream.commands)
    order = happens_before(stream.commands, pairing.givers)
    findings = check_tokens(stream, pairing)
    findings += check_deadlock(stream, pairing, len(order.linear) < len(stream.commands))
    findings += check_image(stream)
    outside, operands = contained(stream)
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


def _position(finding: Finding) -> tuple[int, str]:
    return max((site.word for site in finding.sites), default=-1), finding.kind
