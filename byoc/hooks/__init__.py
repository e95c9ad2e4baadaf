"""Hooks of other frameworks: they pass parts of a network to the compiler and run the programs."""
