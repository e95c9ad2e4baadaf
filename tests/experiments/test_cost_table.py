"""Cost tables: the built-in one says what its sources say, and bad ones are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cost.table import CostTable, SramEnergy, load_table, table_names
from isa.errors import InputError

WHOLE = Path("experiments/cost/horowitz-45nm.toml")


def whole() -> str:
    return (Path(__file__).parents[2] / WHOLE).read_text()


def refused(folder: Path, text: str) -> str:
    """The message for a table of ``text``, without the file's name."""
    path = folder / "table.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_table(str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_the_built_in_table_has_the_published_figures() -> None:
    table = load_table()
    assert table_names() == ["horowitz-45nm"]
    assert table.energy.mac.picojoules == pytest.approx(0.2 + 0.1)
    assert [(size.bytes, size.picojoules * 8) for size in table.energy.sram.sizes] == [
        (8 * 1024, 10), (32 * 1024, 20), (1024 * 1024, 100),
    ]  # fmt: skip
    assert table.energy.dram.picojoules * 4 == 640
    assert table.energy.register_write.picojoules == 1
    assert table.area.pe.square_micrometres == 282 + 137
    assert table.area.sram.square_micrometres == pytest.approx(0.346 * 8 * 1024)


def test_every_figure_names_its_source_and_node() -> None:
    table = load_table()
    figures = [
        *(getattr(table.energy, name) for name in type(table.energy).model_fields),
        *(getattr(table.area, name) for name in type(table.area).model_fields),
    ]
    assert len(figures) == 7
    assert all("45 nm" in figure.node and len(figure.source) > 40 for figure in figures)


def sram(between: str = "power-law") -> SramEnergy:
    return SramEnergy.model_validate(
        {
            "node": "n",
            "source": "s",
            "between": between,
            "sizes": [{"bytes": 100, "picojoules": 1.0}, {"bytes": 400, "picojoules": 4.0}],
        }
    )


def test_sizes_of_the_table_cost_what_it_says_without_a_note() -> None:
    assert sram().byte(100) == (1.0, None)
    assert sram().byte(400) == (4.0, None)


def test_sizes_between_follow_a_power_law_and_say_so() -> None:
    cost = sram().byte(200)  # exponent ln 4 / ln 4 = 1
    assert cost.picojoules == pytest.approx(2.0)
    assert cost.note == (
        "SRAM banks of 200 bytes: 2 pJ a byte by a power law through the table's 100 and 400 bytes"
    )
    built_in = load_table().energy.sram.byte(64 * 1024)  # 2.5 * 2 ** (ln 5 / ln 32)
    assert built_in.picojoules == pytest.approx(
        2.5 * 2 ** (1.6094379124341003 / 3.4657359027997265)
    )


def test_sizes_between_take_the_next_larger_where_the_table_says_so() -> None:
    assert sram("next-larger").byte(101) == (
        4.0,
        "SRAM banks of 101 bytes cost what the table has for 400",
    )


def test_a_free_size_is_met_by_a_straight_line() -> None:
    values = {"node": "n", "source": "s", "between": "power-law"}
    sizes = [{"bytes": 100, "picojoules": 0.0}, {"bytes": 300, "picojoules": 4.0}]
    assert SramEnergy.model_validate({**values, "sizes": sizes}).byte(
        150
    ).picojoules == pytest.approx(1.0)


def test_sizes_outside_take_the_nearest_and_are_called_bounds() -> None:
    assert sram().byte(99) == (
        1.0,
        "SRAM banks of 99 bytes are smaller than any in the table; they cost what it has for 100: "
        "upper bound",
    )  # fmt: skip
    assert sram().byte(401) == (
        4.0,
        "SRAM banks of 401 bytes are larger than any in the table; they cost what it has for 400: "
        "lower bound",
    )  # fmt: skip


def test_a_file_is_a_table_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(whole().replace("160.0", "20.0"))
    table = load_table(str(path))
    assert isinstance(table, CostTable)
    assert (table.name, table.energy.dram.picojoules) == (str(path), 20)


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    end = "; docs/energy.md shows a whole table"
    assert refused(tmp_path, "energy = [").startswith("not a TOML file (")
    assert refused(tmp_path, 'description = ""\narea = {}\n').startswith("energy is missing")
    text = whole()
    assert refused(tmp_path, text.replace("picojoules = 160.0", "picojoules = -1.0")) == (
        "energy.dram.picojoules is -1.0: should be greater than or equal to 0" + end
    )
    assert refused(tmp_path, text.replace("picojoules = 160.0", "picojoules = nan")) == (
        "energy.dram.picojoules is nan: should be a finite number" + end
    )
    assert refused(tmp_path, text.replace("picojoules = 160.0", 'picojoules = "much"')) == (
        "energy.dram.picojoules is 'much': should be a valid number" + end
    )
    assert refused(tmp_path, text.replace("[energy.dram]", "[energy.dram]\nvolts = 1.2")) == (
        "energy.dram.volts: unknown key" + end
    )
    assert refused(tmp_path, text.replace("bytes = 32768", "bytes = 8192")).endswith(
        ": the sizes must rise from one entry to the next" + end
    )
    assert refused(tmp_path, text.replace('between = "power-law"', 'between = "guess"')) == (
        "energy.sram.between is 'guess': should be 'power-law' or 'next-larger'" + end
    )
    sourceless = "\n".join(line for line in text.splitlines() if "Hennessy, D." not in line)
    assert refused(tmp_path, sourceless) == "area.pe.source is missing" + end


def test_an_absent_table_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "none.toml"
    with pytest.raises(InputError, match=r"no such file; give a \.toml file") as caught:
        load_table(str(absent))
    assert str(caught.value).startswith(f"{absent}: ")


def test_a_table_is_bounded_in_size(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_text("#" * ((1 << 20) + 1))
    with pytest.raises(
        InputError, match=r"huge.toml: 1048577 bytes; a cost table has at most 1048576"
    ):
        load_table(str(path))
