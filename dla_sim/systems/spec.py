"""A system and its workload, read from a TOML file and checked before anything runs.

docs/systems.md describes the file.
"""

import graphlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)

from dla_sim.presets import DEFAULT_PRESET, SETTING_KEYS, Preset, apply_settings, load_preset
from dla_sim.timing import Timing
from isa import memory
from isa.errors import InputError, suggest_name
from isa.reading import read_bytes, toml_of, toml_text
from isa.several import Several

MAXIMUM_BYTES = 1 << 20
IN_MEMORY = "<system>"
"""Source name of a system that was not read from a file."""
MOST_UNITS = 64
"""Most accelerators, and most CPU cores, of a system."""
MOST_JOBS = 10_000_000
"""Most jobs of a run; simulating them takes minutes."""
MOST_CYCLES = 10**18
"""Largest time in cycles, so that sums of several times are still valid cycle numbers."""
RESPONSE_BYTES = 8
"""Memory of one job's response time."""
CPU = "cpu"
"""Name of the CPU cores among the units of a task; no accelerator may have it."""
_REMEDY = "docs/systems.md shows how to write one"
_SECONDS = {"ns": 10**9, "us": 10**6, "ms": 10**3, "s": 1}
MEMORY_KEYS = (
    "bus_bytes", "burst_bytes", "dram_latency", "outstanding_bursts", "dram_rate",
    *(name for name in Timing.model_fields if name.startswith("flash_")),
)  # fmt: skip
"""Keys of Timing that belong to the memory; the system sets them once."""


Preemption = Literal["none", "layer", "tile"]
"""Points at which a program may be preempted."""
Span = int | str
"""Cycles, or a text with a unit of time: 1000, "33ms"."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Memory(_Table):
    ports: Literal["shared", "private"] = "shared"
    grants: int = Field(default=1, ge=1, le=MOST_UNITS)


_MemoryWithTiming = create_model(
    "_MemoryWithTiming",
    __base__=_Memory,
    **dict.fromkeys(MEMORY_KEYS, (int | float | str | None, None)),  # type: ignore[call-overload]
)


class _Accelerator(_Table):
    name: str = Field(min_length=1)
    preset: str = DEFAULT_PRESET
    settings: dict[str, int | float | str] = {}
    count: int = Field(default=1, ge=1, le=MOST_UNITS)
    parts: int = Field(default=1, ge=1, le=MOST_UNITS)


class _Cpu(_Table):
    cores: int = Field(default=1, ge=1, le=MOST_UNITS)
    speed: float = Field(default=1.0, ge=1e-6, le=1e6)


class _Variant(_Table):
    model: str
    quality: float = Field(default=1.0, allow_inf_nan=False)


class _Task(_Table):
    name: str = Field(min_length=1)
    model: str | None = None
    variants: list[_Variant] = []
    cpu: Span | None = None
    period: Span | None = None
    offset: Span = 0
    jitter: Span = 0
    sporadic: Span | None = None
    after: Annotated[list[str], Several()] = []
    deadline: Span | None = None
    overrun: Literal["queue", "skip"] = "queue"
    priority: int = 0
    on: Annotated[list[str], Several()] = []


class _Run(_Table):
    policy: str = "fcfs"
    preempt: Preemption = "none"
    quantum: Span = "1ms"
    until: Span = "1s"


class WrittenSystem(_Table):
    """Keys of a system's file as written."""

    name: str = ""
    clock_hz: int = Field(default=10**9, ge=1, le=10**15)
    seed: int = Field(default=0, ge=0)
    memory: _MemoryWithTiming = _MemoryWithTiming()
    accelerator: list[_Accelerator] = []
    cpu: _Cpu = _Cpu()
    run: _Run = _Run()
    task: list[_Task] = []


@dataclass(frozen=True)
class Accelerator:
    """Accelerator of a system or a share of one, with the system's memory constants.

    ``number`` is the index of the accelerator; its parts share the number and its memory port.
    """

    name: str
    kind: str
    number: int
    hardware: Preset


@dataclass(frozen=True)
class TaskVariant:
    """A network that can do a task's work, and its quality: higher is better."""

    model: str
    quality: float


