"""Tools for hardware: Verilog builds, comparison with the simulator, waves, gate counts, and
test-bench exports.
"""
