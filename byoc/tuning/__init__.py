"""Schedules chosen by measurement: what can be chosen, moves, and measured results."""
