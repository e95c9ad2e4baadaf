"""The contract between compiler and device: instructions, registers, encoding, numerics, semantics, cycles."""