@dataclass(frozen=True)
class SystemTask:
    """Task of a system, which releases jobs again and again; times are in cycles.

    Jobs are released every ``period`` from ``offset`` on, each up to ``jitter`` later. With
    ``sporadic``, the gaps are ``period`` plus a random time with that mean. With ``after``, a job
    is released whenever each of those tasks has ended a job since the last release. With ``skips``,
    no job is released while one of the task is unfinished. A job must end ``deadline`` cycles after
    its release, if there is one.

    A job runs one of the ``variants`` on the accelerators ``on`` (on a core if that includes
    :data:`CPU`), or takes ``cpu`` cycles of a core of speed 1. Only policies that migrate let jobs
    leave their ``home``, if there is one. A higher ``priority`` is more urgent.
    """

    name: str
    variants: tuple[TaskVariant, ...]
    cpu: int | None
    period: int | None
    offset: int
    jitter: int
    sporadic: int | None
    after: tuple[str, ...]
    deadline: int | None
    skips: bool
    priority: int
    on: tuple[str, ...]
    home: str | None


@dataclass(frozen=True)
class SystemConditions:
    """Conditions of a simulated run: policy, preemption points, quantum and end.

    The quantum and the end are in cycles; ``policy`` is the policy's name.
    """

    policy: str
    preemption: Preemption
    quantum: int
    until: int


@dataclass(frozen=True)
class System:
    """Accelerators, CPU cores with a relative ``speed``, the shared memory, and the tasks.

    With ``shared_port``, all accelerators are on one port of the memory. Otherwise each has its own
    port, and the memory serves ``grants`` ports per cycle.
    """

    name: str
    clock_hz: int
    seed: int
    accelerators: tuple[Accelerator, ...]
    cores: int
    speed: float
    shared_port: bool
    grants: int
    tasks: tuple[SystemTask, ...]
    conditions: SystemConditions
    source: str
    folder: Path

    @property
    def units(self) -> tuple[str, ...]:
        """Names of a system's accelerators and CPU cores."""
        return (*(one.name for one in self.accelerators), *map(core_name, range(self.cores)))

    def model_path(self, model: str) -> str:
        """Return a model's name or path in the form that ``load_network`` expects.

        Built-in names stay unchanged; files are relative to the system's folder.
        """
        return (
            str(self.folder / model)
            if "/" in model or model.endswith((".onnx", ".tflite", ".dla"))
            else model
        )


def estimate_releases(system: System) -> int:
    """Return the approximate number of jobs that are released until the end of the run."""
    until = system.conditions.until
    counts = dict[str, int]()
    after = {task.name: task.after for task in system.tasks}
    tasks = {task.name: task for task in system.tasks}
    for name in graphlib.TopologicalSorter(after).static_order():
        task = tasks[name]
        if task.period is None:
            counts[name] = min(counts[other] for other in task.after)
        else:
            counts[name] = max(0, until - task.offset) // task.period + 1
    return sum(counts.values())


def check_work(system: System) -> None:
    """Raise InputError for more jobs than can be simulated, or than fit into the allowed memory."""
    jobs = estimate_releases(system)
    until = system.conditions.until
    if jobs > MOST_JOBS:
        raise InputError(
            f"{system.source}: about {jobs:,} jobs until cycle {until:,}, and at most "
            f"{MOST_JOBS:,} are run; "
            "give a shorter run.until or longer periods"
        )
    memory.require(RESPONSE_BYTES * jobs, f"{system.source}: times of {jobs:,} jobs")


def core_name(number: int) -> str:
    return f"{CPU}{number}"


Specification = str | Path | Mapping[str, Any] | System
"""A TOML file, a mapping with the same keys, or a checked system."""


@dataclass(frozen=True, eq=False)
class SystemDocument:
    """Keys of a system description as read from TOML, before they are checked.

    These are the ``values`` of a TOML file, its name in messages, and the base of its paths.
    """

    values: Mapping[str, Any]
    folder: Path
    source: str


