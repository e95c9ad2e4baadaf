"""The debugger's view of a run: timeline, commit log, state at a cycle or a command, contents of the scratchpad."""
