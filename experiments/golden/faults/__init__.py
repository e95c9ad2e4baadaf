"""Seeded faults: the proof that the corpus finds what it is there to find."""
