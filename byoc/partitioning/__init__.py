"""Placement of nodes on the accelerator or the CPU, with reasons."""
