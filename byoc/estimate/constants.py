"""All constants of estimates and of choices by estimates: machine constants, and fitted ones.

Constants of a Timing have the same names here; a test keeps them equal to the default Timing. The
others are derived from them by a formula or were fitted. Estimates use the width, rate and latency
of a machine's own bus (:mod:`byoc.estimate.bus`).

``Measured`` gives the change of cycles with another value, against the value used: the mean (and
the worst case) over resnet-8, keyword-spotting, visual-wake-words, resnext-11, light-shufflenet and
mobilenet-v1, each on 4 x 16 and 16 x 16 processing elements with 64 KiB and on 32 x 32 with 512 KiB
(ISA v4). A constant without effect on these networks may matter on others.
"""

from isa.instruction import ceil_div

# The default machine (docs/machine.md, section 2).

BUS_BYTES = 8
BURST_BYTES = 64
FETCH_BYTES = 512
DRAM_LATENCY = 100
OUTSTANDING_BURSTS = 16
QUEUE_DEPTH = 2
DMA_SETUP = 4
DMA_DRAIN = 4
BANK_PORTS = 4
EX_FILL = 8
EX_DRAIN = 8

# Derived from it.

BURST_BEATS = BURST_BYTES // BUS_BYTES
"""Beats of a whole burst (section 2, ``burst_beats``)."""
BURST_GAP = ceil_div(DRAM_LATENCY + BURST_BEATS, OUTSTANDING_BURSTS)
"""Minimum bus slots of a burst (section 2, ``burst_gap``)."""
BURST_SLOTS = max(BURST_BEATS, BURST_GAP)
"""Bus slots of a whole burst (section 6)."""
WORD_BYTES = 8
"""Bytes of a command word (section 4)."""
COMMAND_OVERHEAD = EX_FILL + EX_DRAIN
"""Fill and drain of one compute command (section 5)."""
FLAT_BAND = BURST_BYTES
"""Granularity in elements of bands of layers without channels and columns.

Bands are then whole bursts.
"""
PIECE_ALIGNMENT = BURST_BYTES
"""Alignment in bytes of packed tiles of constants, so that their bursts are whole."""
FULL_CHOICE = 4
"""Buffer counts up to this number are all in the space of tilings."""
MOST_OUTPUTS = 3
"""Maximum number of result buffers of a tiling.

One buffer fills, one is stored, and one waits for its acknowledgement.
"""

# Delays before commands begin.

ISSUE_CYCLES = 6
"""Approximate cycles to issue a command and the words that set its registers.

Measured: 0: the same; 12: the same.
"""

# Overhead of a layer.

TILE_OVERHEAD = 110
"""Overhead of a tile in cycles, in which units wait for one another.

An additional tile must save more.

Measured: 0: +2.55 % (+15.17 %); 220: +0.74 % (+4.45 %).
"""
FIRST_OVERHEAD = 30
"""Overhead of a tile in a region's first layer, in cycles.

Measured: 0: +0.09 % (+0.70 %); 110: +0.01 % (+0.76 %).
"""
TILE_SHARE = 4000
"""Divisor of the layer's cycles that an additional tile must also save: 1/4000 of them.

The saving stands for the time to compile and simulate the tile.

Measured: 1000: +0.40 % (+3.22 %); none: +0.03 % (+1.00 %).
"""
HIDDEN = 0.8
"""Share of the first load of constants that earlier layers hide.

It is valid if they compute as long as this layer.

Measured: 0.4: +0.24 % (+2.49 %); 1.0: +0.12 % (+4.62 %).
"""
EXPOSED = 0.4
"""Share of the first loads of a group's constants that nothing hides.

Measured: 0: +0.98 % (+10.10 %); 0.8: -0.05 % (+0.00 %).
"""
TRAFFIC = 0.2
"""Price of a bus cycle, even if computation hides it: layers before and after use the bus too.

Measured: 0: +0.61 % (+5.59 %); 0.4: +0.18 % (+2.44 %).
"""

# The search for a tiling.

CUTS = tuple(1 << power for power in range(13))
"""Numbers of tiles into which channels, rows and input channels are cut.

Measured: every other power: +0.47 % (+3.08 %); threes between: +0.47 % (+3.62 %).
"""
ROW_CUTS = tuple(sorted({*CUTS, *(3 * cuts for cuts in CUTS)}))
"""Numbers of tiles for the channels of layers with a single row.

Such layers wait for their weights and have no bands with which to fill the scratchpad.

Measured: without threes: +0.02 % (+0.13 %).
"""
FINER = 2
"""Number of row cuts that are tried beyond the coarsest that fits.

Measured: 0: +0.87 % (+10.82 %); 4: -0.02 % (+0.00 %).
"""
GOOD = 1.03
"""Input channels are not cut if a tiling takes at most this times the single-tile cycles.

Measured: 1.0: the same; 1.1: +0.00 % (+0.07 %).
"""
FULL = 0.97
"""Share of the lanes that the taps of a tile's input channels must fill for the tile to be tried.

Measured: 0.9: the same; 1.0: the same. Without, 70 drawn convolutions on three machines: +3.57 %
(+87.04 %).
"""
FEWER = 0.9
"""Each next tile of this search has at most this share of the input channels of the previous one.

Measured: 0.8: the same; 0.95: the same.
"""
THRIFT = 1.01
"""A tiling with fewer bytes is preferred up to this times the best tiling's cycles.

Measured: 1.0: +0.03 % (+0.34 %); 1.05: +0.41 % (+3.67 %).
"""
BESIDE = (0.75, 0.875, 1.125, 1.25)
"""Factors of a tile's size that are tried near it.

Measured: none: -0.01 % (+0.00 %); six: the same.
"""

