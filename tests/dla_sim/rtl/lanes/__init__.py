"""Compare the arithmetic of the lanes on drawn operands with isa.numerics and NumPy.

There must be 0 differences.
"""
