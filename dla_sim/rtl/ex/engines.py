"""Registry of the engines of EX: built-in engines and engines of installed packages.

A package adds a subclass of :class:`dla_sim.rtl.ex.engine.Engine` through the entry point group
``dla.rtl.engines``, for instructions that it adds through ``dla.isa``::

    [project.entry-points."dla.rtl.engines"]
    my-engine = "my_package:MyEngine"

Each instruction belongs to exactly one engine.
"""

from collections.abc import Collection, Iterator

from dla_sim.rtl.building import Library
from dla_sim.rtl.ex.elementwise import Elementwise
from dla_sim.rtl.ex.engine import LARGEST_LATENCY, Engine
from dla_sim.rtl.ex.mac.results import Mac
from dla_sim.rtl.ex.permute import Permute
from dla_sim.rtl.ex.pooling import Pool
from dla_sim.rtl.ex.resize import Resize
from dla_sim.rtl.ex.rows.rows import Rows
from dla_sim.rtl.parameters import Configuration, Limits, further_instructions
from dla_sim.rtl.ports import CommandView
from isa.errors import InputError
from isa.instruction import Unit
from isa.plugins import ENGINES as GROUP
from isa.plugins import PROJECT, load_entry_points

ENGINES: tuple[type[Engine], ...] = (Elementwise, Mac, Permute, Pool, Resize, Rows)


def engines(
    limits: Limits, configuration: Configuration, command: CommandView, library: Library
) -> list[Engine]:
    """Return one engine of each class that hardware with the given size limits has.

    Raises:
        InputError: an instruction has no engine, or an engine of a package does not fit.
    """
    own = [
        engine
        for engine in ENGINES
        if limits.engines is None or engine.__name__.lower() in limits.engines
    ]
    classes = [*own, *_further_engines(limits.isa)]
    made = [engine(limits, configuration, command, library) for engine in classes]
    for engine in made:
        if engine.latency > LARGEST_LATENCY:
            taken = f"takes {engine.latency} cycles from a step to its results"
            raise InputError(f"engine {engine.name} {taken}; {LARGEST_LATENCY} are possible")
    return made


def find_needed(mnemonics: Collection[str]) -> tuple[str, ...]:
    """Return the names of the built-in engines that execute any of these instructions."""
    return tuple(
        engine.__name__.lower()
        for engine in ENGINES
        if not set(engine.mnemonics).isdisjoint(mnemonics)
    )


def _further_engines(isa: str) -> Iterator[type[Engine]]:
    """Yield the engines that installed packages provide.

    They execute instructions beyond the newest set and are ordered by owner.
    """
    wanted = {one.mnemonic: one for one in further_instructions(isa)}
    if not wanted:
        return
    for mnemonic, instruction in wanted.items():
        if instruction.unit is not Unit.EX:
            text = "hardware takes further instructions for EX only"
            raise InputError(f"ISA {isa}: {mnemonic} is not of unit EX; {text}")
    executed = {name: PROJECT for engine in ENGINES for name in engine.mnemonics}
    called = {engine.__name__.lower(): PROJECT for engine in ENGINES}
    for owner, engine in load_entry_points(
        GROUP, type, "a subclass of dla_sim.rtl.ex.engine.Engine"
    ):
        if not issubclass(engine, Engine):
            text = "it must be a subclass of dla_sim.rtl.ex.engine.Engine"
            raise InputError(f"{owner} gives the class {engine.__name__}; {text}")
        if wanted.keys().isdisjoint(engine.mnemonics):
            continue
        _take(
            called,
            (engine.__name__.lower(),),
            owner,
            "another engine is called {}, that of {}; rename one",
        )
        _take(
            executed,
            engine.mnemonics,
            owner,
            "{} has an engine, that of {}; leave it out or uninstall one",
        )
        yield engine
    missing = ", ".join(sorted(wanted.keys() - executed.keys()))
    if missing:
        raise InputError(
            f"ISA {isa}: no engine executes {missing}; a package adds one by an entry "
            f"point of {GROUP}"
        )


def _take(taken: dict[str, str], names: tuple[str, ...], owner: str, refusal: str) -> None:
    """Record ``owner`` for each of ``names``; raise InputError if a name already has an owner."""
    for name in names:
        if name in taken:
            raise InputError(f"{owner}: {refusal.format(name, taken[name])}")
        taken[name] = owner
