"""The arithmetic of the lanes: components without state, equal to isa.numerics to the bit.

`integers`, `floats` and `fixed` are functions that add gates to a module; `lane` says how lanes are built and how the
constants of a command reach them. A lane takes operands every cycle; its documentation has its pipeline stages, which
its attribute ``latency`` counts, and its operators, two-operand operations and choices that a simulator executes in
each cycle, roughly. No expression has more than 64 bits.
"""
