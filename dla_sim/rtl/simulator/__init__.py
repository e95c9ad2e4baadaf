"""Simulation of the hardware: Verilator builds an executable, which runs and checks cases
(harness.cpp).
"""
