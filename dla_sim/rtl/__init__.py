"""Hardware implementation of docs/machine.md in Amaranth (needs the extra ``rtl``)."""
