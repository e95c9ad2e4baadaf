"""Moves, schedules and the cost model of a search, worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from byoc.compiled import Region
from byoc.compiler import partition_package
from byoc.operators.layer import Tiling
from byoc.options import GroupChoice
from byoc.tuning.measured import MeasuredPieces
from byoc.tuning.subject import SHARES, Move, State, Tried, TuningSubject, combine_moves
from byoc.tuning.transfer import donor_score
from byoc.tuning.units import FEATURES, Features
from experiments.tune.model import CostModel, load_model
from experiments.tune.tuning import clock_of
from isa.arch import Arch
from isa.errors import InputError
from tests.experiments.test_tune import digits, machine


def test_moves_are_made_together() -> None:
    """Two tilings, a tensor and a group are changed at once."""
    old = Tiling(1, 1)
    new = Tiling(2, 2)
    group = GroupChoice(("f", "g"), 2)
    base = State((old,) * 8, frozenset("t"))
    moves = (
        Move(0, 0, State((new, *(old,) * 7), frozenset("t"))),
        Move(2, 3, State((old, old, old, new, *(old,) * 4), frozenset("tu"))),
        Move(5, 6, State((old,) * 8, frozenset("t"), ((5, group),))),
    )
    found = combine_moves(base, moves)
    assert found == State((new, old, old, new, *(old,) * 4), frozenset("tu"), ((5, group),))
    assert combine_moves(found, []) == found
    assert all(one.is_apart_from(other) for one in moves for other in moves if one is not other)
    assert not Move(1, 1, base).is_apart_from(Move(2, 3, base))


def _schedule(rows: str, residents: str = "", group: int | None = None) -> State:
    """A schedule of four layers with tiles of so many rows.

    From ``group`` on, two are computed together.
    """
    groups = () if group is None else ((group, GroupChoice(tuple("abcd"[group : group + 2]), 1)),)
    return State(tuple(Tiling(1, int(row)) for row in rows), frozenset(residents), groups)


def test_the_best_schedule_of_measured_pieces() -> None:
    """Measured runs of layers are combined where the same tensors stay in between.

    No group is cut.
    """
    measured = MeasuredPieces(4, {"t": range(1, 3)})  # between the second layer and the third
    measured.note(_schedule("1111"), (10, 10, 10, 10))
    assert measured.best() == Tried(_schedule("1111"), 40, (10, 10, 10, 10))
    measured.note(_schedule("2222"), (8, 12, 7, 13))
    assert measured.best().state == _schedule("2121")
    # 39.5 by the means; the fourth is faster behind another third
    measured.note(_schedule("2121"), (9, 10, 7, 14))
    # 38.5; by site 8.5 and 12, rounded
    assert measured.best() == Tried(_schedule("2111"), 40, (8, 10, 10, 12))
    measured.note(_schedule("3333", "t"), (50, 4, 4, 50))
    assert measured.best().state == _schedule("2331", "t")
    measured.note(_schedule("4444", group=2), (50, 50, 1, 1))
    assert measured.best().state == _schedule("2144", group=2)
    measured.note(_schedule("2144", group=2), None)
    assert measured.best().state == _schedule("2244", group=2)  # the group is not tried there again


def test_promised_pieces_stand_until_they_are_measured() -> None:
    measured = MeasuredPieces(4, {})
    measured.note(_schedule("1111"), (10, 10, 10, 10))
    measured.expect(_schedule("2222", group=1), (9.0, 15.0, 11.0))
    assert measured.best() == Tried(_schedule("2221", group=1), 34, (9, 15, 0, 10))
    measured.note(_schedule("2221", group=1), (9, 12, 12, 10))
    assert measured.best() == Tried(_schedule("2111"), 39, (9, 10, 10, 10))
    stretched = iter((3.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0))
    assert measured.best(lambda: next(stretched)).state == _schedule("1221", group=1)


def _sample(first: float, second: float, least: float, estimate: float) -> Features:
    return (first, second, *[0.0] * (FEATURES - 4), math.log(least), math.log(estimate))


def test_the_model_learns_and_is_kept(tmp_path: Path) -> None:
    """The model learns cycles that are twice the estimate, or half of it, and is saved.

    Cycles beyond the least are twice the estimate where the second feature is large, else half of
    it.
    """
    samples = [_sample(float(n % 7), float(n % 2), 5000.0, 6000.0 + 10 * n) for n in range(200)]
    cycles = [round(5000 + (1000 + 10 * n) * (2.0 if n % 2 else 0.5)) for n in range(200)]
    model = CostModel()
    assert model.predict(samples)[0] == pytest.approx(6000.0)  # nothing learnt: the estimate
    model.train(samples[:10], cycles[:10])
    assert model.predict(samples)[0] == pytest.approx(6000.0)  # too few
    model.train(samples, cycles)
    assert model.predict(samples) == pytest.approx(cycles, rel=0.05)
    assert min(model.predict([_sample(0.0, 0.0, 9000.0, 8000.0)])) >= 9000.0 - 1e-6
    model.save(tmp_path / "m")
    assert load_model(tmp_path / "m").predict(samples).tolist() == model.predict(samples).tolist()
    (tmp_path / "m").write_text("no model\n")
    with pytest.raises(InputError, match=r"/m: no cost model .*; remove it"):
        load_model(tmp_path / "m")
    other = CostModel()
    other.train([sample[-4:] for sample in samples], cycles)
    other.save(tmp_path / "m")
    with pytest.raises(
        InputError, match=r"/m: a cost model of another version of this tool; remove it"
    ):
        load_model(tmp_path / "m")


def test_the_donor_by_hand() -> None:
    """The score of a donor equals a calculation by hand.

    Convolutions take 3/4 of the cycles and additions 1/4: 9/16 · √4 + 1/16 · √1 = 1.1875, and 9/16
    + 1/16 · √9 = 0.75.
    """
    shares = {"conv": 0.75, "add": 0.25}
    assert donor_score(shares, {"conv": 4, "add": 1, "pool": 100}) == 1.1875
    assert donor_score(shares, {"conv": 1, "add": 9}) == 0.75
    assert donor_score(shares, {"pool": 100}) == 0.0


@pytest.mark.parametrize(("isa", "kilobyte"), [("v4", 1000), ("v5", 1024)])
def test_other_memories_are_such_as_machines_have(
    isa: str, kilobyte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other memories have whole banks and an aligned end.

    So no schedule of a scratchpad that no machine has is proposed.
    """
    changes = {"isa": isa, "sram_bytes": 63 * kilobyte, "sram_banks": 9, "alignment": 16}
    odd = Arch.model_validate(machine().arch.model_dump() | changes)
    found = partition_package(digits().package, odd)
    subject = TuningSubject(found.regions, found.graph.values, odd, clock_of(machine().timing))
    tried: list[Arch] = []

    def compiled(regions: tuple[Region, ...], values: object, arch: Arch, **more: object) -> object:
        tried.append(Arch.model_validate(arch.model_dump()))  # equal banks, or it is refused
        raise InputError("seen")

    monkeypatch.setattr("byoc.tuning.subject.compile_regions", compiled)
    assert list(subject.others()) == []
    assert len(tried) == len(SHARES)
    assert {arch.sram_bytes % arch.alignment for arch in tried} == {0}
