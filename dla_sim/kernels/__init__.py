"""Kernels: optional fast executions of the instructions, equal to their semantics in ``isa.ops`` to the bit."""
