"""Seeded faults: the proof that the golden corpus finds what it is there to find.

``python -m tests.faults --help``.
"""
