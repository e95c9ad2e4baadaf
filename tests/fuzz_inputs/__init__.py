"""Run commands on mutated inputs of every kind in forked children.

A child may not print a traceback, hang, or exceed the memory limit; an error is one line.
"""
