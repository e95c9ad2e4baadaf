"""Graph and command-stream passes, one a file."""
