"""Rehearsals equal calculations by hand and the cycles of the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pytest

from benchmarks.brute_force import LAYERS, measured
from byoc.estimate.banks import CommandLoads, ComputeLoad, EngineStep, OperandLoad
from byoc.estimate.bus import DEFAULT_BUS
from byoc.estimate.constants import COMMAND_OVERHEAD
from byoc.operators.layer import make_layer, make_streamed, tile_count
from byoc.operators.nest import RowTransfer
from byoc.scheduling.memplan import Request
from byoc.scheduling.pipelining import Pipelined
from byoc.scheduling.rehearsal import Cue, Rehearsed, rehearse
from byoc.scheduling.stream import CommandStep, Pointer, StepSource, load, store
from byoc.scheduling.tiling import list_buffered, shapes
from isa.arch import Arch, PeArray
from isa.instruction import Unit
from isa.ops.lookup import OP_LUT

SOURCE = StepSource("layer", "ACT", "OP_LUT", 0, ())
NBYTES = RowTransfer(0, 800)
"""101 slots of the bus, and 104 cycles before them and 4 thereafter."""
NEAR = 0.06
"""What an estimate of a small layer may be off."""
MOST = 40
DRAWS = 24
"""Tiles of a draw at most, and how many draws there are."""


def _load(buffer: int, tile: int) -> Cue:
    return Cue(load(0, Pointer(buffer), NBYTES, SOURCE, DEFAULT_BUS), tile)


class _GivenLoads(CommandLoads):
    """Loads of steps whose only register is their number of cycles.

    Operands have ``nbytes`` bytes. The first step is issued in cycle 146.
    """

    def __init__(self, arch: Arch, nbytes: int = 800) -> None:
        super().__init__(arch, DEFAULT_BUS)
        self._nbytes = nbytes

    def first_issue(self, steps: Iterable[EngineStep], addresses: Sequence[int]) -> int:
        return 146

    def compute(self, step: EngineStep) -> ComputeLoad:
        operands = tuple(
            OperandLoad(number, 0, self._nbytes, 1) for number in range(len(step.pointers))
        )
        return ComputeLoad(step.registers["cycles"] - COMMAND_OVERHEAD, 0, operands)


def _compute(source: int, target: int, tile: int, cycles: int) -> Cue:
    pointers = {"EX_INPUT_ADDRESS": Pointer(source), "EX_OUTPUT_ADDRESS": Pointer(target)}
    return Cue(CommandStep(OP_LUT, Unit.EX, {"cycles": cycles}, pointers, SOURCE), tile)


def _store(buffer: int, tile: int) -> Cue:
    return Cue(store(4096, Pointer(buffer), NBYTES, SOURCE, DEFAULT_BUS), tile)


def _rehearsed(cues: list[Cue], addresses: tuple[int, ...]) -> int:
    requests = [Request(str(number), 800, 0, 9) for number in range(len(addresses))]
    arch = Arch(isa="v4")
    return rehearse(cues, requests, addresses, (), _GivenLoads(arch), arch).cycles


def test_the_first_command_is_issued_when_its_chunk_is_fetched() -> None:
    """The first command is issued when its chunk of commands is fetched.

    A load of 2 words and a store of 4, which sets three registers, are 56 bytes with the end: 7
    slots after 100. 24 loads that change two registers each exceed the 512 bytes of a chunk, 64
    slots.
    """
    loads = CommandLoads(Arch(isa="v4"), DEFAULT_BUS)
    steps = [_load(0, 0).step, _store(1, 0).step]
    assert loads.first_issue(steps, (0, 800)) == 100 + 7 + 2
    many = [load(64 * number, Pointer(number), NBYTES, SOURCE, DEFAULT_BUS) for number in range(24)]
    assert loads.first_issue(many, range(0, 24 * 800, 800)) == 100 + 64 + 2


def test_one_tile_after_another() -> None:
    """A tile loads, computes and stores, one after another.

    The load is issued at 146 and ends at 355, EX ends at 1,355, and the store at 1,355 + 4 + 101 +
    104.
    """
    tile = [_load(0, 0), _compute(0, 1, 0, 1000), _store(1, 0)]
    assert _rehearsed(tile, (0, 800)) == 1_564


def test_a_load_into_another_buffer_runs_beside_and_one_into_the_same_waits() -> None:
    """EX is over at 1,355 as before.

    Beside it the second load is over at 564; behind it, at 1,564.
    """
    first = [_load(0, 0), _compute(0, 1, 0, 1000)]
    last = _compute(2, 1, 1, 1000)
    assert _rehearsed([*first, _load(2, 1), last], (0, 800, 1600)) == 2_355
    assert _rehearsed([*first, _load(2, 1), last], (0, 800, 0)) == 2_564


def test_a_load_and_a_store_share_the_bus() -> None:
    """A load and a store that begin together share the bus.

    Both begin when EX ends at 1,355. The store's bytes begin at 1,359 and the load's at 1,459, when
    one slot is left.
    """
    cues = [_load(0, 0), _compute(0, 1, 0, 1000), _load(2, 1), _store(1, 0), _compute(2, 1, 1, 10)]
    assert _rehearsed(cues, (0, 800, 0)) == 1_459 + 1 + 101 + 4 + 10


def test_a_load_waits_for_a_store_behind_what_ex_computes_meanwhile() -> None:
    """A load waits for a store whose token arrives behind a computation.

    Buffer 2 takes the place of 1, which is stored by 1,564. Tokens pass through EX, which computes
    until 3,355.
    """
    cues = [
        _load(0, 0),
        _compute(0, 1, 0, 1000),
        _store(1, 0),
        _compute(0, 3, 1, 2000),
        _load(2, 2),
    ]
    assert _rehearsed(cues, (0, 800, 800, 1600)) == 3_355 + 209


def test_a_command_waits_for_the_ports_of_a_bank_that_serves_five_operands() -> None:
    """Five operands of one bank take two turns, which adds 984 cycles; four do not wait.

    The other 16 of the 1,000 cycles are fill and drain.
    """
    names = (
        "EX_INPUT_ADDRESS",
        "EX_CHANNEL_ADDRESS",
        "EX_OPERAND_ADDRESS",
        "EX_TABLE_ADDRESS",
        "EX_OUTPUT_ADDRESS",
    )
    pointers = {name: Pointer(number) for number, name in enumerate(names)}
    cues = [Cue(CommandStep(OP_LUT, Unit.EX, {"cycles": 1000}, pointers, SOURCE), 0)]
    requests, arch = (
        [Request(name, 64, 0, 0) for name in names],
        Arch(isa="v4", sram_bytes=1 << 14, sram_banks=16),
    )

    def cycles(*addresses: int) -> int:
        return rehearse(cues, requests, addresses, (), _GivenLoads(arch, 64), arch).cycles

    assert cycles(0, 64, 128, 192, 1024) == 1_146
    assert cycles(0, 64, 128, 192, 256) == 1_146 + 984
    assert cycles(0, 64, 128, 192, 1000) == 1_146 + 984, "the last operand touches both banks"


def test_words_of_a_transfer_delay_a_command_in_the_same_bank() -> None:
    """800 words of the operands take 800 cycles of a bank; LD adds 25 words in 101 of them."""
    arch = Arch(isa="v5", sram_bytes=1 << 14, sram_banks=16)
    cues = [_compute(0, 1, 0, 16 + 100), _load(2, 1)]

    class Loads(_GivenLoads):
        def compute(self, step: EngineStep) -> ComputeLoad:
            return ComputeLoad(100, 0, (OperandLoad(0, 0, 100, 500), OperandLoad(1, 0, 100, 300)))

    def cycles(address: int) -> int:
        requests = [
            Request(str(number), nbytes, 0, 9) for number, nbytes in enumerate((100, 100, 800))
        ]
        return rehearse(cues, requests, (0, 100, address), (), Loads(arch), arch).cycles

    assert cycles(1024) == 146 + 16 + 800
    assert cycles(200) == 146 + 16 + 800 + 25


def test_a_load_waits_for_the_store_of_what_it_reads() -> None:
    """The store is over at 1,564 as above.

    The load of tile 1 reads what tile 0 stores and takes 209 cycles.
    """
    tile = [_load(0, 0), _compute(0, 1, 0, 1000), _store(1, 0)]
    last = [_load(2, 1)._replace(release=1), _compute(2, 3, 1, 10)]
    assert _rehearsed([*tile, *last], (0, 800, 1600, 2400)) == 1_564 + 209 + 10


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_an_estimate_is_near_what_the_engine_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random tilings of a small layer on a small machine."""
    found: list[int] = []
    rehearsed = Pipelined.rehearse_stream

    def watched(
        stream: Pipelined, shared: Collection[int], loads: CommandLoads, arch: Arch
    ) -> tuple[Rehearsed, ...]:
        made = rehearsed(stream, shared, loads, arch)
        for one in made:
            assert sum(one.layers().values()) == one.cycles
            found.append(one.cycles)
        return made

    monkeypatch.setattr(Pipelined, "rehearse_stream", watched)
    random = np.random.default_rng(0)
    arch = Arch(isa="v4", pe=PeArray(ic=8, oc=8), sram_bytes=1 << 15)
    geometry = make_layer(LAYERS[name], arch).geometry
    everything = make_streamed(geometry)
    fitting = [
        shape for shape in shapes(geometry, everything) if tile_count(geometry, shape) <= MOST
    ]
    for number in random.integers(len(fitting), size=DRAWS):
        for tiling in tuple(
            list_buffered(geometry, arch, everything, arch.sram_bytes, fitting[number])
        )[-1:]:
            earlier = len(found)
            cycles = measured(LAYERS[name], arch, tiling)
            if cycles is not None:  # the schedule is the shortest of those that were estimated
                assert abs(min(found[earlier:]) - cycles) < NEAR * cycles, tiling
    assert len(found) > DRAWS // 4
