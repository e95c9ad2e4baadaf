"""Kernels: optional fast executions of the instructions, equal to their semantics in ``isa.ops`` to the bit."""

from dla_sim.kernels.dispatch import Kernel, Kernels, kernel_for

__all__ = ["Kernel", "Kernels", "kernel_for"]
