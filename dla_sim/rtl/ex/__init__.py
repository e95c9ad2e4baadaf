"""The unit EX: one engine per family of instructions, and the unit that times their steps."""
