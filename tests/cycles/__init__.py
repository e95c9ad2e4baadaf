"""Cycles as goldens: layers and small networks on six machines, each with its cycles.

``python -m tests.cycles -h``.
"""
