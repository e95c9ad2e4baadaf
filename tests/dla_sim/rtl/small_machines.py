"""Machines reduced to the limits of small hardware."""

from dla_sim.rtl.parameters import Limits
from isa.arch import Arch


def reduce_to_limits(arch: Arch, limits: Limits) -> Arch:
    """Reduce a machine's array and lanes to the ``limits`` of the hardware.

    Programs have the same meaning on it.
    """
    pe = {axis: min(getattr(arch.pe, axis), getattr(limits, axis)) for axis in ("ic", "oc", "ow")}
    values = {**arch.model_dump(), "pe": pe}
    return Arch.model_validate(
        {**values, "post_lanes": min(limits.lanes, Arch.model_validate(values).lanes)}
    )
