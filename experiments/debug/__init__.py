"""Debugging views of a run: timeline, commit log, machine state and scratchpad contents.

The state is that of the machine at a cycle or command.
"""
