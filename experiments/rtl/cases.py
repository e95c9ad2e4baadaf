"""Cases for the hardware: those of a corpus, programs of the user, and the regions of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dla_sim.rtl.simulator.case import Case, expect
from experiments.golden.check import require_variant, runnable, timing_of
from experiments.golden.observe import tensors
from experiments.golden.store import Corpus
from experiments.rtl.export import Source
from experiments.running.inference import Inference
from experiments.running.simulate import regions_given
from isa.arch import Arch


def corpus_cases(corpus: Corpus, names: Iterable[str], within: Callable[[Arch], Arch] | None = None) -> Iterator[Case]:
    """The cases of a corpus; those are left out that the machine refuses, for no hardware runs them.

    On their own machines, or on what ``within`` makes of those. Raises InputError for a case that needs a variant which
    this version does not have.
    """
    for name in names:
        stored = corpus.case(name)
        require_variant(stored)
        if stored.record.refused is None:
            program, timing = runnable(stored), timing_of(stored)
            program = program if within is None else replace(program, arch=within(program.arch))
            inputs = tensors(program, stored.inputs)
            yield Case(name, program, inputs, timing, expect(program, inputs, timing))


def source_case(source: Source) -> Case:
    """What an export is made of, for the hardware."""
    program, timing = source.program, source.timing
    inputs = tensors(program, source.inputs)
    return Case(source.name, program, inputs, timing, expect(program, inputs, timing))


def network_cases(done: Inference) -> Iterator[Case]:
    """The regions of an inference, each on what it was given."""
    timing = done.hardware.timing
    for index, inputs in regions_given(done).items():
        program = done.compiled.programs[index]
        yield Case(f"{done.network.name}/{index}", program, inputs, timing, expect(program, inputs, timing))
