"""``dla models``: the built-in networks."""

from __future__ import annotations

from experiments.cli import options


def command(json: options.Json = None) -> None:
    """List the built-in networks."""
    from experiments.models import MODELS

    if json is not None:
        from json import dumps

        from isa.files import write_atomically

        write_atomically(json, dumps({model.name: model.description for model in MODELS.values()}, indent=1) + "\n")
        return
    from experiments.report.terminal import plain_table, report_console

    table = plain_table(("name", "left"), ("network", "fold"))
    for model in MODELS.values():
        table.add_row(model.name, model.description)
    report_console().print(table)
