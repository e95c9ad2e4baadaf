"""Compare the hardware with the simulator on golden, drawn and network programs.

Run ``python -m tests.dla_sim.rtl.compare --corpus tests/golden``. ``--random N`` also runs N drawn
programs, and ``--network MODEL`` the regions of a network on the hardware of ``--preset``. It
prints the differences, the first command of each case first. The exit status is 1 at any
difference.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from dla_sim.presets import load_hardware
from dla_sim.rtl.ex.engines import ENGINES
from dla_sim.rtl.simulator.case import Case, Outcome, difference_text, expect, run_cases
from experiments.golden.store import choose, open_corpus
from experiments.rtl.comparison import corpus_cases
from experiments.rtl.hardware import SMALL, THREE_AXES, own_executable, run_each
from experiments.running.inference import Inference, infer
from experiments.running.network import load_network, network_feeds
from experiments.running.simulate import list_region_inputs
from isa.instruction import Unit
from tests.dla_sim.rtl.random_programs import random_cases
from tests.dla_sim.rtl.small_machines import reduce_to_limits

SHOWN_CASES = 20
SHOWN_DIFFERENCES = 4


def main() -> int:
    """Exit status: 0 without differences, 1 otherwise."""
    arguments = _arguments()
    begun = time.perf_counter()
    outcomes = list(_outcomes(arguments))
    wrong = [outcome for outcome in outcomes if outcome.count]
    for outcome in wrong[:SHOWN_CASES]:
        print(f"{outcome.case.name}: {outcome.count} differences")
        for difference in outcome.differences[:SHOWN_DIFFERENCES]:
            print(f"    {difference_text(outcome.case, difference)}")
    cycles, seconds = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("cycles", "seconds")
    )
    commands = sum(outcome.commands for outcome in outcomes)
    print(
        f"{len(outcomes)} programs, {commands:,} commands, {cycles:,} cycles, {len(wrong)} "
        "programs differ; "
        f"{cycles / max(seconds, 1e-9) / 1e6:.2f} M cycles/s, {time.perf_counter() - begun:.0f} s "
        "in all"
    )
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Hold the hardware to the simulator, to the bit and the cycle."
    )
    parser.add_argument("--corpus", type=Path, help="a golden corpus")
    parser.add_argument("--level", action="append", default=[], help="only this level of it")
    parser.add_argument(
        "--only", default="", help="a regular expression: only cases with such names"
    )
    parser.add_argument("--random", type=int, default=0, help="how many random programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first random program")
    parser.add_argument(
        "--network", action="append", default=[], help="a model, or a built-in name"
    )
    parser.add_argument("--preset", default="balanced-64", help="the machine of the networks")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of it")
    parser.add_argument(
        "--small", action="store_true", help="on the smallest hardware: machines get its array"
    )
    parser.add_argument(
        "--most", type=int, default=1 << 40, help="leave out programs of more cycles"
    )
    parser.add_argument(
        "--built", action="store_true", help="only programs whose instructions the hardware has"
    )
    return parser.parse_args()


def _outcomes(arguments: argparse.Namespace) -> Iterator[Outcome]:
    if arguments.corpus is not None:
        corpus = open_corpus(arguments.corpus)
        names = [
            name
            for name in choose(corpus.entries, arguments.level, ())
            if re.search(arguments.only, name)
        ]
        machines = partial(reduce_to_limits, limits=SMALL[0]) if arguments.small else None
        yield from run_each(_chosen(corpus_cases(corpus, names, machines), arguments), _say)
    if arguments.random:
        seeds = range(arguments.seed, arguments.seed + arguments.random)
        drawn = random_cases(seeds, SMALL[0] if arguments.small else THREE_AXES[0])
        yield from run_each(_chosen(drawn, arguments), _say)
    for name in arguments.network:
        yield from _network(name, arguments)


def _network(name: str, arguments: argparse.Namespace) -> Iterator[Outcome]:
    hardware = load_hardware(arguments.preset, tuple(arguments.set), "v4")
    network = load_network(name)
    done = infer(network, hardware, network_feeds(network, None, 0))
    executable = own_executable(hardware.arch, hardware.timing)
    cases = list(_chosen(network_cases(done), arguments))
    yield from run_cases(executable, [(case, {}) for case in cases])


def network_cases(done: Inference) -> Iterator[Case]:
    """Yield the regions of an inference, each with its inputs."""
    timing = done.hardware.timing
    for index, inputs in list_region_inputs(done).items():
        program = done.compiled.programs[index]
        yield Case(
            f"{done.network.name}/{index}", program, inputs, timing, expect(program, inputs, timing)
        )


def _chosen(cases: Iterable[Case], arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases that are short enough.

    If asked for, an engine must know every command for EX.
    """
    known = {mnemonic for engine in ENGINES for mnemonic in engine.mnemonics}
    for case in cases:
        of_ex = (
            command.instruction for command in case.program.commands if command.unit is Unit.EX
        )
        short = case.expected is not None and case.expected.trace.cycles <= arguments.most
        if short and (
            not arguments.built
            or all(item.unit is None or item.mnemonic in known for item in of_ex)
        ):
            yield case


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
