"""Which processing element does what: blocks of the array, groups and columns side by side in it.

Element (i, j, k) multiplies for one product of a sum along i, one output channel along j, one output column along k.
Where the products of a sum are no more than half of the lanes along i, or the output channels along j, there are
several blocks: each for another group or, with mapping 2 and 3, for other columns.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Value

from dla_sim.rtl.arithmetic.integers import wire
from dla_sim.rtl.ex.counting import Odometer
from dla_sim.rtl.ex.mac.work import Work
from dla_sim.rtl.parameters import Configuration, Limits


class Axis:
    """An axis of the array cut into blocks of ``size`` lanes: of each lane the ``block`` and its number ``within`` it.

    ``blocks``: how many whole ones there are.
    """

    def __init__(self, m: Module, name: str, lanes: int, configured: Value, wanted: Value) -> None:
        bits = lanes.bit_length()
        self.size = wire(m, Mux(wanted < configured, wanted, configured)[:bits], f"{name}_size")
        odometer = Odometer([self.size], bits)
        powers, positions = odometer.power(m, max(1, (lanes - 1).bit_length())), [odometer.zero()]
        for lane in range(1, lanes):
            power = lane.bit_length() - 1
            positions.append(odometer.sum(m, positions[lane - (1 << power)], powers[power]))
        self.within = [position.digits[0] for position in positions]
        self.block = [position.digits[1] for position in positions]
        self.blocks = wire(m, (configured // self.size)[:bits], f"{name}_blocks")


class Mapping:
    """What lanes do for a command, which all follows from it and the configuration.

    ``group``, ``set`` (of columns) by (i, j), and ``used`` whether that block has any; ``parallel`` groups and
    ``columns`` in a step. ``channel``: the output channel of (i, j) in the first step, ``column``: of (i, j, k).
    """

    def __init__(self, m: Module, limits: Limits, configuration: Configuration, work: Work) -> None:
        self.deep = Axis(m, "deep", limits.ic, configuration.ic, work.sums)
        self.wide = Axis(m, "wide", limits.oc, configuration.oc, work.outputs)
        bits = (limits.ic * limits.oc).bit_length()
        blocks = wire(m, (self.deep.blocks * self.wide.blocks)[:bits], "blocks")
        fits = work.groups < blocks
        self.parallel = wire(m, Mux(fits, work.groups, blocks)[:bits], "parallel")
        sets = wire(m, Mux(work.mapping[1], blocks // self.parallel, 1)[:bits], "sets")
        self.columns = wire(m, sets * configuration.ow, "columns_a_step")
        self.split, self.several = self.deep.blocks > 1, self.wide.blocks > 1
        self.group: dict[tuple[int, int], Value] = {}
        self.used: dict[tuple[int, int], Value] = {}
        self.channel: dict[tuple[int, int], Value] = {}
        self.column: dict[tuple[int, int, int], Value] = {}
        for i in range(limits.ic):
            for j in range(limits.oc):
                number = self.deep.block[i] * self.wide.blocks + self.wide.block[j]
                block = wire(m, number[:bits], f"block_{i}_{j}")
                self.group[i, j] = wire(m, block % self.parallel, f"group_{i}_{j}")
                own = wire(m, block // self.parallel, f"set_{i}_{j}")
                inside = (self.deep.block[i] < self.deep.blocks) & (self.wide.block[j] < self.wide.blocks)
                self.used[i, j] = wire(m, inside & (own < sets), f"used_{i}_{j}")
                channel = self.group[i, j] * work.outputs + self.wide.within[j]
                self.channel[i, j] = wire(m, channel, f"channel_{i}_{j}")
                for k in range(limits.ow):
                    self.column[i, j, k] = wire(m, own * configuration.ow + k, f"column_{i}_{j}_{k}")
