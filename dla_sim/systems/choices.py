"""Search by simulation for task variants that meet all deadlines, and for the highest rate."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dla_sim.systems.policies import CO_OPTIMISED, Policy, make_policy
from dla_sim.systems.simulate import Interval, SystemRecord, SystemSimulation, Ways
from dla_sim.systems.spec import System, SystemTask, check_work
from dla_sim.systems.work import Plans
from isa.errors import InputError
from isa.progress import Progress, silent

MOST_CHOICES = 256
"""Most combinations of variants that are tried."""
RATE_STEPS = 1000
"""Rate steps per unit: a rate of 1 is this many steps."""
HIGHEST_RATE = 1000

Variants = tuple[int, ...]
"""Index of the variant of every task."""


def policy_of(system: System) -> Policy:
    """Return a new instance of the scheduling policy in a system's conditions.

    Raise InputError for an unknown one.
    """
    chosen = system.conditions
    try:
        return make_policy(chosen.policy, chosen.preemption, chosen.quantum)
    except InputError as error:
        raise InputError(f"{system.source}: {error}") from error


def simulate_ways(
    system: System,
    plans: Plans,
    variants: Variants,
    watch: Callable[[Interval], None] | None = None,
    ways: Ways | None = None,
    progress: Progress = silent,
) -> SystemRecord:
    """Simulate a system under its conditions, with jobs of the given variants.

    :class:`SystemSimulation` explains the arguments.
    """
    policy = policy_of(system)
    until = system.conditions.until
    return SystemSimulation(system, plans, policy, until, variants, watch, ways).run(progress)


def variants_of(system: System, plans: Plans, progress: Progress = silent) -> Variants:
    """Return the variant of every task that the system's policy chooses.

    This is the first variant, or the choice of :func:`co_optimise` if the policy requires it.
    """
    if system.conditions.policy == CO_OPTIMISED:
        return co_optimise(system, plans, progress).variants
    return (0,) * len(system.tasks)


@dataclass(frozen=True)
class VariantChoice:
    """Chosen variant of every task, and how many jobs miss their deadlines with these variants.

    ``tried`` is the number of combinations tried.
    """

    variants: Variants
    missed: int
    tried: int


def co_optimise(system: System, plans: Plans, progress: Progress = silent) -> VariantChoice:
    """Return the best task variants that meet all deadlines, or else those that miss the fewest.

    The best have the highest quality, summed over tasks. Combinations are tried from the best
    quality down, at most :data:`MOST_CHOICES`; ties follow the order of the variants. Method:
    section 2.5 of Li et al. (2022), which chooses models and schedules together.
    """
    best: VariantChoice | None = None
    for tried, variants in enumerate(_list_by_quality(system), start=1):
        progress(f"trying variants {', '.join(map(str, variants))}")
        missed = simulate_ways(system, plans, variants).missed
        if best is None or missed < best.missed:
            best = VariantChoice(variants, missed, tried)
        best = replace(best, tried=tried)
        if not missed or tried == MOST_CHOICES:
            break
    assert best is not None
    return best


def _list_by_quality(system: System) -> Iterator[Variants]:
    """Yield all combinations of task variants, the best quality first.

    Generated on demand.
    """
    qualities = [[one.quality for one in task.variants] or [0.0] for task in system.tasks]
    orders = [sorted(range(len(mine)), key=lambda variant: -mine[variant]) for mine in qualities]

    def entry(ranks: tuple[int, ...]) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
        variants = tuple(order[rank] for order, rank in zip(orders, ranks, strict=True))
        return (
            -sum(mine[variant] for mine, variant in zip(qualities, variants, strict=True)),
            variants,
            ranks,
        )

    waiting = [entry((0,) * len(orders))]
    known = {waiting[0][2]}
    while waiting:
        _, variants, ranks = heapq.heappop(waiting)
        yield variants
        # the next best variant of one task: its quality is not higher
        for place, order in enumerate(orders):
            further = (*ranks[:place], ranks[place] + 1, *ranks[place + 1 :])
            if further[place] < len(order) and further not in known:
                known.add(further)
                heapq.heappush(waiting, entry(further))


@dataclass(frozen=True)
class Rate:
    """Highest job rate without a missed deadline, in thousandths of the given rate.

    ``tried`` has (rate, misses) in order.
    """

    rate: int
    tried: tuple[tuple[int, int], ...]


def highest_rate(system: System, plans: Plans, progress: Progress = silent) -> Rate:
    """Search the highest job rate at which no job misses its deadline, by bisection.

    The rate applies to all periodic tasks together. Deadlines and offsets stay; periods are divided
    by the rate. Lower rates are known to hold only if they were tried, because schedules have
    anomalies. A rate of 0 means that no tried rate holds.
    """
    check_rate(system)
    tried: list[tuple[int, int]] = []

    def is_feasible(rate: int) -> bool:
        progress(f"trying {rate / RATE_STEPS:.3f} of the rate")
        faster = replace(system, tasks=tuple(_faster(task, rate) for task in system.tasks))
        check_work(faster)
        missed = simulate_ways(faster, plans, variants_of(faster, plans)).missed
        tried.append((rate, missed))
        return not missed

    low = 0
    high = RATE_STEPS
    while high < HIGHEST_RATE * RATE_STEPS and is_feasible(high):
        low = high
        high = 2 * high
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if is_feasible(middle) else (low, middle)
    return Rate(low, tuple(tried))


def check_rate(system: System) -> None:
    """Raise InputError if no task has a deadline, because then every job rate is feasible."""
    if not any(task.deadline for task in system.tasks):
        raise InputError(
            f"{system.source}: --highest-rate needs a task with a deadline; add "
            "'deadline' to a task"
        )


def _faster(task: SystemTask, rate: int) -> SystemTask:
    if task.period is None:
        return task
    return replace(task, period=max(1, task.period * RATE_STEPS // rate))
