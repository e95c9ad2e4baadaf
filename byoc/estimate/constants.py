"""Every number that an estimate or a choice by estimates goes by: what the default machine says, and what was fitted.

Constants of a Timing stand here under the same names; a test holds them equal to the default one. All others follow
from those by a formula, or were fitted. Estimates know the width and the rate of a machine's own bus
(:mod:`byoc.estimate.bus`).

``Measured`` is what another value makes of the cycles: the mean (and the worst) over resnet-8, keyword-spotting,
visual-wake-words, resnext-11, light-shufflenet and mobilenet-v1, each on 4 x 16 and 16 x 16 processing elements with
64 KiB and on 32 x 32 with 512 KiB (ISA v4), against the value that stands here.
What makes no difference there may elsewhere.
"""

from __future__ import annotations

from isa.instruction import ceil_div

# The default machine (docs/machine.md, section 2). -------------------------------------------------------------------

BUS_BYTES = 8
BURST_BYTES = 64
DRAM_LATENCY = 100
OUTSTANDING_BURSTS = 16
QUEUE_DEPTH = 2
DMA_SETUP = 4
DMA_DRAIN = 4
BANK_PORTS = 4
EX_FILL = 8
EX_DRAIN = 8

# What follows from it. -----------------------------------------------------------------------------------------------

BURST_BEATS = BURST_BYTES // BUS_BYTES
"""Beats of a whole burst (section 2, ``burst_beats``)."""
BURST_GAP = ceil_div(DRAM_LATENCY + BURST_BEATS, OUTSTANDING_BURSTS)
"""Slots of the bus that a burst takes at least (section 2, ``burst_gap``)."""
BURST_SLOTS = max(BURST_BEATS, BURST_GAP)
"""Slots of a whole burst (section 6)."""
TRANSFER_LEAD = DMA_SETUP + DRAM_LATENCY
"""Cycles of a load before its bytes move, and of a store between its last byte and ``DMA_DRAIN`` (section 5)."""
TRANSFER_OVERHEAD = TRANSFER_LEAD + DMA_DRAIN
"""Set-up, latency and drain of a transfer: LD and ST have one at a time (section 5)."""
COMMAND_OVERHEAD = EX_FILL + EX_DRAIN
"""Fill and drain of one compute command (section 5)."""
FLAT_BAND = BURST_BYTES
"""Elements that bands of layers without channels and columns are multiples of: whole bursts."""
PIECE_ALIGNMENT = BURST_BYTES
"""Every packed tile of constants begins at a multiple of this: its bursts are whole."""
FULL_CHOICE = 4
"""Numbers of buffers up to which the space of tilings has all."""
MOST_OUTPUTS = 3
"""Buffers of results in the space of tilings: one fills, one is stored, one waits for its acknowledgement."""

# What commands wait for before they begin. ---------------------------------------------------------------------------

ISSUE_CYCLES = 6
"""Cycles in which a command and the words that set its registers are issued, about.

Measured: 0: the same; 12: the same.
"""
FIRST_COMMAND = 140
"""Cycles until the first command is there.

Measured: 0: the same; 280: -0.01 % (+0.00 %).
"""

# What a layer takes beside its work. ---------------------------------------------------------------------------------

TILE_OVERHEAD = 110
"""What one tile more must gain: cycles in which units wait for one another.

Measured: 0: +2.55 % (+15.17 %); 220: +0.74 % (+4.45 %).
"""
FIRST_OVERHEAD = 30
"""The same in a region's first layer.

Measured: 0: +0.09 % (+0.70 %); 110: +0.01 % (+0.76 %).
"""
TILE_SHARE = 4000
"""A tile more must also gain a part of so many of what the layer takes: the time to compile and to simulate it.

Measured: 1000: +0.40 % (+3.22 %); none: +0.03 % (+1.00 %).
"""
HIDDEN = 0.8
"""Share of the first load of constants that earlier layers hide, as far as they compute as long as this one.

Measured: 0.4: +0.24 % (+2.49 %); 1.0: +0.12 % (+4.62 %).
"""
EXPOSED = 0.4
"""Share of the first loads of a group's constants that nothing hides.

Measured: 0: +0.98 % (+10.10 %); 0.8: -0.05 % (+0.00 %).
"""
TRAFFIC = 0.2
"""Price of a bus cycle even where computation hides it: layers before and after want the bus too.

Measured: 0: +0.61 % (+5.59 %); 0.4: +0.18 % (+2.44 %).
"""