# The search for groups.

LONGEST = 16
"""Maximum number of layers in a group.

Measured: 4: +1.00 % (+10.94 %); 32: the same.
"""
GAIN = 0.98
"""A group must take at most this times the cycles of its layers alone; estimates err by as much.

Measured: 0.9: +0.31 % (+2.43 %); 1.0: the same; 1.2: the same.
"""
BAND_CUTS = (2, 4, 7, 10, 14, 19, 28, 56, 112)
"""Numbers of bands in which groups are tried.

Measured: powers of two: -0.00 % (+0.27 %); four of them: +0.18 % (+3.25 %).
"""
AGAIN_SHARES = (12, 6)
"""Divisors of the scratchpad bytes for tiles with constants reloaded in every band.

The largest tile that fits 1/12 or 1/6 of the scratchpad is used.

Measured: 12 alone: +0.32 % (+6.54 %); 6 alone: +0.16 % (+2.16 %).
"""

# Loads ahead.

MARGIN = 400
"""Cycles that a load should be complete before it is needed.

Measured: 0: -0.06 % (+0.04 %); 1600: -0.02 % (+0.56 %).
"""
DISTANCE = 48
"""Maximum prefetch distance, in tiles, of tensors that the program computed.

Older stores are not checked.

Measured: 12: +0.03 % (+0.46 %); 96: the same.
"""
WINDOW = 64
"""Number of loads that are checked to find one that can begin during a tile.

Measured: 8: +0.26 % (+3.34 %); 256: the same.
"""
TRIES = 4
"""Number of loads without a place after which the others are left for a later tile.

Measured: 1: +0.38 % (+2.48 %); 16: -0.17 % (+0.09 %).
"""
FORGOTTEN = 8
"""Number of tiles after which freed places are dropped from the records.

Measured: 1: the same; 64: the same.
"""
AHEAD_SHARES = (100, 90, 75, 0)
"""Per cent of the scratchpad that prefetched first loads may fill in the first plan.

Fragments may waste some.

Measured: 100, 0: +0.44 % (+5.65 %); 90, 75, 0: -0.01 % (+0.00 %).
"""

# Places in the scratchpad.

ATTEMPTS = 12
"""Minimum number of placement orders that are tried before a plan fails.

Measured: 3: the same; 48: the same.
"""
REQUESTS = 8
"""One placement order is tried per this many requests, if that is more than ``ATTEMPTS``.

Measured: 4: the same; 16: +0.31 % (+5.65 %).
"""
UNLIMITED = 1 << 40
"""Bytes of a bank that is larger than all addresses in it."""
NEIGHBOURS = (1, 2)
"""Numbers of buffers that may share a bank with a buffer marked ``apart``, in order of preference.

Sums are read and written, and weights with records are two more operands; next to a table, these
and one more operand are three. The first number is used if all buffers fit.

Measured: 2 alone: the same; none, too: -0.00 % (+0.00 %).
"""

COPIED = 4
"""Divisor of the scratchpad bytes that copies of a recurrent layer may fill before its steps.

Measured on an LSTM of 256 steps of 64 with 64 KiB (v5): without limit: +136 %.
"""
UNUSED_TILES = 2
"""Tiles of a recurrent layer for which no buffer takes the bytes of one that was just used.

Measured on lstm-small with 512 KiB (v5): without: +0.94 %.
"""
UNUSED_SHARE = 0.97
"""Largest share of the scratchpad that its buffers may take for this to be tried.

Planning in more would try hundreds of orders. Measured on an LSTM of 256 steps of 64 with 64 KiB
(v5): 0.9: +5.8 %.
"""

# Other plans of a region.

