"""What the arithmetic of the lanes computes, of drawn operands, against isa.numerics and NumPy:
0 differences.
"""
