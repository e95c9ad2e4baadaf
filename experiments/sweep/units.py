"""Figures of sweep points that are named by their unit: ``ms``, ``ips``, ``uJ`` and ``mm2``.

Limits and objectives use these names. Energy and area are estimates from a cost table.
"""

from collections.abc import Mapping
from typing import Any

from experiments.cost.estimate import COLUMNS, MICROJOULE, SQUARE_MILLIMETRE
from experiments.figure import Figure

UNITS = {
    one.name: one
    for one in (
        Figure("accelerator time", "ms", "less", name="ms", kind=float),
        Figure("inferences a second", "1/s", "more", name="ips", kind=float),
        Figure("estimated energy", "µJ", "less", name="uJ", estimate=True, kind=float),
        Figure("estimated area", "mm²", "less", name="mm2", estimate=True, kind=float),
    )
}
"""Figures of a point by the unit that names them."""


def add_units(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a results row with the columns of a cost table and the figures :data:`UNITS`.

    They are None if the point is not ok. The energy is None for machines with a flash, and ``ips``
    is None without cycles. Energy and area are None without the columns of a cost table.
    """
    energy, area = (row.get(name) for name in COLUMNS[:2])
    if row["status"] != "ok":
        return {**row, **dict.fromkeys(UNITS)}
    return {
        **row,
        "ms": 1e3 * row["cycles"] / row["clock_hz"],
        "ips": row["clock_hz"] / row["cycles"] if row["cycles"] else None,
        "uJ": energy and energy / MICROJOULE,
        "mm2": area and area / SQUARE_MILLIMETRE,
    }