def document(spec: str | Path | Mapping[str, Any]) -> SystemDocument:
    """Read the keys of a system description without checking them.

    Paths in a dict are relative to the working folder.

    Raises InputError for invalid TOML.
    """
    if isinstance(spec, Mapping):
        return SystemDocument(
            toml_of(toml_text(spec, IN_MEMORY), IN_MEMORY, _REMEDY), Path(), IN_MEMORY
        )
    path = Path(spec)
    content = read_bytes(path, MAXIMUM_BYTES, "a system", _REMEDY)
    return SystemDocument(toml_of(content, str(path), _REMEDY), path.parent, str(path))


def read_system(spec: Specification) -> System:
    """Return the system that a TOML file describes, read and checked.

    Raise InputError in one line that names the file and the key or task.

    Paths in a dict are relative to the working folder.
    """
    return spec if isinstance(spec, System) else check_system(document(spec))


def parse_system(
    text: str, folder: Path = Path(), source: str = "system", *, idle: bool = False
) -> System:
    """Return the system of a TOML text; raise InputError as :func:`check_system` does."""
    return check_system(SystemDocument(toml_of(text, source, _REMEDY), folder, source), idle=idle)


def check_system(given: SystemDocument, *, idle: bool = False) -> System:
    """Return the checked system of a document; without ``idle`` it must have at least one task.

    Raises InputError in one line that starts with the file and names the key or the task.
    """
    try:
        written = WrittenSystem.model_validate(given.values)
        if not written.task and not idle:
            raise InputError(f"task is missing; {_REMEDY}")
        return _check_document(written, given.source, given.folder)
    except ValidationError as error:
        raise InputError(f"{given.source}: {_first_problem(error, given.values)}") from error
    except InputError as error:
        raise InputError(f"{given.source}: {error}") from error


def keys_of(given: SystemDocument) -> dict[str, tuple[str | int, ...]]:
    """Return the dotted names of a system's keys and the path in ``given.values`` of each.

    Entries of lists are named: ``accelerator.npu.count`` is at ``("accelerator", 0, "count")``.
    Omitted keys are included. ``given`` must have been checked.
    """
    return {".".join(map(str, names)): place for names, place in _keys(given.values)}


def _keys(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], tuple[str | int, ...]]]:
    for name, field in WrittenSystem.model_fields.items():
        kind: Any = field.annotation
        if get_origin(kind) is list:
            for number, entry in enumerate(values.get(name, [])):
                for key in _keys_of_table(get_args(kind)[0]):
                    yield (name, entry["name"], *key), (name, number, *key)
        elif issubclass(kind, _Table):
            yield from (((name, *key),) * 2 for key in _keys_of_table(kind))
        elif name != "name":
            yield (name,), (name,)


def _keys_of_table(table: type[_Table]) -> Iterator[tuple[str, ...]]:
    """Yield the keys of a TOML table, without ``name`` and without lists of tables.

    ``name`` identifies the entry.
    """
    for name, field in table.model_fields.items():
        origin = get_origin(field.annotation)
        inside = get_args(field.annotation)
        if origin is dict:
            yield from ((name, key) for key in SETTING_KEYS)
        elif name != "name" and not (origin is list and issubclass(inside[0], _Table)):
            yield (name,)


def _first_problem(error: ValidationError, values: Mapping[str, Any]) -> str:
    """Return the first validation error as one line that names its task or accelerator."""
    problem = error.errors(include_url=False)[0]
    path = list(problem["loc"])
    where = ""
    if len(path) > 1 and isinstance(path[1], int):
        entry = values[str(path[0])][path[1]]
        name = entry.get("name", path[1] + 1) if isinstance(entry, dict) else path[1] + 1
        where = f"{path[0]} '{name}': "
        path = path[2:]
    key = ".".join(
        str(part) for part in path if not str(part).startswith(("list[", "function-", "int", "str"))
    )
    if problem["type"] == "extra_forbidden":
        return f"{where}unknown key '{key}'; {_REMEDY}"
    if problem["type"] == "missing":
        return f"{where}{key} is missing; {_REMEDY}"
    return f"{where}{key} is {problem['input']!r}: {str(problem['msg']).removeprefix('Input ')}"


