"""Search and learning: schedules tried on the timing-only engine, a model of what was measured, and other networks'."""
