"""Engines of packages outside the project: the hardware that has them, and rejected ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dla_sim.rtl.building import Library
from dla_sim.rtl.ex.engine import Engine
from dla_sim.rtl.ex.engines import ENGINES, GROUP, engines, find_needed
from dla_sim.rtl.parameters import Configuration, Limits, limits_of
from dla_sim.rtl.ports import CommandView
from dla_sim.timing import Timing
from experiments.rtl.hardware import build_for, can_be
from isa.arch import Arch
from isa.errors import InputError
from isa.instruction import Unit
from isa.plugins import GROUP as ISA_GROUP
from isa.variants import VARIANTS
from tests.plugins.installation import installed, source_of, write_distribution

ENGINE = """
from dla_sim.rtl.ex.engine import Engine
class Mean(Engine):
    mnemonics = ("OP_E_MEAN",)
    latency = 3
"""
MACHINE = Arch(isa="v2-mean")


@contextmanager
def package(
    folder: Path, engine: str, name: str = "Mean", isa: str | None = None
) -> Iterator[None]:
    """Distribution dla-mean with OP_E_MEAN, and ``engine`` for it."""
    modules = {
        "dla_e_mean": source_of("dla_e_mean") if isa is None else isa,
        "dla_mean_engine": engine,
    }
    groups = {
        ISA_GROUP: {"mean": "dla_e_mean:EXTENSION"},
        GROUP: {"mean": f"dla_mean_engine:{name}"},
    }
    write_distribution(folder, "dla-mean", modules, groups)
    with installed(folder):
        yield


def made(limits: Limits) -> list[Engine]:
    return engines(
        limits, Configuration(limits), CommandView(limits.variant, Unit.EX), Library(convert=False)
    )


def test_an_engine_of_a_package_is_in_the_hardware_of_its_variant(tmp_path: Path) -> None:
    with package(tmp_path, ENGINE):
        limits = limits_of(MACHINE, Timing())
        assert limits.variant.mnemonics == VARIANTS["v4"].mnemonics | {"OP_E_MEAN"}
        assert [engine.name for engine in made(limits)][len(ENGINES) :] == ["mean"]
        assert build_for(MACHINE, Timing()) == limits
        assert [type(engine) for engine in made(limits_of(Arch(isa="v2"), Timing()))] == list(
            ENGINES
        )


def test_hardware_of_some_engines_runs_programs_that_need_no_other() -> None:
    limits = replace(limits_of(Arch(isa="v4"), Timing()), engines=("mac", "pool"))
    assert [engine.name for engine in made(limits)] == ["mac", "pool"]
    for mnemonics, covered in (
        (("OP_CONV", "OP_END"), True),
        (("OP_CONV", "OP_POOL"), True),
        (("OP_E_ADD",), False),
    ):
        assert can_be(limits, Arch(isa="v4"), Timing(), find_needed(mnemonics)) == covered
    assert not can_be(limits, Arch(isa="v4"), Timing())


@pytest.mark.parametrize("isa", ["v1", "v4", "v2+OP_LUT"])
def test_hardware_of_other_variants_is_that_of_the_newest(isa: str) -> None:
    assert limits_of(Arch(isa=isa), Timing()).variant is VARIANTS["v4"]


@pytest.mark.parametrize(
    ("engine", "name", "message"),
    [
        ("Mean = 3", "Mean", "gives an object of type int; it must be a subclass of "
                             "dla_sim.rtl.ex.engine.Engine"),
        ("class Mean: pass", "Mean", "gives the class Mean; it must be a subclass of "
                                     "dla_sim.rtl.ex.engine.Engine"),
        (ENGINE.replace("MEAN", "ELSE"), "Mean", "ISA v2-mean: no engine executes OP_E_MEAN; a "
                                                 "package adds one by an"),
        (
            ENGINE.replace("MEAN", 'MEAN", "OP_LUT'), "Mean",
            "package dla-mean 1.0 (entry point mean): OP_LUT has an engine, that of the project; "
            "leave it out",
        ),
        (
            ENGINE.replace("class Mean", "class Mac"), "Mac",
            "package dla-mean 1.0 (entry point mean): another engine is called mac, that of the "
            "project; rename one",
        ),
        (ENGINE.replace("= 3", "= 15"), "Mean", "engine mean takes 15 cycles from a step to its "
                                                "results; 14 are"),
    ],
)  # fmt: skip
def test_engines_that_do_not_fit_in(engine: str, name: str, message: str, tmp_path: Path) -> None:
    with package(tmp_path, engine, name), pytest.raises(InputError) as caught:
        made(limits_of(MACHINE, Timing()))
    assert message in str(caught.value)


def test_further_instructions_of_other_units(tmp_path: Path) -> None:
    isa = source_of("dla_e_mean").replace("unit=Unit.EX", "unit=Unit.LD")
    with package(tmp_path, ENGINE, isa=isa), pytest.raises(InputError) as caught:
        made(limits_of(MACHINE, Timing()))
    assert str(caught.value).startswith(
        "ISA v2-mean: OP_E_MEAN is not of unit EX; hardware takes further instructions"
    )