def _check_document(written: WrittenSystem, source: str, folder: Path) -> System:
    accelerators = tuple(_accelerators(written, folder))
    kinds = tuple(dict.fromkeys(accelerator.kind for accelerator in accelerators))
    names = [task.name for task in written.task]
    _check_distinct("task", names)
    _check_distinct("accelerator", [one.name for one in written.accelerator])
    _check_distinct(
        "unit", [*(one.name for one in accelerators), *map(core_name, range(written.cpu.cores))]
    )
    tasks = tuple(_task(task, written.clock_hz, names, kinds) for task in written.task)
    _check_order(tasks)
    memory = written.memory
    if memory.ports == "shared" and memory.grants != 1:
        raise InputError(
            f"memory.grants is {memory.grants}: a shared port takes one slot a cycle; "
            "set ports = private"
        )
    return System(
        name=written.name or Path(source.strip("<>")).stem, clock_hz=written.clock_hz,
        seed=written.seed,
        accelerators=accelerators, cores=written.cpu.cores, speed=written.cpu.speed,
        shared_port=memory.ports == "shared", grants=memory.grants, tasks=tasks,
        conditions=conditions(written.run.model_dump(), written.clock_hz), source=source,
        folder=folder,
    )  # fmt: skip


def conditions(run: Mapping[str, Any], clock_hz: int) -> SystemConditions:
    """Return a system's run conditions from ``policy``, ``preempt``, ``quantum`` and ``until``.

    Raise InputError for a bad one.
    """
    quantum, until = (cycles_of(f"run.{key}", run[key], clock_hz) for key in ("quantum", "until"))
    for key, cycles in (("quantum", quantum), ("until", until)):
        if not cycles:
            raise InputError(f"run.{key} is {run[key]!r}; it is one cycle at least")
    return SystemConditions(run["policy"], run["preempt"], quantum, until)


def replace_conditions(system: System, given: Mapping[str, Any]) -> System:
    """Return ``system`` with other conditions, keys as in its table ``run``.

    Raise InputError for a bad one.
    """
    now = system.conditions
    run = {
        "policy": now.policy,
        "preempt": now.preemption,
        "quantum": now.quantum,
        "until": now.until,
        **given,
    }
    for key in ("quantum", "until"):
        run[key] = int(run[key]) if str(run[key]).isdecimal() else str(run[key])
    places = get_args(Preemption)
    if run["preempt"] not in places:
        raise InputError(f"run.preempt is {run['preempt']!r}; it is one of {', '.join(places)}")
    return replace(system, conditions=conditions(run, system.clock_hz))


def _check_distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{what} '{name}' is there twice; give every {what} a name of its own")
        seen.add(name)


def _accelerators(written: WrittenSystem, folder: Path) -> Iterable[Accelerator]:
    """Yield the accelerators of a system: ``count`` for each entry of its description.

    All have the system's memory constants; those not given are taken from the first accelerator.
    """
    given = {
        key: getattr(written.memory, key)
        for key in MEMORY_KEYS
        if getattr(written.memory, key) is not None
    }
    shared: dict[str, int | float | str | None] = {}
    number = 0
    for one in written.accelerator:
        if one.name == CPU:
            raise InputError(f"accelerator '{CPU}': that name means the CPU cores; choose another")
        file = one.preset.endswith(".toml") or "/" in one.preset
        preset = load_preset(str(folder / one.preset) if file else one.preset)
        try:
            hardware = apply_settings(preset, one.settings)
            shared = shared or {key: getattr(hardware.timing, key) for key in MEMORY_KEYS} | given
            hardware = apply_settings(hardware, shared)
            if hardware.timing.has_rows_or_refresh:
                raise InputError(
                    "a system has no rows and no refresh of the memory; leave dram_row_bytes and "
                    "dram_refresh_interval out"
                )
            hardware = _part(hardware, one.parts) if one.parts > 1 else hardware
        except InputError as error:
            raise InputError(f"accelerator '{one.name}': {error}") from error
        for copy in range(one.count):
            name = one.name if one.count == 1 else f"{one.name}{copy}"
            for part in range(one.parts):
                yield Accelerator(
                    name if one.parts == 1 else f"{name}.{part}", one.name, number, hardware
                )
            number += 1


