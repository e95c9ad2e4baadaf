"""Summary of the golden cases that differ: a table by instruction and aspect, and JUnit XML."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from experiments.golden.deviation import ASPECTS, CheckedCase, format_checked_lines
from experiments.report.terminal import ReportTable, plain_table

_CONTROL = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot contain."""


def group_by_instruction(failed: Iterable[CheckedCase]) -> dict[str, list[CheckedCase]]:
    """Group golden cases by the instruction of their first difference, largest groups first."""
    groups: dict[str, list[CheckedCase]] = {}
    for case in failed:
        instruction = case.moment.text.split()[0] if case.moment is not None else "the whole case"
        groups.setdefault(instruction, []).append(case)
    return dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))


def summary_table(failed: Sequence[CheckedCase]) -> ReportTable:
    """Return the numbers of golden cases that differ, by instruction and by aspect.

    A case counts in the row of the instruction of its first difference.
    """
    differing = {item.aspect for case in failed for item in case.deviations}
    aspects = [aspect for aspect in ASPECTS if aspect in differing]
    table = plain_table(
        ("first difference in", "left"),
        ("cases", "right"),
        *((aspect, "right") for aspect in aspects),
        ("such as", "fold"),
    )
    for instruction, cases in group_by_instruction(failed).items():
        counted = Counter(
            aspect for case in cases for aspect in {item.aspect for item in case.deviations}
        )
        counts = (str(counted[aspect] or "") for aspect in aspects)
        table.add_row(instruction, str(len(cases)), *counts, cases[0].name)
    return table


def to_junit(outcomes: Sequence[CheckedCase]) -> str:
    """Return the outcomes of golden cases as JUnit XML: a test case each, by level and name.

    A case that differs has a failure with the lines of its report.
    """
    failed = sum(not outcome.passed for outcome in outcomes)
    suite = Element(
        "testsuite",
        {"name": "dla golden check", "tests": str(len(outcomes)), "failures": str(failed)},
    )
    for outcome in outcomes:
        level, _, name = outcome.name.rpartition("/")
        case = SubElement(suite, "testcase", classname=level, name=name)
        if not outcome.passed:
            first, *further = format_checked_lines(outcome)
            failure = SubElement(case, "failure", message=first)
            failure.text = _CONTROL.sub("?", "\n".join(further))
    indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suite, "unicode")}\n'
