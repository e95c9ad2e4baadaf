"""Golden outputs: record a machine's results to the bit and cycle, and find the first difference
after a change.
"""