def _part(hardware: Preset, parts: int) -> Preset:
    """Return a machine with one of ``parts`` equal shares of the resources of ``hardware``.

    The machines share the output-channel lanes, the scratchpad and its banks.
    """
    arch = hardware.arch
    shares = {"pe.oc": arch.pe.oc, "sram_bytes": arch.sram_bytes, "sram_banks": arch.sram_banks}
    for key, value in shares.items():
        if value % parts:
            raise InputError(
                f"parts is {parts}, and {key} {value} cannot be shared out among so many"
            )
    return apply_settings(hardware, {key: value // parts for key, value in shares.items()})


def cycles_of(key: str, span: Span, clock_hz: int) -> int:
    """Return a time span converted to clock cycles, rounded to nearest (halves up).

    Raises InputError for an unknown unit, or a span below 0 or above :data:`MOST_CYCLES`.
    """
    cycles = _cycles(key, span, clock_hz)
    if not 0 <= cycles <= MOST_CYCLES:
        raise InputError(
            f"{key} is {span!r}, {cycles} cycles; give 0 or more, and at most {MOST_CYCLES}"
        )
    return cycles


def _cycles(key: str, span: Span, clock_hz: int) -> int:
    if isinstance(span, int):
        return span
    digits = span.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = span[len(digits) :].strip()
    try:
        number = float(digits)
    except ValueError:
        number = -1.0
    if unit not in _SECONDS or not 0 <= number < 1e12:
        raise InputError(
            f"{key} is '{span}'; write cycles, or a time such as "
            f"{', '.join(f'5{u}' for u in _SECONDS)}"
        )
    return int(number * clock_hz / _SECONDS[unit] + 0.5)


def _task(task: _Task, clock_hz: int, names: list[str], kinds: tuple[str, ...]) -> SystemTask:
    where = f"task '{task.name}'"

    def cycles(key: str) -> int | None:
        span = getattr(task, key)
        return None if span is None else cycles_of(f"{where}: {key}", span, clock_hz)

    work = [key for key in ("model", "variants", "cpu") if getattr(task, key) not in (None, [])]
    if len(work) != 1:
        raise InputError(
            f"{where}: {' and '.join(work) or 'nothing to do'}; give one of model, variants, cpu"
        )
    if (task.period is None) == (not task.after):
        raise InputError(f"{where}: give a period, or tasks to come after, and not both")
    if cycles("period") == 0 or cycles("deadline") == 0:
        raise InputError(f"{where}: period and deadline are one cycle at least")
    if task.after and (task.jitter or task.sporadic or task.offset):
        raise InputError(
            f"{where}: jitter, sporadic and offset belong to a period; it comes after others"
        )
    for name in task.after:
        if name not in names:
            raise InputError(f"{where}: it comes after '{name}', which is no task; "
                             f"{suggest_name(name, names)}choose one of "
                             f"{', '.join(names)}")  # fmt: skip
    for name in task.on:
        known = (*kinds, CPU)
        if name not in known:
            raise InputError(
                f"{where}: '{name}' is no accelerator; {suggest_name(name, known)}choose one of "
                f"{', '.join(known)}"
            )
    on = tuple(task.on) or ((CPU,) if task.cpu is not None else tuple(kinds))
    if task.cpu is not None and on != (CPU,):
        raise InputError(f"{where}: cycles of the CPU run on no accelerator; leave 'on' out")
    if not on:
        raise InputError(f"{where}: the system has no accelerator for it; add one, or on = '{CPU}'")
    variants = (_Variant(model=task.model),) if task.model is not None else task.variants
    return SystemTask(
        name=task.name, variants=tuple(TaskVariant(one.model, one.quality) for one in variants),
        cpu=cycles("cpu"),
        period=cycles("period"), offset=cycles("offset") or 0, jitter=cycles("jitter") or 0,
        sporadic=cycles("sporadic"), after=tuple(task.after), deadline=cycles("deadline"),
        skips=task.overrun == "skip", priority=task.priority,
        on=on, home=on[0] if task.on else None,
    )  # fmt: skip


def _check_order(tasks: Iterable[SystemTask]) -> None:
    """Raise InputError if tasks wait for each other in a cycle."""
    try:
        graphlib.TopologicalSorter({task.name: task.after for task in tasks}).prepare()
    except graphlib.CycleError as error:
        raise InputError(
            f"task '{error.args[1][0]}' waits for itself: {' after '.join(error.args[1])}"
        ) from error
