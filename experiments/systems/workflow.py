"""A system from its file to its results: the workflow behind ``dla system`` and the public Python API."""

from __future__ import annotations

import shlex

from experiments.running.package_cache import users_cache
from experiments.systems.result import SystemResult
from experiments.systems.run import Watch, highest_rate, policy_of, run_system
from experiments.systems.spec import IN_MEMORY, Specification, specified, with_conditions
from experiments.systems.work import make_plans
from isa.progress import Progress, silent


def system(
    spec: Specification,
    *,
    policy: str | None = None,
    preempt: str | None = None,
    quantum: int | str | None = None,
    until: int | str | None = None,
    search_rate: bool = False,
    check: bool = False,
    watch: Watch | None = None,
    progress: Progress = silent,
) -> SystemResult:
    """Run several networks on several accelerators (docs/systems.md), as ``dla system`` does.

    ``spec`` is a TOML file or the same keys in a dict, whose paths start from the working folder. ``policy``,
    ``preempt``, ``quantum`` and ``until`` replace what its table ``run`` says: times in cycles, or texts with a unit.
    ``search_rate`` looks for the highest rate without a miss, too. With ``check`` programs that gave way are run on
    data, in pieces, and their bits compared with those of running whole. ``watch`` is called with every interval of a
    unit, ``progress`` with what goes on. Equal arguments give equal reports.

    Jobs that miss their deadlines are results like others. Raises InputError for bad input.
    """
    given = {"policy": policy, "preempt": preempt, "quantum": quantum, "until": until}
    chosen = {key: value for key, value in given.items() if value is not None}
    checked = with_conditions(specified(spec), chosen)
    policy_of(checked)  # before networks are compiled
    words = ["dla.system"] if checked.source == IN_MEMORY else ["dla", "system", checked.source]
    words += [word for key, value in chosen.items() for word in (f"--{key}", str(value))]
    plans = make_plans(checked, progress=progress, cache=users_cache())
    report = run_system(checked, plans, watch=watch, check=check, progress=progress, command=shlex.join(words))
    return SystemResult(report, highest_rate(checked, plans, progress) if search_rate else None)
