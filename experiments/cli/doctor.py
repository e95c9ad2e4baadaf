"""``dla doctor``: what is installed, what is missing, and how to get it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from experiments.cli import options, results
from experiments.literal import say
from isa.extras import install_line

if TYPE_CHECKING:
    from experiments.installation import Installation


def command(json: options.Json = None) -> int:
    """Say which versions run here, which extras are there, and what to install.

    Exit status 1 if anything is missing that is always needed.
    """
    from experiments.installation import look, missing

    found = look()
    results.write_json(json, asdict(found))
    _print(found)
    lacking = missing(found.needed)
    if lacking:
        say(f"needed: {install_line(lacking)}")
    for extra in found.extras:
        if extra.missing:
            say(f"for {extra.purpose}: {install_line(extra.missing)}")
    return 1 if lacking else 0


def _print(found: Installation) -> None:
    from experiments.installation import missing
    from experiments.report.terminal import line, plain_table, report_console

    console = report_console()
    for name, text in found.facts:
        console.print(line(f"{name:<9} {text}"), soft_wrap=True)
    table = plain_table(("package", "left"), ("found", "left"), ("", "left"))
    for one in found.needed:
        table.add_row(
            one.wanted, one.found or "none", "" if one.fits else "missing" if not one.found else "does not fit"
        )
    console.print(table)
    extras = plain_table(("extra", "left"), ("", "left"), ("packages", "fold"), ("for", "fold", 1))
    for extra in found.extras:
        packages = ", ".join(f"{one.wanted} ({one.found or 'none'})" for one in extra.packages)
        extras.add_row(extra.name, "missing" if missing(extra.packages) else "installed", packages, extra.purpose)
    console.print(extras)
