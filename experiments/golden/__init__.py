"""Golden outputs: record a machine's results, and find the first difference after a change.

Results are recorded to the bit and to the cycle.
"""