# The search for a tiling. --------------------------------------------------------------------------------------------

CUTS = tuple(1 << power for power in range(13))
"""In how many tiles channels, rows and input channels are cut.

Measured: every other power: +0.47 % (+3.08 %); threes between: +0.47 % (+3.62 %).
"""
ROW_CUTS = tuple(sorted({*CUTS, *(3 * cuts for cuts in CUTS)}))
"""The same of channels of a single row: such layers wait for their weights, and have no bands to fill what there is.

Measured: without threes: +0.02 % (+0.13 %).
"""
FINER = 2
"""How many cuts of the rows beyond the coarsest that fits are tried.

Measured: 0: +0.87 % (+10.82 %); 4: -0.02 % (+0.00 %).
"""
GOOD = 1.03
"""A tiling that takes at most so many times what the layer takes in one tile is not improved on by cutting sums.

Measured: 1.0: the same; 1.1: +0.00 % (+0.07 %).
"""
FULL = 0.97
"""The share of the lanes that taps of some input channels must fill to be tried as a tile.

Measured: 0.9: the same; 1.0: the same. Without, 70 drawn convolutions on three machines: +3.57 % (+87.04 %).
"""
FEWER = 0.9
"""How much fewer input channels each next of those are.

Measured: 0.8: the same; 0.95: the same.
"""
THRIFT = 1.01
"""What a tiling in fewer bytes may take, times the best one's cycles.

Measured: 1.0: +0.03 % (+0.34 %); 1.05: +0.41 % (+3.67 %).
"""
BESIDE = (0.75, 0.875, 1.125, 1.25)
"""Sizes, times a tile's own, that are tried near it.

Measured: none: -0.01 % (+0.00 %); six: the same.
"""

# The search for groups. ----------------------------------------------------------------------------------------------

LONGEST = 16
"""Layers of a group at most.

Measured: 4: +1.00 % (+10.94 %); 32: the same.
"""
GAIN = 0.98
"""A group takes at most this times what its layers take alone: estimates err by as much.

Measured: 0.9: +0.31 % (+2.43 %); 1.0: the same; 1.2: the same.
"""
BAND_CUTS = (2, 4, 7, 10, 14, 19, 28, 56, 112)
"""In how many bands groups are tried.

Measured: powers of two: -0.00 % (+0.27 %); four of them: +0.18 % (+3.25 %).
"""
AGAIN_SHARES = (12, 6)
"""What is loaded again every band comes in tiles of at most this part of the scratchpad: the last that leaves room.

Measured: 12 alone: +0.32 % (+6.54 %); 6 alone: +0.16 % (+2.16 %).
"""

# Loads ahead. --------------------------------------------------------------------------------------------------------

MARGIN = 400
"""Cycles that a load should be complete before it is needed.

Measured: 0: -0.06 % (+0.04 %); 1600: -0.02 % (+0.56 %).
"""
DISTANCE = 48
"""Tiles that loads of what a program has made may run ahead at most: stores further back are not looked at.

Measured: 12: +0.03 % (+0.46 %); 96: the same.
"""
WINDOW = 64
"""Loads that are looked at for one that can begin beside a tile.

Measured: 8: +0.26 % (+3.34 %); 256: the same.
"""
TRIES = 4
"""Loads that find no place before the rest is left for a later tile.

Measured: 1: +0.38 % (+2.48 %); 16: -0.17 % (+0.09 %).
"""
FORGOTTEN = 8
"""Tiles after which places that are free again are forgotten.

Measured: 1: the same; 64: the same.
"""
AHEAD_SHARES = (100, 90, 75, 0)
"""Per cent of the scratchpad that first loads may fill by moving ahead in the first plan: fragments may waste some.

Measured: 100, 0: +0.44 % (+5.65 %); 90, 75, 0: -0.01 % (+0.00 %).
"""

