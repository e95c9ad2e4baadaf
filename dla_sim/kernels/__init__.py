"""Optional fast implementations of the instructions, called kernels.

Their results are bit-identical to the semantics in ``isa.ops``.
"""
