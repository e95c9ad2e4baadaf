"""Arithmetic of the lanes: stateless components whose results equal isa.numerics bit for bit.

`integers`, `floats` and `fixed` contain functions that add gates to a module. `lane` defines the
common lane interface and prepares the constants of a command. A lane accepts operands every cycle.
Its docstring gives its pipeline stages (attribute ``latency``) and roughly the number of operators,
that is, of two-operand operations and selections that a simulator executes per cycle. No expression
is wider than 64 bits.
"""
