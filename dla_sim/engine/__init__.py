"""Timing model of the machine: command costs, engine, causes and accounts.

docs/machine.md describes the machine.
"""
