"""Check of stored cases: every aspect separately, and the first command that differs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import get_args

import numpy as np

from dla_sim.device import Device, Engine, Trace
from dla_sim.engine.times import compute_times
from dla_sim.timing import Timing
from experiments.golden.case import GoldenRecord, StoredCase
from experiments.golden.deviation import CheckedCase, Deviation, moment_of, value_deviation
from experiments.golden.observe import (
    ENGINES,
    Effects,
    Way,
    complaint,
    completion_order,
    cycles_of,
    refusal,
    run_timing,
    tensors,
    totals_of,
    watch,
)
from experiments.golden.store import Corpus
from isa.assembler import assemble, disassemble_words
from isa.errors import InputError
from isa.plugins import variant
from isa.program import Program


def check_case(case: StoredCase) -> CheckedCase:
    """Run the golden case ``case`` and return the differences from its record.

    Raise InputError if this version lacks its ISA variant.
    """
    require_variant(case)
    found = list(_encoding(case))
    program = None
    trace = None
    try:
        program = runnable(case)
        runs = _CaseRuns(case, program)
        found += runs.deviations()
        trace = runs.trace
    # a broken assembler may raise anything; the encoding check has usually reported it
    except Exception as error:
        if not any(item.aspect == "encoding" for item in found):
            found.append(
                Deviation("encoding", None, f"the assembly cannot be read: {complaint(error)}")
            )
    found.sort(key=lambda item: item.order)
    moment = (
        moment_of(case, program, trace, found[0].word) if found and program is not None else None
    )
    after = trace.cycles if trace is not None else None
    return CheckedCase(case.name, tuple(found), moment, case.record.cycles.total, after)


def require_variant(case: StoredCase) -> None:
    """Raise InputError if the ISA variant or the Timing keys of a case do not exist.

    The error names the case.
    """
    try:
        variant(case.isa)
        timing_of(case)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"case {case.name} is for a machine that this version does not have: {reason}"
        ) from error


def timing_of(case: StoredCase) -> Timing:
    return Timing.model_validate(dict(case.timing))


def assemble_case(case: StoredCase) -> Program:
    """Assemble the text of a golden case into a program with the case's memory images.

    The current assembler is used.
    """
    return replace(assemble(case.assembly, case.name), segments=case.images)


def runnable(case: StoredCase) -> Program:
    """Return the program of a golden case with the words that the current assembler encodes.

    It has the recorded words if the machine must reject them, because they may be illegal, or if
    the assembler encodes none.
    """
    program = assemble_case(case)
    recorded = replace(program, words=case.words)
    if case.record.refused is not None or np.array_equal(program.words, case.words):
        return recorded
    return program if len(program.words) else recorded


def _encoding(case: StoredCase) -> Iterator[Deviation]:
    """Yield differences of the current assembler and decoder from a golden record.

    The assembler converts text to words, the decoder words to text.
    """
    if case.record.refused is not None:
        return
    texts = [
        line.strip()
        for line in case.assembly.splitlines()
        if line.strip() and not line.startswith(".")
    ]
    try:
        words = assemble_case(case).words
        wrong = [
            i
            for i, (a, b) in enumerate(zip(words.tolist(), case.words.tolist(), strict=False))
            if a != b
        ]
        if wrong or len(words) != len(case.words):
            yield _word_deviation(case, words.tolist(), wrong, texts)
    except Exception as error:  # a broken assembler may raise anything
        yield Deviation(
            "encoding", _line_word(error, case), f"cannot be assembled: {complaint(error)}"
        )
    yield from _decoding(case, texts)


def _word_deviation(
    case: StoredCase, words: list[int], wrong: list[int], texts: list[str]
) -> Deviation:
    first = wrong[0] if wrong else min(len(words), len(case.words))
    before = f"{int(case.words[first]):#018x}" if first < len(case.words) else "nothing"
    now = f"{words[first]:#018x}" if first < len(words) else "nothing"
    count = len(wrong) or abs(len(words) - len(case.words))
    text = texts[first] if first < len(texts) else ""
    summary = (
        f"'{text}' is encoded as {now}, recorded {before}; {count} of {len(case.words)} words "
        "differ"
    )
    return Deviation("encoding", first, summary, {"expected": before, "actual": now})


def _decoding(case: StoredCase, texts: list[str]) -> Iterator[Deviation]:
    isa = variant(case.isa)
    for index, (word, text) in enumerate(zip(case.words.tolist(), texts, strict=False)):
        try:
            now = disassemble_words([word], isa)[0].strip()
        except Exception as error:  # a broken decoder may raise anything
            now = complaint(error)
        if now != text:
            summary = f"{word:#018x} is decoded as '{now}', recorded '{text}'"
            yield Deviation("decoding", index, summary, {"expected": text, "actual": now})
            return


def _line_word(error: Exception, case: StoredCase) -> int | None:
    if not isinstance(error, InputError) or error.line is None:
        return None
    before = case.assembly.splitlines()[: error.line - 1]
    return sum(bool(line.strip()) and not line.startswith(".") for line in before)


class _CaseRuns:
    """Runs of a golden case by both engines and both ways of execution, to be checked."""

    def __init__(self, case: StoredCase, program: Program) -> None:
        self.case = case
        self.program = program
        self.timing = timing_of(case)
        self.trace: Trace | None = None

    def deviations(self) -> Iterator[Deviation]:
        record = self.case.record
        traces: dict[str, Trace] = {}
        for aspect, engine in ENGINES.items():
            refused = None
            message = "it runs"
            try:
                traces[aspect] = run_timing(self.program, self.timing, engine)
            except Exception as error:  # any exception of a machine is an observation
                refused = refusal(error)
                message = complaint(error)
            if refused != record.refused:
                yield self._refusal(aspect, refused, message)
        self.trace = traces.get("cycles") or traces.get("recurrence")
        if record.refused is not None or self.trace is None:
            return
        for aspect, trace in traces.items():
            yield from self._cycles(aspect, trace, record)
        if totals_of(self.trace) != dict(record.totals):
            yield _table_deviation("totals", record.totals, totals_of(self.trace))
        yield from self._values(record, completion_order(self.trace))

    def _refusal(self, aspect: str, now: str | None, message: str) -> Deviation:
        before = self.case.record.refused
        summary = f"by the engine of '{aspect}': {message}; recorded: {before or 'it runs'}"
        return Deviation("refusal", None, summary, {"expected": before, "actual": now})

    def _cycles(self, aspect: str, trace: Trace, record: GoldenRecord) -> Iterator[Deviation]:
        spans = list(zip(trace.times.start.tolist(), trace.times.end.tolist(), strict=True))
        for row, command, (start, end) in zip(record.commands, trace.commands, spans, strict=False):
            if (row.start, row.end) != (start, end):
                summary = (
                    f"{start} to {end} ({end - start} cycles), recorded {row.start} to {row.end} "
                    + (
                        f"({row.end - row.start} cycles); whole case {trace.cycles}, recorded "
                        f"{record.cycles.total}"
                    )
                )
                details = {"expected": [row.start, row.end], "actual": [start, end]}
                yield Deviation(aspect, command.index, summary, details)
                return
        before = record.cycles
        now = cycles_of(trace)
        for table_before, table_now in (
            ({"total": before.total}, {"total": now.total}),
            (before.kinds, now.kinds),
            *((before.units.get(unit, {}), now.units[unit]) for unit in now.units),
        ):
            if table_before != table_now:
                yield _table_deviation(aspect, table_before, table_now)
                return

    def _values(self, record: GoldenRecord, order: list[int]) -> Iterator[Deviation]:
        effects: dict[str, Effects] = {}
        for way in get_args(Way):
            try:
                effects[way] = watch(self.program, self.case.inputs, order, way)
            except Exception as error:  # a broken instruction may raise anything
                yield Deviation(way, None, f"the run stops: {complaint(error)}")
        for way, own in effects.items():
            other = next((effects[name] for name in effects if name != way), own)
            found = value_deviation(self.case, self.program, way, own, other)
            if found is not None:
                yield found
        if record.stopped is None:
            yield from self._device(record)

    def _device(self, record: GoldenRecord) -> Iterator[Deviation]:
        """Yield the first difference of the simulated device's outputs from the record."""
        try:
            trace = self.trace
            engine: Engine = compute_times if trace is None else lambda workload: trace.times
            device = Device(self.program.arch, self.timing, engine=engine)
            outputs = device.run(self.program, tensors(self.program, self.case.inputs)).outputs
        except Exception as error:  # a broken device may raise anything
            yield Deviation("device", None, f"the run stops: {complaint(error)}")
            return
        for name, content in record.outputs.items():
            if name not in outputs or outputs[name].tobytes() != content:
                yield Deviation("device", None, f"output tensor '{name}' differs", {"tensor": name})
                return


def _table_deviation(aspect: str, before: Mapping[str, int], now: Mapping[str, int]) -> Deviation:
    keys = [key for key in {**before, **now} if before.get(key, 0) != now.get(key, 0)]
    shown = ", ".join(f"{key} {now.get(key, 0)}, recorded {before.get(key, 0)}" for key in keys)
    return Deviation(aspect, None, shown, {"expected": dict(before), "actual": dict(now)})


def verify(
    corpus: Corpus,
    names: Iterable[str],
    progress: Callable[[str], None],
    *,
    fail_fast: bool = False,
) -> list[CheckedCase]:
    """Check the golden cases ``names`` of a corpus and return their outcomes.

    All are read and validated before the first runs.

    Raises: InputError: a case is missing, edited or damaged, or needs an ISA variant that this
        version lacks.
    """
    cases = [corpus.case(name) for name in names]
    for case in cases:
        require_variant(case)
    outcomes = []
    for case in cases:
        progress(f"checking {case.name}")
        outcomes.append(check_case(case))
        if fail_fast and not outcomes[-1].passed:
            break
    return outcomes
