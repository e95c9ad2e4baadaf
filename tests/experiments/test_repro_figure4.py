"""``dla repro sponner2021-fig4``, run once: its files, its claims, and resuming."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from experiments.cli.main import main
from experiments.report.charts.model import KINDS as STYLES
from experiments.repro import FIGURES
from experiments.repro.figure4 import NAME, Figure4, reproduce
from tests.experiments.command_line import dla

pytestmark = pytest.mark.slow

FIGURES_FOLDER = Path(__file__).parents[2] / "docs" / "figures"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a first run through the command line, whose claims all hold."""
    made = tmp_path_factory.mktemp("figure") / "deeper"
    assert main(["repro", NAME, "--output", str(made)]) == 0
    return made


@pytest.fixture(scope="module")
def again(folder: Path) -> Figure4:
    """A second run into the same folder."""
    return reproduce(folder, workers=1)


def test_the_figure_is_in_the_catalogue() -> None:
    assert NAME in FIGURES


def test_the_table_has_the_published_bars(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((folder / f"{NAME}.csv").read_text())))
    shown = [row for row in rows if row["memory"] != "256 KiB" and row["schedule"] == "seed"]
    assert len(shown) == 8 + 8 + 12
    assert all(row["status"] == "ok" for row in shown)
    bar = {(row["scenario"], row["memory"], row["pes"], row["side"]): row for row in shown}
    # 256 MiB, 64 PEs, output-parallel: ceil(OC / 64) OH OW KH KW IC of the thirteen pointwise
    # layers and the first, and 16 cycles of fill and drain of each of the fourteen (design, section
    # 5).
    sizes = [(3, 32, 112, 9)] + [
        (ic, oc, size, 1)
        for ic, oc, size in (
            (32, 64, 112), (64, 128, 56), (128, 128, 56), (128, 256, 28), (256, 256, 28),
            (256, 512, 14),
            *[(512, 512, 14)] * 5, (512, 1024, 7), (1024, 1024, 7),
        )
    ]  # fmt: skip
    expected = sum(-(-oc // 64) * size * size * taps * ic + 16 for ic, oc, size, taps in sizes)
    assert int(bar["none", "256 MiB", "64", "O"]["ex_CONV"]) == expected
    assert bar["none", "256 MiB", "64", "O"]["ex_DEPTH"] == "0"


def test_the_committed_figure_is_current(folder: Path) -> None:
    """The committed figure equals that of a new run.

    If it does not, copy the .csv, .png and .txt of a new run to docs/figures and check
    docs/validation.md.
    """
    committed, made = (
        list(csv.reader(io.StringIO(path.read_text())))
        for path in (FIGURES_FOLDER / f"{NAME}.csv", folder / f"{NAME}.csv")
    )
    assert made == committed


def test_every_statement_of_the_paper_holds(again: Figure4) -> None:
    assert [claim.name for claim in again.claims["seed"] if not claim.holds] == []
    assert again.holds


def test_a_better_compiler_changes_what_holds(again: Figure4) -> None:
    """With the default schedule, tiles no longer starve output-parallel machines.

    256 KiB are enough.
    """
    missing = {claim.name for claim in again.claims["default"] if not claim.holds}
    assert missing == {
        "input-parallel-wins-tiled",
        "tiles-starve-output-parallel",
        "512-kib-is-the-smallest",
        "not-linear-in-memory",
    }


def test_a_second_run_makes_the_same_files(folder: Path, again: Figure4) -> None:
    names = sorted(path.name for path in again.files)
    assert names == sorted(f"{NAME}.{ending}" for ending in ("csv", "png", "txt", "sqlite"))
    first = (folder / f"{NAME}.png").read_bytes()
    reproduce(folder, workers=1)
    assert (folder / f"{NAME}.png").read_bytes() == first


def test_the_picture_shows_every_kind(folder: Path, again: Figure4) -> None:
    pixels = image.imread(folder / f"{NAME}.png")[:, :, :3]
    for kind in ("CONV", "DEPTH", "REQUANT"):
        colour = to_rgb(STYLES[kind].color)
        assert (abs(pixels - colour).max(axis=2) < 0.02).sum() > 100, kind


def test_the_command_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "none.sqlite"
    assert dla(capsys, "repro", absent).err == (
        f"error: {absent}: no such file or figure; 'dla sweep SPEC.toml' makes results, "
        f"the figures are {', '.join(FIGURES)}\n"
    )
    assert dla(capsys, "repro", NAME, "--points", "3").err == (
        f"error: --points does not apply to the figure {NAME}; it repeats points of a results "
        "file\n"
    )
    assert dla(capsys, "repro", absent, "-o", tmp_path).err == (
        f"error: --output applies to the figures {', '.join(FIGURES)} alone, not to the file "
        f"{absent}\n"
    )
    blocked = tmp_path / "file"
    blocked.write_text("")
    outcome = dla(capsys, "repro", NAME, "-o", blocked / "inside")
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: {blocked / 'inside' / NAME}.sqlite: cannot be written")
