"""``dla advise``: the limiter of a network on a machine, and changes that make it faster."""

from dataclasses import replace

from experiments.advise.request import AdviseRequest
from experiments.cli import options, results
from experiments.literal import say


@options.expand_options
def command(wanted: AdviseRequest, json: options.Json = None, csv: options.Csv = None) -> None:
    """Show what limits a network on a machine, and measured changes that make it faster.

    The command that repeats each change is printed on a line of its own.
    """
    from experiments.advise.advice import advise_requested, commands, content
    from experiments.advise.described import MachineAdvice

    with options.stages() as progress:
        found = advise_requested(replace(wanted, stage=progress))
    told = found.content() if isinstance(found, MachineAdvice) else content(found)
    results.write_tables(json, csv, told, found.records())
    found.show()
    for one in found.commands if isinstance(found, MachineAdvice) else commands(found):
        say(one)
