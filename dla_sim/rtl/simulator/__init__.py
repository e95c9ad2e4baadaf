"""Simulation of the hardware by executables that Verilator builds.

An executable runs and checks cases (harness.cpp).
"""
