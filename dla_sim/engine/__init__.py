"""Timing model of the machine: command costs, event engine, causes and accounts.

docs/machine.md describes the machine.
"""
