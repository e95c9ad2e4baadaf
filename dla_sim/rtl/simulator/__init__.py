"""Running the hardware: its Verilog becomes an executable (Verilator), which runs cases and compares (harness.cpp)."""
