"""Operator families the accelerator can run, one a file."""
