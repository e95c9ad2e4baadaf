"""Instruction families, one a file."""
