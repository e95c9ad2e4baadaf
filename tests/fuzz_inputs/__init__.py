"""Mutated inputs of every kind, in forked children: no traceback, no hang, no run over the
memory limit, one line.
"""
