"""Write the errors of the machine descriptions in docs/validation.md, and their figure.

``python -m tests.docs.validation`` predicts every published figure, records the predictions in
``docs/figures/validation.csv``, and writes the page and ``docs/figures/validation.svg`` from it.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.machines.discovery import list_machines
from experiments.machines.uncompared import UNCOMPARED
from experiments.machines.validate import FigureComparison, compare_machines, summarize
from tests.docs.machine_layers import list_layers, list_networks, list_vta_layers
from tests.docs.microcontrollers import list_figures

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "validation.md"
RECORD = DOCS / "figures/validation.csv"
CHART = DOCS / "figures/validation.svg"
MARKS = "<!-- tests.docs.validation {} -->", "<!-- end of {} -->"
COLUMNS = ("machine", "network", "condition", "published", "unit", "role", "ours")
COLOURS = {"asserted": "#009e73", "fitted": "#e69f00", "held out": "#0072b2"}
SHAPES = {"asserted": "s", "fitted": "^", "held out": "o"}
UNEXPLAINED = 0.003
"""Relative errors above this are listed with their cause."""


def record(rows: Iterable[FigureComparison]) -> str:
    """Return the text of the record: one line for each published figure."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        table.writerow([*_identify(row), "" if row.ours is None else repr(float(row.ours))])
    return text.getvalue()


def _identify(row: FigureComparison) -> tuple[str, ...]:
    figure = row.figure
    value = repr(float(figure.value))
    return (row.machine, figure.network, figure.condition, value, figure.unit, figure.role)


def read_record(text: str) -> list[FigureComparison]:
    """Return every published figure of the descriptions with its recorded prediction.

    Raises KeyError for a figure that the record does not have.
    """
    lines = list(csv.reader(io.StringIO(text)))[1:]
    known = {tuple(line[:-1]): float(line[-1]) if line[-1] else None for line in lines}
    found = []
    for machine in list_machines().values():
        for figure in machine.published:
            row = FigureComparison(machine.name, figure, None)
            found.append(FigureComparison(machine.name, figure, known.pop(_identify(row))))
    assert not known, f"the record has figures that no machine publishes: {[*known]}"
    return found


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines])


def summary(rows: Sequence[FigureComparison]) -> str:
    """Return the table of errors by machine and role."""
    heads = (
        "machine", "figures", "number", "mean error", "worst error", "worst on", "fitted parameters"
    )  # fmt: skip
    return _table(
        heads,
        (
            (
                f"`{one.machine}`",
                one.role,
                str(one.compared),
                _percent(one.mean),
                _percent(one.worst),
                one.network if one.worst else "",
                ", ".join(f"`{name}`" for name in one.fitted),
            )
            for one in summarize(rows, list_machines().values())
        ),
    )


def _percent(error: float, sign: str = "") -> str:
    """Return an error in percent; one that rounds to zero has no sign."""
    text = f"{error:{sign}.2%}"
    return text[1:] if float(text[:-1]) == 0 and sign else text


def _value(row: FigureComparison, value: float) -> str:
    return f"{value:,.{0 if row.figure.unit == 'cycles' else 2}f}"


def figures(rows: Sequence[FigureComparison]) -> str:
    """Return the table of predicted figures; asserted figures that are equal share a row."""
    shown = []
    equal: dict[str, list[FigureComparison]] = {}
    for row in rows:
        if row.error is None:
            continue
        if row.figure.role == "asserted" and row.error == 0:
            equal.setdefault(row.machine, []).append(row)
            continue
        shown.append(
            (
                f"`{row.machine}`",
                row.figure.network,
                row.figure.condition,
                _value(row, row.ours or 0.0),
                f"{_value(row, row.figure.value)} {row.figure.unit}",
                _percent(row.error, "+"),
                row.figure.role,
                row.figure.source,
            )
        )
    for machine, same in equal.items():
        source = same[0].figure.source
        text = f"{len(same)} figures"
        shown.append((f"`{machine}`", text, "", "equal", "", "0.00%", "asserted", source))
    heads = ("machine", "network", "condition", "ours", "published", "error", "role", "source")
    return _table(heads, shown)


def causes(rows: Sequence[FigureComparison]) -> str:
    """Return the table of errors above 0.3 % and their causes, which descriptions do not model.

    Figures of a machine with one cause share a row.
    """
    groups: dict[tuple[str, str], list[FigureComparison]] = {}
    for row in rows:
        if row.error is not None and abs(row.error) > UNEXPLAINED and row.figure.note:
            groups.setdefault((row.machine, row.figure.note), []).append(row)
    lines = []
    for (machine, note), same in groups.items():
        errors = sorted({row.error or 0.0 for row in same})
        ends = dict.fromkeys((_percent(errors[0], "+"), _percent(errors[-1], "+")))
        networks = ", ".join(dict.fromkeys(row.figure.network for row in same))
        lines.append((f"`{machine}`", networks, " to ".join(ends), note))
    return _table(("machine", "networks", "error", "cause"), lines)


