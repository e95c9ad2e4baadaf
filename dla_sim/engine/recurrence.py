"""The closed-form engine for one program under many Timings, with causes and kinds of all cycles.

The functions are plain Python on int64 arrays, for numba to compile. They follow
:mod:`dla_sim.engine.times`, :mod:`dla_sim.engine.bus` and :mod:`dla_sim.engine.banks`, which define
the result. They do not know rows and refresh of the main memory.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dla_sim.engine.accounts import (
    BUS,
    BUSY,
    CAUSES,
    DRAINED,
    DRAM,
    FLASH,
    QUEUE_EMPTY,
    SRAM,
    TOKEN,
)
from dla_sim.engine.bus import FETCH_PORT, LD_PORT, NEVER, ST_PORT
from dla_sim.engine.recurrence_arrays import PORTS, WINDOW, BatchResult, ProgramArrays, RunState
from dla_sim.engine.workload import AT_ONCE, EX, LD, Int64
from dla_sim.jit import compile_cached
from isa.errors import MissingExtraError
from isa.installation import remedy

SETTINGS = ("queue_depth", "fetch_buffers", "ex_fill", "ex_drain")
"""Fields of a Timing that :func:`time_programs` reads; its columns contain all others."""
DEPTH, BUFFERS, FILL, DRAIN, CHUNK_WORDS, LATENCY, FIRST_CHUNK, CHUNKS = range(8)
"""Columns of the settings: :data:`SETTINGS`, words of a chunk, latency of the memory of command
words, and place and number of the slots of the chunks.
"""
LEAD, SLOTS, TAIL = range(3)
FIXED_CAUSES = (BUSY, DRAM, FLASH, SRAM)
"""Causes in the order of their columns, which follow lead, slots and tail."""
ARRIVAL, START, END = range(3)

COMPUTE = 3
# rows of the commands
(UNIT, WORD, PLACE, MEMBER, FIRST_PUSHER, SECOND_PUSHER, KIND, BANK_LOAD, LOW_BANK, HIGH_BANK,
 TOUCHED) = range(11)  # fmt: skip
# rows of the bank loads, and of their banks
CYCLES, BEGIN = range(2)
BANK, NEEDED = range(2)
# rows of the bounds
MEMBERS, NEAR = range(2)
# state of the processor, the command fetch, the bus and EX in banked memory
NUMBER, TIME, EXECUTED, CHUNK, BOUNDARY, ISSUED, ROOM, FETCHED, FETCHING, BEFORE = range(10)
NOW, LAST, SHARING, LOAD, BANK_TIME, LEAST = range(10, 16)
# state of a unit
NEXT, RUNNING, FREE, AWAITED, AWAITED_TIME, NUMBER_OF_UNIT = range(6)
# state of a port: its announced and its active data phase, and its latest words in the banks
ANNOUNCED, WORK, LEFT, DRAINING, RESULT, POSITION, LOW, HIGH, WORDS, SPREAD, AHEAD, PASSED = range(
    12
)
# state of the chunks
READY, REQUESTED = range(2)


@cache
def compile_recurrence() -> Callable[..., None]:
    """Return :func:`time_programs` as numba compiles it; raise InputError without numba."""
    helpers = (
        _announce, _can_issue, _count_waits, _count_passed, _count_words, _settle_banks,
        _order_ports, _grant, _count_taken, _find_bank_end, _begin_compute, _begin_transfer,
        _finish, _find_next, _proceed, _reset, _mark_overlaps, _count_active, _account, _run,
    )  # fmt: skip
    try:
        import numba.extending
    except ImportError as error:
        raise MissingExtraError(f"this engine needs numba; try: {remedy('fast')}") from error
    for helper in helpers:
        numba.extending.register_jitable(helper)
    for inlined in (_issue, _fetch, _run_unit):  # others gain little and compile slowly
        numba.extending.register_jitable(inline="always")(inlined)
    # Without reference counts of arrays, which take half of the time. Nothing allocates an array.
    compiled: Callable[..., None] = compile_cached(time_programs, _nrt=False)
    return compiled


def time_programs(
    program: ProgramArrays,
    settings: Int64,
    slots: Int64,
    columns: Int64,
    state: RunState,
    met: NDArray[np.uint8],
    result: BatchResult,
) -> None:
    """Run a program under each Timing whose total in ``result`` is not -1.

    Args:
        program: the commands.
        settings: array (timings, settings).
        slots: bus slots of chunks of command words.
        columns: array (timings, columns, commands): lead, slots, tail and fixed causes.
        state: memory for the state of a run.
        met: 1 for commands [n, n + distance - WINDOW] that execute at the same time in any run so
            far; changed in place.
        result: the result, filled in place.
    """
    commands = program.commands
    for row in range(len(settings)):
        own = columns[row]
        times = result.times[row]
        causes = result.causes[row]
        chunks = slots[settings[row, FIRST_CHUNK] :]
        skipped = result.totals[row, 0] < 0
        if skipped or not _run(program, settings[row], chunks, own, state, times, causes):
            result.totals[row, 0] = -1
            continue
        _account(commands, own, times, causes, result.kinds[row])
        last = state.machine[ISSUED]
        for number in range(times.shape[1]):
            last = max(last, times[END, number])
        result.totals[row, 0] = last + 1
        result.totals[row, 1] = _count_active(commands, program.bounds, state.units, times)
        for unit in range(3):
            causes[unit, DRAINED] = last + 1 - causes[unit].sum()
        fits = _mark_overlaps(program.near, program.bounds, times, met, result.changed)
        for cause in range(3 * len(CAUSES)):
            fits = fits and causes[cause // len(CAUSES), cause % len(CAUSES)] >= 0
        if not fits:
            result.totals[row, 0] = -1


def _run(
    program: ProgramArrays,
    row: Int64,
    chunks: Int64,
    columns: Int64,
    state: RunState,
    times: Int64,
    causes: Int64,
) -> bool:
    """Run one Timing; return False if the program does not end."""
    commands, loads, banks, _, bounds = program
    machine, units, ports, known, needs = state
    _reset(commands, bounds, row, machine, units, ports, known, times)
    ended = 0
    while ended >= 0:
        moving = True
        while moving:
            moving = False
            if _can_issue(machine, known, times):
                moving = True
                _issue(commands, bounds, row, machine, known, times)
            if known[1 - machine[FETCHING], machine[FETCHED]] < NEVER:
                _fetch(row, chunks, machine, ports, known)
            for unit in range(3):
                awaited = units[unit, AWAITED]
                if awaited >= 0 and times[units[unit, AWAITED_TIME], awaited] < NEVER:
                    moving = True
                    own = units[unit]
                    _run_unit(commands, bounds, row, columns, own, ports, times, causes)
        ended = _proceed(commands, loads, banks, machine, ports, needs)
        if ended >= 0:
            _finish(machine, ports, known, times, ended)
    ended_well = machine[ISSUED] < NEVER
    for unit in range(3):
        left = bounds[MEMBERS, unit + 1] - bounds[MEMBERS, unit] - units[unit, NEXT]
        ended_well = ended_well and left == 0
    return bool(ended_well)


def _reset(
    commands: Int64,
    bounds: Int64,
    row: Int64,
    machine: Int64,
    units: Int64,
    ports: Int64,
    known: Int64,
    times: Int64,
) -> None:
    machine[:] = 0
    machine[CHUNK] = -1
    machine[ISSUED] = NEVER
    machine[LAST] = ST_PORT
    machine[LOAD] = -1
    machine[ROOM] = -1
    units[:] = 0
    units[:, AWAITED_TIME] = ARRIVAL
    for unit in range(3):
        units[unit, NUMBER_OF_UNIT] = unit
        first = bounds[MEMBERS, unit]
        some = first < bounds[MEMBERS, unit + 1]
        units[unit, AWAITED] = commands[MEMBER, first] if some else -1
    ports[:] = 0
    ports[:, ANNOUNCED] = NEVER
    known[:] = NEVER
    known[REQUESTED, : min(row[BUFFERS], row[CHUNKS])] = 0
    times[:] = NEVER


def _can_issue(machine: Int64, known: Int64, times: Int64) -> bool:
    """Return True if the time that the processor waits for is known."""
    if machine[NUMBER] > times.shape[1]:
        return False
    if machine[ROOM] >= 0:
        return bool(times[END, machine[ROOM]] < NEVER)
    return bool(known[READY, machine[CHUNK] + 1] < NEVER)


def _issue(
    commands: Int64, bounds: Int64, row: Int64, machine: Int64, known: Int64, times: Int64
) -> None:
    """Execute command words as far as the known times allow."""
    count = times.shape[1]
    machine[ROOM] = -1
    while machine[NUMBER] <= count:
        number = machine[NUMBER]
        word = commands[WORD, number]
        while word >= machine[BOUNDARY]:
            machine[TIME] += machine[BOUNDARY] - machine[EXECUTED]
            machine[EXECUTED] = machine[BOUNDARY]
            ahead = machine[CHUNK] + row[BUFFERS]
            if machine[CHUNK] >= 0 and ahead < row[CHUNKS]:
                known[REQUESTED, ahead] = machine[TIME]
            ready = known[READY, machine[CHUNK] + 1]
            if ready == NEVER:
                return
            machine[CHUNK] += 1
            machine[TIME] = max(machine[TIME], ready)
            machine[BOUNDARY] += row[CHUNK_WORDS]
        machine[TIME] += word - machine[EXECUTED]
        machine[EXECUTED] = word
        if number == count:
            machine[ISSUED] = machine[TIME]
            machine[NUMBER] += 1
            return
        before = commands[PLACE, number] - row[DEPTH]
        if before >= 0:
            place = bounds[MEMBERS, commands[UNIT, number]] + before
            room = times[END, commands[MEMBER, place]]
            if room == NEVER:
                machine[ROOM] = commands[MEMBER, place]
                return
            machine[TIME] = max(machine[TIME], room)
        machine[TIME] += 1
        machine[EXECUTED] = word + 1
        times[ARRIVAL, number] = machine[TIME]
        machine[NUMBER] += 1


def _fetch(row: Int64, chunks: Int64, machine: Int64, ports: Int64, known: Int64) -> None:
    """Announce the data phase of the next chunk once it is requested."""
    while machine[FETCHED] < row[CHUNKS]:
        chunk = machine[FETCHED]
        if machine[FETCHING] == 0:
            if known[REQUESTED, chunk] == NEVER:
                return
            begin = max(known[REQUESTED, chunk] + row[LATENCY], machine[BEFORE])
            _announce(ports, FETCH_PORT, begin, chunks[chunk], 0, chunk)
            machine[FETCHING] = 1
        if known[READY, chunk] == NEVER:
            return
        machine[BEFORE] = known[READY, chunk]
        machine[FETCHING] = 0
        machine[FETCHED] += 1


def _announce(ports: Int64, port: int, time: int, work: int, tail: int, result: int) -> None:
    ports[port, ANNOUNCED] = time
    ports[port, WORK] = work
    ports[port, DRAINING] = tail
    ports[port, RESULT] = result


def _run_unit(
    commands: Int64,
    bounds: Int64,
    row: Int64,
    columns: Int64,
    own: Int64,
    ports: Int64,
    times: Int64,
    causes: Int64,
) -> None:
    """Run a unit's commands as far as times are known.

    The cycles that a command waits before its start are added to ``causes``.
    """
    unit = own[NUMBER_OF_UNIT]
    while own[NEXT] < bounds[MEMBERS, unit + 1] - bounds[MEMBERS, unit]:
        number = commands[MEMBER, bounds[MEMBERS, unit] + own[NEXT]]
        own[AWAITED] = number
        own[AWAITED_TIME] = END
        if own[RUNNING]:
            if times[END, number] == NEVER:
                return
            own[RUNNING] = 0
            own[FREE] = times[END, number]
            own[NEXT] += 1
            continue
        arrival = times[ARRIVAL, number]
        if arrival == NEVER:
            own[AWAITED_TIME] = ARRIVAL
            return
        begin = max(arrival, own[FREE])
        for index in range(2):
            pusher = commands[FIRST_PUSHER + index, number]
            if pusher != AT_ONCE:
                own[AWAITED] = pusher
                if pusher < 0 or times[END, pusher] == NEVER:
                    return
                begin = max(begin, times[END, pusher])
        _count_waits(commands, own, times, causes[unit], number)
        times[START, number] = begin
        own[RUNNING] = 1
        lead = columns[LEAD, number]
        slots = columns[SLOTS, number]
        tail = columns[TAIL, number]
        if slots:
            port = LD_PORT if unit == LD else ST_PORT
            _announce(ports, port, begin + lead, slots, tail, number)
        elif commands[BANK_LOAD, number] >= 0:
            _announce(ports, COMPUTE, begin + row[FILL], 0, row[DRAIN], number)
        else:
            times[END, number] = begin + lead + tail
    own[AWAITED] = -1


def _count_waits(commands: Int64, own: Int64, times: Int64, causes: Int64, number: int) -> None:
    """Add the cycles that a command waits before its start, by cause."""
    waited = max(times[ARRIVAL, number], own[FREE])
    causes[QUEUE_EMPTY] += waited - own[FREE]
    for index in range(2):
        pusher = commands[FIRST_PUSHER + index, number]
        if pusher >= 0:
            late = max(times[END, pusher] - waited, 0)
            causes[TOKEN + commands[UNIT, pusher]] += late
            waited += late


# Bus and banks.


def _find_next(ports: Int64) -> tuple[int, int]:
    """Return the port with the first announcement, or -1, and the time of the second one."""
    nearest = -1
    horizon = NEVER
    after = NEVER
    for port in range(PORTS):
        time = ports[port, ANNOUNCED]
        if time < horizon:
            nearest = port
            after = horizon
            horizon = time
        elif time < after:
            after = time
    return nearest, after


def _proceed(
    commands: Int64, loads: Int64, banks: Int64, machine: Int64, ports: Int64, needs: Int64
) -> int:
    """Advance the bus until a data phase or EX ends; return its port, or -1 if none is active."""
    while True:
        nearest, after = _find_next(ports)
        horizon = ports[nearest, ANNOUNCED] if nearest >= 0 else NEVER
        load = machine[LOAD]
        _order_ports(machine, ports)
        active = load >= 0 or machine[SHARING] > 0
        if active:
            finish = horizon + 1
            if load >= 0:
                finish = _find_bank_end(loads, banks, machine, ports, needs)
            ended = _grant(machine, ports, min(horizon, finish))
            if load >= 0:
                _settle_banks(loads, banks, machine, ports, needs)
            if ended < 0 and load >= 0 and machine[NOW] == finish:
                machine[LOAD] = -1
                ended = COMPUTE
            if ended >= 0:
                return ended
        if nearest < 0:
            return -1
        ports[nearest, ANNOUNCED] = NEVER
        end = horizon + ports[nearest, WORK]
        if nearest != COMPUTE and not active and after >= end:
            machine[NOW] = end
            machine[LAST] = nearest
            return nearest
        machine[NOW] = horizon
        if nearest == COMPUTE:
            _begin_compute(commands, loads, banks, machine, ports, needs)
        else:
            _begin_transfer(commands, ports[nearest], nearest)


def _finish(machine: Int64, ports: Int64, known: Int64, times: Int64, port: int) -> None:
    """Record the end of a port's work in this cycle."""
    result = ports[port, RESULT]
    end = machine[NOW] + ports[port, DRAINING]
    if port == FETCH_PORT:
        known[READY, result] = end
    else:
        times[END, result] = end


