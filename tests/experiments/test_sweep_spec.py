"""Specifications: axes, ranges, constraints, and one clear line for every error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.axes import MAXIMUM_VALUES, axis_values
from experiments.sweep.constraints import parse_constraint
from experiments.sweep.grid import Grid
from experiments.sweep.spec import load_spec, parse_spec
from isa.errors import InputError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", (8,)),
        ("[8, 16, 8]", (8, 16)),
        ('"512 KiB"', (524288,)),
        ('["1MiB", 64, "2 k"]', (1048576, 64, 2000)),
        ("{ from = 8, to = 12, step = 2 }", (8, 10, 12)),
        ("{ from = 8, to = 13, step = 2 }", (8, 10, 12)),
        ('{ from = "64 KiB", to = "256 KiB", times = 2 }', (65536, 131072, 262144)),
        ("{ from = 3, to = 3, times = 2 }", (3,)),
    ],
)
def test_values_of_an_axis(text: str, values: tuple[int, ...]) -> None:
    spec = parse_spec(f'networks = "digits-cnn"\n[timing]\ndram_latency = {text}\n')
    assert spec.timing == {"dram_latency": values}


def test_axes_in_the_order_of_the_file_but_the_scratchpad_last() -> None:
    spec = parse_spec(
        """
        networks = ["digits-cnn"]
        isa = ["v1", "v2"]
        arch = { sram_bytes = [1024, 2048], pe = { oc = [8, 16], ic = 4 }, alignment = 16 }
        timing = { queue_depth = [1, 2], bus_bytes = [8, 16] }
        """
    )
    assert list(Grid(spec).axes) == [
        "network", "preset", "schedule", "emulate_depthwise", "grouped", "integer_io", "isa",
        "pe.oc", "pe.ic",
        "alignment", "sram_bytes", "queue_depth", "bus_bytes",
    ]  # fmt: skip
    batches = list(Grid(spec).batches())
    assert [(b.arch["isa"], b.arch["pe"]["oc"], b.arch["sram_bytes"]) for b in batches[:5]] == [
        ("v1", 8, 1024), ("v1", 8, 2048), ("v1", 16, 1024), ("v1", 16, 2048), ("v2", 8, 1024),
    ]  # fmt: skip
    assert [(t["queue_depth"], t["bus_bytes"]) for _, t in batches[0]] == [
        (1, 8),
        (1, 16),
        (2, 8),
        (2, 16),
    ]
    assert Grid(spec).points == 32


def test_whole_arrays() -> None:
    spec = parse_spec(
        'networks = "digits-cnn"\n[arch]\npe = [{ ic = 8, oc = 8 }, { ic = 1, oc = 32, ow = 2 }]\n'
    )
    assert [batch.arch["pe"] for batch in Grid(spec).batches()] == [
        {"ic": 8, "oc": 8, "ow": 1},
        {"ic": 1, "oc": 32, "ow": 2},
    ]


VALUES: dict[str, Any] = {
    "N": 64, "pe.count": 64, "pe.ic": 8, "sram_bytes": 524288, "schedule": "seed",
    "emulate_depthwise": False,
    "bus_bytes": 8, "post_lanes": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("N = 64 or 128", True),
        ("N = 32 or 128", False),
        ("N == 32 or 128 or 64", True),
        ("pe.count in [64, 128]", True),
        ("pe.count not in (64, 128)", False),
        ("64 <= N < 128 and sram_bytes >= 512 * KiB", True),
        ("sram_bytes / N > 8 * KiB", False),
        ("not (schedule = 'seed') or bus_bytes > 4", True),
        ("schedule != 'a=b'", True),
        ("not emulate_depthwise", True),
        ("emulate_depthwise == false and post_lanes == none", True),
        ("-pe.ic + 9 // 2 % 3 == -7", True),
    ],
)
def test_constraints(text: str, holds: bool) -> None:
    assert parse_constraint(text).is_satisfied(VALUES) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N == ", "constraints: 'N == ' is not an expression such as pe.count in [64, 128]"),
        ("64", "constraints: '64': '64' compares nothing; write comparisons such as pe.count in "
               "[64, 128]"),
        ("N == 64 and 128", "constraints: 'N == 64 and 128': '128' compares nothing; write "
                            "comparisons such as "),
        ("64 == 64", "constraints: '64 == 64' names no key; choose from network, "),
        ("__import__('os') == 1", "constraints: '__import__('os') == 1': '__import__('os')' is not "
                                  "in the "),
        ("N ** 9 == 1", "constraints: 'N ** 9 == 1': 'N ** 9' is not in the language of "
                        "constraints; "),
        ("().__class__ == 1", "constraints: '().__class__ == 1': unknown key '().__class__'; "
                              "choose one of network, "),
        ("pe.cc == 1", "constraints: 'pe.cc == 1': unknown key 'pe.cc'; choose one of network, "
                       "preset, isa, "),
        ("N is 64", "constraints: 'N is 64': 'N is 64' uses a comparison that is not known; "),
        ("N == 64 " + "or 64 " * 200,
         "constraints: one has 1208 characters; at most 1000 are read"),
    ],
)  # fmt: skip
def test_constraints_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_constraint(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("text", ["schedule < 3", "N / (pe.ic - 8) == 1", "'a' * 9 == schedule"])
def test_constraints_that_make_no_sense_of_the_values(text: str) -> None:
    with pytest.raises(InputError, match=r"cannot be decided where "):
        parse_constraint(text).is_satisfied(VALUES)


NETWORK = 'networks = "digits-cnn"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "networks: missing; name at least one network"),
        ("networks = []", "networks: the list is empty, so the grid is; give at least one value or "
                          "leave networks out"),
        ("networks = 3", "networks.0 is 3: should be a valid string"),
        ("networks = [", "not a TOML file ("),
        (NETWORK + "axes = 3",
         "axes: unknown key; choose one of networks, presets, isa, schedules, "),
        (NETWORK + "schedules = ['fast']", "schedules.0 is 'fast': should be 'seed' or 'default'"),
        (NETWORK + "isa = 'v9'", "unknown ISA variant 'v9'; choose one of "),
        (NETWORK + "presets = 'fast'", "unknown preset 'fast'; choose one of "),
        (NETWORK + "presets = 'fast.toml'", "preset fast.toml: no such file"),
        (NETWORK + "[arch]\nsram = 3",
         "arch.sram: unknown axis; did you mean sram_bytes? choose one of pe, "),
        (NETWORK + "[arch]\nbus_bytes = 3",
         "arch.bus_bytes: unknown axis; bus_bytes belongs to table timing"),
        (NETWORK + "[arch]\npe.id = 3",
         "arch.pe.id: unknown axis; did you mean pe.ic? choose one of pe, "),
        (NETWORK + "[timing]\nlatency = 3", "timing.latency: unknown axis; did you mean "
                                            "dram_latency? choose one of "),
        (NETWORK + "[arch]\nsram_bytes = []",
         "sram_bytes: the list is empty, so the grid is; give at least "),
        (NETWORK + "[arch]\nsram_bytes = -1",
         "sram_bytes is -1: should be greater than or equal to 64"),
        (NETWORK + "[arch]\nsram_bytes = 1.5e6",
         "sram_bytes is 1500000.0: should be a valid integer"),
        (NETWORK + "[arch]\nsram_bytes = '1 MB'",
         "sram_bytes is '1 MB': 'MB' is no unit; choose one of k, M, G, "),
        (NETWORK + "[timing]\nbus_bytes = {from = 8, to = 4, step = "
                   "1}", "bus_bytes: the range from 8 to 4 is empty; "),
        (NETWORK + "[timing]\nbus_bytes = {from = 8}",
         "bus_bytes: write a range as { from = 8, to = 64, step = 8 } "),
        (NETWORK + "[timing]\nbus_bytes = {from = 1, to = 2, step = "
                   "0}", "bus_bytes: step is 0; it must be "),
        (NETWORK + "[timing]\nbus_bytes = {from = 1, to = 2, times = "
                   "1}", "bus_bytes: times is 1; it must be "),
        (NETWORK + "[timing]\ndram_latency = {from = 0, to = 2, times = "
                   "2}", "dram_latency: a range with times "),
        (NETWORK + "[timing]\nbus_bytes = {from = 'a', to = 2, step = "
                   "1}", "bus_bytes: from is 'a'; it must be "),
        (NETWORK + "[arch]\npe = [8]",
         "arch.pe is 8; write a list of arrays such as { ic = 8, oc = 8 }"),
        (NETWORK + "[arch]\npe = []", "arch.pe: the list is empty, so the grid is; "),
        (NETWORK + "constraints = 'N = 3 or'", "constraints: 'N = 3 or' is not an expression"),
    ],
)  # fmt: skip
def test_specifications_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_spec(text, Path(), "grid.toml")
    assert str(raised.value).startswith(f"grid.toml: {message}")
    assert "\n" not in str(raised.value)


def test_a_range_has_an_end() -> None:
    with pytest.raises(
        InputError, match=f"the range has more than {MAXIMUM_VALUES} values; take larger steps"
    ):
        axis_values("dram_latency", {"from": 0, "to": 1 << 20, "step": 1})


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (
            '["N = 3"]',
            "constraints: 'N = 3' excludes every point, so the grid is empty; in the grid N is 8, "
            "16, 32",
        ),
        (
            '["pe.oc > 4", "N >= 16", "bus_bytes = 16", "N < 16"]',
            "constraints: 'N >= 16' and 'N < 16' contradict each other, so the grid is empty; "
            "in the grid N is 8, 16, 32",
        ),
        (
            '["bus_bytes = 16", "dram_latency > 5"]',
            "constraints: 'dram_latency > 5' excludes every point, so the grid is empty; "
            "in the grid dram_latency is 1, 2, 3, 4, 5",
        ),
    ],
)
def test_empty_grids(constraints: str, message: str) -> None:
    axes = (
        "[arch]\npe = {ic = 2, oc = [4, 8, 16]}\n[timing]\nbus_bytes = [8, 16]\ndram_latency = [1, "
        "2, 3, 4, 5]\n"
    )
    with pytest.raises(InputError) as raised:
        Grid(parse_spec(f"{NETWORK}constraints = {constraints}\n{axes}"))
    assert str(raised.value) == f"specification: {message}"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"grid.toml: no such file; docs/sweeps.md shows how to write one"
    ):
        load_spec(tmp_path / "grid.toml")
    (tmp_path / "grid.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"grid.toml: not a text file"):
        load_spec(tmp_path / "grid.toml")
    (tmp_path / "grid.toml").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InputError, match=r"1048577 bytes; a specification has at most 1048576"):
        load_spec(tmp_path / "grid.toml")


def test_pick_gives_the_point_of_a_choice_or_none() -> None:
    grid = Grid(
        parse_spec(
            f'{NETWORK}constraints = "N <= 32 and bus_bytes = 8"\n[arch]\npe.oc = [8, 16]\n'
            "[timing]\nbus_bytes = [8, 16]\n"
        )
    )
    found = grid.pick({"pe.oc": 8, "bus_bytes": 8})
    assert found is not None
    assert [timing["bus_bytes"] for _, timing in found] == [8]
    assert grid.pick({"pe.oc": 16, "bus_bytes": 8}) is None
    assert grid.pick({"pe.oc": 8, "bus_bytes": 16}) is None
