"""Golden outputs: record what a machine does, to the bit and the cycle, and find the first thing that has changed."""