def uncompared(rows: Sequence[FigureComparison]) -> str:
    """Return the table of published figures that are not compared, with the reasons."""
    listed = [
        (f"`{row.machine}`", f"{row.figure.network}, {_value(row, row.figure.value)} "
         f"{row.figure.unit}", row.figure.source, row.figure.note)
        for row in rows
        if row.figure.role == "not comparable"
    ]  # fmt: skip
    listed += [(one.machine, one.figure, one.source, one.reason) for one in UNCOMPARED]
    return _table(("machine", "published figure", "source", "reason"), listed)


def ethos_networks(_: Sequence[FigureComparison]) -> str:
    """Return the table of networks with the times of Vela's command streams."""
    heads = (
        "network", "file", "chip, ms", "ours, ms", "stream, ms", "1,536 KiB, ms", "1,024 KiB, ms"
    )  # fmt: skip
    return _table(heads, list_networks())


def ethos_layers(_: Sequence[FigureComparison]) -> str:
    """Return the table of layers where our prediction and Vela's command streams differ."""
    heads = (
        "Inception V3", "operations", "ours, ms", "operations as in the stream, ms",
        "weights read again, 1,536 KiB, ms", "both, 1,024 KiB, ms",
    )  # fmt: skip
    return _table(heads, list_layers())


def vta_layers(_: Sequence[FigureComparison]) -> str:
    """Return the table of convolutions that shorter read bursts would change most."""
    heads = (
        "convolution", "number", "ours, cycles", "burst one cycle shorter", "share of the error"
    )  # fmt: skip
    return _table(heads, list_vta_layers())


def microcontrollers(_: Sequence[FigureComparison]) -> str:
    """Return the table of published cycles on microcontrollers and of their estimates."""
    heads = ("CPU", "network or layer", "ours", "published", "error", "role", "condition", "source")
    return _table(
        heads,
        (
            (
                one.cpu, one.what, f"{one.ours:,}", f"{one.published:,.0f}",
                _percent(one.error, "+"), one.role, one.condition, one.source,
            )
            for one in list_figures()
        ),
    )  # fmt: skip


TABLES = {
    "summary": summary,
    "figures": figures,
    "causes": causes,
    "ethos networks": ethos_networks,
    "ethos layers": ethos_layers,
    "vta layers": vta_layers,
    "uncompared": uncompared,
    "microcontrollers": microcontrollers,
}


def written(page: str, rows: Sequence[FigureComparison]) -> str:
    """Return ``page`` with its tables updated."""
    for name, make in TABLES.items():
        begin, end = (mark.format(name) for mark in MARKS)
        before, found, rest = page.partition(f"{begin}\n")
        _, ended, after = rest.partition(f"\n{end}")
        assert found, f"the page has no line {begin}"
        assert ended, f"the page has no line {end}"
        page = f"{before}{found}\n{make(rows)}\n{ended}{after}"
    return page


def digest(text: str) -> str:
    """Return the hash of the record that the chart stores."""
    return hashlib.sha256(text.encode()).hexdigest()


def draw(rows: Sequence[FigureComparison], place: Path, stamp: str) -> None:
    """Draw the relative error of each prediction that is not asserted as an SVG file."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.error is not None and row.figure.role != "asserted"]
    shown = shown[::-1]
    with matplotlib.rc_context({"svg.hashsalt": "dla", "font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1.2 + 0.24 * len(shown)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvspan(-15, 15, color="#eeeeee", zorder=0)
        axes.axvline(0, color="black", linewidth=0.8)
        for place_y, row in enumerate(shown):
            role = row.figure.role
            error = 100 * (row.error or 0.0)
            axes.plot([0, error], [place_y, place_y], color=COLOURS[role], linewidth=2)
            axes.plot([error], [place_y], SHAPES[role], color=COLOURS[role])
        for role in dict.fromkeys(row.figure.role for row in shown):
            axes.plot([], [], SHAPES[role], color=COLOURS[role], label=role)
        names = [f"{row.machine}: {row.figure.network}, {row.figure.condition}" for row in shown]
        axes.set_yticks(
            range(len(shown)), [name if len(name) < 61 else f"{name[:58]}..." for name in names]
        )
        axes.set_xlabel("error in percent; grey: 15 %")
        if shown:
            axes.legend(loc="best")
        metadata = {"Date": None, "Description": stamp}
        FigureCanvasSVG(figure).print_svg(place, metadata=metadata)


def main() -> None:
    """Predict every published figure, and write record, page and chart."""
    text = record(compare_machines(list_machines().values()))
    RECORD.write_text(text, encoding="utf-8")
    rows = read_record(text)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    draw(rows, CHART, digest(text))


if __name__ == "__main__":
    main()
