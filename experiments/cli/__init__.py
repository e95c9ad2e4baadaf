"""The dla command, a command a file."""
