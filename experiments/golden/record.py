"""Recording cases, the catalogue's and the user's own, and accepting new results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dla_sim.presets import Preset, apply_settings
from dla_sim.timing import Timing
from experiments.golden.case import Case, Record, StoredCase
from experiments.golden.check import assembled, check_case, require_variant, timing_of
from experiments.golden.observe import observe
from experiments.golden.store import NAME, Corpus, Event, corpus_to_replace, open_corpus, write_corpus
from experiments.running.simulate import program_inputs
from experiments.version import tool_version
from isa import program_file
from isa.assembler import assemble, disassemble
from isa.errors import InputError
from isa.program import Program
from isa.progress import Progress
from isa.reading import read_bytes, text_of


class DisagreementError(Exception):
    """The ways of execution do not agree with one another: nothing is worth recording. The message says where."""


@dataclass(frozen=True)
class Blessing:
    """What :func:`bless` did: names of the cases whose record changed, and the corpus."""

    changed: tuple[str, ...]
    corpus: Corpus


def record_case(case: Case) -> StoredCase:
    """Run ``case`` and keep what was observed; raises DisagreementError when the kernels or engines see otherwise."""
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
    return _agreed(stored)


def _agreed(case: StoredCase) -> StoredCase:
    outcome = check_case(case)
    if not outcome.passed:
        first = outcome.deviations[0]
        raise DisagreementError(f"case {case.name}: {first.aspect} at word {first.word}: {first.summary}")
    return case


def record_corpus(folder: Path, cases: Iterable[Case], progress: Progress) -> Corpus:
    """Record ``cases`` as the corpus in ``folder``, whose old corpus is replaced in one step and its history kept.

    Raises InputError for a folder that holds something else, DisagreementError from :func:`record_case`.
    """
    history = corpus_to_replace(folder).history
    stored = []
    for case in cases:
        progress(f"recording {case.name}")
        stored.append(record_case(case))
    if not stored:
        raise InputError("no case was chosen; nothing is recorded")
    return write_corpus(folder, stored, history, Event("record", "", tool_version(), 0, (), ""))


def record_missing(folder: Path, cases: Iterable[Case], progress: Progress) -> tuple[str, ...]:
    """Record those of ``cases`` that the corpus in ``folder`` has not, beside its own; returns their names.

    The others stay as they are, byte by byte. A corpus that has them all is left alone. Raises as
    :func:`record_corpus`.
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
        write_corpus(folder, [*kept, *added], corpus.history, Event("add", "", tool_version(), 0, names, ""))
    return names


def add_case(folder: Path, case: Case) -> Corpus:
    """Record ``case`` and add it to the corpus in ``folder``, or make a corpus of it where there is none.

    Raises InputError for a name that is taken or no name, and as :func:`record_corpus`.
    """
    corpus = corpus_to_replace(folder)
    if not NAME.fullmatch(case.name):
        raise InputError(f"case name '{case.name}' must be LEVEL/name of letters, digits, points and hyphens")
    if case.name in corpus.entries:
        raise InputError(f"{folder}: case {case.name} exists; accept other results with bless, or choose another name")
    cases = [*(corpus.case(name) for name in corpus.entries), record_case(case)]
    return write_corpus(folder, cases, corpus.history, Event("add", "", tool_version(), 0, (case.name,), ""))


def bless(folder: Path, names: Iterable[str], reason: str, progress: Progress) -> Blessing:
    """Accept what the present machine does as the new results of the cases ``names``; the ``reason`` is stored.

    A corpus in which nothing changed is left alone. Raises InputError for an empty reason, and for a corpus or case
    that cannot be read; DisagreementError when the ways of execution do not agree, before anything is written.
    """
    if not reason.strip():
        raise InputError("--reason is empty; say why the new results are right")
    corpus = open_corpus(folder)
    chosen = set(names)
    cases, changed = [], []
    for name in corpus.entries:
        progress(f"checking {name}")
        case = corpus.case(name)
        if name in chosen and not check_case(case).passed:
            case = _renewed(case)
            changed.append(name)
        cases.append(case)
    if not changed:
        return Blessing((), corpus)
    event = Event("bless", " ".join(reason.split()), tool_version(), 0, tuple(changed), "")
    return Blessing(tuple(changed), write_corpus(folder, cases, corpus.history, event))


def _renewed(case: StoredCase) -> StoredCase:
    """The case as the present machine runs it: its text assembled anew, its results observed anew."""
    require_variant(case)
    program = assembled(case)
    words = program.words if len(program.words) else case.words
    record: Record = observe(replace(program, words=words), case.inputs, timing_of(case), case.contents)
    return _agreed(replace(case, words=words, record=record))


def own_case(file: Path, name: str, tensors: Iterable[str], settings: Iterable[str]) -> Case:
    """The program in ``file`` (binary, or assembly text) with its ``tensors`` ("NAME=FILE.npy").

    ``settings`` ("key=value") are of the Timing. Raises InputError for a file that is no program, a tensor that is
    missing, and a setting that would change the Arch, which the program names.
    """
    program = _program(file)
    base = Preset(name="program", arch=program.arch, timing=Timing())
    hardware = apply_settings(base, settings)
    if hardware.arch != base.arch:
        raise InputError(f"{file}: the program names its Arch; only settings of the timing can be given")
    inputs = {key: array.tobytes() for key, array in program_inputs(program, tensors).items()}
    return Case(name, f"recorded from {file.name}", program, inputs, hardware.timing.model_dump())


def _program(file: Path) -> Program:
    remedy = "'dla emit' and 'dla asm' make programs"
    content = read_bytes(file, program_file.MAXIMUM_BYTES, "a program", remedy)
    if content.startswith(program_file.MAGIC):
        return program_file.from_bytes(content, str(file))
    return assemble(text_of(content, str(file), remedy), str(file))
