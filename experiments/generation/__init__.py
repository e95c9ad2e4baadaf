"""``dla generate``: tokens of a decoder, and the cycles of every position."""
