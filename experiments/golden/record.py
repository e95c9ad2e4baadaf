"""Recording of cases, of the catalogue or of the user, and acceptance of new results."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dla_sim.presets import Preset, apply_settings
from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase, GoldenRecord, StoredCase
from experiments.golden.check import assemble_case, check_case, require_variant, timing_of
from experiments.golden.observe import observe
from experiments.golden.store import (
    NAME,
    Corpus,
    Event,
    corpus_to_replace,
    open_corpus,
    write_corpus,
)
from experiments.running.simulate import program_inputs
from experiments.version import tool_version
from isa import program_file
from isa.assembler import assemble, disassemble
from isa.errors import InputError
from isa.program import Program
from isa.progress import Progress
from isa.reading import read_bytes, text_of


class DisagreementError(Exception):
    """Raised if the ways of execution disagree, so that no golden record can be made."""


@dataclass(frozen=True)
class Blessing:
    """Result of :func:`bless`: names of the golden cases that changed, and the corpus."""

    changed: tuple[str, ...]
    corpus: Corpus


def record_case(case: GoldenCase) -> StoredCase:
    """Run the golden case ``case`` and return it with the record of the run.

    Raise DisagreementError if the kernels or an engine differ.
    """
    words = case.program.words if case.words is None else case.words
    program = replace(case.program, words=words)
    record = observe(program, case.inputs, Timing.model_validate(dict(case.timing)), case.contents)
    bare = replace(case.program, segments=())
    if record.refused is not None:
        bare = replace(bare, words=np.array([], np.uint64), provenance=())
    stored = StoredCase(
        name=case.name,
        description=case.description,
        isa=case.program.arch.isa,
        assembly=disassemble(bare),
        words=words,
        images=case.program.segments,
        inputs=case.inputs,
        timing=case.timing,
        contents=case.contents,
        record=record,
    )
    return _check_agreement(stored)


def _check_agreement(case: StoredCase) -> StoredCase:
    outcome = check_case(case)
    if not outcome.passed:
        first = outcome.deviations[0]
        raise DisagreementError(
            f"case {case.name}: {first.aspect} at word {first.word}: {first.summary}"
        )
    return case


def record_corpus(folder: Path, cases: Iterable[GoldenCase], progress: Progress) -> Corpus:
    """Record golden cases and store them as the corpus in ``folder``.

    It replaces the old corpus in one step and keeps its history.

    Raises InputError for a folder with other content, and DisagreementError as :func:`record_case`.
    """
    history = corpus_to_replace(folder).history
    stored = []
    for case in cases:
        progress(f"recording {case.name}")
        stored.append(record_case(case))
    if not stored:
        raise InputError("no case was chosen; nothing is recorded")
    return write_corpus(folder, stored, history, Event("record", "", tool_version(), 0, (), ""))


def record_missing(
    folder: Path, cases: Iterable[GoldenCase], progress: Progress
) -> tuple[str, ...]:
    """Record the golden cases that the corpus in ``folder`` lacks, and return their names.

    The new cases are added to the corpus. Existing cases do not change by a byte. A corpus that has
    all cases is not written. Raises as :func:`record_corpus`.
    """
    corpus = open_corpus(folder)
    added = []
    for case in cases:
        if case.name not in corpus.entries:
            progress(f"recording {case.name}")
            added.append(record_case(case))
    names = tuple(case.name for case in added)
    if names:
        kept = [corpus.case(name) for name in corpus.entries]
        write_corpus(
            folder, [*kept, *added], corpus.history, Event("add", "", tool_version(), 0, names, "")
        )
    return names


def add_case(folder: Path, case: GoldenCase) -> Corpus:
    """Record a golden case and add it to the corpus in ``folder``, created if there is none.

    Raises InputError for an invalid name or one that exists, and as :func:`record_corpus`.
    """
    corpus = corpus_to_replace(folder)
    if not NAME.fullmatch(case.name):
        raise InputError(
            f"case name '{case.name}' must be LEVEL/name of letters, digits, points and hyphens"
        )
    if case.name in corpus.entries:
        raise InputError(
            f"{folder}: case {case.name} exists; accept other results with bless, or "
            "choose another name"
        )
    cases = [*(corpus.case(name) for name in corpus.entries), record_case(case)]
    return write_corpus(
        folder, cases, corpus.history, Event("add", "", tool_version(), 0, (case.name,), "")
    )


def bless(folder: Path, names: Iterable[str], reason: str, progress: Progress) -> Blessing:
    """Accept the current machine's results as correct for golden cases, with a ``reason``.

    A corpus in which nothing changed is not written. Before anything is written, raises InputError
    for an empty reason or an unreadable corpus or case, and DisagreementError if the ways of
    execution disagree.
    """
    if not reason.strip():
        raise InputError("--reason is empty; say why the new results are right")
    corpus = open_corpus(folder)
    chosen = set(names)
    cases = []
    changed = []
    for name in corpus.entries:
        progress(f"checking {name}")
        case = corpus.case(name)
        if name in chosen and not check_case(case).passed:
            case = _renew_case(case)
            changed.append(name)
        cases.append(case)
    if not changed:
        return Blessing((), corpus)
    event = Event("bless", " ".join(reason.split()), tool_version(), 0, tuple(changed), "")
    return Blessing(tuple(changed), write_corpus(folder, cases, corpus.history, event))


def _renew_case(case: StoredCase) -> StoredCase:
    """Assemble and run a golden case again on the current machine and return its new record.

    The text is assembled again, and the results are observed again.
    """
    require_variant(case)
    program = assemble_case(case)
    words = program.words if len(program.words) else case.words
    record: GoldenRecord = observe(
        replace(program, words=words), case.inputs, timing_of(case), case.contents
    )
    return _check_agreement(replace(case, words=words, record=record))


def own_case(file: Path, name: str, tensors: Iterable[str], settings: Iterable[str]) -> GoldenCase:
    """Return a golden case made from the user's program in ``file``.

    The file is binary or assembly text. ``tensors`` are inputs ("NAME=FILE.npy"). ``settings``
    ("key=value") belong to the Timing. Raises InputError for a file that is no program, a missing
    tensor, or a setting that would change the Arch, which the program fixes.
    """
    program = _program(file)
    base = Preset(name="program", arch=program.arch, timing=Timing())
    hardware = apply_settings(base, settings)
    if hardware.arch != base.arch:
        raise InputError(
            f"{file}: the program names its Arch; only settings of the timing can be given"
        )
    inputs = {key: array.tobytes() for key, array in program_inputs(program, tensors).items()}
    return GoldenCase(
        name, f"recorded from {file.name}", program, inputs, hardware.timing.model_dump()
    )


def _program(file: Path) -> Program:
    remedy = "'dla emit' and 'dla asm' make programs"
    content = read_bytes(file, program_file.MAXIMUM_BYTES, "a program", remedy)
    if content.startswith(program_file.MAGIC):
        return program_file.from_bytes(content, str(file))
    return assemble(text_of(content, str(file), remedy), str(file))
