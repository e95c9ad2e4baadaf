"""Write the tables of registers, counters and fault reasons in docs/device.md.

``python -m tests.docs.device`` updates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from isa.device import COUNTED_CAUSES, COUNTED_UNITS, DEVICE_REGISTERS, FaultReason

PAGE = Path(__file__).parents[2] / "docs/device.md"
MARK = re.compile(r"(<!-- tests\.docs\.device (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def registers() -> str:
    """Return the table of registers without the counters of units."""
    lines = ["| offset | register | access | meaning |", "|---|---|---|---|"]
    for one in DEVICE_REGISTERS.values():
        if not one.name.startswith(tuple(f"{unit}_" for unit in COUNTED_UNITS)):
            bits = (f"bit {position} `{name}`: {text}" for name, position, text in one.bits)
            text = "; ".join([one.meaning, *bits])
            lines.append(f"| {one.offset:#05x} | `{one.name}` | {one.access} | {text} |")
    return "\n".join(lines)


def counters() -> str:
    """Return the table of the counters of units: a row for each cause."""
    names = " | ".join(COUNTED_UNITS)
    lines = [f"| counter | {names} | cycles in which the unit |", "|---|---|---|---|---|"]
    for cause, text in COUNTED_CAUSES.items():
        offsets = " | ".join(
            f"{DEVICE_REGISTERS[f'{unit}_{cause.upper()}_LOW'].offset:#05x}"
            for unit in COUNTED_UNITS
        )
        lines.append(f"| `UNIT_{cause.upper()}` | {offsets} | {text} |")
    return "\n".join(lines)


def faults() -> str:
    """Return the table of fault reasons."""
    lines = ["| code | reason | meaning |", "|---|---|---|"]
    lines += [f"| {one.value} | `{one.name}` | {one.meaning} |" for one in FaultReason]
    return "\n".join(lines)


TABLES: Mapping[str, str] = {"registers": registers(), "counters": counters(), "faults": faults()}


def written(page: str) -> str:
    """Return ``page`` with all tables updated."""
    assert {name for _, name, _ in MARK.findall(page)} == set(TABLES)
    return MARK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]}\n\n{found[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
