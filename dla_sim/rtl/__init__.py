"""The machine of docs/machine.md as hardware, in Amaranth, which the extra ``rtl`` brings."""