RESIDENT_SHARES = (100, 95, 90, 80, 65, 50, 0)
"""Per cent of the scratchpad for residents.

If memory planning fails, the next lower share is tried.

Measured: 100, 50, 0: the same; 100, 0: the same.
"""
FEWER_SHARES = (90, 80)
"""Per cent of the scratchpad for residents in alternative plans.

Measured: none: +0.73 % (+13.06 %); 70 and 60, too: -0.09 % (+0.00 %).
"""
SIZES = tuple(1 << power for power in range(40, 12, -1))
"""Bytes of smaller scratchpads whose plans are tried too: they also fit a larger machine.

Measured: none: +0.11 % (+1.91 %).
"""
FEW_LAYERS = 4
"""Maximum number of layers of a region for which more plans are tried.

These are the plans of all smaller scratchpads, and tilings near each.
"""
CLOSE = 1.003
"""``ENOUGH`` for such a region; it is smaller so that more memory does not cost cycles."""
MOST_LAYERS_NARROWER = 8
"""Maximum number of layers of a region for which plans of narrower arrays are tried.

Measured on 13 networks: 8: the same; without limit: -0.1 % (+0.00 %), 1.7 times the compile time.
"""
GROUP_FACTORS = (1.3, 4.0)
"""Groups are also chosen as if layers alone took this times their cycles.

Measured on 44 drawn pairs with a larger array: none: +0.34 % (+9.06 %).
"""
LARGEST_FREE = 1 << 16
"""Largest smaller scratchpad in bytes that is tried if the first plan needs no more memory.

Measured: half: the same; twice: the same.
"""
MOST_OTHERS = 4
"""Maximum number of alternative plans that are ranked.

Measured: 1: +0.11 % (+1.91 %); 8: the same.
"""
ENOUGH = 1.02
"""A schedule is accepted if its estimate is at most this times the lower bound.

Measured: 1.0: -0.01 % (+0.00 %); 1.05: the same.
"""
BETTER = 0.999
"""An alternative plan must take at most this times the best plan's estimated cycles.

Measured: 0.99: the same; 1.0: the same.
"""
MOST_TILES = 1000
"""Number of tiles per image, over all plans tried, after which no further plan is tried.

Measured: 250: +0.11 % (+1.91 %); 4000: -0.01 % (+0.00 %).
"""
FEW_TILES = 64
"""Plans of at most this many tiles are improved by trying tilings near their own.

Measured: 0: +0.12 % (+2.09 %); 128: the same.
"""
NEAR = 1.15
"""Largest ratio to the best estimate at which a plan or tiling is tried.

It limits tilings near a plan's own, and plans of smaller scratchpads.

Measured on pointwise-stride-2, {16, 16}, 512 KiB: 1.05: +3.65 %; 1.3: the same.
"""
MOST_NEAR = 400
"""Maximum number of tiles of all those tilings together.

Measured: 100: +0.12 % (+2.09 %); 1600: -0.02 % (+0.00 %).
"""

# Branches of a run-time condition.

MACS_PER_BYTE = 16
"""Least MACs of a branch for each byte that enters or leaves it, so that it is a region of its own.

64 PEs then compute the branch for longer than a bus of 8 bytes a cycle moves its tensors twice.
"""

# The CPU, with rates that were chosen and not measured.

HOST_MACS_PER_CYCLE = 8.0
"""MACs of a node in a cycle."""
HOST_BYTES_PER_CYCLE = 4.0
"""Bytes of operands and results that the CPU reads or writes in a cycle."""
HOST_CYCLES_PER_NODE = 1000.0
"""Cycles to start a node."""

MICROCONTROLLERS = {"Cortex-M4": (3.74, 0.0, 10.83), "Cortex-M55": (0.209, 17.37, 3.79)}
"""Cycles with CMSIS-NN by CPU: per MAC, per result, and per MAC of a convolution with groups.

They are fitted to published figures. Cortex-M4: two networks of MLPerf Tiny on a NUCLEO-L4R5ZI at
120 MHz with microTVM (mlcommons/tiny_results_v1.1, Krai). Cortex-M55: cycles of seven layers of
MobileNetV2 on an Alif E8 with ExecuTorch (pytorch/executorch#17651). docs/validation.md has the
errors of the fit and of all other figures.
"""
MICROCONTROLLER_ELEMENT_CYCLES = 9.07
"""Cycles of a microcontroller per result of any operator without MACs.

Measured for the quantisation of MobileNetV2's input on that Cortex-M55; assumed for all other
operators, and for the Cortex-M4.
"""

# Sizes of caches.

REMEMBERED_ROWS = 1 << 14
"""Maximum number of row shapes whose slots are cached."""
REMEMBERED_TILINGS = 16
"""Maximum number of tilings of a layer whose tiles are cached."""
REMEMBERED_TILES = 2048
"""Maximum number of tiles of a region's cached streams."""
REMEMBERED_PLANS = 16
"""Maximum number of cached schedules; more scratchpad sizes are rare, and schedules are large."""
SPAN = 64
"""Number of steps per index entry for places in the scratchpad."""

# Limits of compile time: above them the compiler would take minutes.

MAX_OPERATIONS = 10_000
"""Maximum number of operations of a region."""
MAX_INTERLEAVED = 500
"""Maximum number of operations in an order by image that divides no tensor.

An example is an order over rows of a product.
"""
