"""Debugging views of a run: timeline, commit log, state of the machine at a cycle or command,
scratchpad contents.
"""
