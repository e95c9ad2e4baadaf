"""Timing model of the machine (docs/machine.md): command costs, event engine, causes and
accounts.
"""