def _begin_compute(
    commands: Int64, loads: Int64, banks: Int64, machine: Int64, ports: Int64, needs: Int64
) -> None:
    load = commands[BANK_LOAD, ports[COMPUTE, RESULT]]
    machine[LOAD] = load
    machine[BANK_TIME] = machine[NOW]
    machine[LEAST] = machine[NOW] + loads[CYCLES, load]
    for place in range(loads[BEGIN, load], loads[BEGIN, load + 1]):
        needs[place] = banks[NEEDED, place]
    for port in (LD_PORT, ST_PORT):
        ports[port, PASSED] = _count_passed(ports, port)


def _begin_transfer(commands: Int64, own: Int64, port: int) -> None:
    own[LEFT] = own[WORK]
    number = own[RESULT]
    if port != FETCH_PORT and commands[TOUCHED, number] > 0:
        own[LOW] = commands[LOW_BANK, number]
        own[HIGH] = commands[HIGH_BANK, number]
        own[WORDS] = commands[TOUCHED, number]
        own[SPREAD] = own[WORK]
        own[AHEAD] = own[WORK] - 1 if port == ST_PORT else 0
        own[PASSED] = 0


def _count_words(ports: Int64, port: int, granted: int) -> int:
    """Return the words that a port's transfer moves with its first ``granted`` slots."""
    if ports[port, SPREAD] == 0:
        return 0
    return int((granted * ports[port, WORDS] + ports[port, AHEAD]) // ports[port, SPREAD])


def _count_passed(ports: Int64, port: int) -> int:
    """Return the words that a port's transfer has moved."""
    return _count_words(ports, port, ports[port, SPREAD] - ports[port, LEFT])


def _settle_banks(loads: Int64, banks: Int64, machine: Int64, ports: Int64, needs: Int64) -> None:
    """Subtract the cycles that EX has computed from the cycles that it needs."""
    cycles = machine[NOW] - machine[BANK_TIME]
    machine[BANK_TIME] = machine[NOW]
    load = machine[LOAD]
    passed_loading = _count_passed(ports, LD_PORT)
    passed_storing = _count_passed(ports, ST_PORT)
    loading = passed_loading - ports[LD_PORT, PASSED]
    storing = passed_storing - ports[ST_PORT, PASSED]
    ports[LD_PORT, PASSED] = passed_loading
    ports[ST_PORT, PASSED] = passed_storing
    for place in range(loads[BEGIN, load], loads[BEGIN, load + 1]):
        bank = banks[BANK, place]
        taken = 0
        if ports[LD_PORT, LOW] <= bank <= ports[LD_PORT, HIGH]:
            taken += loading
        if ports[ST_PORT, LOW] <= bank <= ports[ST_PORT, HIGH]:
            taken += storing
        needs[place] += taken - cycles


def _order_ports(machine: Int64, ports: Int64) -> None:
    """Set the position of each port that transfers data, and their number."""
    count = 0
    for step in range(1, COMPUTE + 1):
        port = (machine[LAST] + step) % COMPUTE
        ports[port, POSITION] = count
        if ports[port, LEFT] > 0:
            count += 1
    machine[SHARING] = count


def _count_taken(machine: Int64, ports: Int64, bank: int, time: int) -> int:
    """Return the cycles of a bank that LD and ST take from now to ``time``."""
    taken = 0
    count = machine[SHARING]
    for port in (LD_PORT, ST_PORT):
        left = ports[port, LEFT]
        covered = ports[port, LOW] <= bank <= ports[port, HIGH]
        if left > 0 and covered and ports[port, SPREAD] > 0:
            granted = (time - machine[NOW] - ports[port, POSITION] + count - 1) // count
            moved = ports[port, SPREAD] - max(0, left - granted)
            taken += _count_words(ports, port, moved) - ports[port, PASSED]
    return taken


def _find_bank_end(loads: Int64, banks: Int64, machine: Int64, ports: Int64, needs: Int64) -> int:
    """Return the cycle in which EX finishes if the set of requesters does not change."""
    end = max(machine[LEAST], machine[BANK_TIME])
    load = machine[LOAD]
    for place in range(loads[BEGIN, load], loads[BEGIN, load + 1]):
        base = machine[BANK_TIME] + needs[place]
        needed = base + _count_taken(machine, ports, banks[BANK, place], end)
        while needed > end:
            end = needed
            needed = base + _count_taken(machine, ports, banks[BANK, place], end)
    return int(end)


def _grant(machine: Int64, ports: Int64, horizon: int) -> int:
    """Grant bus slots up to cycle ``horizon`` or the end of a data phase; return its port or -1."""
    now = machine[NOW]
    count = machine[SHARING]
    ended = -1
    end = horizon + 1
    for port in range(COMPUTE):
        if ports[port, LEFT] > 0:
            finish = now + ports[port, POSITION] + (ports[port, LEFT] - 1) * count + 1
            if finish < end:
                ended = port
                end = finish
    slots = min(end, horizon) - now
    machine[NOW] = now + slots
    if count > 0 and slots > 0:
        whole = slots // count
        rest = slots - whole * count
        final = rest - 1 if rest > 0 else count - 1
        for port in range(COMPUTE):
            if ports[port, LEFT] > 0:
                if ports[port, POSITION] == final:
                    machine[LAST] = port
                ports[port, LEFT] -= whole + (1 if ports[port, POSITION] < rest else 0)
    return ended


# Accounts.


def _account(commands: Int64, columns: Int64, times: Int64, causes: Int64, kinds: Int64) -> None:
    """Add each command's cycles to ``causes``. If EX runs it, add them to ``kinds`` as well."""
    for number in range(times.shape[1]):
        unit = commands[UNIT, number]
        spent = times[END, number] - times[START, number]
        fixed = columns[LEAD, number] + columns[SLOTS, number] + columns[TAIL, number]
        if columns[SLOTS, number]:
            causes[unit, BUS] += spent - fixed
        else:
            causes[unit, SRAM] += spent - fixed
        for index in range(len(FIXED_CAUSES)):
            causes[unit, FIXED_CAUSES[index]] += columns[TAIL + 1 + index, number]
        if unit == EX:
            kinds[commands[KIND, number]] += spent


def _count_active(commands: Int64, bounds: Int64, units: Int64, times: Int64) -> int:
    """Return the number of cycles in which any unit executes."""
    for unit in range(3):
        units[unit, NEXT] = bounds[MEMBERS, unit]
    reached = 0
    active = 0
    while True:
        nearest = -1
        begin = NEVER
        for unit in range(3):
            if units[unit, NEXT] < bounds[MEMBERS, unit + 1]:
                start = times[START, commands[MEMBER, units[unit, NEXT]]]
                if start < begin:
                    nearest = unit
                    begin = start
        if nearest < 0:
            return active
        end = times[END, commands[MEMBER, units[nearest, NEXT]]]
        active += max(end - max(begin, reached), 0)
        reached = max(reached, end)
        units[nearest, NEXT] += 1


def _mark_overlaps(
    near: Int64, bounds: Int64, times: Int64, met: NDArray[np.uint8], changed: NDArray[np.uint8]
) -> bool:
    """Mark the commands that execute together; return False if two are too far apart."""
    for left in range(2):
        for right in range(left + 1, 3):
            first = bounds[NEAR, right]
            last = bounds[NEAR, right + 1]
            for place in range(bounds[NEAR, left], bounds[NEAR, left + 1]):
                one = near[place]
                while first < last and times[END, near[first]] <= times[START, one]:
                    first += 1
                other = first
                while other < last and times[START, near[other]] < times[END, one]:
                    distance = near[other] - one + WINDOW
                    if not 0 <= distance < 2 * WINDOW:
                        return False
                    changed[one] |= 1 - met[one, distance]
                    met[one, distance] = 1
                    other += 1
    return True
