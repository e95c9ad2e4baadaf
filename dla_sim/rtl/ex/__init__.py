"""The unit EX: engines, one a family of instructions, and the unit that keeps their time."""
