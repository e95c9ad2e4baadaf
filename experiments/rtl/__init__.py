"""The export for RTL: what a program does to the memories, command by command, as files for a test bench."""