# Places in the scratchpad. -------------------------------------------------------------------------------------------

ATTEMPTS = 12
"""Orders of placement that are tried before a plan is given up, at least.

Measured: 3: the same; 48: the same.
"""
REQUESTS = 8
"""One order in so many requests is tried, where that is more.

Measured: 4: the same; 16: +0.31 % (+5.65 %).
"""
NEIGHBOURS = (1, 2)
"""Buffers that may share a bank with one that shall be apart: beside sums, which are read and written, weights with
records are two more; beside a table they and one more are three. The former where all fit so.

Measured: 2 alone: the same; none, too: -0.00 % (+0.00 %).
"""

BANKS_TOGETHER = (2, 4, 8, 16)
"""Neighbouring banks of banked memory that count as one where the best plan of few tiles is placed again.

Measured on networks 15 and 43 of tests.e2e.random_networks with four times the banks: none: +7 % and +21 %.
"""

# Other plans of a region. --------------------------------------------------------------------------------------------

RESIDENT_SHARES = (100, 95, 90, 80, 65, 50, 0)
"""Per cent of the scratchpad for residents: the next where a plan does not pack, none in the end.

Measured: 100, 50, 0: the same; 100, 0: the same.
"""
FEWER_SHARES = (90, 80)
"""Per cent of the scratchpad for residents in other plans that are tried.

Measured: none: +0.73 % (+13.06 %); 70 and 60, too: -0.09 % (+0.00 %).
"""
SIZES = tuple(1 << power for power in range(40, 12, -1))
"""Bytes of smaller scratchpads for which other plans are made: a larger machine has all that a smaller one has.

Measured: none: +0.11 % (+1.91 %).
"""
FEW_LAYERS = 4
"""A region of at most so many layers also tries the plans of all smaller scratchpads, each with the tilings near it."""
CLOSE = 1.003
"""``ENOUGH`` for such a region. It is smaller, because the rest may become a cost of more memory."""
LARGEST_FREE = 1 << 16
"""The largest of them where the first plan wants no more memory.

Measured: half: the same; twice: the same.
"""
MOST_OTHERS = 4
"""Other plans that are ranked.

Measured: 1: +0.11 % (+1.91 %); 8: the same.
"""
ENOUGH = 1.02
"""A schedule that is estimated to take at most so many times what it takes at least is taken.

Measured: 1.0: -0.01 % (+0.00 %); 1.05: the same.
"""
BETTER = 0.999
"""What another plan must be estimated to take, times the best one's cycles.

Measured: 0.99: the same; 1.0: the same.
"""
MOST_TILES = 1000
"""Tiles of all plans tried so far, an image, beyond which no other is.

Measured: 250: +0.11 % (+1.91 %); 4000: -0.01 % (+0.00 %).
"""
FEW_TILES = 64
"""A plan of so many tiles is improved by trying tilings near its own.

Measured: 0: +0.12 % (+2.09 %); 128: the same.
"""
NEAR = 1.15
"""Tilings near a plan's own, and plans of smaller scratchpads, are tried up to so many times the own estimate.

Measured on pointwise-stride-2, {16, 16}, 512 KiB: 1.05: +3.65 %; 1.3: the same.
"""
MOST_NEAR = 400
"""Tiles of all those tilings together.

Measured: 100: +0.12 % (+2.09 %); 1600: -0.02 % (+0.00 %).
"""

# What is remembered. -------------------------------------------------------------------------------------------------

REMEMBERED_ROWS = 1 << 14
"""Counts and lengths of rows whose slots are kept."""
REMEMBERED_TILINGS = 16
"""Tilings of a layer whose tiles are kept."""
REMEMBERED_PLANS = 16
"""Schedules that a pool keeps at most; more sizes of scratchpad are rare, and schedules are large."""
SPAN = 64
"""Steps by which places in the scratchpad are indexed."""

# Limits of compile time: above them the compiler would take minutes. -------------------------------------------------

MAX_OPERATIONS = 10_000
"""Most operations of a region."""
MAX_INTERLEAVED = 500
"""Most operations in an order by image that divides no tensor, such as one over the rows of a product."""
