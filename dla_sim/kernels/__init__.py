"""Kernels: optional fast implementations of the instructions, bit-identical to their semantics
in ``isa.ops``.
"""
