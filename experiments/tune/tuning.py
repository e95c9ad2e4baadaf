"""Tuning from a model to its best schedule, for ``dla tune`` and Python.

The measurements of a search are stored in a log. Logged measurements are read, the others are made.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byoc.compiler import partition_package
from byoc.estimate.bus import bus_of
from byoc.options import CompileOptions
from byoc.tuning.log import (
    MAXIMUM_BYTES,
    LoggedSite,
    MeasuredSchedule,
    TuningHeader,
    TuningLog,
    difference,
    load_tuned,
    mend,
    read_log,
)
from byoc.tuning.subject import ProgramClock, Tried, TuningSubject
from byoc.tuning.transfer import Donor, choose_donor, shares_of
from dla_sim.presets import Preset
from dla_sim.program_timing import ProgramTiming
from dla_sim.timing import Timing
from experiments.report.shown import Presentation, Shown
from experiments.running.door import door
from experiments.running.inference import hardware_of
from experiments.running.network import Network, load
from experiments.tune.model import CostModel, load_model, require_library
from experiments.tune.request import Report, SearchOptions, TuneKeywords, TuneRequest
from experiments.tune.search import Evolution
from experiments.version import compiler_version
from isa.errors import InputError
from isa.files import write_atomically
from isa.progress import silent
from isa.reading import read_bytes


@dataclass(frozen=True, repr=False)
class Tuned(Shown):
    """Result of a tuning.

    ``kept`` is the number of measurements that the log already had; ``donor`` is the log that
    supplied schedules. ``options`` are the compiler options of the tuning; ``best_options`` compile
    the best schedule.
    """

    log: TuningLog
    kept: int
    donor: Path | None
    options: CompileOptions

    @property
    def best_options(self) -> CompileOptions:
        """Compiler options of ``dla run --tuned LOG``, with the best schedule of the log."""
        return replace(
            self.options, chosen=load_tuned(self.log.path, self.options, compiler_version())
        )

    @property
    def summary(self) -> str:
        """Cycles before and after tuning, in one line."""
        records = self.log.records
        best = self.log.best
        own = records[0].measurement.cycles
        fewest = best.measurement.cycles
        assert own is not None
        assert fewest is not None
        return (
            f"{self.log.header.network}: {own:,} cycles by the compiler's choice, {fewest:,} tuned "
            f"({fewest / own - 1:+.2%}), after {records.index(best) + 1} of {len(records)} "
            "measurements"
        )

    @property
    def presented(self) -> tuple[Any, Presentation]:
        """Cycles before and after tuning, and the name of the log."""
        return self, Presentation(lambda tuned: [tuned.summary, f"log in {tuned.log.path}"])


def model_file(log: Path) -> Path:
    return log.with_name(log.name + ".model")


def clock_of(timing: Timing) -> ProgramClock:
    """Return the clock that measures programs with the timing-only engine."""
    return ProgramClock(lambda program: ProgramTiming(program).layers(timing), bus_of(timing))


def tune_network(
    network: Network,
    hardware: Preset,
    options: CompileOptions,
    path: Path,
    wanted: SearchOptions,
    report: Report = silent,
) -> Tuned:
    """Measure schedules of ``network`` until the log at ``path`` has the requested number.

    Save the model next to it.

    A small network may have fewer schedules. Logged schedules are not measured again. Raises
    InputError for bad input and for a log of another search.
    """
    if wanted.measurements < 1:
        raise InputError(f"--measurements is {wanted.measurements}; it must be 1 or more")
    if options.schedule == "seed" or options.chosen:
        raise InputError(
            "a tuning chooses the whole schedule; leave --schedule, --pins and --tuned out"
        )
    if os.path.realpath(path) in [os.path.realpath(donor) for donor in wanted.donors]:
        raise InputError(f"--from {path} is the log itself; leave it out, or give another --log")
    if wanted.learn:
        require_library()
    found = partition_package(network.package, hardware.arch, options)
    subject = TuningSubject(
        found.regions, found.graph.values, hardware.arch, clock_of(hardware.timing)
    )
    if not subject.sites:
        raise InputError(
            f"{network.name}: no layer runs on the accelerator; 'dla partition' says why"
        )
    donors = tuple(read_log(Path(donor)) for donor in wanted.donors)
    header = _header(network, hardware, options, wanted, subject)
    logged = _open_log(path, header)
    session = _Session(subject, wanted, donors)
    with path.open("ab") as file:
        for number, record in enumerate(session.records(path, logged), start=1):
            if number > len(logged):
                file.write(record.text(number).encode())
                file.flush()
            report(number, session.fewest)
    if session.model is not None:
        session.model.save(model_file(path))
    return Tuned(read_log(path), min(len(logged), wanted.measurements), session.donor, options)


def _header(
    network: Network,
    hardware: Preset,
    options: CompileOptions,
    wanted: SearchOptions,
    subject: TuningSubject,
) -> TuningHeader:
    timing = json.dumps(hardware.timing.model_dump(), sort_keys=True).encode()
    donors = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in _donor_files(wanted)]
    return TuningHeader(
        schema="dla-tune/1",
        network=network.name,
        package=network.package.digest,
        machine=hardware.arch.digest(),
        timing=hashlib.sha256(timing).hexdigest()[:16],
        compiler=compiler_version(),
        options=" ".join(options.words),
        search={"seed": wanted.search_seed, "model": wanted.learn, "from": donors},
        layers=[
            LoggedSite(
                layer=site.name,
                kind=site.kind,
                channels=site.geometry.nest.channels,
                rows=site.geometry.nest.rows,
                inputs=site.geometry.nest.input_channels,
            )
            for site in subject.sites
        ],
    )


def _donor_files(wanted: SearchOptions) -> Iterator[Path]:
    """Yield the donor logs and the models stored next to them."""
    for path in map(Path, wanted.donors):
        yield path
        if wanted.learn and model_file(path).exists():
            yield model_file(path)


def _open_log(path: Path, header: TuningHeader) -> tuple[MeasuredSchedule, ...]:
    """Return the records of a tuning log.

    Create it if it is missing or if not even its first line is complete.

    Raises InputError for a log of another search.
    """
    begun = (
        read_bytes(path, MAXIMUM_BYTES, "a tuning log", "give a file as --log")
        if path.exists()
        else b""
    )
    if header.text().encode().startswith(begun):
        write_atomically(path, header.text())
    log = read_log(path)
    changed = difference(log.header, header)
    if changed is not None:
        raise InputError(
            f"{path}: made with other conditions ({changed}); give another --log, and this one "
            "with --from if it helps"
        )
    mend(path)
    return log.records


class _Session:
    """Search for schedules that reuses logged measurements first and then makes new ones."""

    def __init__(
        self, subject: TuningSubject, wanted: SearchOptions, donors: Sequence[TuningLog]
    ) -> None:
        self._subject = subject
        self._wanted = wanted
        self._donors = donors
        self.model = CostModel() if wanted.learn else None
        self.donor: Path | None = None
        self.fewest = 0

    def records(self, path: Path, logged: Sequence[MeasuredSchedule]) -> Iterator[MeasuredSchedule]:
        """Yield every measurement: the logged ones, which must match the search, then new ones."""
        evolution = Evolution(self._subject, self._wanted.search_seed, self.model)
        proposals = evolution.proposals(self._donor)
        choices = next(proposals)
        for number in range(self._wanted.measurements):
            record = (
                logged[number]
                if number < len(logged)
                else MeasuredSchedule(choices, self._subject.measure(choices))
            )
            if record.choices != choices:
                raise InputError(
                    f"{path}, line {number + 2}: the search does not try this schedule; "
                    "remove this line and all that follow"
                )
            cycles = record.measurement.cycles
            if cycles is not None:
                self.fewest = min(cycles, self.fewest or cycles)
            yield record
            if self.model is None and number + 1 == self._wanted.measurements:
                return  # only a model learns from the last measurement
            try:
                choices = proposals.send(record.measurement)
            except StopIteration:  # every schedule that can be drawn has been measured
                return

    def _donor(self, own: Tried) -> Donor | None:
        """Return the best log of another tuning; its stored model ranks candidates at once."""
        if not self._donors:
            return None
        log = choose_donor(self._donors, shares_of(self._subject.sites, own.sites))
        self.donor = log.path
        kept = model_file(log.path)
        if self.model is not None and kept.exists():
            self.model.take_over(load_model(kept))
        return Donor(self._subject, log)


def tune_requested(wanted: TuneRequest) -> Tuned:
    """Measure schedules of a network and store them in a log, as ``dla tune`` does.

    Logged measurements are kept.

    Model, machine, options and samples are those of ``run``. ``measurements`` is the total number,
    proposed from ``search_seed`` and ranked by a learned model unless ``learn`` is False. ``log``
    is by default ``runs/NETWORK-tuning.jsonl``; ``donors`` are logs whose schedules are tried
    first. ``stage`` is called with a text for each step, ``report`` with the number of measurements
    and the fewest cycles. Raises InputError for bad input.
    """
    hardware = hardware_of(wanted)
    network = load(wanted, wanted.stage)
    place = (
        Path(wanted.log)
        if wanted.log is not None
        else Path("runs") / f"{network.name}-tuning.jsonl"
    )
    wanted.stage(f"tuning {network.name}")
    try:
        return tune_network(network, hardware, wanted.options, place, wanted, wanted.report)
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; the measurements are in {place}, and the same command continues")
        raise


tune = door("tune", TuneKeywords, TuneRequest, tune_requested)
